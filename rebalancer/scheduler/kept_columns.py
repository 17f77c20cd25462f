"""A cache of resource checks and scores per node; a move invalidates a few nodes only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
    journal: list[tuple[int, int, bool]] = field(default_factory=list)
    """(node, by how much its total rose, whether ``fits`` changed), once per change; it only grows."""


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
        if state is not self._state:
            self._state = state
            self._columns.clear()
        alike = self._alike.get(cls)
        if alike is None:
            alike = self._alike[cls] = self._resources.alike(cls)
        columns = self._columns.get(alike)
        if columns is None or len(state.touched) - columns.seen > len(self._all) // 4:
            if columns is None and len(self._columns) >= self._limit:
                self._columns.clear()
            columns = self._columns[alike] = self._make(state, cls)
        elif columns.seen < len(state.touched):
            touched = sorted(set(state.touched[columns.seen :]))
            self._renew(columns, state, cls, np.array(touched, np.int32))
            columns.seen = len(state.touched)
        return columns

    def without(
        self, state: ClusterState, cls: int, victims: int, nodes: Int32s
    ) -> tuple[Bools, Ints]:
        """Return ``fits`` and ``total`` for a class on distinct ``nodes`` (K,), each after one of ``victims`` has left."""
        with state.without_requests(victims, nodes):
            fits, *_, total = self._compute(state, cls, nodes)
        return fits, total

    def _make(self, state: ClusterState, cls: int) -> Columns:
        return Columns(*self._compute(state, cls, self._all), len(state.touched))

    def _renew(self, columns: Columns, state: ClusterState, cls: int, nodes: Int32s) -> None:
        fits, allocation, balanced, total = self._compute(state, cls, nodes)
        refits = fits != columns.fits[nodes]
        columns.fits[nodes] = fits
        columns.allocation[nodes] = allocation
        if columns.balanced is not None and balanced is not None:
            columns.balanced[nodes] = balanced
        rise = total - columns.total[nodes]
        columns.total[nodes] = total
        some = refits | (rise != 0)
        if some.any():
            changes = (nodes[some].tolist(), rise[some].tolist(), refits[some].tolist())
            columns.journal.extend(zip(*changes, strict=True))

    def _compute(
        self, state: ClusterState, cls: int, nodes: Int32s
    ) -> tuple[Bools, Ints, Ints | None, Ints]:
        """Return the columns of some nodes (K,): fits, allocation, balanced and total."""
        fits = self._resources.fits(state, cls, nodes)
        allocation = self._resources.allocation(state, cls, nodes)
        balanced = self._resources.balanced_score(state, cls, nodes, improvement=self._improvement)
        total = self._weights.get(NODE_RESOURCES_FIT, 0) * allocation
        if balanced is not None:
            total += self._weights.get(BALANCED_ALLOCATION, 0) * balanced
        return fits, allocation, balanced, total
