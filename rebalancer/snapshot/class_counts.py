"""Counts of pods per class and node. All counting in the project uses these.

Counts are kept per *counter*, a set of classes, and computed on first use: selectors, anti-affinity terms, owners
and host ports are all sets of classes.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from rebalancer.snapshot.columns import Int32s, Ints
from rebalancer.snapshot.model import PodFlag, Snapshot

# Dense (N,) count vectors are kept up to this many numbers in all, then dropped and made again.
_CACHED_COUNTS = 32_000_000
# Classes with more pods than this are counted per node once and kept, rather than again each time.
_MANY = 256
# Of so many classes it is remembered where their pods are.
CACHED_CLASSES = 8192
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
        self._stamps = np.zeros(len(snapshot.classes), np.int64)
        self._newest_stamp = 0
        self._changes: dict[int, dict[tuple[int, bool], int]] = {}
        """Class -> (node, whether terminating pods count) -> by how many pods it differs from the snapshot."""
        self._whereabouts: dict[tuple[int, bool], tuple[int, Int32s]] = {}
        self._counters: dict[tuple[bytes, bool], Int32s] = {}
        self._counters_of: dict[int, list[tuple[bytes, bool]]] = {}

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

    def stamp(self, classes: Int32s) -> int | tuple[int, ...]:
        """Return a value that is equal while all pods of ``classes`` are in the same places.

        Undoing a change restores the old value, so that results cached under it are valid again.
        """
        if len(classes) == 1:
            return int(self._stamps[classes[0]])
        return tuple(self._stamps[classes].tolist())

    def newest_stamp(self, classes: Int32s) -> int:
        """Return the largest of the stamps of ``classes``; it is equal while their pods stay."""
        return int(self._stamps[classes].max(initial=0))

    def counts_by(self, classes: Int32s, of_node: Int32s, size: int) -> Ints:
        """Return the number of pods of ``classes``, without terminating ones, in each of ``size`` domains.

        ``of_node`` (N,): the domain of each node, -1 for none. The time depends on the number of pods, not of nodes.
        """
        nodes = self.nodes_of(classes)
        if nodes is None:
            per_node = self.counts(classes)
            inside = of_node >= 0
            return np.bincount(of_node[inside], per_node[inside], size).astype(np.int64)
        domains = of_node[nodes]
        return np.bincount(domains[domains >= 0], minlength=size)

    def occupied(self, classes: Int32s) -> Int32s:
        """Return the distinct nodes, ascending, with pods of ``classes``; terminating pods do not count."""
        nodes = self.nodes_of(classes)
        if nodes is None:
            return np.flatnonzero(self.counts(classes) > 0).astype(np.int32)
        return self.distinct(nodes)

    def distinct(self, nodes: Int32s) -> Int32s:
        """Return the distinct nodes, ascending."""
        if len(nodes) <= _MANY:
            # Of few, as the pods of most classes are, a set takes a third of the time.
            return np.array(sorted(set(nodes.tolist())), np.int32)
        held = np.zeros(len(self.snapshot.nodes), bool)
        held[nodes] = True
        return np.flatnonzero(held).astype(np.int32)

    def count_on(self, classes: Int32s, node: int) -> int:
        """Return the number of pods of ``classes`` on one node, without terminating ones."""
        nodes = self.nodes_of(classes)
        if nodes is None:
            return int(self.counts(classes)[node])
        return int(np.count_nonzero(nodes == node))

    def nodes_of(self, classes: Int32s, *, terminating: bool = False) -> Int32s | None:
        """Return the node of each pod of ``classes``, one entry per pod; read-only.

        None if there are so many pods that :meth:`counts` is faster. ``terminating``: see :meth:`counts`.
        """
        if len(classes) == 1:
            cls = int(classes[0])
            return self._nodes_of(cls, terminating) if self._pods.size(cls) <= _MANY else None
        starts = self._pods.starts
        if starts[classes + 1].sum() - starts[classes].sum() > _MANY:
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
        changed = self._with_changes(cls, nodes[nodes >= 0], terminating)
        if changed is None:
            return None
        if len(self._whereabouts) >= CACHED_CLASSES:
            self._whereabouts.clear()
        self._whereabouts[cls, terminating] = stamp, changed
        return changed

    def _with_changes(self, cls: int, nodes: Int32s, terminating: bool) -> Int32s | None:
        """Return ``nodes`` updated by the changes.

        None if a pod has left that was already terminating in the snapshot.
        """
        changes = self._changes.get(cls)
        if not changes:
            return nodes
        mine = {node: change for (node, of), change in changes.items() if of == terminating}
        left: list[int] = []
        for node in nodes.tolist():
            if mine.get(node, 0) < 0:
                mine[node] += 1
            else:
                left.append(node)
        if any(change < 0 for change in mine.values()):
            return None
        for node, change in mine.items():
            left.extend([node] * change)
        return np.array(left, np.int32)

    def counts(self, classes: Int32s, *, terminating: bool = False) -> Int32s:
        """Return the number of pods of ``classes`` on each node (N,); read-only.

        With ``terminating``, terminating pods count as well: (anti-)affinity counts them, topology spread does not
        (``podtopologyspread/common.go: countPodsMatchSelector``).
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
