"""Carry measured usage over to later snapshots of a run.

Between two waves pods have moved, but the metrics API still reports the nodes as before. So each later snapshot uses
the first measurement, minus the usage of pods that have left a node, plus the usage of pods that have arrived. All
pods count with the mean usage of their class in the first snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rebalancer.snapshot.columns import Floats, Ints, freeze, sum_by_node
from rebalancer.snapshot.model import PodClass, Snapshot
from rebalancer.snapshot.usage import MEASURED, Usage
from rebalancer.wire import objects as o


def with_usage_of(first: Snapshot, later: Snapshot) -> Snapshot:
    """Return ``later`` with the usage measured for ``first``; a moved pod's usage counts on its new node."""
    if first.usage is None and later.usage is None:
        return later
    return replace(later, usage=carry_usage(first, later))


def carry_usage(first: Snapshot, later: Snapshot) -> Usage | None:
    """Return the usage for ``later``; None if none was measured for ``first``.

    The usage is unknown for nodes that ``first`` does not have, or that were recreated under the same name. A node's
    usage is an estimate here: it may fall below 0 if the pods that left it used less than others of their class.
    """
    usage = first.usage
    if usage is None:
        return None
    classes = _classes(first, usage.classes, later)
    before, was = first.nodes, _same_nodes(first, later)
    known = (was >= 0) & np.append(usage.known, False)[was]
    nodes = np.zeros((len(MEASURED), len(later.nodes)), np.int64)
    measured = usage.nodes - _sum_use(first, usage.classes, len(before))
    nodes[:, known] = (
        (measured[:, was[known]]) + _sum_use(later, classes, len(later.nodes))[:, known]
    )
    return replace(
        usage, nodes=freeze(nodes), known=freeze(known), classes=freeze(classes), others=()
    )


def _same_nodes(first: Snapshot, later: Snapshot) -> NDArray[np.int64]:
    """Return for each node (N,) of ``later`` its row in ``first``; -1 if it is not there."""
    index = first.nodes.index
    was = np.array([index.get(name, -1) for name in later.nodes.names], np.int64)
    same = np.append(first.nodes.created, np.nan)[was] == later.nodes.created
    return np.where(same, was, -1)


def _sum_use(snapshot: Snapshot, classes: Ints, count: int) -> Ints:
    """Return the summed usage (M, N) of the pods on each node, including terminating ones."""
    placed = snapshot.pods.node >= 0
    return sum_by_node(classes, snapshot.pods.cls[placed], snapshot.pods.node[placed], count)


def _classes(first: Snapshot, measured: Ints, later: Snapshot) -> Ints:
    """Return the usage (M, C) of the classes of ``later``.

    Pods that existed in ``first`` and have a new class now (their labels changed) keep the usage of their old class;
    pods of other new classes count with their requests.
    """
    if later.classes is first.classes:
        return measured
    rows = [later.resources.index(name) for name in MEASURED]
    was = _same_classes(first.classes, later.classes)
    of_old = np.append(measured, np.zeros((len(MEASURED), 1), np.int64), axis=1)[:, was]
    number, total = _sum_earlier_use(first, measured, later, was < 0)
    mean = np.rint(np.divide(total, number, out=np.zeros_like(total), where=number > 0))
    use = np.where(was >= 0, of_old, np.where(number > 0, mean, later.requests[rows]))
    return use.astype(np.int64)


def _same_classes(first: Sequence[PodClass], later: Sequence[PodClass]) -> NDArray[np.int64]:
    """Return for each class (C,) of ``later`` its row in ``first``; -1 if it is not there.

    Two classes are equal if some pods already belong to the class of the replacements; those come first in both
    snapshots.
    """
    known: dict[tuple[object, ...], list[tuple[o.SchedulingSpec, list[int]]]] = {}
    for index, of in enumerate(first):
        _alike(known.setdefault(_key(of), []), of.spec, new=True).append(index)
    same = np.full(len(later), -1, np.int64)
    for index, of in enumerate(later):
        if alike := _alike(known.get(_key(of), []), of.spec):
            same[index] = alike.pop(0) if len(alike) > 1 else alike[0]
    return same


def _alike(
    known: list[tuple[o.SchedulingSpec, list[int]]], wanted: o.SchedulingSpec, *, new: bool = False
) -> list[int]:
    for spec, alike in known:
        if spec == wanted:
            return alike
    indices: list[int] = []
    if new:
        known.append((wanted, indices))
    return indices


def _key(of: PodClass) -> tuple[object, ...]:
    return of.namespace, of.controller_kind, of.controller_uid, tuple(sorted(of.labels.items()))


def _sum_earlier_use(
    first: Snapshot, measured: Ints, later: Snapshot, new: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Return, per class of ``new``, the number of its pods in ``first`` (C,) and their measured usage (M, C)."""
    number = np.zeros(len(later.classes))
    total = np.zeros((len(MEASURED), len(later.classes)))
    pods = np.flatnonzero(new[later.pods.cls]) if len(later.pods) else np.zeros(0, np.int64)
    if not len(pods):
        return number, total
    now = {later.pods.uid[pod]: int(later.pods.cls[pod]) for pod in pods.tolist()}
    for row in first.pods.uid.rows_of(now).tolist():
        cls = now[first.pods.uid[row]]
        number[cls] += 1
        total[:, cls] += measured[:, first.pods.cls[row]]
    return number, total
