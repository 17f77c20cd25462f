"""The nodes that the scheduler scores in a large cluster, as a distribution over windows.

From 100 nodes on the scheduler stops its search at the K-th feasible node. It searches in a fixed order (zones round
robin, ``backend/cache/node_tree.go``), starting where the last search ended. So the probability of a window of K
feasible nodes is the probability that the search starts directly before it. All windows are evaluated exactly:
normalisation needs only sliding extremes, and windows with equal extremes share one total.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
from rebalancer.scheduler.spread import SoftSpread
from rebalancer.snapshot.columns import Bools, Floats, Int32s, Ints
from rebalancer.snapshot.labels import MISSING
from rebalancer.snapshot.model import Nodes

# More kinds of windows than this are stood for by so many windows, evenly spread.
MAX_KINDS = 48
# Keys up to so large are numbered by a table, larger ones by sorting.
_TABLE = 1 << 16
_DENSE = 1 << 12
_NARROW = 1 << 30
_ZONE = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
_REGION = ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region")

Column = int | Ints
"""Something of every window: one number where they agree, else (F,)."""
Margins = NDArray[np.int32]
Arrays = tuple[Ints | Bools, ...]


def search_order(nodes: Nodes) -> Int32s:
    """Return the nodes (N,) in the order of the scheduler's search.

    Within a zone the scheduler uses the order in which it first saw the nodes. No API shows that order, so creation
    time and then name are used.
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
    """Return per node (N,) the value id of the first key, or of the second key (shifted) if the first is absent."""
    old, new = (nodes.labels.column(key) for key in keys)
    names = nodes.labels.values(keys[0]), nodes.labels.values(keys[1])
    ids = {name: index for index, name in enumerate(dict.fromkeys((*names[0], *names[1])))}
    maps = [np.array([ids[name] for name in of_key] + [ids.get("", MISSING)]) for of_key in names]
    return np.where(old != MISSING, maps[0][old], maps[1][new]).astype(np.int32)


class Windows:
    """All windows of ``size`` consecutive feasible nodes in search order."""

    def __init__(self, order: Int32s, feasible: Bools, size: int) -> None:
        rank = np.flatnonzero(feasible[order])
        self.nodes: Int32s = order[rank]
        """(F,) the feasible nodes in the order of the search."""
        self.size = size
        weight = np.diff(rank, prepend=rank[-1] - len(order)).astype(np.float64)
        self.weight: Floats = weight / weight.sum()
        """(F,) how likely the window is that begins at each of them."""
        self.begin: Ints = np.flatnonzero(self.weight)
        self._known: dict[tuple[str, int, int], tuple[object, Column]] = {}

    def compute_once(self, what: str, static: Arrays, make: Callable[[], Column]) -> Column:
        """Return a column computed from arrays that many classes share; computed once."""
        key = (what, id(static[0]), id(static[-1]))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = static, make()
        return known[1]

    def everywhere(self, marked: Bools) -> bool:
        """Return whether every window contains a marked node (F,)."""
        places = marked.nonzero()[0]
        if not len(places):
            return False
        if int(places[0]) + len(marked) - int(places[-1]) > self.size:
            return False
        return bool((places[1:] - places[:-1]).max(initial=0) <= self.size)

    def most(self, values: Ints) -> Column:
        """Return the maximum in each window: one number if all are equal, else (F,)."""
        top = int(values.max())
        return top if self.everywhere(values == top) else self.largest(values)

    def least(self, values: Ints) -> Column:
        """Return the minimum in each window: one number if all are equal, else (F,)."""
        low = int(values.min())
        return low if self.everywhere(values == low) else self.smallest(values)

    def around(self, values: NDArray[np.generic]) -> NDArray[np.generic]:
        """Return ``values`` (F,) extended beyond the end by their beginning, so that every window is a slice."""
        return np.concatenate([values, values[: self.size]])

    def largest(self, values: Ints) -> Ints:
        """Return the maximum in each window (F,)."""
        if not len(values) or (values == values[0]).all():
            return values
        if int(values.min()) > -_NARROW and int(values.max()) < _NARROW:
            # Half as wide, twice as fast.
            values = values.astype(np.int32)
        block, level = self.around(values), 1
        while 2 * level <= self.size:
            block = np.maximum(block[:-level], block[level:])
            level *= 2
        shift = self.size - level
        count = len(self.nodes)
        largest: Ints = np.maximum(block[:count], block[shift : shift + count])
        return largest

    def smallest(self, values: Ints) -> Ints:
        """Return the minimum in each window (F,)."""
        return -self.largest(-values)

    def total(self, values: Ints | Bools) -> Ints:
        """Return the sum over each window (F,)."""
        sums = np.concatenate([[0], np.cumsum(self.around(values))])
        in_windows: Ints = (sums[self.size :] - sums[: -self.size])[: len(self.nodes)]
        return in_windows

    def distinct(self, values: Ints, kept: Bools) -> Ints:
        """Return per window (F,) the number of distinct ``values`` (F,) of the ``kept`` nodes."""
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


