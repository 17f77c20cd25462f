"""Landings of many pods at once, one per row, equal bit by bit to :mod:`rebalancer.scheduler.sampling`.

A *part* of a row is a set of windows with equal inputs for normalisation. A *win* of a part is a set of windows with
equal best scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.scheduler.many_scores import ManyScores, ManySpreads
from rebalancer.scheduler.profile import (
    INTER_POD_AFFINITY,
    NODE_AFFINITY,
    POD_TOPOLOGY_SPREAD,
    TAINT_TOLERATION,
)
from rebalancer.scheduler.rings import Rings, narrow, sums
from rebalancer.scheduler.sampling import MAX_KINDS
from rebalancer.scheduler.scores import between, by_largest, from_fewest
from rebalancer.snapshot.columns import Bools, Floats, Ints

_LARGE = 1 << 30
# From such a weight on, totals do not fit into 32 bits.
_HEAVY = 1 << 20
_MAX = 100


@dataclass(frozen=True, slots=True)
class Landings:
    """The probability of each node of each row's ring, as ``distribution`` computes it for one pod."""

    chance: Floats
    """(K, W)"""
    margins: Ints
    """(K, W)"""
    known: Bools
    """(K,) not known where a row has so many kinds of windows that some have to stand for all."""


def landings(scores: ManyScores, weights: Mapping[str, int], rings: Rings, of: Ints) -> Landings:
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
    return Landings(chance[:, : rings.width], short, known)


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
