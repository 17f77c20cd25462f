"""The windows of :mod:`rebalancer.scheduler.sampling` for many sets of feasible nodes at once.

A set is a *ring*: its nodes in search order, starting again after the last. Rings are rows of one array, as wide as
the longest ring; entries beyond the end of a shorter ring are ignored.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rebalancer.snapshot.columns import Bools, Floats, Int32s, Ints

_NARROW = 1 << 22


class Rings:
    """Feasible nodes in search order, and all windows of ``size`` consecutive nodes."""

    def __init__(self, order: Int32s, feasible: Bools, size: int) -> None:
        """``order`` (N,) comes from ``search_order``; each row of ``feasible`` (M, N) has more than ``size`` nodes."""
        self.size, self._feasible = size, feasible
        self.number = len(order)
        """N"""
        in_order = feasible[:, order]
        self.count = in_order.sum(axis=1)
        """(M,) F, the nodes of each ring."""
        ring, rank = in_order.nonzero()
        place = np.arange(len(rank)) - (np.cumsum(self.count) - self.count)[ring]
        self.width = int(self.count.max(initial=0))
        ranks = np.zeros((len(feasible), self.width), np.int64)
        ranks[ring, place] = rank
        self.nodes: Int32s = order[ranks]
        """(M, W) the nodes of each ring."""
        self._places = np.zeros(feasible.shape, np.int32)
        self._places[ring, order[rank]] = place
        self._search_rank = np.empty(len(order), np.int64)
        self._search_rank[order] = np.arange(len(order))
        self.begins: Bools = np.arange(self.width) < self.count[:, None]
        """(M, W) where a window begins: at each node."""
        before = np.roll(ranks, 1, axis=1)
        before[:, 0] = np.take_along_axis(ranks, self.count[:, None] - 1, axis=1)[:, 0] - len(order)
        self.weight: Floats = (ranks - before) / len(order)
        """(M, W) how likely each window is."""
        again = np.arange(self.width + size) % self.count[:, None]
        self.around: Int32s = np.take_along_axis(self.nodes, again, axis=1)
        """(M, W + size) the nodes, continued around the end, so that every window is a slice."""

    def largest(self, values: Ints) -> Ints:
        """Return the maximum of ``values`` (V, W + size) in each window (V, W)."""
        block, level = values, 1
        while 2 * level <= self.size:
            block = np.maximum(block[:, :-level], block[:, level:])
            level *= 2
        shift = self.size - level
        largest: Ints = np.maximum(block[:, : self.width], block[:, shift : shift + self.width])
        return largest

    def smallest(self, values: Ints) -> Ints:
        """Return the minimum of ``values`` (V, W + size) in each window (V, W)."""
        return -self.largest(-values)

    def total(self, marked: Bools) -> Ints:
        """Return the number of marked nodes (V, W + size) in each window (V, W)."""
        until = sums(marked)
        total: Ints = until[:, self.size :][:, : self.width] - until[:, : self.width]
        return total

    def count_scored(self, domains: NDArray[np.intp] | None, ignored: Bools) -> Ints:
        """Return the number of distinct domains (None: of nodes) in each window: (M, W), or (M, 1) if all are equal.

        ``domains`` (N,): the domain of each node; nodes in ``ignored`` (N,) are not counted.
        """
        if domains is not None:
            return self._distinct(domains, ~ignored)
        if not ignored.any():
            return np.full((len(self.count), 1), self.size)
        return self.total(~ignored[self.around])

    def _distinct(self, values: NDArray[np.intp], kept: Bools) -> Ints:
        """Return the number of distinct ``values`` (N,) of the ``kept`` nodes (N,) per window, (M, W) or (M, 1)."""
        by_value = np.lexsort((self._search_rank, values))
        by_value = by_value[kept[by_value]]
        ring, column = self._feasible[:, by_value].nonzero()
        nodes = by_value[column]
        place, value = self._places[ring, nodes], values[nodes]
        first = np.ones(len(ring) + 1, bool)
        first[1:-1] = (ring[1:] != ring[:-1]) | (value[1:] != value[:-1])
        # Where a value's next node is further away than a window reaches, windows in between lack it.
        following = np.append(place[1:], 0)
        last = first[1:].nonzero()[0]
        following[last] = place[first[:-1]] + self.count[ring[last]]
        counts = np.bincount(ring[first[:-1]], minlength=len(self.count))[:, None]
        far = (following - place > self.size).nonzero()[0]
        if not len(far):
            return counts
        lacking = np.zeros((len(self.count), 2 * self.width + 1), np.int64)
        np.add.at(lacking, (ring[far], place[far] + 1), 1)
        np.add.at(lacking, (ring[far], following[far] - self.size + 1), -1)
        lacking = np.cumsum(lacking, axis=1)
        around = np.arange(self.width) + self.count[:, None]
        lacks = lacking[:, : self.width] + np.take_along_axis(
            lacking, np.minimum(around, 2 * self.width), axis=1
        )
        return counts - lacks


def sums(marked: Bools) -> Int32s:
    """Return the running sums (V, L + 1): the number of marked entries (V, L) before each position."""
    until = np.zeros((marked.shape[0], marked.shape[1] + 1), np.int32)
    np.cumsum(marked, axis=1, out=until[:, 1:])
    return until


def narrow(values: Ints) -> Ints:
    """Return ``values`` with half the bit width if they fit; later operations are then twice as fast."""
    if values.size and int(values.min()) > -_NARROW and int(values.max()) < _NARROW:
        return values.astype(np.int32)
    return values
