"""Make the moves of one rung of a wave: take the best row, judge it, move a pod of it, and go on."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from rebalancer.core import search as core
from rebalancer.planner.candidates import CandidateRows, Promise
from rebalancer.planner.commit import Commit, Wave
from rebalancer.planner.effort import Effort
from rebalancer.planner.examination import GOOD, JUDGE, LOWER, NONE, Examination
from rebalancer.planner.problem import Pair
from rebalancer.planner.rendering import Chosen
from rebalancer.planner.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Rung:
    """One way to find the moves of a wave. The next rung is tried if this one finds none, or too few."""

    only_certain: bool = True
    only_rules: bool = False
    """Nothing moves for balance alone."""
    steered: bool = False
    """Whether nodes may be marked (a soft taint), so that the scheduler chooses another one."""
    again: bool = False
    """All rows are looked at, even if nothing has changed since they were refused."""
    joins: bool = False
    """It may add to the moves of the rung before."""


class Rungs:
    """Makes moves in the draft, best first."""

    def __init__(
        self,
        candidates: CandidateRows,
        examination: Examination,
        commit: Commit,
        effort: Effort,
        goes_on: Callable[[], bool],
    ) -> None:
        """``goes_on`` returns whether another move may be made in this wave."""
        self._candidates, self._examination = candidates, examination
        self._commit, self._effort, self._goes_on = commit, effort, goes_on
        self._has_pending = commit.draft.scheduler.pending.has_any
        self.freed: Collection[Pair] = ()
        """Pairs for which chains of the wave before have made room: they go even if their landing is uncertain. Another move
        might otherwise take that room."""

    def climb(self, rung: Rung, wave: Wave) -> list[Chosen]:
        """Return the moves of one rung of a wave.

        Moves with an uncertain landing, or that violate one rule while fixing another, wait until few others are
        left: each landed replacement makes nodes differ more, and later landings more certain.
        """
        chosen: list[Chosen] = []
        examination, rows = self._examination, self._candidates
        search = examination.search
        self._begin(rung)
        most = self._effort.steered if rung.steered else math.inf
        while len(chosen) < most and self._goes_on():
            found, verdict = core.find_move(search), None
            if found == NONE:
                break
            if found == LOWER:
                examination.judge.effects.make_ready(rows.pair_of(search.row)[0])
            elif found == JUDGE:
                promise = rows.promise_of(search.row)
                found, verdict = examination.answer(promise, steered=rung.steered)
            if found == GOOD:
                promise = rows.promise_of(search.row)
                chosen.append(self._make(promise, verdict or examination.verdict(promise), wave))
        return chosen

    def _begin(self, rung: Rung) -> None:
        """Open the rows, and forget what other rungs have found."""
        search = self._examination.search
        self._examination.steer.standing = ()
        self._examination.note_starting()
        self._candidates.open(again=rung.again, steered=rung.steered)
        np.asarray(search.refused_alike).fill(0)
        np.asarray(search.freed).fill(0)
        for pair in self.freed:
            search.freed[self._candidates.row_of(pair)] = 1
        search.in_vain = 0
        search.only_certain, search.only_rules = rung.only_certain, rung.only_rules
        search.again, search.all_by_python = rung.again, rung.steered or self._has_pending

    def _make(self, promise: Promise, verdict: Verdict, wave: Wave) -> Chosen:
        """Move a pod of the best row, and open what that concerns."""
        pair, examination = promise.pair, self._examination
        made = self._commit.move(pair, promise, verdict, wave)
        examination.steer.standing = verdict.marks
        examination.forget(pair)
        examination.note_starting()
        takers = (taker.node for taker in verdict.prediction.takers)
        nodes = pair[1], int(verdict.prediction.nodes[0]), *takers
        concerned = self._candidates.move(pair[0], nodes, wave.retried)
        wave.retried.update(concerned.tolist())
        np.asarray(examination.search.refused_alike)[concerned] = 0
        return made
