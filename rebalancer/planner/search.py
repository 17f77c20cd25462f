"""The search: lazy greedy over (class, node) pairs, wave by wave.

Candidates wait in a heap by what they could gain at most per eviction cost. The best is judged exactly,
with its predicted landing in the state as planned so far; if it still beats the next, it is committed,
else it goes back with its exact gain. What a budget holds back waits for the next wave; what the
scheduler or the cost refuses is tried again once after something has changed.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.cost.term import Term, View
from rebalancer.planner.allowance import Allowance
from rebalancer.planner.eviction_cost import reluctance
from rebalancer.planner.judge import TOLERANCE, Judge, Verdict, Weighted
from rebalancer.planner.plan import Code
from rebalancer.planner.quota import QuotaLedger
from rebalancer.planner.settings import Settings
from rebalancer.snapshot.columns import Floats, Int32s

# Expected loss, in pods, against the best landing, from which on a move counts as a gamble.
_GAMBLE = 0.05

Pair = tuple[int, int]
Key = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A committed move, in array terms."""

    pod: int
    cls: int
    node: int
    verdict: Verdict
    strategy: str
    reason: str
    wave: int
    observed: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pair was not moved, and which strategy would have liked it."""

    strategy: str
    code: Code
    message: str


def _is_gamble(verdict: Verdict) -> bool:
    """Tell whether some of the landings are clearly worse than the best in a hard or soft rule."""
    best, expected = verdict.best[:2], verdict.gain[:2]
    return any(most - mean > _GAMBLE for most, mean in zip(best, expected, strict=True))


def _is_behind(key: Key, other: Key) -> bool:
    """Tell whether ``other`` promises more than ``key``.

    Imbalance is compared only where nothing else is at stake: its promises are optimistic by nature, and
    judging every candidate anew for a thousandth of a squared share would cost most of a plan's time.
    """
    for mine, theirs in zip(key[:2], other[:2], strict=True):
        if abs(mine - theirs) > TOLERANCE:
            return mine > theirs
    return not any(key[:2]) and key[2] > other[2]


def move_in_state(view: View, pod: int, cls: int, node: int) -> None:
    """Move ``pod`` in the view's state: it terminates (or is gone, if its owner waits), then lands."""
    state, of_class = view.state, view.snapshot.classes[cls]
    state.evict(pod)
    if of_class.owner >= 0 and view.snapshot.owners[of_class.owner].waits:
        state.reap(state.ghosts[-1])
    state.place(pod, of_class.replacement, node)


@dataclass(slots=True)
class Wish:
    """What the terms expect of one pair."""

    gains: list[float]
    """Per entry, the most that one pod leaving can gain."""
    strategy: str
    """The one with the largest share in the entry that decides."""
    entry: int
    share: float


