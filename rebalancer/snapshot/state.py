"""The state of a plan: where pods are, the load of nodes, and counts of matching pods.

A :class:`ClusterState` starts as the snapshot and changes pod by pod, by ``evict``, ``place`` and ``reap``.
Prediction and cost read it; only the planner changes it.

A pod *lives* on its node until it is evicted: topology spread counts it, and it uses its requests lastingly. A pod
*exists* until it is gone: (anti-)affinity counts it, and its requests are used. Each change consists of these two.

Rules count at each call, from the nodes of the pods of each class: selectors, anti-affinity terms, owners and host ports
are all sets of classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rebalancer.core.counts import PodNodes, add_pod, remove_pod
from rebalancer.snapshot.columns import Bools, Int32s, Ints, sum_by_node
from rebalancer.snapshot.model import MEASURED, PodFlag, Pods, Snapshot

_NO_PODS = np.zeros(0, np.int32)


class Runs:
    """The values of all classes (or owners) in one array, the values of each class contiguous."""

    def __init__(self, values: Int32s, of: Int32s, number: int) -> None:
        """``values`` (K,) are grouped by class or owner; ``of`` (K,), ascending, is the one of each value.

        ``number``: the number of classes or owners.
        """
        self.values = values
        self.starts = np.searchsorted(of, np.arange(number + 1))
        self._starts: list[int] = self.starts.tolist()

    def __getitem__(self, index: int) -> Int32s:
        return self.values[self._starts[index] : self._starts[index + 1]]

    def size(self, index: int) -> int:
        """Return the number of values of a class or owner."""
        return self._starts[index + 1] - self._starts[index]


class ClassCounts:
    """The number of pods per class and node: those of the snapshot, updated by each planned move.

    A pod counts as *living* until it is evicted, and then as *terminating* until it is gone.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        pods = snapshot.pods
        order = np.argsort(pods.cls, kind="stable").astype(np.int32)
        self._pods = Runs(order, pods.cls[order], len(snapshot.classes))
        self._of_owner: dict[int, list[int]] | None = None
        self._terminating = (pods.flags & PodFlag.TERMINATING) != 0
        self._home = np.where(self._terminating, -1, pods.node).astype(np.int32)
        """(P,) node of each pod that is not terminating, else -1."""
        living = order[self._home[order] >= 0]
        self._living = Runs(living, pods.cls[living], len(snapshot.classes))
        self._disturbed = np.zeros(len(snapshot.classes), bool)
        """Per class, whether any of its pods ever came or left."""
        placed = pods.node >= 0
        self.living = _places(pods, placed & ~self._terminating, len(snapshot.classes))
        """Where the pods are that do not terminate."""
        self.existing = _places(pods, placed, len(snapshot.classes))
        """Where all pods are."""

    # -- the snapshot's pods -----------------------------------------------------------------------

    def pods_of(self, cls: int) -> Int32s:
        """Return the snapshot's pods of a class, in order."""
        return self._pods[cls]

    def pods_of_many(self, classes: Int32s) -> tuple[Ints, Int32s]:
        """Return (positions, pods) for the snapshot's living pods (M,) of ``classes`` (K,).

        The position of a pod is that of its class in ``classes``.
        """
        starts = self._living.starts
        sizes = starts[classes + 1] - starts[classes]
        shift = np.repeat(starts[classes] - (np.cumsum(sizes) - sizes), sizes)
        place = np.repeat(np.arange(len(classes)), sizes)
        return place, self._living.values[np.arange(len(shift)) + shift]

    def living_of(self, cls: int) -> Int32s:
        """Return the snapshot's pods of a class that are not terminating and are on a known node."""
        return self._living[cls]

    @cached_property
    def first_homes(self) -> Runs:
        """Class -> distinct nodes, ascending, with living pods of the class in the snapshot."""
        pods, size = self._living.values, max(1, len(self.snapshot.nodes))
        keys = np.unique(self.snapshot.pods.cls[pods].astype(np.int64) * size + self._home[pods])
        classes = len(self.snapshot.classes)
        return Runs((keys % size).astype(np.int32), (keys // size).astype(np.int32), classes)

    def classes_of_owner(self, owner: int) -> Int32s:
        """Return the classes, ascending, of an owner's pods and of their replacements."""
        if self._of_owner is None:
            self._of_owner = {}
            for cls, of_class in enumerate(self.snapshot.classes):
                self._of_owner.setdefault(of_class.owner, []).append(cls)
        return np.array(self._of_owner.get(owner, ()), np.int32)

    # -- where pods are now ------------------------------------------------------------------------

    def nodes_of(self, classes: Int32s, *, terminating: bool = False) -> Int32s:
        """Return the node of each pod of ``classes``, one entry per pod, in no order.

        With ``terminating``, terminating pods count as well: (anti-)affinity counts them, topology spread does not
        (``podtopologyspread/common.go: countPodsMatchSelector``).
        """
        pods = self.existing if terminating else self.living
        nodes: Int32s = np.asarray(pods.nodes)
        parts = [
            nodes[(first := pods.start[cls]) : first + pods.size[cls]] for cls in classes.tolist()
        ]
        return np.concatenate([_NO_PODS, *parts])

    def counts_by(self, classes: Int32s, of_node: Int32s, size: int) -> Ints:
        """Return the number of pods of ``classes`` in each of ``size`` domains; ``of_node`` (N,): that of each node, or -1."""
        domains = of_node[self.nodes_of(classes)]
        return np.bincount(domains[domains >= 0], minlength=size)

    def occupied_nodes(self, classes: Int32s) -> Int32s:
        """Return the distinct nodes, ascending, with pods of ``classes``; terminating pods do not count."""
        return np.unique(self.nodes_of(classes))

    def count_on(self, classes: Int32s, node: int) -> int:
        """Return the number of pods of ``classes`` on one node, without terminating ones."""
        return int(np.count_nonzero(self.nodes_of(classes) == node))

    def counts(self, classes: Int32s, *, terminating: bool = False) -> Ints:
        """Return the number of pods of ``classes`` on each node (N,). ``terminating``: see :meth:`nodes_of`."""
        nodes = self.nodes_of(classes, terminating=terminating)
        return np.bincount(nodes, minlength=len(self.snapshot.nodes))

    # -- changing ----------------------------------------------------------------------------------

    def _count_change(self, cls: int, node: int, change: int, *, terminating: bool) -> None:
        """Count one pod more or less (``change``) of a class on a node: of those that live, or of all."""
        self._disturbed[cls] = True
        (add_pod if change > 0 else remove_pod)(
            self.existing if terminating else self.living, cls, node
        )


def _places(pods: Pods, some: Bools, classes: int) -> PodNodes:
    """Return where ``some`` (P,) of the pods are, in the order of their classes."""
    order = np.argsort(pods.cls[some], kind="stable")
    size = np.bincount(pods.cls[some], minlength=classes).astype(np.int64)
    nodes = pods.node[some][order].astype(np.int32)
    start = np.cumsum(size) - size
    return PodNodes(start.data, size.data, size.copy().data, nodes.data)


@dataclass(frozen=True, slots=True)
class TerminatingPod:
    """A victim that is still terminating: it counts for resources and anti-affinity, but not for spread."""

    cls: int
    node: int


class ClusterState(ClassCounts):
    """The mutable assignment of pods to nodes. It owns all of its arrays."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        pods = snapshot.pods
        self.node_of = pods.node.copy()
        """(P,) node of each pod, or of its planned replacement; -1 unscheduled or on its way."""
        self.cls_of = pods.cls.copy()
        """(P,) class of each pod, or of its planned replacement."""
        self.moved = np.zeros(len(pods), bool)
        """(P,) pods that were evicted, and whose replacements have landed."""
        self._loads = loads = NodeLoads(snapshot)
        self.used, self.scored_used, self.pod_count = loads.used, loads.scored_used, loads.pod_count
        """See NodeLoads, as of the next four."""
        self.lasting, self.lasting_usage = loads.lasting, loads.lasting_usage
        self.lasting_count, self.lasting_changes = loads.lasting_count, loads.lasting_changes
        self.terminating_pods: list[TerminatingPod] = []
        self._hidden: list[TerminatingPod] = []
        self._inverses: list[tuple[Callable[..., None], tuple[Any, ...]]] | None = None
        """The inverse of each change since :meth:`keep_inverses`, in order; None before it."""
        self.version = 0
        """Grows with every change."""

    # -- reading -----------------------------------------------------------------------------------

    def lives(self, pod: int) -> bool:
        """Return whether a pod does not terminate in the snapshot."""
        return not self._terminating[pod]

    def home_nodes(self, cls: int) -> Int32s:
        """Return the distinct nodes, ascending, with unmoved pods of ``cls``; read-only."""
        if not self._disturbed[cls]:
            return self.first_homes[cls]
        pods = self.living_of(cls)
        return np.unique(self._home[pods[self.at_home(pods)]])

    def unmoved(self, classes: Int32s | None = None) -> Int32s:
        """Return the living pods that are where the snapshot has them; only of ``classes`` if given."""
        if classes is None:
            home = self._home
            return np.flatnonzero((home >= 0) & (self.node_of == home) & ~self.moved).astype(
                np.int32
            )
        pods = self.pods_of_many(classes)[1]
        return pods[self.at_home(pods)]

    def pods_on(self, cls: int, node: int) -> Int32s:
        """Return the unmoved pods of the snapshot's class ``cls`` on ``node``."""
        pods = self.living_of(cls)
        return pods[(self.snapshot.pods.node[pods] == node) & self.at_home(pods)]

    def at_home(self, pods: Int32s) -> Bools:
        """Return which of ``pods``, living on nodes in the snapshot, have not moved."""
        stays: Bools = self.node_of[pods] == self.snapshot.pods.node[pods]
        return stays & ~self.moved[pods]

    # -- changing ----------------------------------------------------------------------------------

    def keep_inverses(self) -> None:
        """Remember from now on how to take back all changes, for :meth:`rewind`."""
        self._inverses = []

    def forget_inverses(self) -> None:
        """End :meth:`keep_inverses`, and keep the changes."""
        self._inverses = None

    @property
    def keeps_inverses(self) -> bool:
        """Whether changes can be taken back."""
        return self._inverses is not None

    def mark(self) -> int:
        """Return where the changes are now, for :meth:`rewind`; from here on they can be taken back."""
        if self._inverses is None:
            self._inverses = []
        return len(self._inverses)

    def rewind(self, to: int = 0) -> None:
        """Take back all changes since :meth:`mark` returned ``to``, or since :meth:`keep_inverses`.

        For all that watches the state these are changes like others.
        """
        while self._inverses is not None and len(self._inverses) > to:
            change, arguments = self._inverses.pop()
            change(*arguments)
            self.version += 1

    def _note(self, inverse: Callable[..., None], *arguments: Any) -> None:
        if self._inverses is not None:
            self._inverses.append((inverse, arguments))
        self.version += 1

    def evict(self, pod: int) -> None:
        """Evict ``pod``; it terminates on its node until :meth:`reap`."""
        self._leave(pod)
        self._note(self._come_back, pod)

    def _leave(self, pod: int) -> None:
        cls, node = int(self.cls_of[pod]), int(self.node_of[pod])
        self.node_of[pod] = -1
        self._live(cls, node, -1)
        self.terminating_pods.append(TerminatingPod(cls, node))

    def _come_back(self, pod: int) -> None:
        victim = self.terminating_pods.pop()
        self.node_of[pod] = victim.node
        self._live(victim.cls, victim.node, +1)

    def linger(self, cls: int, node: int) -> TerminatingPod:
        """Add a terminating pod that the snapshot does not contain; it exists until :meth:`reap`."""
        victim = TerminatingPod(cls, node)
        place = len(self.terminating_pods)
        self._add_victim(place, victim)
        self._note(self._drop_victim, place)
        return victim

    def reap(self, victim: TerminatingPod | None = None) -> None:
        """Remove one terminating pod, or all of them."""
        for gone in [victim] if victim is not None else list(self.terminating_pods):
            place = self.terminating_pods.index(gone)
            self._drop_victim(place)
            self._note(self._add_victim, place, gone)

    def _add_victim(self, place: int, victim: TerminatingPod) -> None:
        self.terminating_pods.insert(place, victim)
        self._be_there(victim.cls, victim.node, +1)

    def _drop_victim(self, place: int) -> None:
        victim = self.terminating_pods.pop(place)
        self._be_there(victim.cls, victim.node, -1)

    def hide_newest_victim(self) -> None:
        """Take the newest terminating pod out until the change is undone: its owner makes the new pod only once it is gone."""
        self._hide()
        self._note(self._show)

    def _hide(self) -> None:
        victim = self.terminating_pods.pop()
        self._hidden.append(victim)
        self._be_there(victim.cls, victim.node, -1)

    def _show(self) -> None:
        victim = self._hidden.pop()
        self.terminating_pods.append(victim)
        self._be_there(victim.cls, victim.node, +1)

    def place(self, pod: int, cls: int, node: int) -> None:
        """Place the replacement of ``pod``, of class ``cls``, on ``node``."""
        before = int(self.cls_of[pod]), bool(self.moved[pod])
        self._land(pod, cls, node)
        self._note(self._lift, pod, *before)

    def unplace(self, pod: int) -> None:
        """Undo the newest :meth:`place`, which must have been of ``pod``; its replacement is then pending."""
        cls, node = int(self.cls_of[pod]), int(self.node_of[pod])
        self._lift(pod, int(self.snapshot.pods.cls[pod]), moved=False)
        self._note(self._land, pod, cls, node)

    def _land(self, pod: int, cls: int, node: int) -> None:
        self.cls_of[pod], self.node_of[pod] = cls, node
        self.moved[pod] = True
        self._live(cls, node, +1)
        self._be_there(cls, node, +1)

    def _lift(self, pod: int, before: int, moved: bool) -> None:
        """Take a pod off its node; ``before``: its class then, ``moved``: whether it counted as moved."""
        cls, node = int(self.cls_of[pod]), int(self.node_of[pod])
        self.cls_of[pod], self.node_of[pod] = before, -1
        self.moved[pod] = moved
        self._live(cls, node, -1)
        self._be_there(cls, node, -1)

    def restore(self, pod: int) -> None:
        """Put ``pod``, which has no node, back on its node in the snapshot, as if it had never left."""
        self.place(pod, int(self.snapshot.pods.cls[pod]), int(self.snapshot.pods.node[pod]))
        self.moved[pod] = False

    def reserve(self, requests: Ints, places: int, node: int) -> None:
        """Reserve ``requests`` (R,) and a number of pod places on ``node``; no pod can use them any more."""
        self._take_room(requests, places, node)
        self._note(self._take_room, -requests, -places, node)

    def _take_room(self, requests: Ints, places: int, node: int) -> None:
        self._loads.reserve(requests, places, node)

    def _live(self, cls: int, node: int, sign: int) -> None:
        self._count_change(cls, node, sign, terminating=False)
        self._loads.last(cls, node, sign)

    def _be_there(self, cls: int, node: int, sign: int) -> None:
        self._seem_there(cls, node, sign)

    # -- for predictions ---------------------------------------------------------------------------
    #
    # These are many, and each is taken back: the terms of the cost must not be asked meanwhile.

    @contextmanager
    def evicted(self, pod: int, *, gone: bool) -> Iterator[None]:
        """Keep the state, within a ``with`` block, that the scheduler sees when it places the replacement of ``pod``.

        The victim is terminating, or ``gone``.
        """
        cls, node = int(self.cls_of[pod]), int(self.node_of[pod])
        lives = self.lives(pod)
        self.node_of[pod] = -1
        self.terminating_pods.append(TerminatingPod(cls, node))
        if lives:
            self._count_change(cls, node, -1, terminating=False)
        if gone:
            self._seem_there(cls, node, -1)
        try:
            yield
        finally:
            if gone:
                self._seem_there(cls, node, +1)
            if lives:
                self._count_change(cls, node, +1, terminating=False)
            self.terminating_pods.pop()
            self.node_of[pod] = node

    @contextmanager
    def without(self, terminating_pods: Sequence[TerminatingPod]) -> Iterator[None]:
        """Keep the state, within a ``with`` block, in which some terminating pods are gone."""
        for victim in terminating_pods:
            self._seem_there(victim.cls, victim.node, -1)
        try:
            yield
        finally:
            for victim in terminating_pods:
                self._seem_there(victim.cls, victim.node, +1)

    @contextmanager
    def filled(self, pod: int, cls: int, node: int) -> Iterator[None]:
        """Context in which the pending ``pod`` is on ``node`` as a pod of ``cls``."""
        before = int(self.cls_of[pod])
        self.cls_of[pod], self.node_of[pod] = cls, node
        try:
            with self.with_one_more(cls, node):
                yield
        finally:
            self.cls_of[pod], self.node_of[pod] = before, -1

    @contextmanager
    def with_one_more(self, cls: int, node: int) -> Iterator[None]:
        """Context in which one pod more of ``cls`` is on ``node``, for which the snapshot has no row: a rollout's new one."""
        self._count_change(cls, node, +1, terminating=False)
        self._seem_there(cls, node, +1)
        try:
            yield
        finally:
            self._seem_there(cls, node, -1)
            self._count_change(cls, node, -1, terminating=False)

    def _seem_there(self, cls: int, node: int, sign: int) -> None:
        self._count_change(cls, node, sign, terminating=True)
        self._loads.hold(cls, node, sign)


class NodeLoads:
    """Sums per node. A terminating pod uses its requests, but not lastingly."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        pods, size = snapshot.pods, len(snapshot.nodes)
        placed = pods.node >= 0
        nodes, cls = pods.node[placed], pods.cls[placed]
        self.used = sum_by_node(snapshot.requests, cls, nodes, size)
        """(R, N) requested, terminating pods included."""
        self.scored_used = sum_by_node(snapshot.scored, cls, nodes, size)
        """(2, N) the same with the scheduler's defaults for missing requests."""
        self.pod_count = np.bincount(nodes, minlength=size).astype(np.int64)
        """(N,) pods on each node, terminating ones included."""
        living = placed & ((pods.flags & PodFlag.TERMINATING) == 0)
        self.lasting = sum_by_node(snapshot.requests, pods.cls[living], pods.node[living], size)
        """(R, N) requested once all terminating pods are gone."""
        self.lasting_usage = self._measure(living)
        """(M, N) in use once all terminating pods are gone; zeros where nothing was measured (Snapshot.usage)."""
        self.lasting_count = np.bincount(pods.node[living], minlength=size).astype(np.int64)
        """(N,) pods once all terminating ones are gone."""
        self.lasting_changes = np.zeros(size + 1, np.int64)
        """(N + 1,) the number of the newest change of what lasts on each node; the last entry is that of all nodes."""

    def _measure(self, living: Bools) -> Ints:
        snapshot, usage = self._snapshot, self._snapshot.usage
        if usage is None:
            return np.zeros((len(MEASURED), len(snapshot.nodes)), np.int64)
        going = (snapshot.pods.node >= 0) & ~living
        cls, node = snapshot.pods.cls[going], snapshot.pods.node[going]
        return usage.nodes - sum_by_node(usage.classes, cls, node, len(snapshot.nodes))

    def hold(self, cls: int, node: int, sign: int) -> None:
        """Add (``sign`` +1) or remove (-1) the requests of a pod on a node."""
        self.used[:, node] += sign * self._snapshot.requests[:, cls]
        self.scored_used[:, node] += sign * self._snapshot.scored[:, cls]
        self.pod_count[node] += sign

    def reserve(self, requests: Ints, places: int, node: int) -> None:
        """Subtract ``requests`` (R,) and a number of pod places from the free capacity of a node."""
        self.used[:, node] += requests
        self.lasting[:, node] += requests
        self.pod_count[node] += places
        self.lasting_count[node] += places
        self._note_change(node)

    def last(self, cls: int, node: int, sign: int) -> None:
        """Add (``sign`` +1) or remove (-1) the lasting requests of a pod on a node."""
        self.lasting[:, node] += sign * self._snapshot.requests[:, cls]
        self.lasting_count[node] += sign
        self._note_change(node)
        if (usage := self._snapshot.usage) is not None:
            self.lasting_usage[:, node] += sign * usage.classes[:, cls]

    def _note_change(self, node: int) -> None:
        self.lasting_changes[-1] += 1
        self.lasting_changes[node] = self.lasting_changes[-1]
