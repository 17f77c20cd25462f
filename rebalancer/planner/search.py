"""The search: lazy greedy over rows of a class and a node, wave by wave.

Rows are sorted by an upper bound of their gain per eviction cost. The best one is judged with its predicted landings in
the current state. If it still beats the next row, a pod of it moves; else it remains in the queue with its exact gain. Rows
deferred by a budget wait for the next wave; rows that the scheduler or the cost refuses are judged again once something
that the refusal depends on has changed. A wave with little gain is the last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from rebalancer.core import search as core
from rebalancer.cost.guards import Guard, guard_term
from rebalancer.planner.candidates import CandidateRows, Promise
from rebalancer.planner.chains import Chains, ChainWaves
from rebalancer.planner.commit import Commit, Wave
from rebalancer.planner.draft import Draft
from rebalancer.planner.effort import Effort
from rebalancer.planner.ended import Removals
from rebalancer.planner.examination import GOOD, NONE, REVIEW, Examination
from rebalancer.planner.exchanges import ExchangeJudge, ExchangeWaves
from rebalancer.planner.gang_plan import GangPlan
from rebalancer.planner.judge import Judge
from rebalancer.planner.problem import Pair, WeightedTerm
from rebalancer.planner.reasons import RefusedMove
from rebalancer.planner.rendering import Chosen
from rebalancer.planner.room.plan import Rooms, make_room
from rebalancer.planner.verdict import Verdict
from rebalancer.snapshot.columns import Floats

WhyStop = Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class Rung:
    """One way to find the moves of a wave. The next rung is tried if this one finds none, or too few."""

    only_certain: bool = True
    only_rules: bool = False
    """Whether no pod is moved for balance alone."""
    steered: bool = False
    """Whether nodes may be marked (a soft taint), so that the scheduler chooses another one."""
    again: bool = False
    """All rows are looked at, even if nothing has changed since they were refused."""
    joins: bool = False
    """Whether it may add moves to those of the rung before."""


_CERTAIN, _GAMBLES = Rung(), Rung(only_certain=False, joins=True)
_LADDER = (_CERTAIN, _GAMBLES)
_FOR_RULES = Rung(only_rules=True), Rung(only_rules=True, steered=True)
_LADDER_WITH_MARKS = (*_FOR_RULES, _CERTAIN, _GAMBLES)
# By use, the node that marks choose is better than one that the scheduler takes by chance.
_LADDER_BY_USE = (*_FOR_RULES, Rung(steered=True), _CERTAIN, _GAMBLES)
# Where marks may choose landings, they do so before pods move for balance alone.
_ONCE_MORE = (Rung(again=True, only_certain=False, joins=True),)


@dataclass(frozen=True, slots=True)
class Left:
    """Why pods are not moved, and which pairs wait for later runs."""

    refused: Callable[[Pair], RefusedMove | None]
    """Returns why a pair is not moved; None if nothing has refused it."""
    pairs: frozenset[Pair]
    """All that were candidates at any time."""
    waiting_classes: frozenset[int]
    """Classes with pairs that only a limit of the whole run, or moves in flight, keep back."""
    in_flight: str | None
    """The budget that moves of earlier runs use up, if that is where the plan ends."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result of a search; the state contains the moves."""

    chosen: tuple[Chosen, ...]
    removals: Removals
    """Pods that have ended, as far as moves leave budgets for them."""
    rests: bool
    """The plan ends because the last wave brought little, see ``Threshold.rest``."""
    left: Callable[[], Left]
    """Returns the pairs that are left. Only reports need it, and many pairs take time; the state must not have changed since the search."""
    rooms: Rooms
    """The plan for waiting pods."""


