"""Measured usage as columns of a snapshot: from NodeMetrics and PodMetrics, and carried over to later snapshots of a run.

Between two waves pods have moved, but the metrics API still shows usage from before. So each later snapshot starts
from the first measurement, subtracts the usage of pods that have left a node, and adds the usage of pods that have
arrived. Each such pod is assumed to use the mean of its class in the first measurement.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from rebalancer.snapshot.columns import (
    Bools,
    Floats,
    Int32s,
    Interner,
    Ints,
    StringColumn,
    freeze,
    sum_by_node,
)
from rebalancer.snapshot.model import MEASURED, Nodes, PodClass, PodFlag, Pods, Snapshot, Usage
from rebalancer.wire import objects as o
from rebalancer.wire.metrics import NodeMetrics, PodMetrics

STALE_AFTER = 300.0
"""Seconds after which a measurement is too old to use.

metrics-server scrapes each kubelet every 15 s (its own default manifest) to 60 s (its flag's default), and
forgets a node and its pods at the first scrape that is not answered. A measurement of five minutes ago has
missed five scrapes at least: its kubelet answers, but measures no more, and metrics-server continues to report
it, with its old timestamp; or it comes from an adapter that keeps old values.
"""

_OTHERS = 3
"""Maximum number of names of unknown nodes that are kept."""

_UNIT = np.array([[1e6], [1.0]])
"""(M, 1) nanocores in a millicore, bytes in a byte."""


class PodUse:
    """The measured usage of pods, as columns that grow by one row per pod."""

    def __init__(self) -> None:
        self._namespaces = Interner()
        self._namespace = array("i")
        self._name = StringColumn()
        self._cpu, self._memory = array("d"), array("d")
        self._at = array("d")

    def __len__(self) -> int:
        return len(self._at)

    def add(self, metrics: Iterable[PodMetrics]) -> None:
        """Add pods; a pod with an unreadable value counts as not measured."""
        for pod in metrics:
            amounts = pod.amounts()
            if amounts is None:
                continue
            self._namespace.append(self._namespaces(pod.metadata.namespace))
            self._name.append(pod.metadata.name)
            for column, amount in zip((self._cpu, self._memory), amounts, strict=True):
                column.append(math.nan if amount is None else amount)
            self._at.append(pod.at)

    def match(self, keys: Iterable[tuple[str, str]], count: int) -> NDArray[np.int64]:
        """Return the row (P,) of each of ``count`` pods, given by (namespace, name); -1 if it was not measured."""
        namespaces = map(self._namespaces.values.__getitem__, self._namespace)
        row_of = dict(zip(zip(namespaces, self._name, strict=True), range(len(self)), strict=True))
        # Pod by pod, but in C: a dictionary is asked 150,000 times in a tenth of a second.
        return np.fromiter(map(row_of.get, keys, repeat(-1)), np.int64, count)

    @property
    def at(self) -> Floats:
        """The time of each row in Unix seconds."""
        return np.array(self._at, np.float64)

    @property
    def amounts(self) -> Floats:
        """Usage (M, rows) in nanocores and bytes; nan if it was not measured."""
        return np.array([self._cpu, self._memory], np.float64)


def fold_usage(
    node_metrics: Sequence[NodeMetrics],
    use: PodUse,
    *,
    nodes: Nodes,
    pods: Pods,
    classes: Sequence[PodClass],
    requests: Ints,
    allocatable: Ints,
    captured_at: float,
) -> Usage | None:
    """Return the measured usage at ``captured_at`` (Unix seconds); None if no node was measured.

    ``requests`` (M, C): requests of a pod of each class; ``allocatable`` (M, N): allocatable of each node.
    """
    if not node_metrics:
        return None
    since = captured_at - STALE_AFTER
    ours = {
        node: metrics
        for metrics in node_metrics
        if (node := nodes.index.get(metrics.metadata.name)) is not None
    }
    amounts, newest = _of_nodes(ours, nodes, allocatable)
    absent = np.asarray(np.isnan(amounts).all(axis=1))
    asked: Bools = ~absent | absent.all()
    at = np.full(len(nodes), -np.inf)
    at[list(ours)] = [metrics.at for metrics in ours.values()]
    # As with pods: metrics-server reports an earlier node of that name until it has asked the new one.
    known = ~np.isnan(amounts[asked]).any(axis=0) & (at >= np.maximum(since, nodes.created))
    return Usage(
        nodes=freeze(_in_base_units(np.where(known & asked[:, None], amounts, 0))),
        known=freeze(known),
        classes=freeze(_of_classes(use, pods, classes, requests, since, asked)),
        at=newest,
        measured=tuple(asked.tolist()),
        why_unknown={
            metrics.metadata.name: why
            for metrics in ours.values()
            if (why := metrics.not_measured) is not None
        },
        others=() if ours else tuple(one.metadata.name for one in node_metrics[:_OTHERS]),
    )


def _of_nodes(
    metrics: Mapping[int, NodeMetrics], nodes: Nodes, allocatable: Ints
) -> tuple[Floats, float]:
    """Return the usage (M, N) of each node in nanocores and bytes, nan if unknown, and the time of the newest one."""
    amounts = np.full((len(MEASURED), len(nodes)), np.nan)
    newest = 0.0
    for node, measured in metrics.items():
        if (shares := measured.shares) is not None:
            given = np.array([shares.cpu, shares.memory], np.float64)
            amounts[:, node] = given * allocatable[:, node] * _UNIT[:, 0]
        elif (used := measured.amounts()) is not None:
            amounts[:, node] = used
        else:
            continue
        newest = max(newest, measured.began)
    return amounts, newest


def _of_classes(
    use: PodUse,
    pods: Pods,
    classes: Sequence[PodClass],
    requests: Ints,
    since: float,
    asked: Bools,
) -> Ints:
    """Return the mean usage (M, C) of a pod of each class.

    A class that was not measured (usually one of replacements only) gets the usage of the classes that it replaces;
    if they were not measured either, its requests.
    """
    row = use.match(_names(pods, classes), len(pods))
    amounts = use.amounts
    whole = ~np.isnan(amounts[asked]).any(axis=0)
    at = np.append(np.where(whole, use.at, -np.inf), -np.inf)[row]
    # A pod that was measured before it was created is another one of that name, which is gone: metrics-server
    # knows pods by name, and reports the old one until it has asked the kubelet again.
    counts = (at >= since) & (at >= pods.created) & ((pods.flags & PodFlag.TERMINATING) == 0)
    cls, row = pods.cls[counts], row[counts]
    number = np.bincount(cls, minlength=len(classes)).astype(np.float64)
    summed = [np.bincount(cls, of[row], len(classes)) for of in np.nan_to_num(amounts)]
    total = np.array(summed, np.float64)
    replacement = np.array([of.replacement for of in classes], np.int64)
    lent = (number > 0) & (number[replacement] == 0)
    _lend(number, total, replacement, lent)
    mean = np.divide(total, number, out=np.zeros_like(total), where=number > 0)
    return np.where((number > 0) & asked[:, None], _in_base_units(mean), requests)


def _lend(number: Floats, total: Floats, replacement: NDArray[np.int64], lent: Bools) -> None:
    """Add the measurements of the classes in ``lent`` to those of their replacements."""
    to = replacement[lent]
    for counted in (number, *total):
        np.add.at(counted, to, counted[lent])


def _names(pods: Pods, classes: Sequence[PodClass]) -> Iterator[tuple[str, str]]:
    namespaces = [of.namespace for of in classes]
    return zip(map(namespaces.__getitem__, _list(pods.cls)), pods.name, strict=True)


def _list(column: Int32s) -> list[int]:
    values: list[int] = column.tolist()
    return values


def _in_base_units(amounts: Floats) -> Ints:
    """Return amounts of shape (M, ...) in the snapshot's base units, rounded to the nearest."""
    return np.rint(amounts / _UNIT).astype(np.int64)


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
    classes = _carry_classes(first, usage.classes, later)
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


def _carry_classes(first: Snapshot, measured: Ints, later: Snapshot) -> Ints:
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
