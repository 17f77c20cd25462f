"""Pack pods on nodes that do not exist yet: first fit decreasing, with all filters of the scheduler.

Nodes are opened one after the other, as a group adds them. A closed node is not a domain of a spread constraint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.machines.capacity.groups import Groups, GroupTemplate, zone_of
from rebalancer.machines.drain.preflight import NodeCheck
from rebalancer.machines.reasons import PodCode
from rebalancer.planner.trial import Trial
from rebalancer.providers.contract import NodeGroup
from rebalancer.scheduler.explain import missing_zone, unschedulable_message
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.buffers import find_chunks
from rebalancer.snapshot.columns import Bools, Floats, Int32s
from rebalancer.snapshot.model import PodFlag, Snapshot
from rebalancer.snapshot.nodes import AddedNode, with_nodes
from rebalancer.snapshot.state import ClusterState, TerminatingPod
from rebalancer.snapshot.zones import zones_with_nodes, zones_without_nodes
from rebalancer.wire.pods import PodState

WEIGHED = ("cpu", "memory")
"""The resources by which pods are ordered and waste is measured."""


@dataclass(frozen=True, slots=True)
class NewNode:
    """A node that a group would add."""

    template: GroupTemplate
    node: AddedNode

    @property
    def zone(self) -> str | None:
        """The zone of the node; None if it has none."""
        return zone_of(self.node.labels)


@dataclass(frozen=True, slots=True)
class Packed:
    """The nodes that a group would add for some of the pods, and the placements."""

    nodes: tuple[NewNode, ...]
    pods: Mapping[int, str]
    """Pod -> name of its node, which may also be one that was there before."""
    waste: float
    """Mean share of cpu and memory of the new nodes that no pod of these requests."""


class Packing:
    """A snapshot with the nodes decided on before, and with closed candidates of one group."""

    def __init__(
        self,
        snapshot: Snapshot,
        profile: SchedulerProfile,
        before: Sequence[NewNode],
        placed: Mapping[int, str],
        candidates: Sequence[NewNode] = (),
    ) -> None:
        """``placed``: pending pod -> name of the node on which it was placed before."""
        added = [*before, *candidates]
        self.snapshot = with_nodes(snapshot, [one.node for one in added])
        self.model = SchedulerModel(self.snapshot, profile)
        self.state = ClusterState(self.snapshot)
        self._candidates = list(candidates)
        self._tries = 1 + 2 * (len({one.zone for one in candidates}) - 1)
        """Number of nodes that are opened for one pod: the next ones are in other zones, as far as the group has some."""
        self._first = len(snapshot.nodes) + len(before)
        self._open = 0
        self._dropped = np.zeros(len(self.snapshot.nodes), bool)
        """(N,) nodes that were dropped."""
        self._daemons: list[list[TerminatingPod]] = []
        for row, one in enumerate(before, len(snapshot.nodes)):
            self._start_daemons(one, row)
        for pod, name in placed.items():
            self._place(pod, self.snapshot.nodes.index[name])
        if candidates:
            self.model.without(~self.present)

    @property
    def present(self) -> Bools:
        """The nodes (N,) that exist or were opened in this packing."""
        present: Bools = np.arange(len(self.snapshot.nodes)) < self._first + self._open
        return present & ~self._dropped

    def pack(self, pods: Iterable[int], among: Collection[str] | None = None) -> Packed:
        """Place as many of ``pods`` as possible, largest first, on as few candidates as necessary.

        ``among``: the names of the nodes that may take them; None for all.
        """
        allowed = np.ones(len(self.snapshot.nodes), bool)
        if among is not None:
            allowed[:] = [name in among for name in self.snapshot.nodes.names]
        placed: dict[int, str] = {}
        for cls, of_class in self._decreasing(pods):
            for pod in of_class:
                if (node := self._fit(cls, allowed)) is None:
                    break
                self._place(pod, node)
                placed[pod] = self.snapshot.nodes.names[node]
        new = self._candidates[: self._open]
        return Packed(tuple(new), placed, self._waste(placed))

    def drop(self, row: int) -> dict[int, str] | None:
        """Remove a new node if its pods all fit on other nodes; return pod -> its new node, or None.

        ``row`` is a node decided on before; if None is returned, nothing has changed.
        """
        pods = np.flatnonzero(self.state.node_of == row)
        # The largest first: what is left of the room is in small pieces.
        pods = pods[np.lexsort((pods, -self._sizes()[self.state.cls_of[pods]]))].tolist()
        placed: dict[int, str] = {}
        with Trial(self.state) as trial:
            for pod in pods:
                trial.evict(pod, gone=True)
            self._dropped[row] = True
            self.model.without(~self.present)
            for pod in pods:
                cls = int(self.state.cls_of[pod])
                fits = np.flatnonzero(self.feasible(cls) & self.present)
                if not fits.size:
                    break
                self._place(pod, int(fits[0]))
                placed[pod] = self.snapshot.nodes.names[fits[0]]
            else:
                trial.keep()
                return placed
        self._dropped[row] = False
        self.model.without(~self.present)
        return None

    def share_used(self, row: int) -> float:
        """Return the sum of the shares of a node's cpu and memory that its pods request."""
        rows = weighed_rows(self.snapshot)
        classes = self.state.cls_of[self.state.node_of == row]
        asked = self.snapshot.requests[rows][:, classes].sum(axis=1)
        return float((asked / np.maximum(1, self.snapshot.nodes.allocatable[rows, row])).sum())

    def could_take(self, cls: int) -> bool:
        """Return whether a pod of a class could be on one of the candidates, were it empty and alone in the cluster."""
        static = self.model.static_mask(cls)[self._first :]
        return bool(static[~self.foreign(cls)[self._first :]].any())

    def feasible(self, cls: int) -> Bools:
        """Return the nodes (N,) that pass all filters now and run pods of a class."""
        return self.snapshot.without_foreign(self.model.feasible(self.state, cls), cls)

    def foreign(self, cls: int) -> Bools:
        """Return the nodes (N,) of another operating system than pods of a class run on."""
        foreign = self.snapshot.foreign_nodes(cls)
        return np.zeros(len(self.snapshot.nodes), bool) if foreign is None else foreign

    def open_all(self) -> list[int]:
        """Open every candidate; return their rows."""
        while self._open < len(self._candidates):
            self._open_next()
        return list(range(self._first, self._first + self._open))

    def _decreasing(self, pods: Iterable[int]) -> Iterator[tuple[int, list[int]]]:
        """Yield (class, pods): classes with the largest share of a candidate first, pods in the given order."""
        by_class: dict[int, list[int]] = {}
        for pod in pods:
            by_class.setdefault(int(self.state.cls_of[pod]), []).append(pod)
        size = self._sizes()
        yield from sorted(by_class.items(), key=lambda item: (-size[item[0]], item[0]))

    def _sizes(self) -> Floats:
        """Return per class (C,) the sum of the shares of a candidate's cpu and memory that its pod requests.

        Without candidates, the last node is used instead.
        """
        rows = weighed_rows(self.snapshot)
        size = len(self.snapshot.nodes)
        room = self.snapshot.nodes.allocatable[rows, min(self._first, size - 1)]
        sizes: Floats = (self.snapshot.requests[rows] / np.maximum(1, room)[:, None]).sum(axis=0)
        return sizes

    def _fit(self, cls: int, allowed: Bools) -> int | None:
        """Return the first node that fits a pod of a class, opening one if necessary; None if there is none."""
        feasible = self.feasible(cls) & allowed
        if (fits := np.flatnonzero(feasible & self.present)).size:
            return int(fits[0])
        if not self.could_take(cls):
            return None
        before = self._open
        while self._open < min(len(self._candidates), before + self._tries):
            row = self._open_next()
            if self.feasible(cls)[row]:
                return row
        while self._open > before:
            self._close_last()
        return None

    def _open_next(self) -> int:
        row = self._first + self._open
        self._open += 1
        self.model.without(~self.present)
        self._start_daemons(self._candidates[self._open - 1], row)
        return row

    def _close_last(self) -> None:
        for pod in self._daemons.pop():
            self.state.reap(pod)
        self._open -= 1
        self.model.without(~self.present)

    def _start_daemons(self, one: NewNode, row: int) -> None:
        """Add the requests of DaemonSets' pods to a new node."""
        daemons = one.template.daemons.tolist()
        self._daemons.append([self.state.linger(cls, row) for cls in daemons])

    def _place(self, pod: int, node: int) -> None:
        self.state.place(pod, int(self.state.cls_of[pod]), node)

    def _waste(self, placed: Mapping[int, str]) -> float:
        rows = weighed_rows(self.snapshot)
        room = self.snapshot.nodes.allocatable[rows, self._first : self._first + self._open]
        pods = np.array(list(placed), np.int32)
        asked = self.snapshot.requests[rows][:, self.snapshot.pods.cls[pods]].sum(axis=1)
        share = 1.0 - asked / np.maximum(1, room.sum(axis=1))
        return float(share.mean()) if self._open else 0.0


