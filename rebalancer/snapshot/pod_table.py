"""The pods of a snapshot under construction: rows of growing columns, and their classes.

A pod leaves only one row in each column, unless it is the first of its class.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Container, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rebalancer.snapshot.columns import Bools, Int32s, Interner, StringColumn, freeze
from rebalancer.snapshot.membership import (
    NO_GANG,
    Membership,
    gang_annotations,
    membership_of,
)
from rebalancer.snapshot.model import PER_NODE_KINDS, PodFlag, Pods
from rebalancer.snapshot.owners import PodController
from rebalancer.wire import objects as o
from rebalancer.wire.deletion_order import parse_deletion_cost
from rebalancer.wire.opt_outs import OptOut, opt_outs
from rebalancer.wire.pods import FINISHED, NO_ANNOTATIONS, RUNNING, PodRecord, PodState

_MANY_NEWS = 1000
"""Changes that may wait for the next snapshot, however few pods there are."""


class ClassSpec(NamedTuple):
    """The key of a class: the owner of its pods, and all fields that affect scheduling."""

    controller: PodController
    labels: o.Labels
    spec: o.SchedulingSpec
    opt_outs: tuple[OptOut, ...] = ()
    membership: Membership = NO_GANG
    as_created: bool = False
    """Whether nothing has changed the spec since the pods were created."""


class PodRows:
    """Pods as rows of growing columns, with numbers for classes and node names."""

    def __init__(self) -> None:
        self.name, self.uid = StringColumn(), StringColumn()
        self.cls, self.node = array("i"), array("i")
        self.created, self.ready_since = array("d"), array("d")
        self.deletion_cost, self.flags = array("i"), array("i")
        self.state = array("i")

    def __len__(self) -> int:
        return len(self.cls)

    def append(self, record: PodRecord, cls: int, node: int, state: int) -> None:
        """Add a pod."""
        self.cls.append(cls)
        self.name.append(record.name)
        self.uid.append(record.uid)
        self.node.append(node)
        self.created.append(record.created)
        self.ready_since.append(record.ready_since if record.ready else 0.0)
        self.deletion_cost.append(parse_deletion_cost(record.annotations.deletion_cost))
        self.flags.append(_flags(record))
        self.state.append(state)

    def take(self, rows: NDArray[np.intp]) -> PodRows:
        """Return new columns of the given rows, in the given order."""
        taken = PodRows()
        taken.name, taken.uid = self.name.take(rows), self.uid.take(rows)
        for name in _NUMBERS:
            column: array[Any] = getattr(self, name)
            kept = np.frombuffer(column, column.typecode)[rows]
            setattr(taken, name, array(column.typecode, kept.tobytes()))
        return taken

    def concat(self, other: PodRows) -> PodRows:
        """Return new columns: these rows, then those of ``other``."""
        both = PodRows()
        both.name = self.name.concat(other.name)
        both.uid = self.uid.concat(other.uid)
        for name in _NUMBERS:
            setattr(both, name, getattr(self, name) + getattr(other, name))
        return both


_NUMBERS = ("cls", "node", "created", "ready_since", "deletion_cost", "flags", "state")


@dataclass(frozen=True, slots=True)
class SettledPods:
    """The pods at one moment, ordered by namespace and name, and their classes."""

    rows: PodRows
    classes: tuple[ClassSpec, ...]
    node_names: tuple[str, ...]
    states: tuple[PodState, ...]

    @property
    def cls(self) -> Int32s:
        """(P,) the class of each pod."""
        return np.frombuffer(self.rows.cls, np.int32)

    @property
    def flags(self) -> Int32s:
        """(P,) the bits of PodFlag, except LOST_NODE."""
        return np.frombuffer(self.rows.flags, np.int32)

    def columns(self, node_index: Mapping[str, int]) -> Pods:
        """Return the pod columns of a snapshot with these nodes."""
        rows = self.rows
        remap = np.array([node_index.get(name, -2) for name in self.node_names] + [-1])
        node = remap[np.frombuffer(rows.node, np.int32)].astype(np.int32)
        flags, lost = self.flags.copy(), node == -2
        flags[lost] |= PodFlag.LOST_NODE
        node[lost] = -1
        return Pods(
            name=rows.name,
            uid=rows.uid,
            cls=freeze(np.array(rows.cls, np.int32)),
            node=freeze(node),
            created=freeze(np.array(rows.created, np.float64)),
            ready_since=freeze(np.array(rows.ready_since, np.float64)),
            deletion_cost=freeze(np.array(rows.deletion_cost, np.int32)),
            flags=freeze(flags),
            state=freeze(np.array(rows.state, np.int32)),
            states=self.states,
            lost_nodes=self._name_lost(lost) if lost.any() else (),
        )

    def _name_lost(self, lost: Bools) -> tuple[str, ...]:
        """Return the names of the nodes of the pods ``lost`` (P,), as far as these would be created elsewhere."""
        bound = np.array([of.controller.kind in PER_NODE_KINDS for of in self.classes], bool)
        ran = np.array([state.phase == RUNNING.phase for state in self.states], bool)
        state = np.frombuffer(self.rows.state, np.int32)
        leave = lost & ((self.flags & PodFlag.TERMINATING) == 0) & ~bound[self.cls] & ran[state]
        nodes = np.unique(np.frombuffer(self.rows.node, np.int32)[leave])
        return tuple(sorted(self.node_names[node] for node in nodes.tolist()))


class PodTable:
    """Collects pods: first a complete list, then, if pods are watched, their changes."""

    def __init__(self, finished: frozenset[str] | None = None) -> None:
        """``finished``: keep only finished pods in these phases; None: keep only unfinished pods."""
        self._finished = finished
        self._rows = PodRows()
        self._sorted = False
        self._news = PodRows()
        self._newest: dict[str, int] = {}
        """uid of each pod that has changed since -> its row in the news, -1 if it is gone."""
        self._node_names = Interner()
        self._class_ids: dict[Hashable, int] = {}
        self._classes: list[ClassSpec] = []
        self._controllers: set[str] = set()
        self._state_ids: dict[PodState, int] = {}
        self._settled: SettledPods | None = None
        """The table of the present pods, if it was requested since they changed."""

    @property
    def controllers(self) -> Container[str]:
        """The uids of the controllers of all pods added so far."""
        return self._controllers

    def add(self, records: Iterable[PodRecord]) -> None:
        """Add the pods that are in the phases of this table; drop all others."""
        self._sorted, self._settled = False, None
        for record in records:
            if self._takes(record):
                self._append(self._rows, record)

    def _takes(self, record: PodRecord) -> bool:
        if self._finished is None:
            return record.phase not in FINISHED
        return record.phase in self._finished

    def change(self, record: PodRecord) -> None:
        """Replace a pod by its current version, or add it."""
        if not self._takes(record):
            self.remove(record.uid)
            return
        self._settled = None
        self._newest[record.uid] = len(self._news)
        self._append(self._news, record)

    def remove(self, uid: str) -> None:
        """Remove a deleted pod."""
        self._settled = None
        self._newest[uid] = -1

    def compact(self) -> None:
        """Merge the changes into the rows before they outnumber them: a pod may change many times."""
        if max(len(self._news), len(self._newest)) > max(_MANY_NEWS, len(self._rows) // 8):
            self.settle()

    def _append(self, rows: PodRows, record: PodRecord) -> None:
        state = self._state_ids.setdefault(record.state, len(self._state_ids))
        rows.append(record, self._class_of(record), self._node_of(record.node), state)

    def _class_of(self, record: PodRecord) -> int:
        key: Hashable = record.key
        if record.annotations is not NO_ANNOTATIONS:
            own, gangs = opt_outs(record.annotations), gang_annotations(record.annotations)
            if own or any(gangs):
                key = (key, own, gangs)
        cls = self._class_ids.get(key)
        return self._new_class(record, key) if cls is None else cls

    def _node_of(self, name: str) -> int:
        return self._node_names(name) if name else -1

    def _new_class(self, record: PodRecord, key: Hashable) -> int:
        labels, spec = record.spec()
        controller = PodController(
            record.namespace,
            record.controller_kind,
            record.controller_group,
            record.controller_name,
            record.controller_uid,
        )
        self._controllers.add(record.controller_uid)
        index = self._class_ids[key] = len(self._classes)
        membership = membership_of(labels, record.annotations, spec)
        own = opt_outs(record.annotations)
        self._classes.append(
            ClassSpec(controller, labels, spec, own, membership, record.as_created)
        )
        return index

    def forget_keys(self) -> None:
        """Drop the keys of the classes, which use much memory; no pod can be added afterwards."""
        self._class_ids.clear()

    def settle(self) -> SettledPods:
        """Return the current pods; later changes do not affect them.

        Pods are ordered by namespace and name, and classes by their first pod, as servers send them: equal objects
        make an equal snapshot, in whatever order they arrive.
        """
        if self._settled is None:
            if not self._sorted:
                self._sort()
            if self._newest:
                self._merge()
            self._settled = SettledPods(
                self._rows,
                tuple(self._classes),
                tuple(self._node_names.values),
                tuple(self._state_ids),
            )
        return self._settled

    def _sort(self) -> None:
        rows, previous = self._rows, ("", "")
        namespaces = [of_class.controller.namespace for of_class in self._classes]
        for current in zip((namespaces[cls] for cls in rows.cls), rows.name, strict=True):
            if current < previous:
                keys = [self._key(rows, each) for each in range(len(rows))]
                order = sorted(range(len(rows)), key=keys.__getitem__)
                self._rows = rows.take(np.array(order, np.intp))
                self._renumber()
                break
            previous = current
        self._sorted = True

    def _merge(self) -> None:
        """Merge the changes into the rows, keeping their order."""
        rows, news = self._rows, self._news
        kept = np.delete(np.arange(len(rows)), rows.uid.rows_of(self._newest))
        fresh = [row for row in self._newest.values() if row >= 0]
        fresh.sort(key=lambda row: self._key(news, row))
        places = [
            bisect_left(kept, self._key(news, row), key=lambda other: self._key(rows, other))
            for row in fresh
        ]
        order = np.insert(kept, places, np.array(fresh, np.intp) + len(rows))
        self._rows = rows.concat(news).take(order)
        self._news, self._newest = PodRows(), {}
        self._renumber()

    def _key(self, rows: PodRows, row: int) -> tuple[str, str]:
        return self._classes[rows.cls[row]].controller.namespace, rows.name[row]

    def _renumber(self) -> None:
        """Renumber classes, states and node names by their first pod; drop those without pods."""
        self._rows.cls, old, new = _by_first_pod(self._rows.cls, len(self._classes))
        self._classes = [self._classes[index] for index in old]
        self._class_ids = {k: int(new[i]) for k, i in self._class_ids.items() if new[i] >= 0}
        self._controllers = {of_class.controller.uid for of_class in self._classes}
        states = list(self._state_ids)
        self._rows.state, kept, _ = _by_first_pod(self._rows.state, len(states))
        self._state_ids = {states[index]: number for number, index in enumerate(kept)}
        names = self._node_names.values
        nodes = np.frombuffer(self._rows.node, np.int32)
        placed = nodes >= 0
        renumbered = nodes.copy()
        of_placed, known, _ = _by_first_pod(array("i", nodes[placed].tobytes()), len(names))
        renumbered[placed] = np.frombuffer(of_placed, np.int32)
        self._rows.node = array("i", renumbered.tobytes())
        self._node_names = Interner()
        for index in known:
            self._node_names(names[index])


def _by_first_pod(column: array[int], size: int) -> tuple[array[int], list[int], Int32s]:
    """Return the renumbered column, the old numbers in new order, and old -> new (``size`` entries, -1 for none)."""
    numbers = np.frombuffer(column, np.int32)
    old, first = np.unique(numbers, return_index=True)
    old = old[np.argsort(first)]
    new = np.full(size, -1, np.int32)
    new[old] = np.arange(len(old), dtype=np.int32)
    return array("i", new[numbers].tobytes()), old.tolist(), new


def _flags(record: PodRecord) -> int:
    flags = PodFlag.TERMINATING * record.deleting | PodFlag.READY * record.ready
    flags |= PodFlag.OWNED * record.owned
    annotations = record.annotations
    if annotations.mirror is not None or annotations.config_source not in (None, "api"):
        flags |= PodFlag.MIRROR
    if annotations.deletion_cost is not None:
        ours = annotations.deletion_cost == annotations.our_deletion_cost
        flags |= PodFlag.COST_OURS if ours else PodFlag.COST_OF_OTHERS
    return flags
