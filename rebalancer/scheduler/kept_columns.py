"""A cache of resource checks and scores per node; a move invalidates a few nodes only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
        alike = self._alike_of(state, cls)
        columns = self._columns.get(alike)
        if columns is None or self._is_old(state, columns):
            if columns is None and len(self._columns) >= self._limit:
                self._columns.clear()
            columns = self._columns[alike] = self._make(state, cls)
        elif columns.seen < len(state.touched):
            self._renew(state, [(columns, cls)])
        return columns

    def renew(self, state: ClusterState, classes: Iterable[int]) -> None:
        """Update the cached columns of ``classes`` together, which takes less time than one by one."""
        kept = {
            alike: cls for cls in classes if (alike := self._alike_of(state, cls)) in self._columns
        }
        behind = [
            (columns, cls)
            for alike, cls in kept.items()
            if (columns := self._columns[alike]).seen < len(state.touched)
            and not self._is_old(state, columns)
        ]
        if behind:
            self._renew(state, behind)

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

    def without(
        self, state: ClusterState, cls: int, victims: int, nodes: Int32s
    ) -> tuple[Bools, Ints]:
        """Return ``fits`` and ``total`` for a class on distinct ``nodes`` (K,), each after one of ``victims`` has left."""
        with state.without_requests(victims, nodes):
            fits, *_, total = self._compute(state, cls, np.array([cls], np.int32), nodes)
        return fits, total

    def _make(self, state: ClusterState, cls: int) -> Columns:
        columns = self._compute(state, cls, np.array([cls], np.int32), self._all)
        return Columns(*columns, len(state.touched))

    def _renew(self, state: ClusterState, behind: Sequence[tuple[Columns, int]]) -> None:
        """Bring columns, each with one of its classes, up to date where nodes were touched since."""
        # Those that BalancedAllocation does not score are few, and apart.
        by_kind: dict[bool, list[tuple[Columns, int]]] = {}
        for columns, cls in behind:
            by_kind.setdefault(columns.balanced is None, []).append((columns, cls))
        for some in by_kind.values():
            touched = [
                np.array(sorted(set(state.touched[columns.seen :])), np.int32)
                for columns, _ in some
            ]
            nodes = np.concatenate(touched)
            of = np.repeat(np.array([cls for _, cls in some], np.int32), list(map(len, touched)))
            computed = self._compute(state, some[0][1], of, nodes)
            begin = 0
            for (columns, _), mine in zip(some, touched, strict=True):
                here = slice(begin, begin := begin + len(mine))
                fits, allocation, balanced, total = computed
                of_balance = None if balanced is None else balanced[here]
                _write(columns, mine, fits[here], allocation[here], of_balance, total[here])
                columns.seen = len(state.touched)

    def _compute(
        self, state: ClusterState, cls: int, of: Int32s, nodes: Int32s
    ) -> tuple[Bools, Ints, Ints | None, Ints]:
        """Return the columns of some nodes (K,), each for a class ``of`` (K,) or (1,): fits, allocation, balanced and total.

        ``cls``: one of these classes; BalancedAllocation scores all of them or none.
        """
        fits = self._resources.fits(state, of, nodes)
        allocation = self._resources.allocation(state, of, nodes)
        total = self._weights.get(NODE_RESOURCES_FIT, 0) * allocation
        if not self._resources.balances(cls):
            return fits, allocation, None, total
        balanced = self._resources.balanced_score(state, of, nodes, improvement=self._improvement)
        total += self._weights.get(BALANCED_ALLOCATION, 0) * balanced
        return fits, allocation, balanced, total


def _write(
    columns: Columns,
    nodes: Int32s,
    fits: Bools,
    allocation: Ints,
    balanced: Ints | None,
    total: Ints,
) -> None:
    """Write new values of ``nodes`` (K,) into columns, and record the changes in the journal."""
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
