"""The search: lazy greedy over (class, node) pairs, wave by wave.

Candidates wait in a heap by what they could gain at most per eviction cost. The best is judged exactly,
with its predicted landing in the state as planned so far; if it still beats the next, it is committed,
else it goes back with its exact gain. What a budget holds back waits for the next wave; what the
scheduler or the cost refuses is tried again once after something has changed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from rebalancer.cost.term import Term, View
from rebalancer.plan.plan import Code
from rebalancer.planner.allowance import Allowance
from rebalancer.planner.candidates import Candidates, Entry, is_behind
from rebalancer.planner.chain import Chains, Step
from rebalancer.planner.eviction_cost import reluctance
from rebalancer.planner.judge import GAMBLE, TOLERANCE, Judge, Verdict, Weighted, is_gamble
from rebalancer.planner.pool import Pair, Wish
from rebalancer.planner.quota import QuotaLedger
from rebalancer.planner.settings import Settings
from rebalancer.scheduler.prediction import Prediction
from rebalancer.snapshot.columns import Floats

# What another pod that goes first can change; the others are about the pod itself.
_ALONE = (Code.NO_GAIN, Code.COMES_BACK, Code.UNSURE, Code.LOW_GAIN)

# So many pairs that were refused before are looked at again in one wave.
_AGAIN = 300
# So many that promise too little anyway are judged all the same, to tell people where they would land.
_CLOSELY = 300


Stop = Callable[[], str | None]
"""Says why planning must end now, or None."""


def never() -> None:
    """Let planning go on."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A committed move, in array terms."""

    pod: int
    cls: int
    node: int
    gain: tuple[float, float, float]
    """Expected, per entry."""
    landings: Prediction
    """The most probable ones, or all."""
    strategy: str
    reason: str
    wave: int
    observed: bool
    makes_way_for: int = -1
    """The pod that can only go once this one has; -1 for a move that pays by itself."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pair was not moved, and which strategy would have liked it."""

    strategy: str
    code: Code
    message: str


def move_in_state(view: View, pod: int, cls: int, prediction: Prediction) -> None:
    """Move ``pod`` in the view's state: it terminates (or is gone, if its owner waits), then lands.

    Pending pods that the move feeds get their nodes.
    """
    state, snapshot = view.state, view.snapshot
    state.evict(pod)
    if snapshot.waits(cls):
        state.reap(state.terminating_pods[-1])
    state.place(pod, snapshot.classes[cls].replacement, int(prediction.nodes[0]))
    for taker in prediction.takers:
        state.place(taker.pod, int(state.cls_of[taker.pod]), taker.node)


