"""Topology keys as columns."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rebalancer.snapshot.columns import Bools
from rebalancer.snapshot.labels import MISSING, NodeLabels

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
        values = labels.values(key)
        nameless = values.index("") if "" in values else self.size
        self.named: NDArray[np.intp] = np.where(self.present, column, nameless).astype(np.intp)
        """(N,) the same, but a node that lacks the key is in the domain named by the empty string."""


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
