"""The search: lazy greedy over (class, node) pairs, wave by wave.

Candidates wait in a queue by what they could gain at most per eviction cost. The best is examined with its
predicted landing in the state as planned so far; if it still beats the next, the move is made, else it goes
back with its exact gain. What a budget holds back waits for the next wave; what the scheduler or the cost
refuses is tried again once something that the refusal rests on has changed. A wave that brings little is the last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from rebalancer.cost.guards import guard_term
from rebalancer.cost.term import Term
from rebalancer.planner.candidates import CandidateList
from rebalancer.planner.chain_waves import ChainWaves
from rebalancer.planner.chains import Chains
from rebalancer.planner.commit import Commit
from rebalancer.planner.draft import Draft
from rebalancer.planner.ended import Removals
from rebalancer.planner.examination import Examination
from rebalancer.planner.postponed import Postponed
from rebalancer.planner.problem import WeightedTerm
from rebalancer.planner.promises import Pair
from rebalancer.planner.queue import Queue
from rebalancer.planner.reasons import Refusal
from rebalancer.planner.rendering import Chosen
from rebalancer.snapshot.columns import Floats

WhyStop = Callable[[], str | None]
# So many moves at most in a wave with marks: they go one after the other, each waiting for its marks to be seen.
_STEERED = 20


# A wave with fewer moves than this share of the largest one goes on with gambles.
_FEW = 0.05


@dataclass(frozen=True, slots=True)
class _Rung:
    """One way to the moves of a wave. The next one is tried where it leads to none, or to few that the next may join."""

    only_certain: bool = True
    only_rules: bool = False
    """Nothing moves for balance alone."""
    steered: bool = False
    """Marks may choose landings."""
    again: bool = False
    """The most promising are looked at, even if nothing has changed since they were refused."""
    joins: bool = False
    """It may add to the moves of the rung before."""


_CERTAIN, _GAMBLES = _Rung(), _Rung(only_certain=False, joins=True)
_LADDER = (_CERTAIN, _GAMBLES)
_LADDER_WITH_MARKS = (
    _Rung(only_rules=True),
    _Rung(only_rules=True, steered=True),
    _CERTAIN,
    _GAMBLES,
)
# Where marks may choose landings, they do so before pods move for balance alone.
_ONCE_MORE = (_Rung(again=True, joins=True), _Rung(again=True, only_certain=False, joins=True))


def _nothing() -> None:
    """Add nothing."""


@dataclass(slots=True)
class Searched:
    """What a search has come to; the state holds the moves.

    Why pods stay, and what waits for a further run, is whole only once it is asked to :meth:`complete`: where
    a limit of the run ends the plan, all that is left is queued for that once more, and no eviction needs it.
    """

    chosen: list[Chosen] = field(default_factory=list)
    refusals: dict[Pair, Refusal] = field(default_factory=dict)
    pairs: set[Pair] = field(default_factory=set)
    """All that were candidates at any time."""
    waiting_classes: set[int] = field(default_factory=set)
    """Classes with pairs that only a limit of the whole run, or moves in flight, keep back."""
    in_flight: str | None = None
    """The budget that moves of earlier runs use up, if that is where the plan ends."""
    removals: Removals = Removals()  # noqa: RUF009  # it cannot be changed
    """Pods that have ended, as far as moves leave budgets for them."""
    rests: bool = False
    """The plan ends because the last wave brought little, see ``Threshold.rest``."""
    _rest: Callable[[], None] = _nothing

    def complete(self) -> None:
        """Note all that stays and waits. The state must still be the one that the search has left."""
        self._rest()
        self._rest = _nothing


def search(draft: Draft, stop: WhyStop, most_landings: int | None) -> Searched:
    """Plan with the enforced strategies first, then what the observing ones would add.

    ``stop`` returns why planning must end now, or None. Of each move ``most_landings`` are kept; None: all.
    """
    guard = guard_term(draft.view)
    result = Searched()
    passes = [False, True] if any(c.observed for c in draft.problem.contributions) else [False]
    for observed in passes:
        terms = draft.terms if observed else draft.enforced
        one = _Pass(draft, terms, guard, stop, most_landings, observed=observed)
        result.chosen += one.run(result.chosen[-1].wave + 1 if result.chosen else 1)
        result.rests |= one.rests and not observed
        result._rest = partial(_note, result, one, observed=observed)  # noqa: SLF001  # made here
        if len(passes) > 1:
            result.complete()
        result.removals += draft.ended.remove(draft.allowance, observed=observed)
    return result


def _note(result: Searched, one: _Pass, *, observed: bool) -> None:
    """Note what stays and waits after a pass."""
    one.end()
    result.refusals = one.examination.refusals
    result.pairs |= one.candidates.seen
    if not observed:
        result.waiting_classes = {cls for cls, _ in one.examination.waiting}
        result.in_flight = one.examination.in_flight


class _Pass:
    """One search over one set of terms."""

    def __init__(
        self,
        draft: Draft,
        terms: Sequence[WeightedTerm],
        guard: Term,
        stop: WhyStop,
        most_landings: int | None,
        *,
        observed: bool,
    ) -> None:
        self._draft, self._allowance, self._stop = draft, draft.allowance, stop
        self._postponed = Postponed(draft.state)
        self._largest = 0
        """Moves of the largest wave."""
        self._gained = np.zeros(3)
        """Per entry, what the moves so far gain in expectation."""
        self._little = False
        """Whether the last wave brought little, see ``Threshold.rest``."""
        self.rests = False
        """Whether the plan ends because of that."""
        self.candidates = CandidateList(draft, terms)
        self.examination = Examination(draft, terms, guard, self.candidates, self._postponed)
        self._commit = Commit(
            draft, terms, self.candidates, self.examination.quota, observed, most_landings
        )
        chains = Chains(draft.view, self.examination.judge, draft.problem.costs)
        self._chains = ChainWaves(
            draft, chains, self.candidates, self.examination, self._commit, self._postponed
        )

    def run(self, first_wave: int) -> list[Chosen]:
        """Return the moves of all waves, in order; the state holds them all placed."""
        chosen: list[Chosen] = []
        wave = first_wave
        while self._may_go_on():
            of_wave = self._next_wave(wave)
            if not of_wave:
                break
            chosen += of_wave
            wave += 1
        return chosen

    def _is_little(self, gained: Floats) -> bool:
        """Return whether a wave that ``gained`` so much per entry is not worth another one."""
        little = gained < self._draft.settings.threshold.rest * self._gained
        return bool(gained[0] <= 0 and (little | (gained <= 0)).all())

    def end(self) -> None:
        """Note what stays and waits after the last wave, for all pairs if a limit of the run has ended it."""
        if (limit := self._allowance.exhausted()) is not None:
            self.examination.begin()
            self.examination.end([pair for _, pair in self.candidates.entries()], limit)
        self.examination.close()

    def _may_go_on(self) -> bool:
        """Return whether the run has time and budget for another move."""
        if self._allowance.exhausted() is None and (why := self._stop()) is not None:
            self._allowance.stop(why)
        return self._allowance.exhausted() is None

    def _next_wave(self, wave: int) -> list[Chosen]:
        """Return the moves of a wave: of the first rungs of the ladder that lead to more than a few."""
        self.examination.begin()
        before = self._gained.copy()
        # After a wave that brought little only chains are left to try: they may fix what no single move does.
        of_wave = [] if self._little else self._climb(wave, before)
        if of_wave:
            self._postponed.free(())
            self._little = self._is_little(self._gained - before)
        else:
            of_wave = self._chains.wave(wave)
            self.rests = self._little and not of_wave
            self._little = False
        self._draft.state.reap()
        self._allowance.next_wave()
        self.examination.quota.reset()
        return of_wave

    def _climb(self, wave: int, before: Floats) -> list[Chosen]:
        """Return the moves of a wave; ``before``: what the waves before it have gained."""
        of_wave: list[Chosen] = []
        self._postponed.begin()
        ladder = _LADDER_WITH_MARKS if self._draft.settings.steer else _LADDER
        for rung in ladder + _ONCE_MORE:
            few = len(of_wave) < _FEW * self._largest or self._is_little(self._gained - before)
            if of_wave and not (rung.joins and few):
                break
            of_wave += self._wave(wave, rung)
        self._largest = max(self._largest, len(of_wave))
        return of_wave

    def _wave(self, wave: int, rung: _Rung) -> list[Chosen]:
        """Return the moves of one rung of a wave.

        Moves that might land badly, or break one rule as they fix another, wait until few others are left:
        each replacement that lands makes nodes differ more, and later landings more certain.
        """
        chosen: list[Chosen] = []
        self.examination.steer.standing = ()
        only_certain, steered = rung.only_certain, rung.steered
        self._postponed.begin_rung(again=rung.again)
        spared = partial(self.examination.is_spared, only_certain=only_certain, steered=steered)
        queue = Queue(self.candidates, spared)
        most = _STEERED if steered else math.inf
        while (
            queue
            and len(chosen) < most
            and self._goes_on(queue)
            and (popped := queue.pop()) is not None
        ):
            key, pair = popped
            if rung.only_rules and not any(key[:2]):
                break
            certain = only_certain and not self._postponed.is_freed(pair)
            verdict = self.examination.verdict(pair, only_certain=certain, steered=steered)
            if verdict is None:
                continue
            promise = self.candidates.promise(pair)
            if only_certain and self._postponed.passes_over(pair, promise, verdict):
                continue
            pod = self.candidates.pods(pair)[0]
            exact = self.candidates.key(verdict.gain, pod)
            if exact != key and queue.goes_before(exact):
                self.candidates.lower(pair, verdict.gain)
                queue.push_back(exact, pair)
                continue
            chosen.append(self._commit.move(pod, pair, verdict, wave))
            self._gained += np.maximum(0.0, verdict.gain)
            self.examination.steer.standing = verdict.marks
            refusals = self.examination.refusals
            refusals.pop(pair, None)
            concerned = self.candidates.refresh(pair)
            retried = self._postponed.is_retried
            queue.push(p for p in concerned if not (p in refusals and retried(p)))
            self._postponed.retry(concerned)
        return chosen

    def _goes_on(self, queue: Queue) -> bool:
        """Return whether another move may be made in this wave; note what waits for moves of earlier runs."""
        if not self._may_go_on():
            return False
        if (limit := self._allowance.filled_before()) is not None:
            self.examination.end(queue.pairs(), limit)
            return False
        return not self._allowance.full()
