"""Which nodes are scored in a large cluster, as a distribution over windows.

From 100 nodes on the scheduler stops its search at the K-th feasible node. It searches in a fixed order
(zones round robin, ``backend/cache/node_tree.go``) from where the last search ended, so every stretch of
K feasible nodes is as likely as the search is to start right before it. All windows are evaluated
exactly: the normalisations need only sliding extremes, and windows with equal extremes share one total.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rebalancer.scheduler.profile import (
    INTER_POD_AFFINITY,
    NODE_AFFINITY,
    POD_TOPOLOGY_SPREAD,
    TAINT_TOLERATION,
)
from rebalancer.scheduler.scores import (
    RawScores,
    between,
    by_largest,
    from_fewest,
    spread_score,
)
from rebalancer.snapshot.columns import Bools, Floats, Int32s, Ints
from rebalancer.snapshot.labels import MISSING
from rebalancer.snapshot.model import Nodes

# More kinds of windows than this are stood for by so many windows, evenly spread.
_MAX_KINDS = 48
# Keys up to so large are numbered by a table, larger ones by sorting.
_TABLE = 1 << 16
_DENSE = 1 << 12
_ZONE = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
_REGION = ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region")


def search_order(nodes: Nodes) -> Int32s:
    """Return the nodes (N,) in the order of the scheduler's search.

    Within a zone it is the order in which the scheduler got to know them. That is taken to be the order
    of their creation, then of their names, since no API shows it.
    """
    known = np.lexsort((np.arange(len(nodes)), nodes.created))
    zones = _first(nodes, _ZONE), _first(nodes, _REGION)
    zone = np.unique(np.stack(zones), axis=1, return_inverse=True)[1].reshape(-1)[known]
    _, first, of_node = np.unique(zone, return_index=True, return_inverse=True)
    appearance = np.argsort(np.argsort(first))[of_node]
    by_zone = np.argsort(appearance, kind="stable")
    starts = np.searchsorted(appearance[by_zone], np.arange(len(first)))
    rank = np.empty(len(nodes), np.int64)
    rank[by_zone] = np.arange(len(nodes)) - starts[appearance[by_zone]]
    order: Int32s = known[np.lexsort((appearance, rank))].astype(np.int32)
    return order


def _first(nodes: Nodes, keys: tuple[str, str]) -> Int32s:
    """Return value ids of the first key where a node carries it, of the second (shifted) elsewhere."""
    old, new = (nodes.labels.column(key) for key in keys)
    names = nodes.labels.values(keys[0]), nodes.labels.values(keys[1])
    ids = {name: index for index, name in enumerate(dict.fromkeys((*names[0], *names[1])))}
    maps = [np.array([ids[name] for name in of_key] + [ids.get("", MISSING)]) for of_key in names]
    return np.where(old != MISSING, maps[0][old], maps[1][new]).astype(np.int32)


class Windows:
    """All stretches of ``size`` feasible nodes in the order of the search."""

    def __init__(self, order: Int32s, feasible: Bools, size: int) -> None:
        rank = np.flatnonzero(feasible[order])
        self.nodes: Int32s = order[rank]
        """(F,) the feasible nodes in the order of the search."""
        self.size = size
        weight = np.diff(rank, prepend=rank[-1] - len(order)).astype(np.float64)
        self.weight: Floats = weight / weight.sum()
        """(F,) how likely the window is that begins at each of them."""

    def around(self, values: NDArray[np.generic]) -> NDArray[np.generic]:
        """Return values (F,) continued around the end, so that every window is a slice."""
        return np.concatenate([values, values[: self.size]])

    def largest(self, values: Ints) -> Ints:
        """Return the largest value (F,) in each window."""
        if not len(values) or (values == values[0]).all():
            return values
        block, level = self.around(values), 1
        while 2 * level <= self.size:
            block = np.maximum(block[:-level], block[level:])
            level *= 2
        shift = self.size - level
        count = len(self.nodes)
        found: Ints = np.maximum(block[:count], block[shift : shift + count])
        return found

    def smallest(self, values: Ints) -> Ints:
        """Return the smallest value (F,) in each window."""
        return -self.largest(-values)

    def total(self, values: Ints | Bools) -> Ints:
        """Return the sum (F,) over each window."""
        sums = np.concatenate([[0], np.cumsum(self.around(values))])
        found: Ints = (sums[self.size :] - sums[: -self.size])[: len(self.nodes)]
        return found

    def distinct(self, values: Ints, kept: Bools) -> Ints:
        """Return how many different values (F,) of the kept nodes each window holds."""
        around, keep = self.around(values), self.around(kept)
        places = np.flatnonzero(keep)
        by_value = places[np.argsort(around[places], kind="stable")]
        same = np.diff(around[by_value], prepend=-2) == 0
        before = np.where(same, np.concatenate([[-1], by_value[:-1]]), -1)
        # Place p brings a new value to the windows that begin after its predecessor and hold p.
        begin = np.maximum(before + 1, by_value - self.size + 1).clip(0)
        steps = np.bincount(begin, minlength=len(around) + 2) - np.bincount(
            by_value + 1, minlength=len(around) + 2
        )
        return np.cumsum(steps)[: len(self.nodes)]


def distribution(raw: RawScores, weights: Mapping[str, int], windows: Windows) -> Floats:
    """Return how likely each of ``windows.nodes`` (F,) is to be chosen."""
    extremes = _Extremes(raw, weights, windows)
    chance = np.zeros(len(windows.nodes) + windows.size)
    begin, weight = _representatives(extremes.kinds, windows.weight)
    kind = extremes.kinds[begin]
    for one in np.flatnonzero(np.bincount(kind)).tolist():
        mine = kind == one
        total = extremes.totals(int(begin[mine][0]))
        _share_out(chance, windows, total, begin[mine], weight[mine])
    chance[: windows.size] += chance[len(windows.nodes) :]
    found: Floats = chance[: len(windows.nodes)]
    return np.asarray(found / found.sum(), np.float64)


def _representatives(kinds: Ints, weight: Floats) -> tuple[Ints, Floats]:
    """Return which windows to evaluate, and how much each of them counts."""
    # Kinds are numbered without gaps.
    if int(kinds.max()) < _MAX_KINDS:
        return np.flatnonzero(weight), weight[np.flatnonzero(weight)]
    middles = (np.arange(_MAX_KINDS) + 0.5) / _MAX_KINDS
    chosen = np.searchsorted(np.cumsum(weight), middles).clip(0, len(weight) - 1)
    return chosen, np.full(_MAX_KINDS, 1 / _MAX_KINDS)


def _share_out(chance: Floats, windows: Windows, total: Ints, begin: Ints, weight: Floats) -> None:
    """Add each window's weight to its best nodes, in equal parts: which of them wins is not known."""
    best = windows.largest(total)[begin]
    around = windows.around(total)
    for value in np.unique(best):
        mine = best == value
        places = np.flatnonzero(around == value)
        low = np.searchsorted(places, begin[mine])
        high = np.searchsorted(places, begin[mine] + windows.size)
        share = weight[mine] / (high - low)
        steps = np.bincount(low, share, len(places) + 1) - np.bincount(high, share, len(places) + 1)
        chance[places] += np.cumsum(steps)[:-1].clip(0)