def search(draft: Draft, effort: Effort, stop: WhyStop, most_landings: int | None) -> SearchResult:
    """Plan with the enforced strategies first, then add the moves that observing strategies would make.

    ``stop`` returns why planning must end now, or None. ``most_landings``: landings kept per move; None: all.
    """
    guard = guard_term(draft.view)
    rooms = make_room(draft, effort, stop, most_landings, observed=False)
    gangs = GangPlan(draft, draft.enforced).run(rooms.waves + 1)
    one = _Pass(draft, draft.enforced, guard, effort, stop, most_landings, observed=False)
    chosen = [*rooms.chosen, *gangs, *one.run(newest_wave(gangs, rooms.waves) + 1)]
    removals = draft.ended.remove(draft.allowance, observed=False)
    if not any(of.observed for of in draft.problem.contributions):
        return SearchResult(tuple(chosen), removals, one.rests, one.left, rooms)
    left = one.left()
    seen = make_room(draft, effort, stop, most_landings, observed=True, before=chosen)
    other = _Pass(draft, draft.terms, guard, effort, stop, most_landings, observed=True)
    together = GangPlan(draft, draft.terms, observed=True).run(seen.waves + 1)
    after = newest_wave(together, seen.waves)
    shown = [*seen.chosen, *together, *other.run(after + 1)]
    removals += draft.ended.remove(draft.allowance, observed=True)

    def both() -> Left:
        then = other.left()
        return replace(left, refused=then.refused, pairs=left.pairs | then.pairs)

    return SearchResult((*chosen, *shown), removals, one.rests, both, rooms.joined(seen))


def newest_wave(chosen: Sequence[Chosen], before: int) -> int:
    """Return the newest wave of ``chosen``; the wave ``before`` them if there are none."""
    return max((move.wave for move in chosen), default=before)