class Pool:
    """All pairs that some term wants to see gone."""

    def __init__(self, terms: Sequence[Weighted]) -> None:
        self._terms = terms
        self._of_class: dict[int, dict[int, Wish]] = {}
        self.seen: set[Pair] = set()
        """Every pair that was ever wished for."""
        self.refresh(None)

    def pairs(self) -> Iterator[Pair]:
        """Yield all pairs that are wished for now."""
        for cls, wishes in self._of_class.items():
            for node in wishes:
                yield cls, node

    def get(self, pair: Pair) -> Wish | None:
        """Return what is wished for a pair, None if nothing is any more."""
        return self._of_class.get(pair[0], {}).get(pair[1])

    def refresh(self, classes: Int32s | None) -> list[Pair]:
        """Ask the terms again about ``classes`` (None: all); return the pairs they name."""
        for cls in classes.tolist() if classes is not None else list(self._of_class):
            self._of_class.pop(cls, None)
        found: dict[Pair, None] = {}
        for weighted in self._terms:
            rows = weighted.term.candidates(classes)
            entry = int(weighted.term.entry)
            for cls, node, gain in zip(
                rows.cls.tolist(),
                rows.node.tolist(),
                (rows.gain * weighted.weight).tolist(),
                strict=True,
            ):
                found[cls, node] = None
                self._add(cls, node, entry, gain, weighted.strategy)
        self.seen.update(found)
        return list(found)

    def _add(self, cls: int, node: int, entry: int, gain: float, strategy: str) -> None:
        wishes = self._of_class.setdefault(cls, {})
        wish = wishes.get(node)
        if wish is None:
            wish = wishes[node] = Wish([0.0, 0.0, 0.0], strategy, entry, gain)
        elif (-entry, gain) > (-wish.entry, wish.share):
            wish.strategy, wish.entry, wish.share = strategy, entry, gain
        wish.gains[entry] += gain


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
    ) -> None:
        self._view, self._terms, self._settings = view, terms, settings
        self._judge = Judge(view, terms, guard, settings.threshold)
        self._allowance, self._cost = allowance, cost
        self._order = cost * reluctance(view.snapshot)
        self._quota = QuotaLedger(view.snapshot)
        self.pool = Pool(terms)
        self.refusals: dict[Pair, Refusal] = {}
        self._pods: dict[Pair, list[int]] = {}
        self._asked: dict[int, int] = {}
        self._commits = 0

    def run(self, first_wave: int, *, observed: bool) -> list[Chosen]:
        """Return the moves of all waves, in order; the state holds them all placed."""
        chosen: list[Chosen] = []
        wave = first_wave
        while True:
            of_wave = self._wave(wave, observed=observed, only_certain=True)
            if not of_wave:
                of_wave = self._wave(wave, observed=observed, only_certain=False)
            self._view.state.reap()
            self._allowance.next_wave()
            self._quota.reset()
            if not of_wave:
                return chosen
            chosen += of_wave
            wave += 1

    def _wave(self, wave: int, *, observed: bool, only_certain: bool) -> list[Chosen]:
        """Return the moves of one wave.

        Moves that might land badly wait until no certain one is left: each replacement that lands makes
        nodes differ more, and later landings more certain.
        """
        chosen: list[Chosen] = []
        heap = [entry for pair in self.pool.pairs() if (entry := self._entry(pair)) is not None]
        heapq.heapify(heap)
        retried: set[Pair] = set()
        while (popped := self._pop(heap)) is not None:
            key, pair = popped
            verdict = self._consider(pair)
            if verdict is None or (only_certain and _is_gamble(verdict)):
                continue
            pod = self._pods_of(pair)[0]
            exact = self._key(verdict.gain, float(self._order[pod]))
            if heap and _is_behind(exact, heap[0][0]) and exact != key:
                self._shrink(pair, verdict.gain)
                heapq.heappush(heap, (exact, pair))
                continue
            chosen.append(self._commit(pod, pair, verdict, wave, observed=observed))
            for fresh in self._refreshed(pair):
                if fresh in self.refusals and fresh in retried:
                    continue
                retried.add(fresh)
                if (entry := self._entry(fresh)) is not None:
                    heapq.heappush(heap, entry)
        return chosen

    def _pop(self, heap: list[tuple[Key, Pair]]) -> tuple[Key, Pair] | None:
        """Return the best entry that still stands, None when the wave is full or nothing is left."""
        while heap and not self._allowance.full():
            if (limit := self._allowance.ended()) is not None:
                self._hold_back(heap, limit)
                return None
            key, pair = heapq.heappop(heap)
            self._renew(pair)
            current = self._entry(pair)
            if current is not None and current[0] == key:
                return current
            if current is not None and current[0] > key:
                # It promises less than when it was queued.
                heapq.heappush(heap, current)
        return None

    def _renew(self, pair: Pair) -> None:
        """Ask again about a pair that is only about imbalance: any move may have ended the reason for it."""
        wish = self.pool.get(pair)
        if wish is None or wish.gains[0] or wish.gains[1]:
            return
        if self._asked.get(pair[0], 0) != self._commits:
            self.pool.refresh(np.array([pair[0]], np.int32))
            self._asked[pair[0]] = self._commits

    def _hold_back(self, heap: list[tuple[Key, Pair]], limit: str) -> None:
        """Note that nothing that is left may go in this run."""
        for _, pair in heap:
            wish = self.pool.get(pair)
            if wish is not None:
                self.refusals[pair] = Refusal(wish.strategy, Code.BUDGET, limit)

    # -- one candidate -----------------------------------------------------------------------------

    def _consider(self, pair: Pair) -> Verdict | None:
        """Return the verdict on a pair if it may go now; else note why not."""
        cls, node = pair
        wish = self.pool.get(pair)
        if wish is None:
            return None
        strategy = wish.strategy
        limit = self._allowance.over(strategy) or self._allowance.waits(cls, node, strategy)
        if limit is not None:
            self.refusals[pair] = Refusal(strategy, Code.BUDGET, limit)
            return None
        if not self._waits(cls) and (lack := self._quota.lacks(cls)) is not None:
            self.refusals[pair] = Refusal(strategy, Code.QUOTA, lack)
            return None
        pod = self._pods_of(pair)[0]
        verdict = self._judge.judge(pod, cls, node, float(self._cost[pod]))
        if verdict.refused is not None:
            code, message = verdict.refused
            if code is Code.NO_GAIN and wish.gains[0] == wish.gains[1] == 0:
                code = Code.OVERLOAD_MOVES
                message = message.replace(
                    "nothing gets better there", "that only moves the overload"
                )
            self.refusals[pair] = Refusal(strategy, code, message)
            return None
        return verdict

    def _rests(self, cls: int) -> bool:
        """Tell whether the owner is in a cool-down: its wish is told, not carried out."""
        owner = self._view.snapshot.classes[cls].owner
        return owner >= 0 and self._view.snapshot.owners[owner].ref in self._settings.cooling

    def _waits(self, cls: int) -> bool:
        owner = self._view.snapshot.classes[cls].owner
        return owner >= 0 and self._view.snapshot.owners[owner].waits

    def _commit(
        self, pod: int, pair: Pair, verdict: Verdict, wave: int, *, observed: bool
    ) -> Chosen:
        cls, node = pair
        strategy = max(
            verdict.by_strategy, key=lambda name: (verdict.by_strategy[name], name), default=""
        )
        if verdict.by_strategy.get(strategy, 0.0) <= TOLERANCE:
            wish = self.pool.get(pair)
            strategy = wish.strategy if wish is not None else strategy
        reason = self._reason(strategy, pair)
        if not self._waits(cls):
            self._quota.take(cls)
        move_in_state(self._view, pod, cls, int(verdict.prediction.nodes[0]))
        self._allowance.spend(cls, node, strategy)
        self._pods[pair].remove(pod)
        self._commits += 1
        self.refusals.pop(pair, None)
        return Chosen(pod, cls, node, verdict, strategy, reason, wave, observed)

    def _reason(self, strategy: str, pair: Pair) -> str:
        texts = [
            text
            for weighted in self._terms
            if weighted.strategy == strategy and (text := weighted.term.describe(*pair))
        ]
        return texts[0] if texts else strategy

    # -- the queue ---------------------------------------------------------------------------------

    def _entry(self, pair: Pair) -> tuple[Key, Pair] | None:
        wish = self.pool.get(pair)
        pods = self._pods_of(pair) if wish is not None else ()
        if wish is None or not pods:
            return None
        hard, soft, imbalance = wish.gains
        return self._key((hard, soft, imbalance), float(self._order[pods[0]])), pair

    @staticmethod
    def _key(gain: tuple[float, float, float], cost: float) -> Key:
        return (-gain[0] / cost, -gain[1] / cost, -gain[2] / cost)

    def _shrink(self, pair: Pair, gain: tuple[float, float, float]) -> None:
        wish = self.pool.get(pair)
        if wish is not None:
            wish.gains = list(gain)

    def _pods_of(self, pair: Pair) -> list[int]:
        """Return the movable pods of a pair that are left, cheapest first."""
        found = self._pods.get(pair)
        if found is None:
            pods = self._view.state.pods_on(*pair)
            pods = pods[self._view.movable[pods] & (not self._rests(pair[0]))]
            order = np.lexsort((pods, self._order[pods]))
            found = self._pods[pair] = pods[order].tolist()
        return found

    def _refreshed(self, pair: Pair) -> list[Pair]:
        """Ask the terms anew about every class that the committed move concerns."""
        cls = pair[0]
        replacement = self._view.snapshot.classes[cls].replacement
        related = [weighted.term.related(k) for weighted in self._terms for k in {cls, replacement}]
        return self.pool.refresh(np.unique(np.concatenate(related)))