def weighed_rows(snapshot: Snapshot) -> Int32s:
    """Return the rows of the resources that count for waste."""
    rows = [snapshot.resources.index(name) for name in WEIGHED if name in snapshot.resources]
    return np.array(rows, np.int32)


EXPENDABLE = -10
"""Pods of a lower priority trigger no scale-out (Cluster Autoscaler: ``--expendable-pods-priority-cutoff``)."""


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod without a node."""

    pod: int
    code: PodCode | None
    """The code of the pod; None: only a new node might accept it."""
    message: str
    """Why it fits on no node now, in the scheduler's words, or another reason."""
    node: str | None = None
    """The existing node that has room for it."""


def pending_pods(
    snapshot: Snapshot, profile: SchedulerProfile, triggering: Bools | None = None
) -> list[PendingPod]:
    """Return the pending pods in the scheduler's order; pods that fit are placed first, one after the other.

    A class that fits nowhere is tried once, since later pods only find less room. ``triggering`` (P,): pods that may
    trigger a scale-out; None: all.
    """
    packing = Packing(snapshot, profile, (), {})
    model, state = packing.model, packing.state
    chunks = find_chunks(snapshot)
    refused: dict[int, PendingPod] = {}
    pending: list[PendingPod] = []
    for pod in _queue(snapshot):
        cls = int(snapshot.pods.cls[pod])
        if snapshot.classes[cls].priority < EXPENDABLE:
            text = f"priority {snapshot.classes[cls].priority} is below {EXPENDABLE}"
            pending.append(PendingPod(pod, PodCode.EXPENDABLE, text))
        elif text := model.rejection(cls):
            pending.append(PendingPod(pod, PodCode.REJECTED, text))
        elif unmodelled := model.find_unmodelled(cls):
            pending.append(PendingPod(pod, PodCode.UNPREDICTABLE, "; ".join(unmodelled)))
        elif cls in refused:
            pending.append(_unschedulable(refused[cls], pod, triggering))
        elif (node := _find_room(packing, cls, is_chunk=bool(chunks[pod]))) is not None:
            state.place(pod, cls, node)
            name = snapshot.nodes.names[node]
            text = f"{name} has room for it"
            text += "" if chunks[pod] else "; the scheduler has not placed it yet"
            pending.append(PendingPod(pod, PodCode.FITS, text, name))
            refused.clear()  # one that it has affinity to may be there now
        else:
            code, text = None, _why_none(packing, cls)
            if snapshot.classes[cls].per_node:
                code = PodCode.OF_NODE
            elif snapshot.devices is not None and cls in snapshot.devices.unmodelled:
                code, text = PodCode.UNPREDICTABLE, f"{text}; {_NEW_DEVICES}"
            refused[cls] = PendingPod(pod, code, text)
            pending.append(_unschedulable(refused[cls], pod, triggering))
    return pending