def distribution(
    raw: RawScores, weights: Mapping[str, int], windows: Windows
) -> tuple[Floats, Margins]:
    """Return per node (F,) the probability of being chosen, and the margin by which its score is too low.

    A node whose score increases by less than its margin still wins in no window. A margin of 0 or less: it may win
    now.
    """
    extremes = _Extremes(raw, weights, windows)
    chance = np.zeros(len(windows.nodes) + windows.size)
    if extremes.kinds is None:
        total = extremes.totals(0)
        least = _share_out(chance, windows, total, windows.begin, windows.weight[windows.begin])
        margins = least - total
    else:
        margins = np.full(len(windows.nodes), np.iinfo(np.int32).max, np.int64)
        begin, weight = _representatives(extremes.kinds, windows)
        kind = extremes.kinds[begin]
        for one in np.flatnonzero(np.bincount(kind)).tolist():
            mine = kind == one
            total = extremes.totals(int(begin[mine][0]))
            least = _share_out(chance, windows, total, begin[mine], weight[mine])
            margins = np.minimum(margins, least - total)
    chance[: windows.size] += chance[len(windows.nodes) :]
    of_nodes: Floats = chance[: len(windows.nodes)]
    return np.asarray(of_nodes / of_nodes.sum(), np.float64), margins.astype(np.int32)


def _representatives(kinds: Ints, windows: Windows) -> tuple[Ints, Floats]:
    """Return the windows to evaluate, and the weight of each."""
    # Kinds are numbered without gaps.
    if int(kinds.max()) < MAX_KINDS:
        return windows.begin, windows.weight[windows.begin]
    weight = windows.weight
    middles = (np.arange(MAX_KINDS) + 0.5) / MAX_KINDS
    chosen = np.searchsorted(np.cumsum(weight), middles).clip(0, len(weight) - 1)
    return chosen, np.full(MAX_KINDS, 1 / MAX_KINDS)


def _share_out(chance: Floats, windows: Windows, total: Ints, begin: Ints, weight: Floats) -> int:
    """Divide each window's weight equally among its best nodes, since the scheduler picks one at random.

    Return the smallest of the windows' best scores.
    """
    most, around = windows.most(total), windows.around(total)
    if isinstance(most, int):
        _give(chance, around == most, windows.size, begin, weight)
        return most
    best = most[begin]
    for value in np.unique(best):
        mine = best == value
        _give(chance, around == value, windows.size, begin[mine], weight[mine])
    return int(best.min())


def _give(chance: Floats, best: Bools, size: int, begin: Ints, weight: Floats) -> None:
    """Add the weight of each window that starts at ``begin``, in equal parts, to the ``best`` nodes in it."""
    places = best.nonzero()[0]
    until = np.zeros(len(best) + 1, np.int64)
    np.cumsum(best, out=until[1:])
    low, high = until[begin], until[begin + size]
    share = weight / (high - low)
    steps = np.bincount(low, share, len(places) + 1) - np.bincount(high, share, len(places) + 1)
    chance[places] += np.cumsum(steps)[:-1].clip(0)


