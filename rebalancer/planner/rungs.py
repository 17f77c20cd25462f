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
from rebalancer.planner.verdict import Verdict, gains_less, is_gamble


@dataclass(frozen=True, slots=True)
class Rung:
    """One way to find the moves of a wave. The next rung is tried if this one finds none, or too few."""

    only_certain: bool = True
    only_rules: bool = False
    """Nothing moves for balance alone."""
    steered: bool = False
    """Marks may choose landings."""
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
        self._known: dict[int, tuple[int, int, Verdict]] = {}
        """Row -> moves made when it was judged, its pod, and the verdict: it holds until the next move."""

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
        self._known.clear()
        self._in_vain = 0
        most = effort.steered if rung.steered else math.inf
        while len(chosen) < most and self._goes_on() and (row := rows.head()) is not None:
            promise = rows.promise_of(row)
            vain = rung.only_rules or self._in_vain >= effort.in_vain
            if vain and not promise.for_rules:
                break
            verdict = self._judge(promise, rung, wave)
            if verdict is None:
                continue
            compared = rung.only_certain and not rung.steered
            if rows.lower(row, verdict.gain, compared=compared):
                self._known[row] = rows.moves, promise.pod, verdict
            else:
                chosen.append(self._make(promise, verdict, wave))
        return chosen

    def _judge(self, promise: Promise, rung: Rung, wave: Wave) -> Verdict | None:
        """Return the verdict on the best row if its move pays in this rung; else close the row and return None."""
        rows, examination, row = self._candidates, self._examination, promise.row
        known = self._known.pop(row, None)
        if known is not None and known[:2] == (rows.moves, promise.pod):
            return known[2]
        pair = rows.pair_of(row)
        is_freed = pair in self.freed
        hard = promise.promised[0] > 0
        alike = self._refused_in_a_row[pair[0]] >= self._effort.in_a_row
        if alike and not (hard or rung.again or is_freed):
            rows.close_class(pair[0])
            return None
        if examination.is_idle(row):
            rows.close(row)
            return None
        if examination.is_limited(promise, wave):
            return None
        verdict = examination.verdict(promise, steered=rung.steered)
        if (
            verdict is not None
            and rung.only_certain
            and not is_freed
            and _is_uncertain(promise, verdict)
        ):
            rows.close(row)
            verdict = None
        self._refused_in_a_row[pair[0]] += verdict is None
        if not promise.for_rules:
            self._in_vain = self._in_vain + 1 if verdict is None else 0
        return verdict

    def _make(self, promise: Promise, verdict: Verdict, wave: Wave) -> Chosen:
        """Move a pod of the best row, and open what that concerns."""
        pair = self._candidates.pair_of(promise.row)
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


def _is_uncertain(promise: Promise, verdict: Verdict) -> bool:
    """Return whether a move waits until few others are left: its landing is uncertain, or gains less than promised.

    The pod would violate one rule by its landing while fixing another. After other moves it may land better.
    """
    return gains_less(verdict, promise.promised) or is_gamble(verdict)
