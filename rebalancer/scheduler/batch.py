"""Predictions for many pods at once, equal to the single predictions, in a fraction of the time.

A prediction depends on the positions of the pods that the class's rules count, on the nodes that its replacement
fits, and on the scores of other nodes compared with the winners. A move elsewhere changes none of these, or lowers
the score of a node that did not win; then the prediction stays valid.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

import numpy as np

from rebalancer.scheduler.filters import Filters
from rebalancer.scheduler.kept_columns import Columns, KeptColumns
from rebalancer.scheduler.many_landings import ManyScores, Rings, landings, stack_scores, totals
from rebalancer.scheduler.prediction import Prediction, likely, uniform
from rebalancer.scheduler.sampling import Margins
from rebalancer.scheduler.scores import Scorer
from rebalancer.snapshot.columns import Bools, Int32s, Ints
from rebalancer.snapshot.state import ClusterState

# How many numbers all kept margins may hold.
_KEPT_NUMBERS = 4_000_000


@dataclass(frozen=True, slots=True)
class Question:
    """The inputs on which a prediction depends."""

    key: Hashable
    """The replacement, and the kind of its source."""
    counted: Int32s
    """The classes that the replacement's rules count."""
    columns: Columns
    """What resources say now of the replacement."""
    static: Bools
    """(N,) the nodes that it could ever go to."""
    keeps: bool
    """Whether it rests on nothing else, so that it may be kept."""


@dataclass(slots=True)
class _Kept:
    prediction: Prediction
    stamp: int
    """Of the classes that the replacement's rules count, the victim still among them."""
    columns: Columns
    seen: int
    """Up to where the columns' journal of changes is in it."""
    margins: Margins
    """(N,) by how much the score of a node may rise without its winning anywhere."""


