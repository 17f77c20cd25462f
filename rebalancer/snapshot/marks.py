"""Records on the nodes of a snapshot: marks and scale-in; and copies of the snapshot with other records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import numpy as np

from rebalancer.snapshot.columns import Bools, freeze
from rebalancer.snapshot.leaving import LEAVING, Announcement, scale_in_notice
from rebalancer.snapshot.model import Nodes, Snapshot
from rebalancer.snapshot.nodes import UNSCHEDULABLE
from rebalancer.wire.marks import (
    EFFECT,
    EMPTY,
    KEYS,
    STEER,
    TAINT,
    Mark,
    ScaleInRecord,
    is_mark,
    parse_mark,
)
from rebalancer.wire.objects import Taint

_SHOWN = 5
_FOR_EVER = 10 * 365 * 86_400.0


def _of_another(reason: str) -> str:
    """Return the value of a taint in place of the mark of another run, which it has neither to renew nor to remove."""
    return f"{reason}-of-another-run"


def marks_on(nodes: Nodes) -> list[tuple[str, str]]:
    """Return (node, value) of every mark, ordered by node."""
    marked = [any(_is_mark(taint) for taint in taints) for taints in nodes.taint_sets]
    if not any(marked):
        return []
    return [
        (nodes.names[row], taint.value)
        for row in np.flatnonzero(np.array(marked)[nodes.taint_set]).tolist()
        for taint in nodes.taint_sets[nodes.taint_set[row]]
        if _is_mark(taint)
    ]


def describe_expired(snapshot: Snapshot) -> str | None:
    """Return a phrase on the nodes with expired marks; None if there are none."""
    marks = [(node, parse_mark(value)) for node, value in marks_on(snapshot.nodes)]
    nodes = sorted({node for node, m in marks if m is None or m.expires <= snapshot.captured_at})
    if not nodes:
        return None
    many = (
        "1 node carries a mark that has"
        if len(nodes) == 1
        else f"{len(nodes)} nodes carry marks that have"
    )
    shown = ", ".join(nodes[:_SHOWN]) + (" ..." if len(nodes) > _SHOWN else "")
    return f"{many} expired ({shown}), which keep pods away: rebalancer marks --clear"


def as_planned_on(
    snapshot: Snapshot, *, removes_stale: bool, runs: Collection[str] | None = None
) -> Snapshot:
    """Return the snapshot with the marks for which landings are to be predicted.

    Steering marks last for seconds only. Expired and malformed marks count until they are removed, so they are
    dropped here only if the run removes them before its first move (``removes_stale``).

    ``runs``: the run names in this run's own marks. Marks of other runs are treated as ordinary taints. None: marks
    of all runs are treated as our own.
    """
    nodes, now = snapshot.nodes, snapshot.captured_at

    def as_planned(taint: Taint) -> Taint | None:
        if not _is_mark(taint):
            return taint
        mark = parse_mark(taint.value)
        if mark is None or mark.expires <= now:
            return None if removes_stale else taint
        if runs is not None and mark.run not in runs:
            return Taint(key=taint.key, value=_of_another(mark.reason), effect=taint.effect)
        return None if mark.reason == STEER else taint

    kept = tuple(
        tuple(one for taint in taints if (one := as_planned(taint)) is not None)
        for taints in nodes.taint_sets
    )
    if kept == nodes.taint_sets:
        return snapshot
    return replace(snapshot, nodes=replace(nodes, taint_sets=kept))


def to_be_empty(snapshot: Snapshot) -> Bools:
    """Return the nodes (N,) with an unexpired mark that keeps them empty."""
    return find_marked(snapshot, EMPTY)


def find_marked_by_others(snapshot: Snapshot, reason: str = EMPTY) -> Bools:
    """Return the nodes (N,) that another run has marked for ``reason``; ``snapshot`` is one of :func:`as_planned_on`."""
    key, value = KEYS[reason], _of_another(reason)
    return _with_taint(snapshot.nodes, lambda taint: (taint.key, taint.value) == (key, value))


def _with_taint(nodes: Nodes, which: Callable[[Taint], bool]) -> Bools:
    of_set = [any(map(which, taints)) for taints in nodes.taint_sets]
    marked: Bools = np.array(of_set or [False], bool)[nodes.taint_set]
    return marked


def with_lasting_marks(snapshot: Snapshot, marked: Bools, reason: str = EMPTY) -> Snapshot:
    """Return the snapshot in which exactly the nodes ``marked`` (N,) have a mark for ``reason``, EMPTY or PINS."""
    now = snapshot.captured_at
    if (find_marked(snapshot, reason) == marked).all():
        return snapshot
    ids: dict[tuple[Taint, ...], int] = {}
    nodes = snapshot.nodes
    plain = [
        tuple(t for t in taints if not _stands_for(t, reason, now)) for taints in nodes.taint_sets
    ]
    # Runs renew it.
    mark = Mark(reason, now + _FOR_EVER, "plan")
    taint = Taint(key=mark.key, value=mark.value, effect=EFFECT)
    # It takes the place of another mark of that key.
    alone = [
        (*(t for t in taints if not (_is_mark(t) and t.key == mark.key)), taint) for taints in plain
    ]
    column = [
        ids.setdefault(alone[of] if keeps else plain[of], len(ids))
        for of, keeps in zip(nodes.taint_set.tolist(), marked.tolist(), strict=True)
    ]
    sets = freeze(np.array(column, np.int32))
    return replace(snapshot, nodes=replace(nodes, taint_sets=tuple(ids), taint_set=sets))


def find_marked(snapshot: Snapshot, reason: str) -> Bools:
    """Return the nodes (N,) with an unexpired mark for ``reason``."""
    now = snapshot.captured_at
    return _with_taint(snapshot.nodes, lambda taint: _stands_for(taint, reason, now))


def _stands_for(taint: Taint, reason: str, now: float) -> bool:
    mark = parse_mark(taint.value) if _is_mark(taint) else None
    return mark is not None and mark.reason == reason and mark.expires > now


def _is_mark(taint: Taint) -> bool:
    return is_mark(taint.key, taint.effect)


def scale_ins(nodes: Nodes) -> dict[int, ScaleInRecord]:
    """Return node row -> its scale-in record, by row."""
    return {
        node: state
        for node, notices in sorted(nodes.notices.items())
        if (state := _state(notices)) is not None
    }


def with_scale_ins(snapshot: Snapshot, changed: Mapping[int, ScaleInRecord | None]) -> Snapshot:
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
        closed = state is not None
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
        if stood is not None:
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


def _state(notices: tuple[Announcement, ...]) -> ScaleInRecord | None:
    return next((one.scale_in for one in notices if one.scale_in is not None), None)


def _close(taints: list[Taint]) -> tuple[Taint, ...]:
    cordoned = any(taint.key == UNSCHEDULABLE.key for taint in taints)
    return (*taints, *(() if cordoned else (UNSCHEDULABLE,)), TAINT)


def _leaves(notices: tuple[Announcement, ...], taints: tuple[Taint, ...]) -> bool:
    """Return whether something other than scale-in also announces the removal of a node."""
    announced = any(notice.holds(LEAVING.conditions) for notice in notices)
    return announced or any(taint.key in LEAVING.taints for taint in taints)
