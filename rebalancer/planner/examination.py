"""One candidate at a time: do budgets and quotas let it go now, and does the move pay? If not, why?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rebalancer.cost.term import Term
from rebalancer.plan.plan import Cause, Code
from rebalancer.planner.candidates import CandidateList
from rebalancer.planner.draft import Draft
from rebalancer.planner.judge import Judge
from rebalancer.planner.postponed import Postponed, falls_short
from rebalancer.planner.problem import WeightedTerm
from rebalancer.planner.promises import Pair, Promise
from rebalancer.planner.quota import QuotaLedger
from rebalancer.planner.reasons import Refusal
from rebalancer.planner.steer import LandingSteer
from rebalancer.planner.verdict import TOLERANCE, Verdict, is_gamble
from rebalancer.scheduler.prediction import Prediction

# So many that promise too little anyway are judged anyway, to show people where they would land.
_CLOSELY = 300
# What another landing could change.
_BY_LANDING = (
    Code.NO_GAIN,
    Code.COMES_BACK,
    Code.UNSURE,
    Code.LOW_GAIN,
    Code.LEAVING_NODE,
    Code.AVOIDED_NODE,
)

_UNREADY = "ownerUnsettled: it is not Ready itself, and its move would not fix that"


class Examination:
    """Examines candidates in the draft's state, which it leaves as it was; notes why they stay."""

    def __init__(
        self,
        draft: Draft,
        terms: Sequence[WeightedTerm],
        guard: Term,
        candidates: CandidateList,
        postponed: Postponed,
    ) -> None:
        self._draft, self._candidates, self._postponed = draft, candidates, postponed
        self._terms = terms
        self._allowance = draft.allowance
        self._least = draft.settings.threshold.imbalance
        self._closely = _CLOSELY
        self.judge = Judge(draft.view, terms, guard, draft.settings.threshold)
        self.quota = QuotaLedger(draft.snapshot)
        self.steer = LandingSteer(draft, self.judge)
        self._unsteered: set[Pair] = set()
        """Pairs that marks could not help when they were last asked about."""
        self.refusals: dict[Pair, Refusal] = {}
        self._refused_alike: dict[int, tuple[Code, str]] = {}
        """Class -> why the newest pair of it that was looked at stays."""
        self.waiting: set[Pair] = set()
        """Pairs that a limit of the whole run has kept back, and nothing else so far."""
        self.in_flight: str | None = None
        """The budget that moves of earlier runs use up, if that is where the plan ends."""
        self._waits: dict[Pair, str] = {}
        """Pairs that wait for what is in flight in this wave, and for which limit."""

    def begin(self) -> None:
        """Begin a wave."""
        self._waits.clear()

    def close(self) -> None:
        """End the search: what waits in its last wave, which is empty, waits for moves of earlier runs."""
        if not self._allowance.begins_in_flight:
            return
        for pair, limit in self._waits.items():
            if (promise := self._candidates.promise(pair)) is not None:
                self._note_waiting(pair, promise)
                self.in_flight = self.in_flight or limit

    def verdict(self, pair: Pair, *, only_certain: bool, steered: bool = False) -> Verdict | None:
        """Return the verdict on a pair if it may go now; else note why not.

        ``steered``: where the scheduler's choice is not good enough, marks may choose another landing.
        """
        promise = self._candidates.promise(pair)
        if promise is None or self._is_limited(pair, promise):
            return None
        pod = self._candidates.pods(pair)[0]
        cost = float(self._draft.problem.costs[pod])
        if (too_little := self._too_little(promise, cost)) is not None:
            if self._closely == 0:
                self._refuse(pair, promise, Code.LOW_GAIN, too_little, None, steered=steered)
                return None
            self._closely -= 1
        verdict = self.judge.judge(pod, *pair, cost, unless_gamble=only_certain)
        if steered:
            verdict = self._steered(pair, promise, verdict, pod, cost)
        if verdict.refused is None and not self._stays_unready(pod, verdict):
            return verdict
        code, message = verdict.refused or (Code.PROTECTED, _UNREADY)
        if code is Code.NO_GAIN and promise.gains[0] == promise.gains[1] == 0:
            code = Code.OVERLOAD_MOVES
            message = message.replace("nothing gets better there", "that only moves the overload")
        if pair in self._unsteered:
            message += "; no marks would change that"
        self._refuse(pair, promise, code, message, verdict.prediction, steered=steered)
        return None

    def is_spared(self, pair: Pair, *, only_certain: bool, steered: bool) -> bool:
        """Return whether a pair need not be looked at now; where it never was, others of its class say why it stays."""
        promise = self._candidates.promise(pair)
        if promise is None:
            return True
        spared = self._postponed.is_spared(
            pair, only_certain=only_certain, steered=steered, hard=promise.gains[0] > 0
        )
        if spared and pair not in self.refusals and pair[0] in self._refused_alike:
            code, message = self._refused_alike[pair[0]]
            self.refusals[pair] = Refusal(promise.strategy, code, message)
        return spared

    def _stays_unready(self, pod: int, verdict: Verdict) -> bool:
        """Return whether a pod that may go for its own state only would go for its place."""
        if not self._draft.lifted[pod]:
            return False
        prediction, shares = verdict.prediction, verdict.by_strategy
        return self._draft.cause(pod, shares, prediction, self._terms) is not Cause.STATE

    def _steered(
        self, pair: Pair, promise: Promise, verdict: Verdict, pod: int, cost: float
    ) -> Verdict:
        """Return the verdict on a landing chosen by marks, where ``verdict`` is not good enough and there is one."""
        if verdict.refused is None:
            by_landing = is_gamble(verdict) or falls_short(promise, verdict)
        else:
            by_landing = verdict.refused[0] in _BY_LANDING
        # Only rules are worth marks.
        if not (by_landing and any(promise.promised[:2])):
            return verdict
        better = self.steer.landing(pod, *pair, cost)
        if better is None:
            self._unsteered.add(pair)
            return verdict
        self._unsteered.discard(pair)
        return better

    def _is_limited(self, pair: Pair, promise: Promise) -> bool:
        """Return whether a budget or a quota keeps a pair from going now, and note which."""
        strategy, pods = promise.strategy, self._candidates.pods(pair)
        ready = not pods or self._draft.snapshot.pods.is_ready(pods[0])
        if (limit := self._allowance.over(strategy, pair[0])) is not None:
            self.refusals[pair] = Refusal(strategy, Code.BUDGET, limit)
            self._note_waiting(pair, promise)
        elif (limit := self._allowance.waits(*pair, strategy, ready=ready)) is not None:
            self.refusals[pair] = Refusal(strategy, Code.BUDGET, limit)
            self._waits[pair] = limit
        elif (lack := self._lack(pair[0])) is not None:
            self.refusals[pair] = Refusal(strategy, Code.QUOTA, lack)
        else:
            return False
        return True

    def _refuse(
        self,
        pair: Pair,
        promise: Promise,
        code: Code,
        message: str,
        prediction: Prediction | None,
        *,
        steered: bool,
    ) -> None:
        self.refusals[pair] = Refusal(promise.strategy, code, message)
        self._refused_alike[pair[0]] = code, message
        self._postponed.refuse(pair, prediction, steered=steered)

    def _lack(self, cls: int) -> str | None:
        """Return which quota has no room for a replacement beside its victim; None where it comes after it."""
        return None if self._draft.snapshot.waits(cls) else self.quota.lacks(cls)

    def _too_little(self, promise: Promise, cost: float) -> str | None:
        """Return why a pair gains too little wherever its pod lands, by what the terms promise at most, if so.

        It would be refused, if with other words: only imbalance is at stake, and landings are worse than
        promised, never better.
        """
        hard, soft, imbalance = promise.promised
        if hard or soft or imbalance / cost + 2 * TOLERANCE >= self._least:
            return None
        return (
            f"gain at most {imbalance:.3g} at cost {cost:.3g} wherever it lands, "
            f"the policy asks for {self._least:g}"
        )

    def end(self, pairs: Iterable[Pair], limit: str) -> None:
        """Note that a limit of the whole run keeps all these pairs back."""
        if limit == self._allowance.filled_before():
            self.in_flight = limit
        for pair in pairs:
            promise = self._candidates.promise(pair)
            if promise is not None:
                self.refusals[pair] = Refusal(promise.strategy, Code.BUDGET, limit)
                self._note_waiting(pair, promise)

    def _note_waiting(self, pair: Pair, promise: Promise) -> None:
        pods = self._candidates.pods(pair)
        if not pods:
            return
        cost = float(self._draft.problem.costs[pods[0]])
        if not self._postponed.was_refused(pair) and self._too_little(promise, cost) is None:
            self.waiting.add(pair)

    def may_go_first(self, strategy: str, cls: int, node: int) -> bool:
        """Return whether ``select``, budgets and quotas let a pod move now so that another can go after it."""
        return (
            not self._candidates.is_cooling(cls)
            and self._draft.problem.may_move(strategy, cls, node)
            and self._allowance.has_room_for_two(strategy, cls)
            and self._allowance.waits(cls, node, strategy) is None
            and self._lack(cls) is None
        )
