"""Pods on their way into a snapshot: rows of growing columns, and the classes that they are of.

A pod leaves nothing behind but one row in each column, unless it is the first of its class.
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Hashable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rebalancer.snapshot.columns import Int32s, Interner, StringColumn, frozen
from rebalancer.snapshot.model import PodFlag, Pods
from rebalancer.snapshot.owners import Controller
from rebalancer.wire import objects as o
from rebalancer.wire.pods import NO_ANNOTATIONS, AlikePods, PodAnnotations, PodRecord

_FINISHED = ("Succeeded", "Failed")


class ClassSpec(NamedTuple):
    """What makes a class: who owns its pods, and all of them that matters to scheduling."""

    controller: Controller
    labels: o.Labels
    spec: o.SchedulingSpec


class PodTable:
    """Collects pods."""

    def __init__(self) -> None:
        self._name, self._uid = StringColumn(), StringColumn()
        self._cls, self._node = array("i"), array("i")
        self._created, self._ready_since = array("d"), array("d")
        self._deletion_cost, self._flags = array("i"), array("i")
        self._node_names = Interner()
        self._class_ids: dict[Hashable, int] = {}
        self.classes: list[ClassSpec] = []
        self._controllers: set[str] = set()

    @property
    def cls(self) -> Int32s:
        """(P,) class of each pod."""
        return np.frombuffer(self._cls, np.int32)

    @property
    def flags(self) -> Int32s:
        """(P,) bits of PodFlag, but for LOST_NODE."""
        return np.frombuffer(self._flags, np.int32)

    @property
    def controllers(self) -> Container[str]:
        """The uids of the controllers of the pods seen so far."""
        return self._controllers

    def add(self, records: Iterable[PodRecord]) -> None:
        """Add pods; finished ones hold nothing on their node and are dropped."""
        for record in records:
            if record.phase not in _FINISHED:
                self._add(record)

    def _add(self, record: PodRecord) -> None:
        cls = self._class_ids.get(record.key)
        if cls is None:
            cls = self._new_class(record)
        self._cls.append(cls)
        self._name.append(record.name)
        self._uid.append(record.uid)
        self._node.append(self._node_names(record.node) if record.node else -1)
        self._created.append(record.created)
        self._ready_since.append(record.ready_since if record.ready else 0.0)
        self._deletion_cost.append(_deletion_cost(record.annotations.deletion_cost))
        self._flags.append(_flags(record))

    def add_alike(self, pods: AlikePods) -> None:
        """Add pods that differ in a few columns only: as :meth:`add`, but column by column."""
        like = pods.first
        if like.phase in _FINISHED:
            return
        count = len(pods.names)
        cls = self._class_ids.get(like.key)
        if cls is None:
            cls = self._new_class(like)
        self._cls.extend([cls] * count)
        self._name.extend_encoded(pods.names)
        self._uid.extend_encoded(pods.uids)
        self._node.extend([self._node_names(node) if node else -1 for node in pods.nodes])
        self._created.extend(pods.created)
        self._ready_since.extend(pods.ready_since if like.ready else [0.0] * count)
        self._deletion_cost.extend([_deletion_cost(like.annotations.deletion_cost)] * count)
        self._flags.extend([_flags(like)] * count)

    def _new_class(self, record: PodRecord) -> int:
        labels, spec = record.spec()
        controller = Controller(
            record.namespace,
            record.controller_kind,
            record.controller_name,
            record.controller_uid,
        )
        self._controllers.add(record.controller_uid)
        index = self._class_ids[record.key] = len(self.classes)
        self.classes.append(ClassSpec(controller, labels, spec))
        return index

    def forget_keys(self) -> None:
        """Drop the keys of the classes, which hold the bytes of each: no pod will come any more."""
        self._class_ids.clear()

    def sort(self) -> None:
        """Order pods by namespace and name, and classes by their first pod, as servers send them.

        So that the same objects make the same snapshot, in whatever order a file holds them.
        """
        cls = self.cls
        rank = _rank([of_class.controller.namespace for of_class in self.classes])
        order = self._order(rank[cls] if len(cls) else cls)
        if order is None:
            return
        rows = order.tolist()
        self._name, self._uid = self._name.take(rows), self._uid.take(rows)
        old, first = np.unique(cls[order], return_index=True)
        old = old[np.argsort(first)]
        new = np.empty_like(old)
        new[old] = np.arange(len(old), dtype=old.dtype)
        self.classes = [self.classes[index] for index in old.tolist()]
        self._cls = array("i", new[cls[order]].tobytes())
        for name in ("_node", "_created", "_ready_since", "_deletion_cost", "_flags"):
            column: array[Any] = getattr(self, name)
            kept = np.frombuffer(column, column.typecode)[order]
            setattr(self, name, array(column.typecode, kept.tobytes()))

    def _order(self, namespace_rank: Int32s) -> NDArray[np.intp] | None:
        """Return the order by namespace and name, or None if pods came in it (servers send it)."""
        ranks = namespace_rank.tolist()
        previous: tuple[int, str] = (-1, "")
        for row, rank in enumerate(ranks):
            current = (rank, self._name[row])
            if current < previous:
                keys = sorted(range(len(ranks)), key=lambda r: (ranks[r], self._name[r]))
                return np.array(keys, np.intp)
            previous = current
        return None

    def columns(self, node_index: Mapping[str, int]) -> Pods:
        """Return the columns of a snapshot with these nodes."""
        remap = np.array([node_index.get(name, -2) for name in self._node_names.values] + [-1])
        node = remap[np.frombuffer(self._node, np.int32)].astype(np.int32)
        flags = self.flags.copy()
        flags[node == -2] |= PodFlag.LOST_NODE
        node[node == -2] = -1
        return Pods(
            name=self._name,
            uid=self._uid,
            cls=frozen(np.array(self._cls, np.int32)),
            node=frozen(node),
            created=frozen(np.array(self._created, np.float64)),
            ready_since=frozen(np.array(self._ready_since, np.float64)),
            deletion_cost=frozen(np.array(self._deletion_cost, np.int32)),
            flags=frozen(flags),
        )


def _rank(namespaces: list[str]) -> Int32s:
    ordered = {name: rank for rank, name in enumerate(sorted(set(namespaces)))}
    return np.array([ordered[name] for name in namespaces], np.int32)


def _deletion_cost(text: str | None) -> int:
    """KEP-2255: an int32; anything else counts as 0."""
    try:
        cost = int(text) if text else 0
    except ValueError:
        return 0
    return cost if -(2**31) <= cost < 2**31 else 0


def _flags(record: PodRecord) -> int:
    flags = PodFlag.TERMINATING * record.deleting | PodFlag.READY * record.ready
    flags |= PodFlag.OWNED * record.owned
    if record.annotations is not NO_ANNOTATIONS:
        flags |= _annotation_flags(record.annotations)
    return flags


def _annotation_flags(annotations: PodAnnotations) -> int:
    flags = 0
    for value in (annotations.evict, annotations.peer_evict):
        if value is not None:
            flags |= PodFlag.OPTED_IN if value.lower() == "true" else PodFlag.OPTED_OUT
    if annotations.peer_prefer_no_eviction is not None:
        flags |= PodFlag.PREFER_NO_EVICTION
    if annotations.safe_to_evict == "false":
        flags |= PodFlag.UNSAFE_TO_EVICT
    if annotations.do_not_disrupt == "true":
        flags |= PodFlag.DO_NOT_DISRUPT
    if annotations.mirror is not None or annotations.config_source not in (None, "api"):
        flags |= PodFlag.MIRROR
    return flags
