"""Landings of many pods at once, one per row, equal bit by bit to :mod:`rebalancer.scheduler.sampling`.

A *part* of a row is a set of windows with equal inputs for normalisation. A *win* of a part is a set of windows with
equal best scores.

A set is a *ring*: its nodes in search order, starting again after the last. Rings are rows of one array, as wide as
the longest ring; entries beyond the end of a shorter ring are ignored.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from rebalancer.scheduler.profile import (
    INTER_POD_AFFINITY,
    NODE_AFFINITY,
    POD_TOPOLOGY_SPREAD,
    TAINT_TOLERATION,
)
from rebalancer.scheduler.sampling import MAX_KINDS
from rebalancer.scheduler.scores import RawScores, between, by_largest, from_fewest
from rebalancer.scheduler.spread import Pair, SoftSpread, go_log, go_round
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


@dataclass(frozen=True, slots=True)
class ManySpreads:
    """Soft spread of pods whose constraints have the same domains."""

    rows: Int32s
    """(G,) which pods, ascending."""
    like: SoftSpread
    """Of one of them: what all of them agree in."""
    counts: tuple[Ints, ...]
    """Per constraint (G, D + 1) or (G, N)."""

    def raw(self, of: Ints, sizes: Sequence[Ints]) -> Ints:
        """Return the raw scores (X, N) of pods ``of`` (X,) of this group; as ``SoftSpread.raw``, for many.

        ``sizes``: the number of scored domains (X,) per constraint.
        """
        total: Floats | None = None
        for constraint, counts, size, domains in zip(
            self.like.constraints, self.counts, sizes, self.like.domains, strict=True
        ):
            topology = constraint.topology
            factor = np.array([go_log(float(n + 2)) for n in size.tolist()])[:, None]
            term: Floats = counts[of] * factor + float(constraint.max_skew - 1)
            if domains is not None:
                term[:, topology.size] = 0.0
                term = np.take(term, topology.domain, axis=1)
            elif not topology.everywhere:
                term[:, ~topology.present] = 0.0
            total = term if total is None else total + term
        assert total is not None  # noqa: S101  # pods without constraints are in no group
        return go_round(total)


@dataclass(frozen=True, slots=True)
class ManyScores:
    """Raw scores before normalisation; None for a plug-in that skips all pods."""

    fixed_total: Ints
    """(K, N) see RawScores."""
    taints: Ints | None
    affinity: Ints | None
    interpod: Ints | None
    spreads: tuple[ManySpreads, ...]


def stack_scores(raws: Sequence[RawScores], of: Ints, leaving: Sequence[Pair]) -> ManyScores:
    """Return the scores of pods (K,): pod k has ``raws[of[k]]``, without the spread count of ``leaving[k]``."""
    return ManyScores(
        narrow(np.stack([raw.fixed_total for raw in raws]))[of],
        _fill([raw.taints if raw.taints.any() else None for raw in raws], of),
        _fill([raw.affinity for raw in raws], of),
        _fill([raw.interpod for raw in raws], of),
        tuple(_spreads([raw.spread for raw in raws], of, leaving)),
    )


def _fill(columns: Sequence[Ints | None], of: Ints) -> Ints | None:
    """Return columns as rows (K, N), with zeros for None; None if all columns are None."""
    some = next((column for column in columns if column is not None), None)
    if some is None:
        return None
    none = np.zeros_like(some)
    return narrow(np.stack([none if column is None else column for column in columns]))[of]


def _spreads(
    spreads: Sequence[SoftSpread | None], of: Ints, leaving: Sequence[Pair]
) -> Iterator[ManySpreads]:
    """Yield the soft spreads of pods, grouped by equal domains."""
    groups: dict[Hashable, list[SoftSpread]] = {}
    places: dict[int, tuple[Hashable, int]] = {}
    for index, spread in enumerate(spreads):
        if spread is not None:
            mine = groups.setdefault(about := _about(spread), [])
            places[index] = about, len(mine)
            mine.append(spread)
    for about, mine in groups.items():
        rows = [
            row for row, index in enumerate(of.tolist()) if places.get(index, (None,))[0] == about
        ]
        place = [places[index][1] for index in of[rows].tolist()]
        counts = []
        for column, domains in enumerate(mine[0].domains):
            many = np.stack([spread.counts[column] for spread in mine])[place]
            first = 0
            for cls, members in groupby(place):
                until = first + len(list(members))
                constraint = mine[cls].constraints[column]
                here = [leaving[row] for row in rows[first:until]]
                constraint.leave(many[first:until], here, per_node=domains is None)
                first = until
            counts.append(many)
        yield ManySpreads(np.array(rows, np.int32), mine[0], tuple(counts))


def _about(spread: SoftSpread) -> Hashable:
    """Return a key that is equal for constraints with the same domains and skews."""
    constraints = [
        (id(constraint.topology), constraint.max_skew, id(domains))
        for constraint, domains in zip(spread.constraints, spread.domains, strict=True)
    ]
    return id(spread.ignored), *constraints


_LARGE = 1 << 30
# From such a weight on, totals do not fit into 32 bits.
_HEAVY = 1 << 20
_MAX = 100


@dataclass(frozen=True, slots=True)
class RingLandings:
    """The probability of each node of each row's ring, as ``distribution`` computes it for one pod."""

    chance: Floats
    """(K, W)"""
    margins: Ints
    """(K, W)"""
    known: Bools
    """(K,) not known where a row has so many kinds of windows that some have to stand for all."""


