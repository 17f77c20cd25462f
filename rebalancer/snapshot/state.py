"""The state of a plan: where pods are, the load of nodes, and counts of matching pods.

A :class:`ClusterState` starts as the snapshot and changes pod by pod, by ``evict``, ``place`` and ``reap``.
Prediction and cost read it; only the planner changes it.

A pod *lives* on its node until it is evicted: topology spread counts it, and it uses its requests lastingly. A pod
*exists* until it is gone: (anti-)affinity counts it, and its requests are used. Each change consists of these two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from rebalancer.snapshot.class_counts import CACHED_CLASSES, ClassCounts
from rebalancer.snapshot.columns import Bools, Int32s, Ints, sum_by_node
from rebalancer.snapshot.model import PodFlag, Snapshot
from rebalancer.snapshot.usage import MEASURED


@dataclass(frozen=True, slots=True)
class TerminatingPod:
    """A victim that is still terminating: it holds resources and anti-affinity, but not spread."""

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
        self._moved = np.zeros(len(pods), bool)
        self._loads = loads = NodeLoads(snapshot)
        self.used, self.scored_used, self.pod_count = loads.used, loads.scored_used, loads.pod_count
        """See NodeLoads, as of the next three."""
        self.lasting, self.lasting_usage = loads.lasting, loads.lasting_usage
        self.lasting_count = loads.lasting_count
        self.terminating_pods: list[TerminatingPod] = []
        self._hidden: list[TerminatingPod] = []
        self.version = 0
        """Grows with every change."""
        self.changed: list[int] = []
        """Classes whose pods were moved about, in order, once per change; it only grows."""
        self.touched: list[int] = []
        """Nodes on which requests changed, in order, once per change; it only grows."""
        self._node_stamps = np.zeros(len(snapshot.nodes), np.int64)
        self._newest_node_stamp = 0
        self._homes: dict[int, tuple[int, Int32s]] = {}

    # -- reading -----------------------------------------------------------------------------------

    def node_stamp(self, node: int) -> int:
        """Return a number that is equal while no pod leaves ``node`` or is placed there; terminating pods do not affect it."""
        return int(self._node_stamps[node])

    @property
    def newest_node_change(self) -> int:
        """The newest stamp of all nodes."""
        return self._newest_node_stamp

    def changed_since(self, nodes: Int32s, since: int) -> Bools:
        """Return which of ``nodes`` (K,) have a newer stamp than ``since``."""
        changed: Bools = self._node_stamps[nodes] > since
        return changed

    def resettled(self, since: int) -> tuple[int, Int32s]:
        """Return the newest stamp of all nodes, and the nodes, ascending, with a newer stamp than ``since``."""
        return self._newest_node_stamp, np.flatnonzero(self._node_stamps > since).astype(np.int32)

    def home_nodes(self, cls: int) -> Int32s:
        """Return the distinct nodes, ascending, with unmoved pods of ``cls``; read-only."""
        stamp = int(self._stamps[cls])
        if not stamp:
            return self.first_homes[cls]
        known = self._homes.get(cls)
        if known is not None and known[0] == stamp:
            return known[1]
        pods = self.pods_of(cls)
        homes = self._home[pods]
        homes = homes[(homes >= 0) & (self.node_of[pods] == homes) & ~self._moved[pods]]
        if len(self._homes) >= CACHED_CLASSES:
            self._homes.clear()
        nodes = self.distinct(homes)
        self._homes[cls] = stamp, nodes
        return nodes

    def unmoved(self, classes: Int32s | None = None) -> Int32s:
        """Return the living pods that are where the snapshot has them; only of ``classes`` if given."""
        if classes is None:
            home = self._home
            return np.flatnonzero((home >= 0) & (self.node_of == home) & ~self._moved).astype(
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
        return stays & ~self._moved[pods]

    # -- changing ----------------------------------------------------------------------------------

    def evict(self, pod: int) -> None:
        """Evict ``pod``; it terminates on its node until :meth:`reap`."""
        cls, node = int(self.cls_of[pod]), int(self.node_of[pod])
        self.node_of[pod] = -1
        self._live(cls, node, -1)
        self.terminating_pods.append(TerminatingPod(cls, node))
        self.version += 1

    def unevict(self, pod: int) -> None:
        """Undo the newest :meth:`evict`, which must have been of ``pod``."""
        victim = self.terminating_pods.pop()
        self.node_of[pod] = victim.node
        self._live(victim.cls, victim.node, +1)
        self.version += 1

    def linger(self, cls: int, node: int) -> TerminatingPod:
        """Add a terminating pod that the snapshot does not contain; it stays until :meth:`reap`."""
        victim = TerminatingPod(cls, node)
        self.terminating_pods.append(victim)
        self._be_there(cls, node, +1)
        self.version += 1
        return victim

    def reap(self, victim: TerminatingPod | None = None) -> None:
        """Remove one terminating pod, or all of them."""
        for gone in [victim] if victim is not None else list(self.terminating_pods):
            self.terminating_pods.remove(gone)
            self._be_there(gone.cls, gone.node, -1)
            self.version += 1

    def hide_newest_victim(self) -> None:
        """Remove the newest victim temporarily, as the scheduler sees the state if the owner waits."""
        victim = self.terminating_pods.pop()
        self._hidden.append(victim)
        self._be_there(victim.cls, victim.node, -1)
        self.version += 1

    def show_newest_victim(self) -> None:
        """Undo :meth:`hide_newest_victim`."""
        victim = self._hidden.pop()
        self.terminating_pods.append(victim)
        self._be_there(victim.cls, victim.node, +1)
        self.version += 1

    def place(self, pod: int, cls: int, node: int) -> None:
        """Place the replacement of ``pod``, of class ``cls``, on ``node``."""
        self.cls_of[pod], self.node_of[pod] = cls, node
        self._moved[pod] = True
        self._live(cls, node, +1)
        self._be_there(cls, node, +1)
        self.version += 1

    def unplace(self, pod: int) -> None:
        """Undo the newest :meth:`place`, which must have been of ``pod``; its replacement is then pending."""
        cls, node = int(self.cls_of[pod]), int(self.node_of[pod])
        self.cls_of[pod], self.node_of[pod] = self.snapshot.pods.cls[pod], -1
        self._moved[pod] = False
        self._live(cls, node, -1)
        self._be_there(cls, node, -1)
        self.version += 1

    def restore(self, pod: int) -> None:
        """Put ``pod``, which has no node, back on its node in the snapshot, as if it had never left."""
        self.place(pod, int(self.snapshot.pods.cls[pod]), int(self.snapshot.pods.node[pod]))
        self._moved[pod] = False

    def reserve(self, requests: Ints, places: int, node: int) -> None:
        """Keep ``requests`` (R,) and so many places for pods on ``node`` from all pods, for good."""
        self._loads.reserve(requests, places, node)
        self.touched.append(node)
        self._newest_stamp += 1
        self._node_stamps[node] = self._newest_node_stamp = self._newest_stamp
        self.version += 1

    def _live(self, cls: int, node: int, sign: int) -> None:
        self.changed.append(cls)
        self._count_change(cls, node, sign, terminating=False)
        self._newest_stamp += 1
        self._node_stamps[node] = self._newest_node_stamp = self._newest_stamp
        self._loads.last(cls, node, sign)

    def _be_there(self, cls: int, node: int, sign: int) -> None:
        self.changed.append(cls)
        self._seem_there(cls, node, sign)

    # -- for predictions ---------------------------------------------------------------------------
    #
    # These are many, and each is taken back: the terms of the cost must not be asked meanwhile, and what is kept under
    # a stamp holds again afterwards.

    @contextmanager
    def evicted(self, pod: int, *, gone: bool) -> Iterator[None]:
        """Hold the state that the scheduler sees when it places the replacement of ``pod``.

        The victim is terminating, or ``gone``.
        """
        cls, node = int(self.cls_of[pod]), int(self.node_of[pod])
        stamp = self._stamps[cls]
        self.node_of[pod] = -1
        self.terminating_pods.append(TerminatingPod(cls, node))
        self._count_change(cls, node, -1, terminating=False)
        if gone:
            self._seem_there(cls, node, -1)
        try:
            yield
        finally:
            if gone:
                self._seem_there(cls, node, +1)
            self._count_change(cls, node, +1, terminating=False)
            self.terminating_pods.pop()
            self.node_of[pod] = node
            self._stamps[cls] = stamp

    @contextmanager
    def without(self, terminating_pods: Sequence[TerminatingPod]) -> Iterator[None]:
        """Hold the state in which some terminating pods are gone."""
        stamps = {victim.cls: self._stamps[victim.cls] for victim in terminating_pods}
        for victim in terminating_pods:
            self._seem_there(victim.cls, victim.node, -1)
        try:
            yield
        finally:
            for victim in terminating_pods:
                self._seem_there(victim.cls, victim.node, +1)
            for cls, stamp in stamps.items():
                self._stamps[cls] = stamp

    @contextmanager
    def without_requests(self, cls: int, nodes: Int32s) -> Iterator[None]:
        """Hold the loads of distinct ``nodes``, each without the requests of one pod of ``cls``; nothing else changes."""
        for node in nodes.tolist():
            self._loads.hold(cls, node, -1)
        try:
            yield
        finally:
            for node in nodes.tolist():
                self._loads.hold(cls, node, +1)

    @contextmanager
    def filled(self, pod: int, cls: int, node: int) -> Iterator[None]:
        """Hold the state in which ``pod``, which has no node, is on ``node`` as a pod of ``cls``."""
        before, stamp = int(self.cls_of[pod]), self._stamps[cls]
        self.cls_of[pod], self.node_of[pod] = cls, node
        self._count_change(cls, node, +1, terminating=False)
        self._seem_there(cls, node, +1)
        try:
            yield
        finally:
            self._seem_there(cls, node, -1)
            self._count_change(cls, node, -1, terminating=False)
            self.cls_of[pod], self.node_of[pod] = before, -1
            self._stamps[cls] = stamp

    def _seem_there(self, cls: int, node: int, sign: int) -> None:
        self._count_change(cls, node, sign, terminating=True)
        self._loads.hold(cls, node, sign)
        self.touched.append(node)


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
        """Take ``requests`` (R,) and so many places from what a node has left."""
        self.used[:, node] += requests
        self.lasting[:, node] += requests
        self.pod_count[node] += places
        self.lasting_count[node] += places

    def last(self, cls: int, node: int, sign: int) -> None:
        """Add (``sign`` +1) or remove (-1) the lasting requests of a pod on a node."""
        self.lasting[:, node] += sign * self._snapshot.requests[:, cls]
        self.lasting_count[node] += sign
        if (usage := self._snapshot.usage) is not None:
            self.lasting_usage[:, node] += sign * usage.classes[:, cls]