_NEW_DEVICES = "what devices a new machine has for its resource claims is not known"


def _why_none(packing: Packing, cls: int) -> str:
    """Return why a pod of a class fits on no node, in the scheduler's words, with conditions that the scheduler does not check."""
    text = unschedulable_message(packing.model, packing.state, cls)
    without, present = zones_without_nodes(packing.snapshot), zones_with_nodes(packing.snapshot)
    if zone := missing_zone(packing.model, cls, without, present):
        text = f"{zone}; {text}"
    others = packing.model.feasible(packing.state, cls) & packing.foreign(cls)
    if not others.any():
        return text
    row = int(others.argmax())
    name = packing.snapshot.nodes.names[row]
    is_system = packing.snapshot.has_other_system(cls, row)
    differs = "operating system" if is_system else "architecture"
    return f"{name} has room for it, but is of another {differs} ({text})"


def _find_room(packing: Packing, cls: int, *, is_chunk: bool) -> int | None:
    """Return the node on which the scheduler would place a pod, and that runs it; None if there is none.

    A chunk of a buffer is placed on the fullest node, so that few nodes are kept for buffers.
    """
    snapshot, model, state = packing.snapshot, packing.model, packing.state
    fits = np.flatnonzero(packing.feasible(cls))
    if not fits.size:
        return None
    if not is_chunk:
        predicted = model.predict(state, cls).nodes
        native = predicted[~packing.foreign(cls)[predicted]]
        return int(native[0] if len(native) else fits[0])
    rows = weighed_rows(snapshot)
    room = np.maximum(1, snapshot.nodes.allocatable[rows][:, fits])
    return int(fits[(state.lasting[rows][:, fits] / room).sum(axis=0).argmax()])