class _Extremes:
    """Per window what normalisation needs, and which windows agree in it."""

    def __init__(self, raw: RawScores, weights: Mapping[str, int], windows: Windows) -> None:
        self._raw, self._weights, self._windows = raw, weights, windows
        nodes = windows.nodes
        self._taints = raw.taints[nodes]
        self._affinity = None if raw.affinity is None else raw.affinity[nodes]
        self._interpod = None if raw.interpod is None else raw.interpod[nodes]
        columns = [windows.largest(self._taints)]
        if self._affinity is not None:
            columns.append(windows.largest(self._affinity))
        if self._interpod is not None:
            columns += [windows.smallest(self._interpod), windows.largest(self._interpod)]
        if raw.spread is not None:
            columns += self._spread_extremes()
        self._columns = columns
        self.kinds = _grouped(columns)
        """(F,) windows of one kind have the same extremes."""

    def _spread_extremes(self) -> list[Ints]:
        spread, windows = self._raw.spread, self._windows
        assert spread is not None  # noqa: S101  # asked only then
        kept = ~spread.ignored[windows.nodes]
        self._sizes = [
            windows.total(kept) if domain is None else windows.distinct(domain[windows.nodes], kept)
            for domain in spread.domains
        ]
        groups = _grouped(self._sizes)
        low, high = np.zeros_like(groups), np.zeros_like(groups)
        self._spread_raw: dict[tuple[int, ...], Ints] = {}
        for group in range(int(groups.max()) + 1):
            mine = np.flatnonzero(groups == group)
            values = self._raw_spread(int(mine[0]))
            low[mine] = windows.smallest(np.where(kept, values, np.iinfo(np.int64).max // 2))[mine]
            high[mine] = windows.largest(np.where(kept, values, 0))[mine]
        self._low, self._high = np.where(windows.total(kept) > 0, low, 0), high
        return [groups, self._low, self._high]

    def _raw_spread(self, window: int) -> Ints:
        sizes = tuple(int(size[window]) for size in self._sizes)
        if sizes not in self._spread_raw:
            spread = self._raw.spread
            assert spread is not None  # noqa: S101  # asked only then
            self._spread_raw[sizes] = spread.raw(sizes)[self._windows.nodes]
        return self._spread_raw[sizes]

    def totals(self, window: int) -> Ints:
        """Return the total scores (F,) as they are for windows of this one's kind."""
        nodes, weights = self._windows.nodes, self._weights
        extremes = iter(int(column[window]) for column in self._columns)
        total = self._raw.fixed_total[nodes]
        total += weights.get(TAINT_TOLERATION, 0) * from_fewest(self._taints, next(extremes))
        if self._affinity is not None:
            total += weights.get(NODE_AFFINITY, 0) * by_largest(self._affinity, next(extremes))
        if self._interpod is not None:
            low, high = next(extremes), next(extremes)
            # Nodes outside the window may lie outside its extremes; they are not looked at.
            inside = np.clip(self._interpod, low, high)
            total += weights.get(INTER_POD_AFFINITY, 0) * between(inside, low, high)
        if self._raw.spread is not None:
            low, high = int(self._low[window]), int(self._high[window])
            ignored = self._raw.spread.ignored[nodes]
            score = spread_score(self._raw_spread(window), ignored, low, high)
            total += weights.get(POD_TOPOLOGY_SPREAD, 0) * score
        return total


def _grouped(columns: list[Ints]) -> Ints:
    """Return group numbers (F,): rows with equal entries in all columns share one."""
    groups = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        low, high = int(column.min()), int(column.max())
        # Most columns say the same of every window.
        if low == high:
            continue
        spread = high - low + 1
        if spread > _DENSE:
            ids = np.unique(column, return_inverse=True)[1].reshape(-1)
            spread = int(ids.max()) + 1
        else:
            ids = column - low
        groups = _numbered(groups * spread + ids)
    return groups


def _numbered(keys: Ints) -> Ints:
    """Return the rank (F,) of each key among those that occur."""
    if int(keys.max()) < _TABLE:
        occurs = np.bincount(keys) > 0
        return (np.cumsum(occurs) - 1)[keys]
    return np.unique(keys, return_inverse=True)[1].reshape(-1).astype(np.int64)
