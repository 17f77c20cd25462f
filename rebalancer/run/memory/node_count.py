"""A sudden fall in the number of nodes: what the memory keeps of it, and how long runs stand still after one."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from rebalancer.policy.cluster import Safety
from rebalancer.run.memory.document import NodeCountMemory
from rebalancer.snapshot.marks import to_be_empty
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.times import rfc3339

SETTLES_AFTER = 600
"""Seconds after a fall: by then pods on nodes that went have others, or wait, which is counted by itself."""


def count_in_use(snapshot: Snapshot, emptied: Collection[str] = ()) -> int:
    """Return the number of nodes whose loss would recreate pods elsewhere, and that nobody is taking away.

    ``emptied``: names of nodes that this run empties. Cordoned, leaving and marked nodes do not count either.
    """
    nodes, pods = snapshot.nodes, snapshot.pods
    in_use = np.zeros(len(nodes), bool)
    in_use[pods.node[pods.living & ~snapshot.per_node]] = True
    in_use &= ~(nodes.unschedulable | nodes.leaving | to_be_empty(snapshot))
    in_use[[nodes.index[name] for name in emptied if name in nodes.index]] = False
    return int(np.count_nonzero(in_use))


def see_nodes(
    known: NodeCountMemory | None, nodes: int, in_use: int, safety: Safety, now: float
) -> NodeCountMemory:
    """Return what is to be kept once ``nodes`` exist, ``in_use`` of them in use; ``known``: what earlier runs have kept.

    A difference that would not be a fall is not written down: an idle cluster is left alone.
    """
    if known is None:
        return NodeCountMemory(in_use)
    if _is_fall(known.in_use, nodes, safety):
        return NodeCountMemory(in_use, fell_from=known.in_use, fell_at=int(now))
    if describe_fall(known, nodes, safety, now):
        return known
    alike = abs(known.in_use - in_use) <= safety.not_ready_nodes_of(known.in_use)
    return NodeCountMemory(known.in_use if alike else in_use)


def describe_fall(known: NodeCountMemory, nodes: int, safety: Safety, now: float) -> str | None:
    """Return why a run stands still after a fall in the number of nodes; None if there was none, or it is over."""
    until = known.fell_at + SETTLES_AFTER
    if not known.fell_at or not now < until <= now + SETTLES_AFTER:
        return None
    if not _is_fall(known.fell_from, nodes, safety):
        return None
    most = safety.not_ready_nodes_of(known.fell_from)
    return (
        f"{nodes} nodes are left of {known.fell_from} that had pods when a run last looked, "
        f"safety.maxNotReadyNodes allows {most} to be missing; until {rfc3339(until)}, or until they are back"
    )


def _is_fall(before: int, nodes: int, safety: Safety) -> bool:
    return before - nodes > safety.not_ready_nodes_of(before)
