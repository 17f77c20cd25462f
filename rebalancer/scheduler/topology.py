"""Topology keys as columns, and sums over their domains."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rebalancer.snapshot.columns import Bools, Floats, Int32s, Ints
from rebalancer.snapshot.labels import MISSING, NodeLabels
from rebalancer.snapshot.state import ClusterState

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"

# How many numbers all arrays of one cache may hold before it is emptied.
_CACHED_NUMBERS = 8_000_000
_Array = TypeVar("_Array")


class Topology:
    """One topology key: the nodes that carry it, and the domain of each."""

    def __init__(self, labels: NodeLabels, key: str) -> None:
        self.key = key
        column = labels.column(key)
        self.size = len(labels.values(key))
        """D, the number of values that nodes carry."""
        self.present: Bools = column != MISSING
        """(N,) whether a node carries the key."""
        self.domain: NDArray[np.intp] = np.where(self.present, column, self.size).astype(np.intp)
        """(N,) domain of each node, D where it lacks the key."""
        self.everywhere = bool(self.present.all())
        """Whether all nodes carry the key."""
        values = labels.values(key)
        nameless = values.index("") if "" in values else self.size
        self.named: NDArray[np.intp] = np.where(self.present, column, nameless).astype(np.intp)
        """(N,) the same, but a node that lacks the key is in the domain named by the empty string."""

    def sums(self, amounts: Ints | Int32s | Bools | Floats) -> Ints:
        """Return the sums (D + 1,) of ``amounts`` (N,) per domain; the last entry is 0."""
        # Counts of pods stay far below 2**53, so the sums in float64 are exact.
        total = np.bincount(self.domain, weights=amounts, minlength=self.size + 1).astype(np.int64)
        total[self.size] = 0
        return total

    def of_pods(
        self,
        state: ClusterState,
        classes: Int32s,
        eligible: Bools | None = None,
        *,
        terminating: bool = False,
    ) -> Ints:
        """Return the number of pods of ``classes`` in each domain (D + 1,); the last entry is 0.

        Only pods on ``eligible`` nodes (N,) count, if given; ``terminating`` as for ``ClusterState.counts``.
        """
        nodes = state.nodes_of(classes, terminating=terminating)
        if eligible is not None:
            nodes = nodes[eligible[nodes]]
        total = np.bincount(self.domain[nodes], minlength=self.size + 1)
        total[self.size] = 0
        return total

    def spread_out(self, sums: Ints) -> Ints:
        """Return per node (N,) the entry of its domain; 0 if it lacks the key."""
        return sums[self.domain]


class Topologies:
    """The topology keys of a cluster; each is computed on first use."""

    def __init__(self, labels: NodeLabels) -> None:
        self._labels = labels
        self._known: dict[str, Topology] = {}

    def __getitem__(self, key: str) -> Topology:
        topology = self._known.get(key)
        if topology is None:
            topology = self._known[key] = Topology(self._labels, key)
        return topology


class ArrayCache:
    """A cache of arrays over the nodes, by key. It is emptied when it has too many entries."""

    def __init__(self, nodes: int) -> None:
        self._limit = max(64, _CACHED_NUMBERS // max(1, nodes))
        self._arrays: dict[Hashable, object] = {}

    def get(self, key: Hashable, make: Callable[[], _Array]) -> _Array:
        """Return the array cached under ``key``; compute it with ``make`` if it is missing."""
        array = self._arrays.get(key)
        if array is None:
            if len(self._arrays) >= self._limit:
                self._arrays.clear()
            array = self._arrays[key] = make()
            if isinstance(array, np.ndarray):
                array.setflags(write=False)
        return array  # type: ignore[return-value]  # what was made under this key
