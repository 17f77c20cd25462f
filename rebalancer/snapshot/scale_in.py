"""The scale-in records on the nodes of a snapshot, and a copy of the snapshot with changed records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rebalancer.snapshot.columns import freeze
from rebalancer.snapshot.leaving import LEAVING, Announcement, scale_in_notice
from rebalancer.snapshot.model import Nodes, Snapshot
from rebalancer.snapshot.nodes import UNSCHEDULABLE
from rebalancer.wire.objects import Taint
from rebalancer.wire.scale_in import GOING, TAINT, ScaleIn


def scale_ins(nodes: Nodes) -> dict[int, ScaleIn]:
    """Return node row -> its scale-in record, by row."""
    return {
        node: state
        for node, notices in sorted(nodes.notices.items())
        if (state := _state(notices)) is not None
    }


def with_scale_ins(snapshot: Snapshot, changed: Mapping[int, ScaleIn | None]) -> Snapshot:
    """Return the snapshot with changed scale-in records (None: removed), cordons and taints."""
    if not changed:
        return snapshot
    nodes = snapshot.nodes
    notices = dict(nodes.notices)
    sets, taint_set = list(nodes.taint_sets), nodes.taint_set.copy()
    leaving, unschedulable = nodes.leaving.copy(), nodes.unschedulable.copy()
    for node, state in changed.items():
        before = notices.get(node, ())
        stood = _state(before)
        others = tuple(one for one in before if one.scale_in is None)
        notices[node] = (*others, scale_in_notice(state)) if state is not None else others
        announced = _leaves(others, sets[int(taint_set[node])])
        lifted = stood is not None and stood.cordoned and not announced
        closed = state is not None and state.phase in GOING
        unschedulable[node] = closed or (bool(unschedulable[node]) and not lifted)
        kept = [
            taint
            for taint in sets[int(taint_set[node])]
            if taint.key != TAINT.key and not (taint.key == UNSCHEDULABLE.key and lifted)
        ]
        taints = _close(kept) if closed else tuple(kept)
        if taints not in sets:
            sets.append(taints)
        taint_set[node] = sets.index(taints)
        if stood is not None and stood.phase in GOING:
            leaving[node] = _leaves(others, taints)
        leaving[node] |= closed
    return replace(
        snapshot,
        nodes=replace(
            nodes,
            notices={node: of for node, of in sorted(notices.items()) if of},
            taint_sets=tuple(sets),
            taint_set=freeze(taint_set),
            leaving=freeze(leaving),
            unschedulable=freeze(unschedulable),
        ),
    )


def _state(notices: tuple[Announcement, ...]) -> ScaleIn | None:
    return next((one.scale_in for one in notices if one.scale_in is not None), None)


def _close(taints: list[Taint]) -> tuple[Taint, ...]:
    cordoned = any(taint.key == UNSCHEDULABLE.key for taint in taints)
    return (*taints, *(() if cordoned else (UNSCHEDULABLE,)), TAINT)


def _leaves(notices: tuple[Announcement, ...], taints: tuple[Taint, ...]) -> bool:
    """Return whether a node is announced to go away by something other than scale-in, too."""
    announced = any(notice.holds(LEAVING.conditions) for notice in notices)
    return announced or any(taint.key in LEAVING.taints for taint in taints)
