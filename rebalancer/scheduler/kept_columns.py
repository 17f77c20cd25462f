"""A cache of resource checks and scores per node; a move invalidates a few nodes only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rebalancer.scheduler.profile import BALANCED_ALLOCATION, NODE_RESOURCES_FIT
from rebalancer.scheduler.resources import Resources
from rebalancer.snapshot.columns import Bools, Int32s, Ints
from rebalancer.snapshot.state import ClusterState

# How many nodes all kept columns may cover before they are rebuilt.
_KEPT_NODES = 1_000_000


@dataclass(slots=True)
class Columns:
    """Resource checks and scores of all nodes, for pods with equal requests; read-only."""

    fits: Bools
    """(N,) where there is room for one more."""
    allocation: Ints
    balanced: Ints | None
    total: Ints
    """(N,) weighted sum of both scores."""
    seen: int
    """Up to where the state's journal of touched nodes is in it."""


class KeptColumns:
    """The columns of each distinct request, updated for the nodes that changed since."""

    def __init__(
        self, resources: Resources, weights: Mapping[str, int], nodes: int, *, improvement: bool
    ) -> None:
        self._resources, self._weights, self._improvement = resources, weights, improvement
        self._all = np.arange(nodes, dtype=np.int32)
        self._limit = max(16, _KEPT_NODES // max(1, nodes))
        self._state: ClusterState | None = None
        self._columns: dict[bytes, Columns] = {}
        self._alike: dict[int, bytes] = {}

    def of(self, state: ClusterState, cls: int) -> Columns:
        """Return the columns of a class for the current state."""
        alike = self._alike_of(state, cls)
        columns = self._columns.get(alike)
        if columns is None or self._is_old(state, columns):
            if columns is None and len(self._columns) >= self._limit:
                self._columns.clear()
            columns = self._columns[alike] = self._make(state, cls)
        elif columns.seen < len(state.touched):
            self._renew(state, columns, cls)
        return columns

    def _alike_of(self, state: ClusterState, cls: int) -> bytes:
        """Return the cache shared by classes with equal requests. Drop entries of another state."""
        if state is not self._state:
            self._state = state
            self._columns.clear()
        alike = self._alike.get(cls)
        if alike is None:
            alike = self._alike[cls] = self._resources.alike(cls)
        return alike

    def _is_old(self, state: ClusterState, columns: Columns) -> bool:
        """Return whether enough nodes have changed to compute all columns again."""
        return len(state.touched) - columns.seen > len(self._all) // 4

    def _make(self, state: ClusterState, cls: int) -> Columns:
        columns = self._compute(state, cls, self._all)
        return Columns(*columns, len(state.touched))

    def _renew(self, state: ClusterState, columns: Columns, cls: int) -> None:
        """Bring the columns of a class up to date where nodes were touched since."""
        nodes = np.array(sorted(set(state.touched[columns.seen :])), np.int32)
        fits, allocation, balanced, total = self._compute(state, cls, nodes)
        columns.fits[nodes] = fits
        columns.allocation[nodes] = allocation
        if columns.balanced is not None and balanced is not None:
            columns.balanced[nodes] = balanced
        columns.total[nodes] = total
        columns.seen = len(state.touched)

    def _compute(
        self, state: ClusterState, cls: int, nodes: Int32s
    ) -> tuple[Bools, Ints, Ints | None, Ints]:
        """Return the columns of some nodes (K,): fits, allocation, balanced and total."""
        of = np.array([cls], np.int32)
        fits = self._resources.fits(state, of, nodes)
        allocation = self._resources.allocation(state, of, nodes)
        total = self._weights.get(NODE_RESOURCES_FIT, 0) * allocation
        if not self._resources.balances(cls):
            return fits, allocation, None, total
        balanced = self._resources.balanced_score(state, of, nodes, improvement=self._improvement)
        total += self._weights.get(BALANCED_ALLOCATION, 0) * balanced
        return fits, allocation, balanced, total