class KeptPredictions:
    """The latest prediction for each replacement and kind of source node."""

    def __init__(self, nodes: int) -> None:
        self._most = max(64, _KEPT_NUMBERS // max(1, nodes))
        self._kept: dict[Hashable, _Kept] = {}
        self._state: ClusterState | None = None

    def recall(self, state: ClusterState, question: Question) -> Prediction | None:
        """Return the cached prediction for a question; None if something that it depends on has changed."""
        if state is not self._state:
            self._state = state
            self._kept.clear()
        if not question.keeps:
            return None
        kept = self._kept.get(question.key)
        if kept is None or kept.stamp != state.newest_stamp(question.counted):
            return None
        return kept.prediction if _stands(kept, question) else None

    def keep(
        self, state: ClusterState, question: Question, prediction: Prediction, margins: Margins
    ) -> None:
        """Cache a new prediction with the margins (N,) of the scores, for the state of the latest :meth:`known`."""
        if not question.keeps:
            return
        if question.key not in self._kept and len(self._kept) >= self._most:
            self._kept.pop(next(iter(self._kept)))
        stamp, seen = state.newest_stamp(question.counted), len(question.columns.journal)
        self._kept[question.key] = _Kept(prediction, stamp, question.columns, seen, margins)


def _stands(kept: _Kept, question: Question) -> bool:
    """Return whether the cached prediction is still valid, and update its record of the columns."""
    if question.columns is not kept.columns:
        return False
    journal, static = kept.columns.journal, question.static
    if kept.seen == len(journal):
        return True
    margins = kept.margins
    for node, rise, refits in journal[kept.seen :]:
        if not static[node]:
            continue
        if refits or (rise > 0 and rise >= margins[node]) or (rise < 0 and margins[node] == 0):
            return False
        if margins[node] > 0:
            margins[node] -= rise
    kept.seen = len(journal)
    return True


def infinite_margins(nodes: int) -> Margins:
    """Return infinite margins (N,), for a prediction that does not depend on scores."""
    return np.full(nodes, np.iinfo(np.int32).max // 2, np.int32)


# So many numbers has an array of a block of rows at most: they stay in the processor's cache.
_BLOCK = 1 << 16
_Answer = tuple[Prediction, Margins]
_BY_VICTIM = ("NodeResourcesFit", "PodTopologySpread")
"""Filters that look at what the victim leaves."""


@dataclass(frozen=True, slots=True)
class LandingQuery:
    """One pod whose landing is to be predicted."""

    pod: int
    """The victim."""
    cls: int
    node: int
    replacement: int
    gone: bool
    """It is gone when its replacement is placed; else it terminates meanwhile, and holds all but its place in a spread."""


@dataclass(frozen=True, slots=True)
class _Freed:
    """The resources that deleted victims free on their nodes, one row per replacement."""

    rows: Int32s
    """(G,) which asks."""
    nodes: Int32s
    fits: Bools
    """(G,) whether the replacement fits there now."""
    rise: Ints
    """(G,) by how much the node's total score rises."""


_NO_NODES = np.zeros(0, np.int32)
_NOTHING_FREED = _Freed(_NO_NODES, _NO_NODES, np.zeros(0, bool), np.zeros(0, np.int64))


class Batch:
    """Predicts many pods that the model fully supports. Of deleted victims, only spread rules may count them."""

    def __init__(self, filters: Filters, scorer: Scorer, columns: KeptColumns) -> None:
        self._filters, self._scorer, self._columns = filters, scorer, columns

    def predict(
        self, state: ClusterState, asks: Sequence[LandingQuery], order: Int32s, size: int
    ) -> list[_Answer | None]:
        """Return for each ask the prediction and the margins: the score increase (N,) per node that changes nothing.

        The scheduler searches in ``order`` (N,), for ``size`` feasible nodes. An entry is None if its windows are of
        too many kinds to evaluate all of them.
        """
        made: list[_Answer | None] = [None] * len(asks)
        by_replacement = sorted(range(len(asks)), key=lambda index: asks[index].replacement)
        step = max(1, _BLOCK // max(1, len(order)))
        for first in range(0, len(asks), step):
            block = by_replacement[first : first + step]
            of_block = [asks[index] for index in block]
            freed = self._free(state, of_block)
            feasible = self._feasible(state, of_block, freed)
            count = feasible.sum(axis=1)
            for row in (count <= 1).nonzero()[0].tolist():
                nodes = feasible[row].nonzero()[0].astype(np.int32)
                made[block[row]] = uniform(nodes), infinite_margins(len(order))
            for rows, sampled in (((count > 1) & (count <= size), False), (count > size, True)):
                which = rows.nonzero()[0].tolist()
                if not which:
                    continue
                scores = self._scores(state, [of_block[row] for row in which])
                place = np.cumsum(rows) - 1
                mine = rows[freed.rows]
                at = place[freed.rows[mine]], freed.nodes[mine]
                scores.fixed_total[at] += freed.rise[mine]
                if sampled:
                    answers = self._of_windows(scores, feasible[which], order, size)
                else:
                    answers = self._of_all(scores, feasible[which])
                for row, answer in zip(which, answers, strict=True):
                    made[block[row]] = answer
        return made

    def _free(self, state: ClusterState, asks: Sequence[LandingQuery]) -> _Freed:
        """Return the changes on the nodes of deleted victims, whose resources are free. ``asks``: sorted by replacement."""
        parts = [_NOTHING_FREED]
        groups: dict[tuple[int, int], list[int]] = {}
        for row, ask in enumerate(asks):
            if ask.gone:
                groups.setdefault((ask.replacement, ask.cls), []).append(row)
        for (replacement, cls), rows in groups.items():
            nodes = np.array([asks[row].node for row in rows], np.int32)
            fits, total = self._columns.without(state, replacement, cls, nodes)
            rise = total - self._columns.of(state, replacement).total[nodes]
            parts.append(_Freed(np.array(rows, np.int32), nodes, fits, rise))
        columns = zip(*((p.rows, p.nodes, p.fits, p.rise) for p in parts), strict=True)
        return _Freed(*(np.concatenate(column) for column in columns))

    def _feasible(self, state: ClusterState, asks: Sequence[LandingQuery], freed: _Freed) -> Bools:
        """Return the nodes (K, N) that pass all filters; ``asks`` are sorted by replacement."""
        others, fits, within = [], [], []
        for replacement, of_class in groupby(asks, attrgetter("replacement")):
            leaving = [(ask.cls, ask.node) for ask in of_class]
            passing = self._filters.passing_but(state, replacement, _BY_VICTIM)
            shape = len(leaving), len(passing)
            others.append(np.broadcast_to(passing, shape))
            fits.append(np.broadcast_to(self._columns.of(state, replacement).fits, shape))
            spread = self._filters.spread_after(state, replacement, leaving)
            within.append(np.broadcast_to(True, shape) if spread is None else spread)
        feasible = np.concatenate(others) & np.concatenate(within)
        if self._filters.checks("NodeResourcesFit"):
            room = np.concatenate(fits)
            room[freed.rows, freed.nodes] = freed.fits
            feasible &= room
        return feasible

    def _scores(self, state: ClusterState, asks: Sequence[LandingQuery]) -> ManyScores:
        """Return the plug-ins' raw scores (K, N) for each ask."""
        place = {cls: row for row, cls in enumerate(dict.fromkeys(ask.replacement for ask in asks))}
        raws = [self._scorer.raw(state, cls) for cls in place]
        of = np.array([place[ask.replacement] for ask in asks])
        return stack_scores(raws, of, [(ask.cls, ask.node) for ask in asks])

    def _of_all(self, scores: ManyScores, feasible: Bools) -> Iterator[_Answer]:
        """Yield the answers for pods whose feasible nodes (K, N) are all scored."""
        total = totals(scores, self._scorer.weights, feasible)
        most = np.where(feasible, total, np.iinfo(np.int64).min).max(axis=1)
        short = most[:, None] - total
        best = feasible & (short == 0)
        for row in range(len(total)):
            margins = infinite_margins(total.shape[1])
            np.copyto(margins, short[row], where=feasible[row], casting="unsafe")
            yield uniform(best[row].nonzero()[0].astype(np.int32)), margins

    def _of_windows(
        self, scores: ManyScores, feasible: Bools, order: Int32s, size: int
    ) -> Iterator[_Answer | None]:
        """Yield the answers for pods of which the first ``size`` feasible nodes (K, N) are scored."""
        place: dict[bytes, int] = {}
        ring_of = np.array([place.setdefault(row.tobytes(), len(place)) for row in feasible])
        firsts = np.unique(ring_of, return_index=True)[1]
        rings = Rings(order, feasible[firsts], size)
        drawn = landings(scores, self._scorer.weights, rings, ring_of)
        for row, ring in enumerate(ring_of.tolist()):
            if not drawn.known[row]:
                yield None
                continue
            count = int(rings.count[ring])
            nodes, chance = rings.nodes[ring, :count], drawn.chance[row, :count]
            prediction = likely(nodes, chance / chance.sum())
            margins, short = infinite_margins(feasible.shape[1]), drawn.margins[row, :count]
            margins[nodes] = np.where(short > 0, short, -1)
            margins[prediction.nodes] = 0
            yield prediction, margins
