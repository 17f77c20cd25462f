"""The nodes that are not eligible for scale-in whatever pods they have, each with the first reason.

The rules and their order follow Cluster Autoscaler's (``core/scaledown/eligibility``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rebalancer.machines.capacity.codes import RemovalCode
from rebalancer.machines.capacity.groups import Groups
from rebalancer.machines.capacity.utilisation import GPUS
from rebalancer.planner.draft import Draft
from rebalancer.providers.contract import NodeGroup
from rebalancer.snapshot.columns import Bools, Floats, Int32s
from rebalancer.snapshot.leaving import NoticeKind
from rebalancer.snapshot.model import Snapshot

_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")

_Rule = tuple[Bools, RemovalCode, str | Mapping[int, str]]
"""Nodes (N,), and why these are not eligible: of all, or of each."""


def ineligible(
    draft: Draft,
    groups: Groups,
    utilisation: Mapping[str, Floats],
    threshold: float,
    *,
    has_provider: bool,
    needed: Mapping[str, int],
    candidates: Bools | None = None,
) -> dict[int, tuple[RemovalCode, str]]:
    """Return node -> (code, reason), for nodes that cannot be removed; see :func:`removals`."""
    snapshot = draft.snapshot
    kept: dict[int, tuple[RemovalCode, str]] = {}
    known = np.zeros(len(snapshot.nodes), bool)
    others = np.zeros_like(known) if candidates is None else ~candidates
    rules = (
        (others, RemovalCode.NOT_SELECTED, "the strategy's select leaves it out"),
        *_states(draft),
        *_memberships(snapshot, groups, has_provider=has_provider),
        *_utilised(snapshot, utilisation, threshold),
        _needed(snapshot, needed),
    )
    for mask, code, texts in rules:
        for node in np.flatnonzero(mask & ~known).tolist():
            kept[node] = (code, texts if isinstance(texts, str) else texts[node])
        known |= mask
    return kept


def at_minimum(group: NodeGroup) -> str:
    """Return a phrase saying that a group is at its minimum."""
    have = group.desired if group.desired is None else min(group.desired, len(group.instances))
    return f"{group.name} has {have} nodes and needs {group.minimum}"


def to_spare(group: NodeGroup) -> float:
    """Return how many machines a group has above its minimum, counted by existing and by desired machines."""
    if group.desired is None or group.minimum is None:
        return math.inf
    return min(group.desired, len(group.instances)) - group.minimum


def _states(draft: Draft) -> Iterator[_Rule]:
    nodes = draft.snapshot.nodes
    unreadable = np.zeros(len(nodes), bool)
    unreadable[list(nodes.unreadable)] = True
    yield unreadable, RemovalCode.NOT_READY, nodes.unreadable
    yield nodes.leaving, RemovalCode.BEING_REMOVED, "it is being deleted, or announced to go"
    for key in _CONTROL_PLANE:
        carries = nodes.labels.column(key) >= 0
        yield carries, RemovalCode.CONTROL_PLANE, f"it is labelled {key}"
    disabled = {
        node: f"it is {next(n.text for n in notices if n.kind is NoticeKind.KEEP)}"
        for node, notices in nodes.notices.items()
        if any(n.kind is NoticeKind.KEEP for n in notices)
    }
    yield _mask(disabled, len(nodes)), RemovalCode.DISABLED, disabled
    # Once its pods are given up, what is left of it can be removed.
    holding = np.zeros(len(nodes), bool)
    holding[draft.snapshot.pods.node[_movable(draft)]] = True
    yield ~nodes.ready & holding, RemovalCode.NOT_READY, "it is not Ready, and pods are on it"


def _memberships(snapshot: Snapshot, groups: Groups, *, has_provider: bool) -> Iterator[_Rule]:
    size = len(snapshot.nodes)
    if has_provider:
        alone = ~_mask(groups.of_node, size)
        yield alone, RemovalCode.NO_GROUP, "its machine is in no group of the provider"
    small = {
        node: at_minimum(group)
        for node in groups.of_node
        if (group := groups.group_of(node)) is not None and to_spare(group) <= 0
    }
    yield _mask(small, size), RemovalCode.MIN_SIZE, small


def _utilised(
    snapshot: Snapshot, utilisation: Mapping[str, Floats], threshold: float
) -> Iterator[_Rule]:
    size = len(snapshot.nodes)
    of_gpus = np.zeros(size, bool)
    for name in GPUS:
        of_gpus |= utilisation.get(name, np.full(size, -1.0)) >= 0
    for name, share in utilisation.items():
        above = (share > threshold + 1e-9) & (of_gpus if name in GPUS else ~of_gpus)
        texts = {
            node: f"{share[node]:.0%} of its {name} is requested, more than {threshold:.0%}"
            for node in np.flatnonzero(above).tolist()
        }
        yield above, RemovalCode.TOO_FULL, texts


def _needed(snapshot: Snapshot, needed: Mapping[str, int]) -> _Rule:
    texts = {
        snapshot.nodes.index[name]: f"{snapshot.pod_ref(pod)} is pending, and fits on it"
        for name, pod in needed.items()
    }
    return _mask(texts, len(snapshot.nodes)), RemovalCode.NEEDED, texts


def _movable(draft: Draft) -> Int32s:
    """Return the living pods that are not bound to their node."""
    per_node = np.array([cls.per_node for cls in draft.snapshot.classes] or [False], bool)
    here = draft.state.unmoved()
    movable: Int32s = here[~per_node[draft.snapshot.pods.cls[here]]]
    return movable


def _mask(nodes: Mapping[int, object] | Sequence[int], size: int) -> Bools:
    mask = np.zeros(size, bool)
    mask[list(nodes)] = True
    return mask