class _Extremes:
    """The inputs of normalisation per window, and groups of windows with equal inputs."""

    def __init__(self, raw: RawScores, weights: Mapping[str, int], windows: Windows) -> None:
        self._raw, self._weights, self._windows = raw, weights, windows
        columns = [self._most_of_static("taints", raw.taints)]
        if raw.affinity is not None:
            columns.append(self._most_of_static("affinity", raw.affinity))
        if raw.interpod is not None:
            self._interpod = raw.interpod[windows.nodes]
            columns += [windows.least(self._interpod), windows.most(self._interpod)]
        if raw.spread is not None:
            columns += self._spread_extremes(raw.spread)
        self._columns = columns
        self.kinds = _group_rows(columns)
        """(F,) windows of one kind have the same extremes; None if all are of one kind."""

    def _most_of_static(self, what: str, values: Ints) -> Column:
        windows = self._windows
        return windows.compute_once(what, (values,), lambda: windows.most(values[windows.nodes]))

    def _spread_extremes(self, spread: SoftSpread) -> list[Column]:
        windows = self._windows
        kept = ~spread.ignored[windows.nodes]
        self._spread_raw: dict[tuple[int, ...], Ints] = {}
        self._sizes = [
            self._count_scored_domains(spread, domain, kept) for domain in spread.domains
        ]
        groups = _group_rows(self._sizes)
        if groups is None and kept.all():
            values = self._raw_spread(0)
            self._low, self._high = windows.least(values), windows.most(values)
            return [self._low, self._high]
        groups = np.zeros(len(kept), np.int64) if groups is None else groups
        low, high = np.zeros_like(groups), np.zeros_like(groups)
        for group in range(int(groups.max()) + 1):
            mine = np.flatnonzero(groups == group)
            values = self._raw_spread(int(mine[0]))
            low[mine] = windows.smallest(np.where(kept, values, np.iinfo(np.int64).max // 2))[mine]
            high[mine] = windows.largest(np.where(kept, values, 0))[mine]
        self._low, self._high = np.where(windows.total(kept) > 0, low, 0), high
        return [groups, self._low, self._high]

    def _count_scored_domains(self, spread: SoftSpread, domain: Ints | None, kept: Bools) -> Column:
        """Return the number of distinct scored domains (or nodes) in each window."""
        windows = self._windows

        def make() -> Column:
            if domain is None:
                counts = windows.total(kept)
            else:
                counts = windows.distinct(domain[windows.nodes], kept)
            return int(counts[0]) if (counts == counts[0]).all() else counts

        static = (spread.ignored,) if domain is None else (spread.ignored, domain)
        return windows.compute_once("domains", static, make)

    def _raw_spread(self, window: int) -> Ints:
        sizes = tuple(_at(size, window) for size in self._sizes)
        if sizes not in self._spread_raw:
            spread = self._raw.spread
            assert spread is not None  # noqa: S101  # asked only then
            self._spread_raw[sizes] = spread.raw(sizes)[self._windows.nodes]
        return self._spread_raw[sizes]

    def totals(self, window: int) -> Ints:
        """Return the total scores (F,) for all windows of the kind of ``window``, up to an additive constant."""
        nodes, weights, raw = self._windows.nodes, self._weights, self._raw
        extremes = iter(_at(column, window) for column in self._columns)
        total = raw.fixed_total[nodes]
        if (fewest := next(extremes)) > 0:
            total += weights.get(TAINT_TOLERATION, 0) * from_fewest(raw.taints[nodes], fewest)
        if raw.affinity is not None:
            largest = next(extremes)
            total += weights.get(NODE_AFFINITY, 0) * by_largest(raw.affinity[nodes], largest)
        if raw.interpod is not None:
            low, high = next(extremes), next(extremes)
            # Nodes outside the window may lie outside its extremes; they are not looked at.
            inside = np.clip(self._interpod, low, high)
            total += weights.get(INTER_POD_AFFINITY, 0) * between(inside, low, high)
        if raw.spread is not None:
            low, high = _at(self._low, window), _at(self._high, window)
            ignored = raw.spread.ignored[nodes]
            score = spread_score(self._raw_spread(window), ignored, low, high)
            total += weights.get(POD_TOPOLOGY_SPREAD, 0) * score
        return total


def _at(column: Column, window: int) -> int:
    return column if isinstance(column, int) else int(column[window])


def _group_rows(columns: Sequence[Column]) -> Ints | None:
    """Return group numbers (F,): rows equal in all columns share one number; None if all rows are equal."""
    groups: Ints | None = None
    for column in columns:
        if isinstance(column, int):
            continue
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
        groups = _number_keys(ids.astype(np.int64) if groups is None else groups * spread + ids)
    return groups


def _number_keys(keys: Ints) -> Ints:
    """Return the rank (F,) of each key among the distinct keys."""
    if int(keys.max()) < _TABLE:
        occurs = np.bincount(keys) > 0
        return (np.cumsum(occurs) - 1)[keys]
    return np.unique(keys, return_inverse=True)[1].reshape(-1).astype(np.int64)
