"""Examine one candidate at a time: whether budgets and quotas allow its move now, whether it pays, and why not."""

from __future__ import annotations

from collections.abc import Sequence

from rebalancer.cost.term import Gauge
from rebalancer.plan.plan import Cause, Code
from rebalancer.planner.candidates import CandidateRows, Promise
from rebalancer.planner.commit import Wave
from rebalancer.planner.draft import Draft
from rebalancer.planner.effort import Effort
from rebalancer.planner.judge import DRAWING, Judge
from rebalancer.planner.problem import Pair, WeightedTerm
from rebalancer.planner.reasons import RefusedMove
from rebalancer.planner.refusal import Refusal, Why
from rebalancer.planner.steer import LandingSteer
from rebalancer.planner.trial import Trial
from rebalancer.planner.verdict import Verdict, gains_less, is_gamble
from rebalancer.scheduler.prediction import Prediction

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
    """Examines candidates in the draft's state, which it leaves unchanged; records why they stay."""

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
        self._closely = effort.closely
        self._costs = draft.problem.costs
        self._steered: Verdict | None = None
        """The verdict on the pod that was looked at last, where marks might choose its landing."""
        self.judge = judge
        self.steer = LandingSteer(draft, self.judge, effort)
        self._unseen = {one.strategy for one in terms if one.term.unseen}
        """The strategies whose balance is worth marks."""
        self._unsteered: set[Pair] = set()
        """Pairs that marks could not help when they were last asked about."""
        self.refusals: dict[Pair, RefusedMove] = {}
        self._refused_alike: dict[int, Refusal] = {}
        """Class -> why the newest pair of it that was looked at stays."""
        self.waiting: set[int] = set()
        """Classes of which a limit of the whole run has kept pairs back, and nothing else so far."""
        self.in_flight: str | None = None
        """The budget that moves of earlier runs use up, if that is where the plan ends."""
        self._ended = False
        """Whether a limit keeps all back that is left."""

    # -- while a rung goes on -----------------------------------------------------------------------

    def is_idle(self, promise: Promise) -> bool:
        """Return whether too little is promised to examine a move. A few are examined all the same, to show where they would land."""
        if not self._candidates.is_little(promise):
            return False
        self._closely -= 1
        return self._closely < 0

    def is_good(self, promise: Promise, *, steered: bool = False) -> bool:
        """Return whether the move of the next pod of a row pays; else close the row, and record why.

        ``steered``: if the scheduler's own choice is not good enough, marks may enforce another landing.
        """
        pair, pod = promise.pair, promise.pod
        cost = float(self._costs[pod])
        self._steered = None
        judge = self.judge
        good = judge.is_good(pod, pair[1], cost)
        refusal = None if good else judge.refusal(pod, cost)
        if steered or self._draft.lifted[pod]:
            verdict = judge.verdict(pod, cost)
            if steered:
                verdict = self._steered = self._steer(pair, promise, verdict, cost)
            refusal = verdict.refused
            if refusal is None and self._stays_unready(pod, verdict):
                refusal = Refusal.of(Why.UNREADY)
        if refusal is None:
            return True
        prediction = self._steered.prediction if self._steered else judge.prediction
        if refusal.why is Why.NOTHING_BETTER and self._overloads(promise, prediction):
            refusal = Refusal(Why.OVERLOAD_MOVES, refusal.facts)
        if pair in self._unsteered:
            refusal = Refusal.of(Why.NO_MARKS, why=refusal)
        self.refusals[pair] = RefusedMove(promise.strategy, refusal)
        self._refused_alike[pair[0]] = refusal
        nodes = prediction.nodes
        self._candidates.refuse(promise.row, int(nodes[0]) if len(nodes) else -1)
        return False

    @property
    def gain(self) -> tuple[float, float, float]:
        """The expected gain per entry of the move that was looked at last."""
        return (self._steered or self.judge.effects).gain

    def is_uncertain(self, promise: Promise) -> bool:
        """Return whether the move that was looked at last waits until few others are left."""
        newest = self._steered or self.judge.effects
        return is_uncertain(promise, newest.gain, newest.best)

    def verdict(self, promise: Promise) -> Verdict:
        """Return the verdict on the pod that was looked at last."""
        cost = float(self._costs[promise.pod])
        return self._steered or self.judge.verdict(promise.pod, cost)

    def _stays_unready(self, pod: int, verdict: Verdict) -> bool:
        """Return whether an unready pod, which may move only for its bad state, would move for its place."""
        if not self._draft.lifted[pod]:
            return False
        prediction, shares = verdict.prediction, verdict.by_strategy
        return self._draft.cause(pod, shares, prediction, self._terms) is not Cause.STATE

    def _overloads(self, promise: Promise, prediction: Prediction) -> bool:
        """Return whether a pod that moves for balance alone would put a likely node over a threshold of its strategy."""
        if promise.for_rules:
            return False
        terms = [one.term for one in self._terms if one.strategy == promise.strategy]
        with Trial(self._draft.state) as trial:
            trial.evict(promise.pod, gone=True)
            gone = trial.here()
            for node in prediction.nodes[:DRAWING].tolist():
                trial.place(promise.pod, node)
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
        return not promise.for_rules or is_uncertain(promise, verdict.gain, verdict.best)

    def is_limited(self, promise: Promise, wave: Wave) -> bool:
        """Return whether a budget or a quota forbids the move of a row now; record which, and close it."""
        strategy, pair = promise.strategy, promise.pair
        ready = self._draft.snapshot.pods.is_ready(promise.pod)
        if self._allowance.allows(*pair, strategy, ready=ready):
            return False
        if (limit := self._allowance.over(strategy, pair[0])) is not None:
            self.refusals[pair] = RefusedMove(strategy, Refusal.of(Why.BUDGET, limit=limit))
            self._note_waiting(promise)
        elif (limit := self._allowance.waits(*pair, strategy, ready=ready)) is not None:
            self.refusals[pair] = RefusedMove(strategy, Refusal.of(Why.BUDGET, limit=limit))
            wave.waits[pair] = limit
            if self._allowance.holds_owner(pair[0]):
                self._candidates.close_class(pair[0])
                wave.held[pair[0]] = limit
        else:
            lack = self._allowance.lacks(pair[0])
            self.refusals[pair] = RefusedMove(strategy, Refusal.of(Why.QUOTA, limit=lack))
        self._candidates.close(promise.row)
        return True

    def may_go_first(self, strategy: str, cls: int, node: int) -> bool:
        """Return whether ``select``, budgets and quotas allow a move now that enables another."""
        return (
            not self._candidates.is_cooling(cls)
            and self._draft.problem.may_move(strategy, cls, node)
            and self._allowance.has_room_for(2, strategy, cls)
            and self._allowance.waits(cls, node, strategy) is None
            and self._allowance.lacks(cls) is None
        )

    # -- at the end ---------------------------------------------------------------------------------

    def end(self, limit: str) -> None:
        """Record that a limit of the whole run defers all remaining candidates."""
        self._ended = True
        if limit == self._allowance.filled_before():
            self.in_flight = limit
        for promise in self._candidates.promises():
            refusal = Refusal.of(Why.BUDGET, limit=limit)
            self.refusals[promise.pair] = RefusedMove(promise.strategy, refusal)
            self._note_waiting(promise)

    def close(self, wave: Wave) -> None:
        """End the search: record for all remaining candidates why they stay.

        The last ``wave`` is empty: candidates deferred in it wait for moves of earlier runs.
        """
        in_flight = self._allowance.begins_in_flight
        for promise in self._candidates.promises():
            pair = promise.pair
            limit = wave.waits.get(pair) or wave.held.get(pair[0])
            if limit is not None and in_flight:
                self._note_waiting(promise)
                self.in_flight = self.in_flight or limit
            known = self.refusals.get(pair)
            # What a budget held back in an earlier wave promises too little by now.
            outdated = limit is None and self._candidates.is_little(promise) and not self._ended
            if known is not None and not (outdated and known.refusal.code is Code.BUDGET):
                continue
            if (why := self._why_left(pair[0], promise, limit)) is not None:
                self.refusals[pair] = RefusedMove(promise.strategy, why)

    def _why_left(self, cls: int, promise: Promise, limit: str | None) -> Refusal | None:
        """Return the refusal of a pair that was never examined; other pairs of its class may supply it."""
        if limit is not None:
            return Refusal.of(Why.BUDGET, limit=limit)
        if not self._candidates.is_little(promise):
            return self._refused_alike.get(cls)
        cost = float(self._draft.problem.costs[promise.pod])
        least = self._draft.settings.threshold.imbalance
        return Refusal.of(Why.LOW_PROMISE, gain=promise.promised[2], cost=cost, least=least)

    def _note_waiting(self, promise: Promise) -> None:
        candidates = self._candidates
        if not candidates.was_refused(promise.row) and not candidates.is_little(promise):
            self.waiting.add(promise.pair[0])


def is_uncertain(promise: Promise, gain: Sequence[float], best: Sequence[float]) -> bool:
    """Return whether a move waits until few others are left: its landing is uncertain, or gains less than promised.

    The pod would violate one rule by its landing while fixing another. After other moves it may land better.
    """
    return gains_less(gain, promise.promised) or is_gamble(gain, best)