def landings(
    scores: ManyScores, weights: Mapping[str, int], rings: Rings, of: Ints
) -> RingLandings:
    """Return the landings of pods; the feasible nodes of pod k are ring ``of[k]`` (K,)."""
    rows = _Rows(scores, weights, rings, of)
    columns = rows.extremes()
    parts, known = _parts(columns, rings.begins[of])
    total = rows.totals(parts)
    row, begin = rings.begins[of].nonzero()
    part = parts.of_window[row, begin]
    best = rings.largest(total)[part, begin]
    wins = _group_entries(part, best)
    won = part[wins.first]
    marked = total[won] == best[wins.first][:, None]
    chance = np.zeros(marked.shape if len(won) == len(of) else (len(of), marked.shape[1]))
    weight = rings.weight[of[row], begin]
    _give(chance, parts.row[won], marked, wins.of, begin, weight, rings.size)
    ends = rings.count[of][:, None] + np.arange(rings.size)
    chance[:, : rings.size] += np.take_along_axis(chance, ends, axis=1)
    least = np.full(len(parts.row), np.iinfo(np.int64).max)
    np.minimum.at(least, won, best[wins.first])
    short = least[:, None] - total[:, : rings.width]
    if len(parts.row) > len(of):
        short = np.minimum.reduceat(short, np.searchsorted(parts.row, np.arange(len(of))), axis=0)
    return RingLandings(chance[:, : rings.width], short, known)


@dataclass(frozen=True, slots=True)
class _Groups:
    """Entries grouped by equal values; groups are ordered."""

    of: Ints
    """(E,) the group of each entry."""
    first: Ints
    """(G,) the first entry of each."""


def _group_entries(*columns: Ints) -> _Groups:
    """Group entries that are equal in all columns (E,); groups are ordered by the first column, then the next.

    Adjacent entries are mostly equal, so only the positions where they change are sorted.
    """
    changes = np.zeros(len(columns[0]), bool)
    changes[:1] = True
    for column in columns:
        changes[1:] |= column[1:] != column[:-1]
    runs = changes.nonzero()[0]
    of_runs = [column[runs] for column in columns]
    order = np.lexsort(of_runs[::-1])
    new = np.zeros(len(runs), bool)
    new[:1] = True
    for column in of_runs:
        in_order = column[order]
        new[1:] |= in_order[1:] != in_order[:-1]
    number = np.empty(len(runs), np.int64)
    number[order] = np.cumsum(new) - 1
    lengths = np.diff(runs, append=len(changes))
    return _Groups(np.repeat(number, lengths), runs[order[new]])


@dataclass(frozen=True, slots=True)
class _Parts:
    """Windows of a row with equal extremes; parts are in the order of their rows."""

    row: Ints
    """(V,)"""
    window: Ints
    """(V,) one of its windows."""
    of_window: Ints
    """(K, W)"""


def _parts(columns: Sequence[Ints], begins: Bools) -> tuple[_Parts, Bools]:
    """Return the parts of rows, given columns (K, W) or (K, 1), and which rows (K,) have few enough parts."""
    rows = len(begins)
    known = np.ones(rows, bool)
    several = np.zeros(rows, bool)
    varied = []
    for column in columns:
        if column.shape[1] == 1:
            continue
        differs = ((column != column[:, :1]) & begins).any(axis=1)
        if differs.any():
            several |= differs
            varied.append(column)
    counts = np.ones(rows, np.int64)
    if varied:
        which = several.nonzero()[0]
        here, window = begins[which].nonzero()
        keys = _group_entries(here, *(column[which[here], window] for column in varied)).of
        firsts = np.searchsorted(here, np.arange(len(which)))
        lowest = np.minimum.reduceat(keys, firsts)
        counts[which] = np.maximum.reduceat(keys, firsts) - lowest + 1
        many = counts[which] > MAX_KINDS
        known[which[many]] = False
        counts[which[many]] = 1
        keys = np.where(many[here], 0, keys - lowest[here])
    starts = np.cumsum(counts) - counts
    of_window = np.repeat(starts[:, None], begins.shape[1], axis=1)
    part_row = np.repeat(np.arange(rows), counts)
    part_window = np.zeros(len(part_row), np.int64)
    if varied:
        of_window[which[here], window] += keys
        part_window[of_window[which[here], window][::-1]] = window[::-1]
    return _Parts(part_row, part_window, of_window), known


