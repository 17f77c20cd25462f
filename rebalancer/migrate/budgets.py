"""The descheduler's limits of evictions in a run, as our budgets."""

from __future__ import annotations

from typing import Any

from rebalancer.migrate.notes import KeyFate, Notes
from rebalancer.migrate.peer import PeerPolicy
from rebalancer.migrate.uses import Written
from rebalancer.policy.budgets import Budgets
from rebalancer.policy.document import KeyPath

_MOST = 1_000_000
"""Largest count of a budget."""


def budgets(top: Written[PeerPolicy], notes: Notes) -> dict[str, Any]:
    """Return the budgets that differ from our defaults."""
    policy = top.value
    converted: dict[str, Any] = {}
    if (most := policy.max_no_of_pods_to_evict_per_node) is not None:
        converted |= per_node(most, top.at("maxNoOfPodsToEvictPerNode"), notes)
    if (most := policy.max_no_of_pods_to_evict_total) is not None:
        converted["perRun"] = min(most, _MOST)
    if (most := policy.max_no_of_pods_to_evict_per_namespace) is not None:
        converted["perNamespace"] = min(most, _MOST)
    return converted


def per_node(most: int, path: KeyPath, notes: Notes) -> dict[str, Any]:
    """Return the budget ``perNode``, empty unless it is below our default."""
    default = Budgets().per_node.count or 0
    text = f"perNode is of pods in flight, not of a run; at most {min(most, default)}"
    notes.add(path, KeyFate.DIFFERS, text)
    return {"perNode": most} if most < default else {}