class Search:
    """One search over one view; terms of observing strategies come in a second pass."""

    def __init__(
        self,
        view: View,
        terms: Sequence[Weighted],
        guard: Term,
        settings: Settings,
        allowance: Allowance,
        cost: Floats,
        stop: Stop = never,
        most_landings: int | None = None,
    ) -> None:
        """``stop`` says why planning must end now, or None. Of each move ``most_landings`` are kept; None: all."""
        self._stop = stop
        self._view, self._terms = view, terms
        self._judge = Judge(view, terms, guard, settings.threshold)
        self._least = settings.threshold.imbalance
        self._closely = _CLOSELY
        self._allowance, self._cost = allowance, cost
        order = cost * reluctance(view.snapshot)
        self.candidates = Candidates(view, terms, order, settings.cooling)
        self._quota = QuotaLedger(view.snapshot)
        self.refusals: dict[Pair, Refusal] = {}
        self.waiting: set[Pair] = set()
        """Pairs that a limit of the whole run has kept back, and nothing else so far."""
        self._refused: set[Pair] = set()
        self._short: set[Pair] = set()
        """Pairs passed over since they would break a rule where they land."""
        self._spared = self._passed_over = self._again = 0
        self._chains = Chains(view, self._judge, cost)
        self._helped: set[int] = set()
        self._most_landings = most_landings

    def run(self, first_wave: int, *, observed: bool) -> list[Chosen]:
        """Return the moves of all waves, in order; the state holds them all placed."""
        chosen: list[Chosen] = []
        wave = first_wave
        while True:
            of_wave = self._wave(wave, observed=observed, only_certain=True)
            if not of_wave and self._spared:
                self._refused.clear()
                of_wave = self._wave(wave, observed=observed, only_certain=True)
            if not of_wave and self._passed_over:
                self._refused -= self._short
                of_wave = self._wave(wave, observed=observed, only_certain=False)
            if not of_wave and not self._chains.exhausted:
                of_wave = self._chains_wave(wave, observed=observed)
            self._view.state.reap()
            self._allowance.next_wave()
            self._quota.reset()
            if not of_wave:
                return chosen
            chosen += of_wave
            wave += 1

    def _wave(self, wave: int, *, observed: bool, only_certain: bool) -> list[Chosen]:
        """Return the moves of one wave.

        Moves that might land badly, or break one rule as they mend another, wait until no other is left:
        each replacement that lands makes nodes differ more, and later landings more certain.
        """
        chosen: list[Chosen] = []
        self._spared = self._passed_over = self._again = 0
        heap = self.candidates.entries()
        heapq.heapify(heap)
        retried: set[Pair] = set()
        while (popped := self._pop(heap)) is not None:
            key, pair = popped
            if pair not in retried and self._is_spared(pair):
                continue
            verdict = self._consider(pair, only_certain=only_certain)
            if verdict is None:
                continue
            if only_certain and self._is_passed_over(pair, verdict):
                continue
            pod = self.candidates.pods(pair)[0]
            exact = self.candidates.key(verdict.gain, pod)
            if heap and is_behind(exact, heap[0][0]) and exact != key:
                self.candidates.lower(pair, verdict.gain)
                heapq.heappush(heap, (exact, pair))
                continue
            chosen.append(self._commit(pod, pair, verdict, wave, observed=observed))
            for fresh in self.candidates.refresh(pair):
                if fresh in self.refusals and fresh in retried:
                    continue
                retried.add(fresh)
                if (entry := self.candidates.entry(fresh)) is not None:
                    heapq.heappush(heap, entry)
        return chosen

    def _is_passed_over(self, pair: Pair, verdict: Verdict) -> bool:
        """Tell whether a move had better wait until no other is left."""
        if self._falls_short(pair, verdict):
            self._short.add(pair)
            self._refused.add(pair)
        elif not is_gamble(verdict):
            return False
        self._passed_over += 1
        return True

    def _falls_short(self, pair: Pair, verdict: Verdict) -> bool:
        """Tell whether the pod would break a rule where it lands as it mends another where it was.

        It, or one of its like, would have to be moved again. Once others have moved, it may land better.
        """
        wish = self.candidates.wish(pair)
        return wish is not None and any(
            hoped - mean > GAMBLE
            for hoped, mean in zip(wish.promised[:2], verdict.gain[:2], strict=True)
        )

    def _is_spared(self, pair: Pair) -> bool:
        """Tell whether a pair that was refused before need not be looked at in this wave.

        The most promising are, in every wave; all of them, thousands perhaps, only once nothing else is left.
        """
        if pair not in self._refused:
            return False
        self._again += 1
        if self._again <= _AGAIN:
            return False
        self._spared += 1
        return True

    def _chains_wave(self, wave: int, *, observed: bool) -> list[Chosen]:
        """Return moves that bring little by themselves, but let others go in the next wave."""
        chosen: list[Chosen] = []
        in_vain: set[int] = set()
        helped: set[int] = set()
        for pair in self._stuck():
            wish = self.candidates.wish(pair)
            pods = self.candidates.pods(pair)
            if wish is None or not pods or pair[0] in in_vain or self._chains.exhausted:
                continue
            if pair[0] in helped:
                # One way for a rule at a time: the move that it is made for may be all that the rule needs.
                continue
            pod = pods[0]
            # Who makes way needs the budget of two; and nobody is made way for twice.
            if pod in self._helped or self._allowance.left(wish.strategy) < len(chosen) + 2:
                continue
            step = self._chains.first(pod, *pair, partial(self._may_go, wish.strategy))
            if step is None:
                in_vain.add(pair[0])
                continue
            self._helped.add(pod)
            chosen.append(self._make_way(step, pod, pair, wish.strategy, wave, observed=observed))
            self.candidates.refresh((step.cls, step.node))
            helped.update(self.candidates.related(pair[0]).tolist())
            in_vain.clear()
        return chosen

    def _stuck(self) -> list[Pair]:
        """Return the pairs, most gain first, that break a rule and gain nothing by going alone."""
        entries = [
            entry
            for pair, refusal in self.refusals.items()
            if refusal.code in _ALONE and (entry := self.candidates.entry(pair)) is not None
        ]
        return [pair for key, pair in sorted(entries) if key[0] or key[1]]

    def _make_way(
        self, step: Step, pod: int, pair: Pair, strategy: str, wave: int, *, observed: bool
    ) -> Chosen:
        reason = f"makes way for {self._view.snapshot.pod_ref(pod)}: {self._reason(strategy, pair)}"
        self._carry_out(step.pod, (step.cls, step.node), step.verdict, strategy)
        gain, landings = step.verdict.gain, self._kept(step.verdict.prediction)
        return Chosen(
            step.pod, step.cls, step.node, gain, landings, strategy, reason, wave, observed, pod
        )

    def _may_go(self, strategy: str, cls: int, node: int) -> bool:
        """Tell whether nothing keeps a pod from making way: protections are known, budgets asked for."""
        return (
            not self.candidates.rests(cls)
            and self._allowance.waits(cls, node, strategy) is None
            and (self._view.snapshot.waits(cls) or self._quota.lacks(cls) is None)
        )

    def _pop(self, heap: list[Entry]) -> Entry | None:
        """Return the best entry that still stands, None when the wave is full or nothing is left."""
        while heap:
            if (why := self._stop()) is not None:
                self._allowance.stop(why)
            if (limit := self._allowance.ended()) is not None:
                self._hold_back(heap, limit)
                return None
            if self._allowance.full():
                return None
            key, pair = heapq.heappop(heap)
            if (named := self.candidates.refresh_stale(pair)) is not None:
                # Its pairs are queued anew, with what they promise now.
                for fresh in named:
                    if (entry := self.candidates.entry(fresh)) is not None:
                        heapq.heappush(heap, entry)
                continue
            renewed = self.candidates.renew(pair)
            current = self.candidates.entry(pair)
            if current is not None and current[0] == key:
                return current
            if current is not None and (renewed or current[0] > key):
                # It promises less than when it was queued; what promises more was queued again by the
                # move that made it so, unless it was found out just now.
                heapq.heappush(heap, current)
        return None

    def _hold_back(self, heap: list[Entry], limit: str) -> None:
        """Note that nothing that is left may go in this run."""
        for _, pair in heap:
            wish = self.candidates.wish(pair)
            if wish is not None:
                self.refusals[pair] = Refusal(wish.strategy, Code.BUDGET, limit)
                self._note_waiting(pair, wish)

    def _note_waiting(self, pair: Pair, wish: Wish) -> None:
        cost = float(self._cost[self.candidates.pods(pair)[0]])
        if pair not in self._refused and self._hopeless(wish, cost) is None:
            self.waiting.add(pair)

    # -- one candidate -----------------------------------------------------------------------------

    def _consider(self, pair: Pair, *, only_certain: bool) -> Verdict | None:
        """Return the verdict on a pair if it may go now; else note why not."""
        cls, node = pair
        wish = self.candidates.wish(pair)
        if wish is None:
            return None
        strategy = wish.strategy
        if (limit := self._allowance.over(strategy)) is not None:
            self.refusals[pair] = Refusal(strategy, Code.BUDGET, limit)
            self._note_waiting(pair, wish)
            return None
        if (limit := self._allowance.waits(cls, node, strategy)) is not None:
            self.refusals[pair] = Refusal(strategy, Code.BUDGET, limit)
            return None
        if not self._view.snapshot.waits(cls) and (lack := self._quota.lacks(cls)) is not None:
            self.refusals[pair] = Refusal(strategy, Code.QUOTA, lack)
            return None
        pod = self.candidates.pods(pair)[0]
        cost = float(self._cost[pod])
        if (too_little := self._hopeless(wish, cost)) is not None:
            if self._closely == 0:
                self.refusals[pair] = Refusal(strategy, Code.LOW_GAIN, too_little)
                self._refused.add(pair)
                return None
            self._closely -= 1
        verdict = self._judge.judge(pod, cls, node, cost, unless_gamble=only_certain)
        if verdict.refused is not None:
            code, message = verdict.refused
            if code is Code.NO_GAIN and wish.gains[0] == wish.gains[1] == 0:
                code = Code.OVERLOAD_MOVES
                message = message.replace(
                    "nothing gets better there", "that only moves the overload"
                )
            self.refusals[pair] = Refusal(strategy, code, message)
            self._refused.add(pair)
            return None
        return verdict

    def _hopeless(self, wish: Wish, cost: float) -> str | None:
        """Return why a pair gains too little wherever its pod lands, by what the terms promise at most, if so.

        It would be refused, if with other words: only imbalance is at stake, and landings are worse than
        promised, never better.
        """
        hard, soft, imbalance = wish.promised
        if hard or soft or imbalance / cost + 2 * TOLERANCE >= self._least:
            return None
        return (
            f"gain at most {imbalance:.3g} at cost {cost:.3g} wherever it lands, "
            f"the policy asks for {self._least:g}"
        )

    def _commit(
        self, pod: int, pair: Pair, verdict: Verdict, wave: int, *, observed: bool
    ) -> Chosen:
        cls, node = pair
        strategy = max(
            verdict.by_strategy, key=lambda name: (verdict.by_strategy[name], name), default=""
        )
        if verdict.by_strategy.get(strategy, 0.0) <= TOLERANCE:
            wish = self.candidates.wish(pair)
            strategy = wish.strategy if wish is not None else strategy
        reason = self._reason(strategy, pair)
        self._carry_out(pod, pair, verdict, strategy)
        self.refusals.pop(pair, None)
        landings = self._kept(verdict.prediction)
        return Chosen(pod, cls, node, verdict.gain, landings, strategy, reason, wave, observed)

    def _kept(self, prediction: Prediction) -> Prediction:
        """Return what is kept of a move's landings: there may be thousands of each of thousands of moves."""
        most = self._most_landings
        if most is None or len(prediction.nodes) <= most:
            return prediction
        nodes, probability = prediction.nodes[:most].copy(), prediction.probability[:most].copy()
        return replace(prediction, nodes=nodes, probability=probability)

    def _carry_out(self, pod: int, pair: Pair, verdict: Verdict, strategy: str) -> None:
        """Move a pod in the state, and count what that uses."""
        cls, node = pair
        if not self._view.snapshot.waits(cls):
            self._quota.take(cls)
        self.candidates.take(pod, pair)
        move_in_state(self._view, pod, cls, verdict.prediction)
        self._allowance.spend(cls, node, strategy)

    def _reason(self, strategy: str, pair: Pair) -> str:
        """Return what the strategy's first term that wants the pair elsewhere says, if any does so."""
        found = [
            (weighted.term, text)
            for weighted in self._terms
            if weighted.strategy == strategy and (text := weighted.term.describe(*pair))
        ]
        if len(found) > 1:
            # A hard rule that holds is no reason beside the soft one that does not.
            wanted = [text for term, text in found if _wants(term, pair)]
            return wanted[0] if wanted else found[0][1]
        return found[0][1] if found else strategy


def _wants(term: Term, pair: Pair) -> bool:
    """Whether something could be gained in a term by a pod of the class leaving the node."""
    cls, node = pair
    return bool((term.candidates(np.array([cls], np.int32)).node == node).any())
