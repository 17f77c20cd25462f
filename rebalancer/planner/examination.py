"""One candidate at a time: do budgets and quotas let it go now, and does the move pay? If not, why?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rebalancer.cost.term import Term
from rebalancer.plan.plan import Code
from rebalancer.planner.candidates import Candidates
from rebalancer.planner.draft import Draft
from rebalancer.planner.judge import TOLERANCE, Judge, Verdict
from rebalancer.planner.postponed import Postponed
from rebalancer.planner.problem import WeightedTerm
from rebalancer.planner.promises import Pair, Promise
from rebalancer.planner.quota import QuotaLedger
from rebalancer.planner.reasons import Refusal

# So many that promise too little anyway are judged all the same, to show people where they would land.
_CLOSELY = 300


class Examination:
    """Examines candidates in the draft's state, which it leaves as it was; notes why they stay."""

    def __init__(
        self,
        draft: Draft,
        terms: Sequence[WeightedTerm],
        guard: Term,
        candidates: Candidates,
        postponed: Postponed,
    ) -> None:
        self._draft, self._candidates, self._postponed = draft, candidates, postponed
        self._allowance = draft.allowance
        self._least = draft.settings.threshold.imbalance
        self._closely = _CLOSELY
        self.judge = Judge(draft.view, terms, guard, draft.settings.threshold)
        self.quota = QuotaLedger(draft.snapshot)
        self.refusals: dict[Pair, Refusal] = {}
        self.waiting: set[Pair] = set()
        """Pairs that a limit of the whole run has kept back, and nothing else so far."""

    def verdict(self, pair: Pair, *, only_certain: bool) -> Verdict | None:
        """Return the verdict on a pair if it may go now; else note why not."""
        promise = self._candidates.promise(pair)
        if promise is None or self._is_limited(pair, promise):
            return None
        pod = self._candidates.pods(pair)[0]
        cost = float(self._draft.problem.costs[pod])
        if (too_little := self._too_little(promise, cost)) is not None:
            if self._closely == 0:
                self._refuse(pair, promise, Code.LOW_GAIN, too_little)
                return None
            self._closely -= 1
        verdict = self.judge.judge(pod, *pair, cost, unless_gamble=only_certain)
        if verdict.refused is None:
            return verdict
        code, message = verdict.refused
        if code is Code.NO_GAIN and promise.gains[0] == promise.gains[1] == 0:
            code = Code.OVERLOAD_MOVES
            message = message.replace("nothing gets better there", "that only moves the overload")
        self._refuse(pair, promise, code, message)
        return None

    def _is_limited(self, pair: Pair, promise: Promise) -> bool:
        """Return whether a budget or a quota keeps a pair from going now, and note which."""
        strategy = promise.strategy
        if (limit := self._allowance.over(strategy, pair[0])) is not None:
            self.refusals[pair] = Refusal(strategy, Code.BUDGET, limit)
            self._note_waiting(pair, promise)
        elif (limit := self._allowance.waits(*pair, strategy)) is not None:
            self.refusals[pair] = Refusal(strategy, Code.BUDGET, limit)
        elif (lack := self._lack(pair[0])) is not None:
            self.refusals[pair] = Refusal(strategy, Code.QUOTA, lack)
        else:
            return False
        return True

    def _refuse(self, pair: Pair, promise: Promise, code: Code, message: str) -> None:
        self.refusals[pair] = Refusal(promise.strategy, code, message)
        self._postponed.refuse(pair)

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
        for pair in pairs:
            promise = self._candidates.promise(pair)
            if promise is not None:
                self.refusals[pair] = Refusal(promise.strategy, Code.BUDGET, limit)
                self._note_waiting(pair, promise)

    def _note_waiting(self, pair: Pair, promise: Promise) -> None:
        cost = float(self._draft.problem.costs[self._candidates.pods(pair)[0]])
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
