"""Marks in a snapshot: which nodes carry some, and the same cluster without those that are only passing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rebalancer.snapshot.model import Nodes, Snapshot
from rebalancer.wire.marks import STEER, is_mark, parse_mark
from rebalancer.wire.objects import Taint

_SHOWN = 5


def marks_on(nodes: Nodes) -> list[tuple[str, str]]:
    """Return (node, value) of every mark, by node."""
    marked = [any(_is_mark(taint) for taint in taints) for taints in nodes.taint_sets]
    if not any(marked):
        return []
    return [
        (nodes.names[row], taint.value)
        for row in np.flatnonzero(np.array(marked)[nodes.taint_set]).tolist()
        for taint in nodes.taint_sets[nodes.taint_set[row]]
        if _is_mark(taint)
    ]


def expired(snapshot: Snapshot) -> str | None:
    """Return which nodes carry marks that have expired, in words; None if none does."""
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


def without_passing_marks(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot without marks that steer, or whose value says nothing.

    They stand for seconds, or are left over and removed before anything moves: no landing is to be predicted by them.
    """
    nodes = snapshot.nodes
    kept = tuple(tuple(t for t in taints if not _is_passing(t)) for taints in nodes.taint_sets)
    if kept == nodes.taint_sets:
        return snapshot
    return replace(snapshot, nodes=replace(nodes, taint_sets=kept))


def _is_mark(taint: Taint) -> bool:
    return is_mark(taint.key, taint.effect)


def _is_passing(taint: Taint) -> bool:
    if not _is_mark(taint):
        return False
    mark = parse_mark(taint.value)
    return mark is None or mark.reason == STEER