def _unschedulable(refused: PendingPod, pod: int, triggering: Bools | None) -> PendingPod:
    """Return the result for a pod of a class that fits nowhere."""
    young = refused.code is None and triggering is not None and not triggering[pod]
    return PendingPod(pod, PodCode.TOO_YOUNG if young else refused.code, refused.message)


def unschedulable_for(snapshot: Snapshot, seconds: float) -> Bools:
    """Return the pods (P,) that are Unschedulable and at least ``seconds`` old, and the chunks of buffers.

    The age of the pod counts, as for Cluster Autoscaler's ``--new-pod-scale-up-delay``.
    """
    pods = snapshot.pods
    old: Bools = pods.created <= snapshot.captured_at - seconds
    return (old & pods.where(_is_unschedulable)) | find_chunks(snapshot)


def _is_unschedulable(state: PodState) -> bool:
    return any(
        one.type == "PodScheduled" and one.reason == "Unschedulable" for one in state.conditions
    )


def _queue(snapshot: Snapshot) -> Iterator[int]:
    """Yield the pending pods in the order of ``queuesort.PrioritySort``: highest priority first, then oldest."""
    pods = snapshot.pods
    lost = (pods.flags & (PodFlag.TERMINATING | PodFlag.LOST_NODE)) != 0
    rows = np.flatnonzero((pods.node < 0) & ~lost)
    priority = np.array([cls.priority for cls in snapshot.classes] or [0], np.int64)
    yield from rows[np.lexsort((rows, pods.created[rows], -priority[pods.cls[rows]]))].tolist()


@dataclass(frozen=True, slots=True)
class Missing:
    """The nodes that would be needed for pods without room."""

    pods: int
    nodes: int
    """On empty nodes with their DaemonSets' pods; 0 if one of the pods fits on none."""
    like: str
    """Name of the node of which the missing ones are copies."""


def missing_nodes(
    snapshot: Snapshot,
    profile: SchedulerProfile,
    checks: Sequence[NodeCheck],
    old: Collection[str],
) -> Missing | None:
    """Return the number of missing nodes; None if every pod has room, or more nodes would not help.

    New nodes are copies of a remaining node that lacks only room for the pods: the one that would help most pods,
    the newest among equals. Pods that the scheduler refuses there for another reason are not counted.
    """
    full_of = {one.pod: one.full for check in checks for one in check.pods}
    nodes, helped = snapshot.nodes, Counter(name for full in full_of.values() for name in full)
    usable = nodes.ready & ~nodes.unschedulable
    stays = [node for name in helped.keys() - set(old) if usable[node := nodes.index[name]]]
    if not stays:
        return None
    like = max(stays, key=lambda n: (helped[nodes.names[n]], nodes.created[n], nodes.names[n]))
    name = nodes.names[like]
    pods = [pod for pod, full in full_of.items() if name in full]
    template = Groups(snapshot, ()).template_of_node(
        NodeGroup(name=f"like {name}", instances=()), like
    )
    new = [NewNode(template, template.node(number, None)) for number in range(1, len(pods) + 1)]
    packing = Packing(snapshot, profile, (), {}, new)
    for pod in pods:
        packing.state.evict(pod)
    packing.state.reap()
    packed = packing.pack(pods, {one.node.name for one in new})
    return Missing(len(pods), len(packed.nodes) if len(packed.pods) == len(pods) else 0, name)