class _Pass:
    def __init__(
        self,
        draft: Draft,
        terms: Sequence[WeightedTerm],
        guard: Guard,
        effort: Effort,
        stop: WhyStop,
        most_landings: int | None,
        *,
        observed: bool,
    ) -> None:
        self._draft, self._allowance, self._stop = draft, draft.allowance, stop
        self._effort = effort
        self._freed: Collection[Pair] = ()
        """Pairs for which chains of the wave before have made room: they are moved even if their landing is uncertain. Another
        move might otherwise use that room."""
        self._largest = 0
        """Moves of the largest wave."""
        self._gained = np.zeros(3)
        """Per entry, what the moves so far gain in expectation."""
        self._little = False
        """Whether the last wave brought little, see ``Threshold.rest``."""
        self.rests = False
        """Whether the plan ends because of that."""
        with_marks = _LADDER_BY_USE if any(one.term.unseen for one in terms) else _LADDER_WITH_MARKS
        self._ladder = with_marks if draft.settings.steer else _LADDER
        judge = Judge(draft.view, terms, guard, draft.settings.threshold)
        self.candidates = CandidateRows(draft, terms, judge, effort)
        self.examination = Examination(draft, terms, judge, self.candidates, effort)
        commit = Commit(draft, terms, observed, most_landings)
        self._commit = commit
        chains = Chains(draft.view, judge, draft.problem.costs, effort)
        self._chains = ChainWaves(draft, chains, self.candidates, self.examination, commit)
        exchanges = ExchangeJudge(draft, terms, judge, guard)
        self._exchanges = ExchangeWaves(
            draft, exchanges, self.candidates, self.examination, commit, effort
        )

    def run(self, first_wave: int) -> list[Chosen]:
        """Return the moves of all waves, in order; the state contains all of them."""
        chosen: list[Chosen] = []
        for number in count(first_wave):
            if not self._may_go_on():
                break
            self.examination.begin()
            of_wave = self._moves_of(Wave(number))
            if not of_wave:
                break
            chosen += of_wave
        return chosen

    def _is_little(self, gained: Floats) -> bool:
        """Return whether the gain of a wave per entry is too small for another wave."""
        little = gained < self._draft.settings.threshold.rest * self._gained
        return bool(gained[0] <= 0 and (little | (gained <= 0)).all())

    def left(self) -> Left:
        """Return the pairs that are refused or wait after the last wave: all of them, if a limit of the run has ended it."""
        examination = self.examination
        if (limit := self._allowance.exhausted()) is not None:
            examination.end(limit)
        else:
            examination.close()
        return Left(
            examination.explain,
            frozenset(self.candidates.seen),
            examination.waiting(),
            examination.in_flight,
        )

    def _may_go_on(self) -> bool:
        """Return whether the run has time and budget for another move."""
        if self._allowance.exhausted() is not None:
            return False
        if (why := self._stop()) is None:
            return True
        self._allowance.stop(why)
        return False

    def _moves_of(self, wave: Wave) -> list[Chosen]:
        """Return the moves of a wave, from the first rungs that find enough; else those of a chain or an exchange."""
        before = self._gained.copy()
        # After a wave that brought little only chains are left to try: they may fix what no single move does.
        of_wave = [] if self._little else self._climb(wave, before)
        if of_wave:
            self._freed = ()
            self._little = self._is_little(self._gained - before)
        else:
            of_wave, self._freed = self._chains.wave(wave)
            of_wave = of_wave or self._exchanges.wave(wave)
            self.rests = self._little and not of_wave
            self._little = False
        self._draft.state.reap()
        self.candidates.land()
        self._allowance.next_wave()
        return of_wave

    def _climb(self, wave: Wave, before: Floats) -> list[Chosen]:
        """Return the moves of a wave; ``before``: the gain of earlier waves per entry."""
        of_wave: list[Chosen] = []
        for rung in self._ladder + _ONCE_MORE:
            little = self._is_little(self._gained - before)
            few = little or len(of_wave) < self._effort.few * self._largest
            # What was refused is looked at once more only where the plan would end.
            if of_wave and not (rung.joins and (little if rung.again else few)):
                break
            moves = self._climb_rung(rung, wave)
            for move in moves:
                self._gained += np.maximum(0.0, move.gain)
            of_wave += moves
        self._largest = max(self._largest, len(of_wave))
        return of_wave

    def _climb_rung(self, rung: Rung, wave: Wave) -> list[Chosen]:
        """Return the moves of one rung of a wave.

        Moves with an uncertain landing, or that violate one rule while fixing another, wait until few others are
        left: each landed replacement makes nodes differ more, and later landings more certain.
        """
        chosen: list[Chosen] = []
        examination, rows = self.examination, self.candidates
        search = examination.search
        self._begin_rung(rung)
        most = self._effort.steered if rung.steered else math.inf
        while len(chosen) < most and self._goes_on():
            found, verdict = core.find_move(search), None
            if found == NONE:
                break
            if found == REVIEW:
                promise = rows.promise_of(search.row)
                found, verdict = examination.review(promise, steered=rung.steered)
            if found == GOOD:
                promise = rows.promise_of(search.row)
                chosen.append(self._make(promise, verdict or examination.verdict(promise), wave))
        return chosen

    def _begin_rung(self, rung: Rung) -> None:
        """Open the rows that this rung may try, and clear the refusals that earlier rungs have counted."""
        search = self.examination.search
        self.examination.steer.standing = ()
        self.examination.note_starting(self._allowance.starting)
        self.candidates.open(again=rung.again, steered=rung.steered)
        np.asarray(search.refused_alike).fill(0)
        np.asarray(search.freed).fill(0)
        for pair in self._freed:
            if (row := self.candidates.row_of(pair)) >= 0:
                search.freed[row] = 1
        search.in_vain = 0
        search.only_certain, search.only_rules = rung.only_certain, rung.only_rules
        search.again, search.steered = rung.again, rung.steered

    def _make(self, promise: Promise, verdict: Verdict, wave: Wave) -> Chosen:
        """Move a pod of the best row, and open what that concerns."""
        pair, examination = promise.pair, self.examination
        made = self._commit.move(pair, promise, verdict, wave)
        examination.steer.standing = verdict.marks
        examination.forget(pair)
        examination.note_starting((pair,))
        takers = (taker.node for taker in verdict.prediction.takers)
        nodes = pair[1], int(verdict.prediction.nodes[0]), *takers
        concerned = self.candidates.move(pair[0], nodes, wave.retried)
        wave.retried.update(concerned.tolist())
        np.asarray(examination.search.refused_alike)[concerned] = 0
        return made

    def _goes_on(self) -> bool:
        """Return whether another move may be made in this wave; record what waits for earlier runs' moves."""
        if not self._may_go_on():
            return False
        if (limit := self._allowance.filled_before()) is not None:
            self.examination.end(limit)
            return False
        return not self._allowance.full()
