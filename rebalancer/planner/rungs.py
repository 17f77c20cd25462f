"""Make the moves of one rung of a wave: take the best row, judge it, move a pod of it, and go on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass

from rebalancer.planner.candidates import CandidateRows, Promise
from rebalancer.planner.commit import Commit, Wave
from rebalancer.planner.effort import Effort
from rebalancer.planner.examination import Examination
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
        self.freed: Collection[Pair] = ()
        """Pairs for which chains of the wave before have made room: they go even if their landing is uncertain. Another move
        might otherwise take that room."""
        self._refused_in_a_row: Counter[int] = Counter()
        """Class -> rows that were refused, or passed over, since a move has last concerned it."""
        self._in_vain = 0
        """Rows for balance alone that were judged in a row, and none of them paid."""

    def climb(self, rung: Rung, wave: Wave) -> list[Chosen]:
        """Return the moves of one rung of a wave.

        Moves with an uncertain landing, or that violate one rule while fixing another, wait until few others are
        left: each landed replacement makes nodes differ more, and later landings more certain.
        """
        chosen: list[Chosen] = []
        rows, effort = self._candidates, self._effort
        self._examination.steer.standing = ()
        rows.open(again=rung.again, steered=rung.steered)
        self._refused_in_a_row.clear()
        self._in_vain = 0
        most = effort.steered if rung.steered else math.inf
        while len(chosen) < most and self._goes_on() and (row := rows.head()) is not None:
            promise = rows.promise_of(row)
            vain = rung.only_rules or self._in_vain >= effort.in_vain
            if vain and not promise.for_rules:
                break
            if not self._is_good(promise, rung, wave):
                continue
            compared = rung.only_certain and not rung.steered
            if not rows.lower(row, self._examination.gain, compared=compared):
                verdict = self._examination.verdict(promise)
                chosen.append(self._make(promise, verdict, wave))
        return chosen

    def _is_good(self, promise: Promise, rung: Rung, wave: Wave) -> bool:
        """Return whether the move of the best row pays in this rung; else close the row."""
        rows, examination, cls = self._candidates, self._examination, promise.pair[0]
        alike = self._refused_in_a_row[cls] >= self._effort.in_a_row
        if alike and not (promise.promised[0] > 0 or rung.again or self._is_freed(promise)):
            rows.close_class(cls)
            return False
        if examination.is_idle(promise):
            rows.close(promise.row)
            return False
        if examination.is_limited(promise, wave):
            return False
        good = examination.is_good(promise, steered=rung.steered)
        waits = rung.only_certain and not self._is_freed(promise)
        if good and waits and examination.is_uncertain(promise):
            rows.close(promise.row)
            good = False
        self._refused_in_a_row[cls] += not good
        if not promise.for_rules:
            self._in_vain = 0 if good else self._in_vain + 1
        return good

    def _is_freed(self, promise: Promise) -> bool:
        return promise.pair in self.freed

    def _make(self, promise: Promise, verdict: Verdict, wave: Wave) -> Chosen:
        """Move a pod of the best row, and open what that concerns."""
        pair = promise.pair
        made = self._commit.move(pair, promise, verdict, wave)
        self._examination.steer.standing = verdict.marks
        self._examination.refusals.pop(pair, None)
        takers = (taker.node for taker in verdict.prediction.takers)
        nodes = pair[1], int(verdict.prediction.nodes[0]), *takers
        concerned = self._candidates.move(pair[0], nodes, wave.retried).tolist()
        wave.retried.update(concerned)
        for cls in concerned:
            self._refused_in_a_row.pop(cls, None)
        return made
