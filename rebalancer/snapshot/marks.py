"""Marks in a snapshot: find them, and return the snapshot with other marks."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np

from rebalancer.snapshot.columns import Bools, freeze
from rebalancer.snapshot.model import Nodes, Snapshot
from rebalancer.wire.marks import EFFECT, EMPTY, KEYS, STEER, Mark, is_mark, parse_mark
from rebalancer.wire.objects import Taint

_SHOWN = 5
_FOR_EVER = 10 * 365 * 86_400.0
_OF_ANOTHER = "of-another-run"
"""Value of a taint in place of the mark of another run, which it has neither to renew nor to remove."""


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

    Steering marks last for seconds only. Expired marks and malformed marks stay until they are removed, so they are
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
            return Taint(key=taint.key, value=_OF_ANOTHER, effect=taint.effect)
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
    return _with_taint(snapshot.nodes, lambda taint: _keeps_empty(taint, snapshot.captured_at))


def find_marked_by_others(snapshot: Snapshot) -> Bools:
    """Return the nodes (N,) that another run keeps empty; ``snapshot`` is one of :func:`as_planned_on`."""
    return _with_taint(
        snapshot.nodes, lambda taint: taint.key == KEYS[EMPTY] and taint.value == _OF_ANOTHER
    )


def _with_taint(nodes: Nodes, which: Callable[[Taint], bool]) -> Bools:
    of_set = [any(map(which, taints)) for taints in nodes.taint_sets]
    marked: Bools = np.array(of_set or [False], bool)[nodes.taint_set]
    return marked


def with_empty_marks(snapshot: Snapshot, marked: Bools) -> Snapshot:
    """Return the snapshot in which exactly the nodes ``marked`` (N,) have a mark to keep them empty."""
    now = snapshot.captured_at
    if (to_be_empty(snapshot) == marked).all():
        return snapshot
    ids: dict[tuple[Taint, ...], int] = {}
    nodes = snapshot.nodes
    plain = [tuple(t for t in taints if not _keeps_empty(t, now)) for taints in nodes.taint_sets]
    # Runs renew it.
    mark = Mark(EMPTY, now + _FOR_EVER, "plan")
    taint = Taint(key=mark.key, value=mark.value, effect=EFFECT)
    column = [
        ids.setdefault((*plain[of], taint) if keeps else plain[of], len(ids))
        for of, keeps in zip(nodes.taint_set.tolist(), marked.tolist(), strict=True)
    ]
    sets = freeze(np.array(column, np.int32))
    return replace(snapshot, nodes=replace(nodes, taint_sets=tuple(ids), taint_set=sets))


def _keeps_empty(taint: Taint, now: float) -> bool:
    mark = parse_mark(taint.value) if _is_mark(taint) else None
    return mark is not None and mark.reason == EMPTY and mark.expires > now


def _is_mark(taint: Taint) -> bool:
    return is_mark(taint.key, taint.effect)