def _give(
    chance: Floats,
    row: Ints,
    marked: Bools,
    win: Ints,
    begin: Ints,
    weight: Floats,
    size: int,
) -> None:
    """Add the windows' shares to each ``row`` (U,) of ``chance`` (K, L), in the order of the wins.

    A window (E,) begins at ``begin``, belongs to ``win``, and divides its ``weight`` equally among the nodes in it
    that are ``marked`` (U, L) for the win.
    """
    until = sums(marked)
    width = int(until[:, -1].max()) + 1
    low, high = until[win, begin], until[win, begin + size]
    share = weight / (high - low)
    bins = len(row) * width
    steps = np.bincount(win * width + low, share, bins) - np.bincount(
        win * width + high, share, bins
    )
    given = np.cumsum(steps.reshape(-1, width), axis=1).clip(0)
    to, place = marked.nonzero()
    given = given[to, until[to, place]]
    # Wins of one row one after the other: a node may win by several scores.
    order = (np.arange(len(row)) - np.searchsorted(row, row))[to]
    for turn in range(int(order.max(initial=-1)) + 1):
        mine = order == turn
        chance[row[to[mine]], place[mine]] += given[mine]


@dataclass(slots=True)
class _Compared:
    """A plug-in whose score compares the nodes of each window."""

    weight: int | np.int64
    values: Ints
    """(K, L) around the rings."""
    low: Ints
    """(K, W) the least in each window."""
    high: Ints


@dataclass(slots=True)
class _ComparedSpread:
    """Soft spread of some rows."""

    row: Ints
    """(K,) place of each row among those of the group, -1: it is none."""
    values: Ints
    """(X, L) around the rings, for each number of scored domains."""
    of_window: Ints
    """(G, W) which of these X a window sees."""
    ignored: Bools | None
    """(G, L)"""
    low: Ints
    """(K, W)"""
    high: Ints


