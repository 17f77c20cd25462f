"""What changes while a plan is made: where pods are, what nodes hold, how many pods match what.

A :class:`ClusterState` starts as the snapshot and is changed pod by pod, by ``evict``, ``place`` and
``reap``. Prediction and cost read it; only the planner changes it. Counts of pods per node are kept per
*counter*, a set of classes, and made when first asked for: selectors, anti-affinity terms, owners and
host ports are all sets of classes, so this is the one way in which anything is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from rebalancer.snapshot.columns import Bools, Int32s, Ints, summed_by_node
from rebalancer.snapshot.model import PodFlag, Snapshot
from rebalancer.snapshot.usage import MEASURED

# Dense (N,) count vectors are kept up to this many numbers in all, then dropped and made again.
_CACHED_COUNTS = 32_000_000
# Classes with more pods than this are counted per node once and kept, rather than again each time.
_MANY = 256
# Of so many classes it is remembered where their pods are.
_CACHED_CLASSES = 8192
_NO_PODS = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class TerminatingPod:
    """A victim that still terminates: it holds resources and anti-affinity, but not spread."""

    cls: int
    node: int


class ClusterState:
    """Pods on nodes, changeable. All arrays are this object's own."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        pods = snapshot.pods
        self.node_of = pods.node.copy()
        """(P,) node of each pod, or of its planned replacement; -1 unscheduled or on its way."""
        self.cls_of = pods.cls.copy()
        """(P,) class of each pod, or of its planned replacement."""
        placed = pods.node >= 0
        nodes, cls = pods.node[placed], pods.cls[placed]
        self.used = summed_by_node(snapshot.requests, cls, nodes, len(snapshot.nodes))
        """(R, N) requested, terminating pods included."""
        self.scored_used = summed_by_node(snapshot.scored, cls, nodes, len(snapshot.nodes))
        """(2, N) the same with the scheduler's defaults for missing requests."""
        living = placed & ((pods.flags & PodFlag.TERMINATING) == 0)
        self.lasting = summed_by_node(
            snapshot.requests, pods.cls[living], pods.node[living], len(snapshot.nodes)
        )
        """(R, N) requested once all terminating pods are gone."""
        self.lasting_usage = self._measured(living)
        """(M, N) in use once all terminating pods are gone; zeros where nothing was measured (Snapshot.usage)."""
        self.lasting_count = np.bincount(pods.node[living], minlength=len(snapshot.nodes)).astype(
            np.int64
        )
        """(N,) pods once all terminating ones are gone."""
        self.pod_count = np.bincount(nodes, minlength=len(snapshot.nodes)).astype(np.int64)
        """(N,) pods on each node, terminating ones included."""
        self.terminating_pods: list[TerminatingPod] = []
        self._hidden: list[TerminatingPod] = []
        self.version = 0
        """Grows with every change."""
        order = np.argsort(pods.cls, kind="stable").astype(np.int32)
        self._by_class = order
        self._starts = np.searchsorted(pods.cls[order], np.arange(len(snapshot.classes) + 1))
        self._moved = np.zeros(len(pods), bool)
        self.changed: list[int] = []
        """Classes whose pods were moved about, in order, once per change; it only grows."""
        self.touched: list[int] = []
        """Nodes on which requests changed, in order, once per change; it only grows."""
        self._stamps = np.zeros(len(snapshot.classes), np.int64)
        self._newest_stamp = 0
        self._node_stamps = np.zeros(len(snapshot.nodes), np.int64)
        # (class, whether terminating pods count; None: see home_nodes) -> the class's stamp then, nodes.
        self._whereabouts: dict[tuple[int, bool | None], tuple[int, Int32s]] = {}
        self._of_owner: dict[int, list[int]] | None = None
        self._terminating = (pods.flags & PodFlag.TERMINATING) != 0
        self._home = np.where(self._terminating, -1, pods.node).astype(np.int32)
        self._changes: dict[int, dict[tuple[int, bool], int]] = {}
        self._counters: dict[tuple[bytes, bool], Int32s] = {}
        self._counters_of: dict[int, list[tuple[bytes, bool]]] = {}

    # -- reading -----------------------------------------------------------------------------------

    def stamp(self, classes: Int32s) -> int | tuple[int, ...]:
        """Return what stands for where the pods of ``classes`` are: equal while they are in the same places.

        What is taken back leaves no trace, so a value kept under it holds again.
        """
        if len(classes) == 1:
            return int(self._stamps[classes[0]])
        return tuple(self._stamps[classes].tolist())

    def newest_stamp(self, classes: Int32s) -> int:
        """Return the largest of the stamps of ``classes``: it, too, is equal while their pods stay."""
        return int(self._stamps[classes].max(initial=0))

    def node_stamp(self, node: int) -> int:
        """Return :meth:`newest_node_stamp` of one node."""
        return int(self._node_stamps[node])

    def newest_node_stamp(self, nodes: Int32s) -> int:
        """Return what stands for what ``nodes`` hold lastingly: equal while no pod leaves them or is placed there."""
        return int(self._node_stamps[nodes].max(initial=0))

    def resettled(self, since: int) -> tuple[int, Int32s]:
        """Return the newest stamp of any node, and the nodes that have a newer one than ``since``, ascending."""
        newest = int(self._node_stamps.max(initial=0))
        return newest, np.flatnonzero(self._node_stamps > since).astype(np.int32)

    def pods_of(self, cls: int) -> Int32s:
        """Return the pods that the snapshot holds of a class, in order."""
        return self._by_class[self._starts[cls] : self._starts[cls + 1]]

    def pods_of_many(self, label: Ints, classes: Int32s) -> tuple[Ints, Int32s]:
        """Return the living pods that the snapshot holds of each class (K,), with the class's ``label``."""
        sizes = self._starts[classes + 1] - self._starts[classes]
        shift = np.repeat(self._starts[classes] - (np.cumsum(sizes) - sizes), sizes)
        pods = self._by_class[np.arange(len(shift)) + shift]
        living = self._home[pods] >= 0
        return np.repeat(label, sizes)[living], pods[living]

    def living_of(self, cls: int) -> Int32s:
        """Return the snapshot's pods of a class that are not terminating and stand on a known node."""
        pods = self.pods_of(cls)
        return pods[self._home[pods] >= 0]

    def home_nodes(self, cls: int) -> Int32s:
        """Return the nodes, ascending and once each, where pods of ``cls`` stand that were not moved; do not write into it."""
        stamp = int(self._stamps[cls])
        known = self._whereabouts.get((cls, None))
        if known is not None and known[0] == stamp:
            return known[1]
        pods = self.pods_of(cls)
        homes = self._home[pods]
        homes = homes[(homes >= 0) & (self.node_of[pods] == homes) & ~self._moved[pods]]
        nodes = self._distinct(homes)
        self._keep_whereabouts(cls, None, nodes)
        return nodes

    def unmoved(self, classes: Int32s | None = None) -> Int32s:
        """Return the pods that live where the snapshot has them; only those of ``classes`` if given."""
        if classes is None:
            home = self._home
            return np.flatnonzero((home >= 0) & (self.node_of == home) & ~self._moved).astype(
                np.int32
            )
        pods = np.concatenate([_NO_PODS, *(self.pods_of(cls) for cls in classes.tolist())])
        home = self._home[pods]
        return pods[(home >= 0) & (self.node_of[pods] == home) & ~self._moved[pods]]

    def classes_of_owner(self, owner: int) -> Int32s:
        """Return the classes, ascending, of an owner's pods and of their replacements."""
        if self._of_owner is None:
            self._of_owner = {}
            for cls, of_class in enumerate(self.snapshot.classes):
                self._of_owner.setdefault(of_class.owner, []).append(cls)
        return np.array(self._of_owner.get(owner, ()), np.int32)

    def pods_on(self, cls: int, node: int) -> Int32s:
        """Return the pods of the snapshot's class ``cls`` that have not been moved and are on ``node``."""
        pods = self.living_of(cls)
        return pods[(self.snapshot.pods.node[pods] == node) & self.at_home(pods)]

    def at_home(self, pods: Int32s) -> Bools:
        """Return which of ``pods``, which are alive and on nodes in the snapshot, have not been moved."""
        stays: Bools = self.node_of[pods] == self.snapshot.pods.node[pods]
        return stays & ~self._moved[pods]

    def counts_by(self, classes: Int32s, of_node: Int32s, size: int) -> Ints:
        """Return how many pods of ``classes``, terminating ones not, are in each of ``size`` domains.

        ``of_node`` (N,) is each node's domain, -1 for none. It takes as long as the classes have pods,
        however many nodes there are.
        """
        nodes = self.nodes_of(classes)
        if nodes is None:
            per_node = self.counts(classes)
            inside = of_node >= 0
            return np.bincount(of_node[inside], per_node[inside], size).astype(np.int64)
        domains = of_node[nodes]
        return np.bincount(domains[domains >= 0], minlength=size)

    def occupied(self, classes: Int32s) -> Int32s:
        """Return the nodes, ascending and once each, where pods of ``classes`` are, terminating ones not."""
        nodes = self.nodes_of(classes)
        if nodes is None:
            return np.flatnonzero(self.counts(classes) > 0).astype(np.int32)
        return self._distinct(nodes)

    def _distinct(self, nodes: Int32s) -> Int32s:
        """Return nodes ascending and once each."""
        if len(nodes) <= _MANY:
            # Of few, as the pods of most classes are, a set takes a third of the time.
            return np.array(sorted(set(nodes.tolist())), np.int32)
        held = np.zeros(len(self.snapshot.nodes), bool)
        held[nodes] = True
        return np.flatnonzero(held).astype(np.int32)

    def count_on(self, classes: Int32s, node: int) -> int:
        """Return how many pods of ``classes``, terminating ones not, are on one node."""
        nodes = self.nodes_of(classes)
        if nodes is None:
            return int(self.counts(classes)[node])
        return int(np.count_nonzero(nodes == node))

    def nodes_of(self, classes: Int32s, *, terminating: bool = False) -> Int32s | None:
        """Return the node of each pod of ``classes``, one entry per pod; do not write into it.

        None if they have so many pods that :meth:`counts` is the better way. ``terminating`` as there.
        """
        if len(classes) == 1:
            cls = int(classes[0])
            few = self._starts[cls + 1] - self._starts[cls] <= _MANY
            return self._nodes_of(cls, terminating) if few else None
        if self._starts[classes + 1].sum() - self._starts[classes].sum() > _MANY:
            return None
        parts = [_NO_PODS]
        for cls in classes.tolist():
            if (nodes := self._nodes_of(cls, terminating)) is None:
                return None
            parts.append(nodes)
        return np.concatenate(parts)

    def _nodes_of(self, cls: int, terminating: bool) -> Int32s | None:
        stamp = int(self._stamps[cls])
        known = self._whereabouts.get((cls, terminating))
        if known is not None and known[0] == stamp:
            return known[1]
        nodes = (self.snapshot.pods.node if terminating else self._home)[self.pods_of(cls)]
        nodes = nodes[nodes >= 0]
        if changes := self._changes.get(cls):
            left = nodes.tolist()
            for (node, of_terminating), change in changes.items():
                if of_terminating == terminating:
                    left.extend([node] * change)
                    if left.count(node) < -change:
                        return None  # a pod that was terminating already has left
                    for _ in range(-change):
                        left.remove(node)
            nodes = np.array(left, np.int32)
        self._keep_whereabouts(cls, terminating, nodes)
        return nodes

    def _keep_whereabouts(self, cls: int, which: bool | None, nodes: Int32s) -> None:
        if len(self._whereabouts) >= _CACHED_CLASSES:
            self._whereabouts.clear()
        self._whereabouts[cls, which] = int(self._stamps[cls]), nodes

    def counts(self, classes: Int32s, *, terminating: bool = False) -> Int32s:
        """Return how many pods of ``classes`` are on each node (N,); do not write into it.

        ``terminating`` counts those on their way out as well: (anti-)affinity sees them, topology
        spread does not (``podtopologyspread/common.go: countPodsMatchSelector``).
        """
        key = (classes.tobytes(), terminating)
        counts = self._counters.get(key)
        if counts is None:
            counts = self._count(classes, terminating)
            if len(self._counters) * max(1, len(counts)) >= _CACHED_COUNTS:
                self._counters.clear()
                self._counters_of.clear()
            self._counters[key] = counts
            for cls in classes.tolist():
                self._counters_of.setdefault(cls, []).append(key)
        return counts

    def _count(self, classes: Int32s, terminating: bool) -> Int32s:
        parts = [self.pods_of(cls) for cls in classes.tolist()]
        pods = np.concatenate(parts) if parts else np.zeros(0, np.int32)
        if not terminating:
            pods = pods[~self._terminating[pods]]
        nodes = self.snapshot.pods.node[pods]
        counted = np.bincount(nodes[nodes >= 0], minlength=len(self.snapshot.nodes))
        for cls in classes.tolist():
            for (node, of_terminating), change in self._changes.get(cls, {}).items():
                if of_terminating == terminating:
                    counted[node] += change
        return counted.astype(np.int32)

    # -- changing ----------------------------------------------------------------------------------

    def evict(self, pod: int) -> None:
        """Take ``pod`` off its node; it goes on holding its place there until :meth:`reap`."""
        cls, node = int(self.cls_of[pod]), int(self.node_of[pod])
        self.node_of[pod] = -1
        self._change(cls, node, -1, terminating=False)
        self._last(cls, node, -1)
        self.terminating_pods.append(TerminatingPod(cls, node))
        self.version += 1

    def linger(self, cls: int, node: int) -> TerminatingPod:
        """Let a victim that the snapshot does not hold go on holding its place until :meth:`reap`."""
        victim = TerminatingPod(cls, node)
        self.terminating_pods.append(victim)
        self._occupy(victim, +1)
        return victim

    def place(self, pod: int, cls: int, node: int) -> None:
        """Put the replacement of ``pod``, of class ``cls``, on ``node``."""
        self.cls_of[pod], self.node_of[pod] = cls, node
        self._moved[pod] = True
        self._change(cls, node, +1, terminating=False)
        self._change(cls, node, +1, terminating=True)
        self._last(cls, node, +1)
        self._hold(cls, node, +1)
        self.version += 1

    def restore(self, pod: int) -> None:
        """Put ``pod``, which has no node, back where the snapshot has it, as if it had never left."""
        self.place(pod, int(self.snapshot.pods.cls[pod]), int(self.snapshot.pods.node[pod]))
        self._moved[pod] = False

    def unplace(self, pod: int) -> None:
        """Take back the newest :meth:`place`, which must have been of ``pod``: its replacement is on its way."""
        cls, node = int(self.cls_of[pod]), int(self.node_of[pod])
        self.cls_of[pod], self.node_of[pod] = self.snapshot.pods.cls[pod], -1
        self._moved[pod] = False
        self._change(cls, node, -1, terminating=False)
        self._change(cls, node, -1, terminating=True)
        self._last(cls, node, -1)
        self._hold(cls, node, -1)
        self.version += 1

    def reap(self, victim: TerminatingPod | None = None) -> None:
        """Let one terminating victim be gone, or all of them."""
        for gone in [victim] if victim is not None else list(self.terminating_pods):
            self.terminating_pods.remove(gone)
            self._occupy(gone, -1)

    def hide_newest_victim(self) -> None:
        """Let the newest victim be gone for a moment, as the scheduler sees it for owners that wait."""
        self._hidden.append(self.terminating_pods.pop())
        self._occupy(self._hidden[-1], -1)

    def show_newest_victim(self) -> None:
        """Undo :meth:`hide_newest_victim`."""
        self.terminating_pods.append(self._hidden.pop())
        self._occupy(self.terminating_pods[-1], +1)

    def _occupy(self, victim: TerminatingPod, sign: int) -> None:
        self._change(victim.cls, victim.node, sign, terminating=True)
        self._hold(victim.cls, victim.node, sign)
        self.version += 1

    def unevict(self, pod: int) -> None:
        """Take back the newest :meth:`evict`, which must have been of ``pod``."""
        victim = self.terminating_pods.pop()
        self.node_of[pod] = victim.node
        self._change(victim.cls, victim.node, +1, terminating=False)
        self._last(victim.cls, victim.node, +1)
        self.version += 1

    @contextmanager
    def evicted(self, pod: int, *, gone: bool) -> Iterator[None]:
        """Hold the state that the scheduler sees when it places the replacement of ``pod``.

        The victim terminates, or is ``gone``. This is for predictions, which are many: the terms of the
        cost must not be asked meanwhile, and what is kept under a :meth:`stamp` holds again afterwards.
        """
        cls, node = int(self.cls_of[pod]), int(self.node_of[pod])
        stamp = self._stamps[cls]
        self.node_of[pod] = -1
        self.terminating_pods.append(TerminatingPod(cls, node))
        self._count_change(cls, node, -1, terminating=False)
        if gone:
            self._count_change(cls, node, -1, terminating=True)
            self._hold(cls, node, -1)
        try:
            yield
        finally:
            if gone:
                self._hold(cls, node, +1)
                self._count_change(cls, node, +1, terminating=True)
            self._count_change(cls, node, +1, terminating=False)
            self.terminating_pods.pop()
            self.node_of[pod] = node
            self._stamps[cls] = stamp

    @contextmanager
    def without(self, terminating_pods: Sequence[TerminatingPod]) -> Iterator[None]:
        """Hold the state in which some victims are gone; for predictions only, as :meth:`evicted`."""
        stamps = {victim.cls: self._stamps[victim.cls] for victim in terminating_pods}
        for victim in terminating_pods:
            self._count_change(victim.cls, victim.node, -1, terminating=True)
            self._hold(victim.cls, victim.node, -1)
        try:
            yield
        finally:
            for victim in terminating_pods:
                self._hold(victim.cls, victim.node, +1)
                self._count_change(victim.cls, victim.node, +1, terminating=True)
            for cls, stamp in stamps.items():
                self._stamps[cls] = stamp

    @contextmanager
    def filled(self, pod: int, cls: int, node: int) -> Iterator[None]:
        """Hold the state in which ``pod``, which has no node, stands on ``node`` as one of ``cls``.

        For predictions only, as :meth:`evicted`.
        """
        before, stamp = int(self.cls_of[pod]), self._stamps[cls]
        self.cls_of[pod], self.node_of[pod] = cls, node
        for terminating in (False, True):
            self._count_change(cls, node, +1, terminating=terminating)
        self._hold(cls, node, +1)
        try:
            yield
        finally:
            self._hold(cls, node, -1)
            for terminating in (True, False):
                self._count_change(cls, node, -1, terminating=terminating)
            self.cls_of[pod], self.node_of[pod] = before, -1
            self._stamps[cls] = stamp

    def _last(self, cls: int, node: int, sign: int) -> None:
        self._newest_stamp += 1
        self._node_stamps[node] = self._newest_stamp
        self.lasting[:, node] += sign * self.snapshot.requests[:, cls]
        self.lasting_count[node] += sign
        if (usage := self.snapshot.usage) is not None:
            self.lasting_usage[:, node] += sign * usage.classes[:, cls]

    def _measured(self, living: Bools) -> Ints:
        snapshot, usage = self.snapshot, self.snapshot.usage
        if usage is None:
            return np.zeros((len(MEASURED), len(snapshot.nodes)), np.int64)
        going = (snapshot.pods.node >= 0) & ~living
        cls, node = snapshot.pods.cls[going], snapshot.pods.node[going]
        return usage.nodes - summed_by_node(usage.classes, cls, node, len(snapshot.nodes))

    def _hold(self, cls: int, node: int, sign: int) -> None:
        self.used[:, node] += sign * self.snapshot.requests[:, cls]
        self.scored_used[:, node] += sign * self.snapshot.scored[:, cls]
        self.pod_count[node] += sign
        self.touched.append(node)

    def _change(self, cls: int, node: int, change: int, *, terminating: bool) -> None:
        self.changed.append(cls)
        self._count_change(cls, node, change, terminating=terminating)

    def _count_change(self, cls: int, node: int, change: int, *, terminating: bool) -> None:
        self._newest_stamp += 1
        self._stamps[cls] = self._newest_stamp
        of_class = self._changes.setdefault(cls, {})
        total = of_class.pop((node, terminating), 0) + change
        if total:
            of_class[node, terminating] = total
        for key in self._counters_of.get(cls, ()):
            if key[1] == terminating:
                self._counters[key][node] += change
