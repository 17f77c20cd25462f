"""Predictions for many pods at once: each as for one pod alone, in a fraction of the time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

import numpy as np

from rebalancer.scheduler.filters import Filters
from rebalancer.scheduler.kept_predictions import unlimited
from rebalancer.scheduler.many_landings import landings, totals
from rebalancer.scheduler.many_scores import ManyScores, stacked
from rebalancer.scheduler.prediction import Prediction, likely, uniform
from rebalancer.scheduler.rings import Rings
from rebalancer.scheduler.sampling import Margins
from rebalancer.scheduler.scores import Scorer
from rebalancer.snapshot.columns import Bools, Int32s
from rebalancer.snapshot.state import ClusterState

# So many numbers has an array of a block of rows at most: they stay in the processor's cache.
_BLOCK = 1 << 16
_Answer = tuple[Prediction, Margins]


@dataclass(frozen=True, slots=True)
class Ask:
    """One pod whose landing is asked for."""

    pod: int
    """The victim, which terminates meanwhile."""
    cls: int
    node: int
    replacement: int


class Batch:
    """Predicts for pods that the model knows all about, and whose landings no ports, disks or volumes decide."""

    def __init__(self, filters: Filters, scorer: Scorer) -> None:
        self._filters, self._scorer = filters, scorer

    def predict(
        self, state: ClusterState, asks: Sequence[Ask], order: Int32s, size: int
    ) -> list[_Answer | None]:
        """Return each prediction, and by how much the score of each node (N,) may rise without changing it.

        The scheduler searches in ``order`` (N,), for ``size`` feasible nodes. None where there are too many kinds of
        windows to look at them all.
        """
        made: list[_Answer | None] = [None] * len(asks)
        by_replacement = sorted(range(len(asks)), key=lambda index: asks[index].replacement)
        step = max(1, _BLOCK // max(1, len(order)))
        for first in range(0, len(asks), step):
            block = by_replacement[first : first + step]
            of_block = [asks[index] for index in block]
            feasible = self._feasible(state, of_block)
            count = feasible.sum(axis=1)
            for row in (count <= 1).nonzero()[0].tolist():
                nodes = feasible[row].nonzero()[0].astype(np.int32)
                made[block[row]] = uniform(nodes), unlimited(len(order))
            for rows, sampled in (((count > 1) & (count <= size), False), (count > size, True)):
                which = rows.nonzero()[0].tolist()
                if not which:
                    continue
                scores = self._scores(state, [of_block[row] for row in which])
                if sampled:
                    answers = self._of_windows(scores, feasible[which], order, size)
                else:
                    answers = self._of_all(scores, feasible[which])
                for row, answer in zip(which, answers, strict=True):
                    made[block[row]] = answer
        return made

    def _feasible(self, state: ClusterState, asks: Sequence[Ask]) -> Bools:
        """Return the nodes (K, N) that pass all filters; ``asks`` are in the order of their replacements."""
        rows = []
        for replacement, mine in groupby(asks, attrgetter("replacement")):
            leaving = [(ask.cls, ask.node) for ask in mine]
            passing = self._filters.passing_but_spread(state, replacement)
            within = self._filters.spread_after(state, replacement, leaving)
            many = np.broadcast_to(passing, (len(leaving), len(passing)))
            rows.append(many if within is None else many & within)
        return np.concatenate(rows)

    def _scores(self, state: ClusterState, asks: Sequence[Ask]) -> ManyScores:
        """Return what the plug-ins say (K, N) of each."""
        place = {cls: row for row, cls in enumerate(dict.fromkeys(ask.replacement for ask in asks))}
        raws = [self._scorer.raw(state, cls) for cls in place]
        of = np.array([place[ask.replacement] for ask in asks])
        return stacked(raws, of, [(ask.cls, ask.node) for ask in asks])

    def _of_all(self, scores: ManyScores, feasible: Bools) -> Iterator[_Answer]:
        """Yield the answers where all feasible nodes (K, N) are scored."""
        total = totals(scores, self._scorer.weights, feasible)
        most = np.where(feasible, total, np.iinfo(np.int64).min).max(axis=1)
        short = most[:, None] - total
        best = feasible & (short == 0)
        for row in range(len(total)):
            margins = unlimited(total.shape[1])
            np.copyto(margins, short[row], where=feasible[row], casting="unsafe")
            yield uniform(best[row].nonzero()[0].astype(np.int32)), margins

    def _of_windows(
        self, scores: ManyScores, feasible: Bools, order: Int32s, size: int
    ) -> Iterator[_Answer | None]:
        """Yield the answers where the first ``size`` of the feasible nodes (K, N) are scored."""
        place: dict[bytes, int] = {}
        ring_of = np.array([place.setdefault(row.tobytes(), len(place)) for row in feasible])
        firsts = np.unique(ring_of, return_index=True)[1]
        rings = Rings(order, feasible[firsts], size)
        found = landings(scores, self._scorer.weights, rings, ring_of)
        for row, ring in enumerate(ring_of.tolist()):
            if not found.known[row]:
                yield None
                continue
            count = int(rings.count[ring])
            nodes, chance = rings.nodes[ring, :count], found.chance[row, :count]
            prediction = likely(nodes, chance / chance.sum())
            margins, short = unlimited(feasible.shape[1]), found.margins[row, :count]
            margins[nodes] = np.where(short > 0, short, -1)
            margins[prediction.nodes] = 0
            yield prediction, margins
