"""Examine one candidate at a time: whether budgets and quotas allow its move now, whether it pays, and why not."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

import numpy as np

from rebalancer.core import search as core
from rebalancer.core.effects import gains_less
from rebalancer.core.moves import RefusedRow
from rebalancer.core.views import view_of
from rebalancer.cost.term import Gauge, Term
from rebalancer.plan.plan import Cause, Code
from rebalancer.planner.candidates import CandidateRows, Promise
from rebalancer.planner.draft import Draft
from rebalancer.planner.effort import Effort
from rebalancer.planner.judge import DRAWING, Judge
from rebalancer.planner.problem import Pair, WeightedTerm
from rebalancer.planner.reasons import RefusedMove
from rebalancer.planner.refusal import Refusal, Why
from rebalancer.planner.steer import LandingSteer
from rebalancer.planner.trial import Trial
from rebalancer.planner.verdict import Verdict, is_gamble
from rebalancer.scheduler.prediction import Prediction

NONE, GOOD, REVIEW, *_ = range(len(core.ENDS))
# What another landing could change.
_BY_LANDING = (
    Code.NO_GAIN,
    Code.COMES_BACK,
    Code.UNSURE,
    Code.LOW_GAIN,
    Code.LEAVING_NODE,
    Code.AVOIDED_NODE,
    Code.OTHER_OS,
)


class Examination:
    """Why candidates are not moved: decides where marks may help, and stores the reason of each refusal.

    It leaves the draft's state unchanged.
    """

    def __init__(
        self,
        draft: Draft,
        terms: Sequence[WeightedTerm],
        judge: Judge,
        candidates: CandidateRows,
        effort: Effort,
    ) -> None:
        self._draft, self._candidates = draft, candidates
        self._terms = terms
        self._allowance = draft.allowance
        self._costs = draft.problem.costs
        self.judge = judge
        self.search = self._set_up(effort)
        self.steer = LandingSteer(draft, self.judge, effort)
        self._unseen = {one.strategy for one in terms if one.term.unseen}
        """The strategies whose balance is worth marks."""
        self._unsteered: set[Pair] = set()
        """Pairs that marks could not help at the last judgement."""
        self._looks: list[RefusedRow | RefusedMove | None] = self.search.looks
        self.in_flight: str | None = None
        """The budget that moves of earlier runs use up, if that is where the plan ends."""
        self._ended = False
        """Whether a limit keeps all back that is left."""

    def _set_up(self, effort: Effort) -> core.Search:
        """Return the search, as the core has it."""
        draft, rows, allowance = self._draft, self._candidates, self._allowance
        in_place = np.zeros(len(draft.lifted), bool)
        for one in self._terms:
            if one.term.in_place:
                in_place[one.term.judged()] = True
        strategies = [one.strategy for one in self._terms]
        search = core.Search(
            rows.book,
            self.judge.bench,
            allowance.limits,
            core.CandidateArrays(
                view_of(self._costs),
                view_of(draft.snapshot.pods.ready),
                view_of(draft.lifted),
                view_of(in_place),
                view_of(np.array([allowance.number_of(name) for name in strategies], np.int64)),
                view_of(np.array([allowance.makes_room(name) for name in strategies], bool)),
                view_of(allowance.owner_limits()),
            ),
            rows.moved,
            allowance.first_of_wave,
            allowance.first_quota,
            draft.settings.threshold.imbalance,
        )
        search.most_alike, search.most_in_vain = effort.in_a_row, effort.in_vain
        search.most_lowered, search.closely = effort.looks, effort.closely
        search.any_starting = bool(allowance.starting)
        return search

    # -- while a rung goes on -----------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a wave."""
        np.asarray(self.search.waits).fill(-1)
        np.asarray(self.search.held).fill(-1)

    def note_starting(self, pairs: Iterable[Pair]) -> None:
        """Tell the core for which ``pairs`` a pod is starting: not Ready, and itself counted as a move in flight."""
        for pair in pairs:
            if (row := self._candidates.row_of(pair)) >= 0:
                self.search.starting[row] = self._allowance.starting[pair] > 0

    def review(self, promise: Promise, *, steered: bool) -> tuple[int, Verdict]:
        """Decide finally on the first row, which the core has judged; return how the core's loop ends, and the verdict.

        ``steered``: if the scheduler's own choice is not good enough, marks may enforce another landing.
        """
        pair, pod = promise.pair, promise.pod
        verdict = self.verdict(promise)
        if steered:
            verdict = self._steer(pair, promise, verdict, float(self._costs[pod]))
        refusal, prediction = verdict.refused, verdict.prediction
        if refusal is None and self._stays_unready(pod, verdict):
            refusal = Refusal.of(Why.UNREADY)
        if refusal is not None:
            if pair in self._unsteered:
                refusal = self._refine(promise.pod, promise.strategy, refusal)
                refusal = Refusal.of(Why.NO_MARKS, why=refusal)
            refused = RefusedMove(promise.strategy, refusal)
            self._looks[promise.row] = self.search.alike[pair[0]] = refused
        landing = int(prediction.nodes[0]) if len(prediction.nodes) else -1
        gain, best = view_of(np.array(verdict.gain)), view_of(np.array(verdict.best))
        return core.go_on(self.search, promise.row, refusal is None, gain, best, landing), verdict

    def verdict(self, promise: Promise) -> Verdict:
        """Return the verdict on the move that the core has just judged."""
        judge = self.judge.take(promise.pair[0], self.search.code)
        return judge.verdict(float(self._costs[promise.pod]))

    def _stays_unready(self, pod: int, verdict: Verdict) -> bool:
        """Return whether an unready pod, which may move only for its bad state, would move for its place."""
        if not self._draft.lifted[pod]:
            return False
        prediction, shares = verdict.prediction, verdict.by_strategy
        return self._draft.cause(pod, shares, prediction, self._terms) is not Cause.STATE

    def _refine(self, pod: int, strategy: str, refusal: Refusal) -> Refusal:
        """Return the refusal; if nothing improves because the pod would only move an overload, return a refusal with that reason."""
        if refusal.why is Why.NOTHING_BETTER and self._overloads(
            pod, strategy, refusal.facts["landing"]
        ):
            return Refusal(Why.OVERLOAD_MOVES, refusal.facts)
        return refusal

    def _overloads(self, pod: int, strategy: str, prediction: Prediction) -> bool:
        """Return whether a pod that moves for balance would put a likely node over a threshold of the strategy."""
        terms = [
            one.term
            for one in self._terms
            if one.strategy == strategy and type(one.term).gauge is not Term.gauge
        ]
        if not terms:
            return False
        with Trial(self._draft.state) as trial:
            trial.evict(pod, gone=True)
            gone = trial.here()
            for node in prediction.nodes[:DRAWING].tolist():
                trial.place(pod, node)
                gauges = [term.gauge(node) for term in terms]
                if any(one is not None and one.standing is Gauge.Standing.OVER for one in gauges):
                    return True
                trial.undo(gone)
        return False

    def _steer(self, pair: Pair, promise: Promise, verdict: Verdict, cost: float) -> Verdict:
        """Return the verdict on a landing enforced by marks, if ``verdict`` is not good enough and there is a better one."""
        if not self._may_be_better(promise, verdict):
            return verdict
        for_balance = not promise.for_rules
        better = self.steer.landing(promise.pod, *pair, cost, for_balance=for_balance)
        if better is None:
            if verdict.refused is not None or not for_balance:
                self._unsteered.add(pair)
            return verdict
        self._unsteered.discard(pair)
        pays = for_balance and verdict.refused is None
        return verdict if pays and better.gain <= verdict.gain else better

    def _may_be_better(self, promise: Promise, verdict: Verdict) -> bool:
        """Return whether marks may choose another landing: for rules where that matters, and for balance by what the scheduler does not see."""
        if not promise.for_rules and promise.strategy not in self._unseen:
            return False
        if verdict.refused is not None:
            return verdict.refused.code in _BY_LANDING
        if not promise.for_rules:
            return True
        hard, soft, _ = verdict.gain
        less = gains_less(hard, soft, *promise.promised[:2])
        return less or is_gamble(verdict.gain, verdict.best)

    def may_go_first(self, strategy: str, cls: int, node: int) -> bool:
        """Return whether ``select``, budgets and quotas allow a move now that enables another."""
        return (
            not self._candidates.is_cooling(cls)
            and self._draft.problem.may_move(strategy, cls, node)
            and self._allowance.has_room_for(2, strategy, cls)
            and self._allowance.refuse(cls, node, strategy) is None
        )

    # -- why they stay ------------------------------------------------------------------------------

    def explain(self, pair: Pair) -> RefusedMove | None:
        """Return why the pods of a pair (class, node) are not moved; None if nothing has refused it."""
        row, promise = self._candidates.row_of(pair), self._candidates.promise(pair)
        known = None if row < 0 else self._read(pair[0], self._looks[row])
        if known is None or promise is None:
            return known
        refusal = self._refine(promise.pod, known.strategy, known.refusal)
        look = self._looks[row]
        if pair in self._unsteered and isinstance(look, RefusedRow) and look.limit < 0:
            refusal = Refusal.of(Why.NO_MARKS, why=refusal)
        return RefusedMove(known.strategy, refusal)

    def _read(self, cls: int, look: RefusedRow | RefusedMove | None) -> RefusedMove | None:
        """Return a look at a pod of a class as a reason."""
        if not isinstance(look, RefusedRow):
            return look
        if look.limit < 0:
            refusal = self.judge.refusal_of(cls, look)
        else:
            why = Why.QUOTA if look.limit >= self._allowance.first_quota else Why.BUDGET
            refusal = Refusal.of(why, limit=self._allowance.words_of(look.limit, look.left))
        return RefusedMove(self._terms[look.term].strategy, refusal)

    def stuck(self, codes: Container[Code]) -> list[Pair]:
        """Return the pairs that may fix a rule, and were refused for one of these reasons, largest gain per cost first."""
        pair_of = self._candidates.pair_of
        looks = ((pair_of(row), self._looks[row]) for row in self._candidates.ranked())
        refused = ((pair, self._read(pair[0], look)) for pair, look in looks)
        return [pair for pair, why in refused if why is not None and why.refusal.code in codes]

    def forget(self, pair: Pair) -> None:
        """Forget the refusal of a pair: a pod of it has moved."""
        if (row := self._candidates.row_of(pair)) >= 0:
            self._looks[row] = None

    def waiting(self) -> frozenset[int]:
        """Return the classes whose pairs were deferred by a limit of the whole run, and refused by nothing else so far."""
        return frozenset(np.flatnonzero(self.search.kept_back).tolist())

    def end(self, limit: str) -> None:
        """Record that a limit of the whole run defers all remaining candidates."""
        self._ended = True
        if limit == self._allowance.filled_before():
            self.in_flight = limit
        refusal = Refusal.of(Why.BUDGET, limit=limit)
        for promise in self._candidates.promises():
            self._looks[promise.row] = RefusedMove(promise.strategy, refusal)
            core.keep_back(self.search, promise.row)

    def close(self) -> None:
        """End the search: record for all remaining candidates why they are not moved.

        The last wave is empty: candidates deferred in it wait for moves of earlier runs.
        """
        search, allowance = self.search, self._allowance
        for promise in self._candidates.promises():
            row, cls = promise.row, promise.pair[0]
            number = search.waits[row] if search.waits[row] >= 0 else search.held[cls]
            limit = allowance.words_of(number, 0) if number >= 0 else None
            if limit is not None and allowance.begins_in_flight:
                core.keep_back(search, row)
                self.in_flight = self.in_flight or limit
            known, little = self._looks[row], core.is_little(search, row)
            # What a budget held back in an earlier wave promises too little by now.
            outdated = limit is None and little and not self._ended
            if known is not None and not (outdated and self._is_of_budget(cls, known)):
                continue
            refusal = None if limit is None else Refusal.of(Why.BUDGET, limit=limit)
            if limit is None and little:
                refusal = self._refuse_little(promise)
            elif limit is None and (alike := self._read(cls, search.alike[cls])) is not None:
                refusal = alike.refusal
            if refusal is not None:
                self._looks[row] = RefusedMove(promise.strategy, refusal)

    def _is_of_budget(self, cls: int, look: RefusedRow | RefusedMove) -> bool:
        refused = self._read(cls, look)
        return refused is not None and refused.refusal.code is Code.BUDGET

    def _refuse_little(self, promise: Promise) -> Refusal:
        cost = float(self._costs[promise.pod])
        least = self._draft.settings.threshold.imbalance
        return Refusal.of(Why.LOW_PROMISE, gain=promise.promised[2], cost=cost, least=least)