class _Rows:
    """Rows of raw scores in the order of their rings."""

    def __init__(
        self, scores: ManyScores, weights: Mapping[str, int], rings: Rings, of: Ints
    ) -> None:
        wide = max(weights.values(), default=0) > _HEAVY
        # In numpy what is multiplied by a number of 64 bits has 64 bits.
        self._weights = {name: np.int64(of) if wide else of for name, of in weights.items()}
        self._rings, self._of = rings, of
        self._places = self._around_rings(of)
        self._fixed = self._around(
            scores.fixed_total.astype(np.int64) if wide else scores.fixed_total
        )
        self._taints = self._most(TAINT_TOLERATION, scores.taints)
        self._affinity = self._most(NODE_AFFINITY, scores.affinity)
        self._interpod = self._most(INTER_POD_AFFINITY, scores.interpod)
        if self._interpod is not None:
            self._interpod.low = rings.smallest(self._interpod.values)
        self._spreads = [self._spread(group) for group in scores.spreads]

    def _around_rings(self, of: Ints) -> Ints:
        """Return the flat indices, in arrays (V, N), of the nodes of rings ``of`` (V,)."""
        rings = self._rings
        places: Ints = rings.around[of] + (np.arange(len(of)) * rings.number)[:, None]
        return places

    def _around(self, values: Ints) -> Ints:
        return values.take(self._places)

    def _most(self, plugin: str, values: Ints | None) -> _Compared | None:
        if values is None:
            return None
        around = self._around(values)
        high = self._rings.largest(around)
        return _Compared(self._weights.get(plugin, 0), around, high, high)

    def _spread(self, group: ManySpreads) -> _ComparedSpread:
        rings, of = self._rings, self._of[group.rows]
        ignored = group.like.ignored
        sizes = [rings.count_scored(domain, ignored)[of] for domain in group.like.domains]
        parts, _ = _parts(sizes, rings.begins[of])
        of_part = [
            np.broadcast_to(size, rings.begins[of].shape)[parts.row, parts.window] for size in sizes
        ]
        raw = narrow(group.raw(parts.row, of_part))
        values = raw.take(self._around_rings(of[parts.row]))
        row = np.full(len(self._of), -1)
        row[group.rows] = np.arange(len(group.rows))
        if not ignored.any():
            low, high, left_out = rings.smallest(values), rings.largest(values), None
        else:
            left_out = ignored[rings.around[of]]
            of_values = left_out[parts.row]
            low = rings.smallest(np.where(of_values, _LARGE, values))
            high = rings.largest(np.where(of_values, 0, values))
        if len(parts.row) > len(of):
            window = np.arange(rings.width)
            low, high = low[parts.of_window, window], high[parts.of_window, window]
        if left_out is not None:
            low = np.where(rings.total(~left_out) > 0, low, 0)
        return _ComparedSpread(row, values, parts.of_window, left_out, low, high)

    def extremes(self) -> list[Ints]:
        """Return the columns (K, W) whose values are equal for all windows of one part."""
        columns = [one.high for one in (self._taints, self._affinity) if one is not None]
        if self._interpod is not None:
            columns += [self._interpod.low, self._interpod.high]
        for spread in self._spreads:
            here = (spread.row >= 0).nonzero()[0]
            mine = [spread.low, spread.high]
            if len(spread.values) > len(here):
                mine.insert(0, spread.of_window)
            for of_group in mine:
                column = np.zeros((len(self._of), self._rings.width), of_group.dtype)
                column[here] = of_group
                columns.append(column)
        return columns

    def totals(self, parts: _Parts) -> Ints:
        """Return the total scores (V, L) for the windows of each part, up to an additive constant."""
        row, window = parts.row, parts.window
        total = self._fixed[row]
        for one, score in ((self._taints, from_fewest), (self._affinity, by_largest)):
            if one is not None:
                total = total + one.weight * score(one.values[row], one.high[row, window][:, None])
        if (one := self._interpod) is not None:
            low, high = one.low[row, window][:, None], one.high[row, window][:, None]
            total = total + one.weight * between(one.values[row].clip(low, high), low, high)
        for spread in self._spreads:
            part = (spread.row[row] >= 0).nonzero()[0]
            group = spread.row[row[part]]
            at = group, window[part]
            low, high = spread.low[at][:, None], spread.high[at][:, None]
            raw = spread.values[spread.of_window[at]]
            scores = _spread_scores(raw, low, high)
            if spread.ignored is not None:
                scores[spread.ignored[group]] = 0
            total[part] += self._weights.get(POD_TOPOLOGY_SPREAD, 0) * scores
        return total


def totals(scores: ManyScores, weights: Mapping[str, int], scored: Bools) -> Ints:
    """Return the total scores (K, N), normalised in each row over the nodes ``scored`` (K, N)."""
    total = scores.fixed_total.astype(np.int64)
    heavy = {name: np.int64(weight) for name, weight in weights.items()}
    for plugin, values, score in (
        (TAINT_TOLERATION, scores.taints, from_fewest),
        (NODE_AFFINITY, scores.affinity, by_largest),
    ):
        if values is not None:
            most = values.max(axis=1, where=scored, initial=0, keepdims=True)
            total += heavy.get(plugin, 0) * score(values, most)
    if (raw := scores.interpod) is not None:
        low = raw.min(axis=1, where=scored, initial=raw.max(), keepdims=True)
        high = raw.max(axis=1, where=scored, initial=raw.min(), keepdims=True)
        total += heavy.get(INTER_POD_AFFINITY, 0) * between(raw.clip(low, high), low, high)
    for group in scores.spreads:
        counts = scored[group.rows] & ~group.like.ignored
        sizes = [_domains(counts, domains) for domains in group.like.domains]
        raw = group.raw(np.arange(len(counts)), sizes)
        low = raw.min(axis=1, where=counts, initial=np.iinfo(np.int64).max, keepdims=True)
        high = raw.max(axis=1, where=counts, initial=0, keepdims=True)
        of_spread = _spread_scores(raw, np.where(high < low, 0, low), high)
        of_spread[:, group.like.ignored] = 0
        total[group.rows] += heavy.get(POD_TOPOLOGY_SPREAD, 0) * of_spread
    return total


def _domains(scored: Bools, domains: Ints | None) -> Ints:
    """Return per row (K,) the number of distinct domains among its scored nodes; None: of nodes."""
    if domains is None:
        return scored.sum(axis=1)
    row, node = scored.nonzero()
    held = np.zeros((len(scored), int(domains.max(initial=0)) + 1), bool)
    held[row, domains[node]] = True
    return held.sum(axis=1)


def _spread_scores(raw: Ints, low: Ints, high: Ints) -> Ints:
    """Return ``spread_score`` (V, L) for rows with extremes (V, 1)."""
    scores: Ints = np.where(high <= 0, _MAX, _MAX * (high + low - raw) // np.maximum(high, 1))
    return scores
