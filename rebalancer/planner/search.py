"""The search: lazy greedy over (class, node) pairs, wave by wave, in rounds.

Candidates stand in a book by what they could gain at most per eviction cost. A round takes the best that do not touch
each other, one where the cluster is small. They are examined with their predicted landings in the state as planned so
far; of those that still beat the next, the moves are made, the others stay with their exact gain. What a budget holds
back waits for the next wave; what the scheduler or the cost refuses is tried again once something that the refusal
rests on has changed. A wave that brings little is the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from rebalancer.cost.guards import guard_term
from rebalancer.cost.term import Term
from rebalancer.planner.book import Book
from rebalancer.planner.chain_waves import ChainWaves
from rebalancer.planner.chains import Chains
from rebalancer.planner.commit import Commit
from rebalancer.planner.draft import Draft
from rebalancer.planner.effort import Effort
from rebalancer.planner.ended import Removals
from rebalancer.planner.examination import Examination
from rebalancer.planner.looks import Looks
from rebalancer.planner.problem import Pair, WeightedTerm
from rebalancer.planner.reasons import Refusal
from rebalancer.planner.rendering import Chosen
from rebalancer.planner.rounds import Rounds, Rung
from rebalancer.snapshot.columns import Floats

WhyStop = Callable[[], str | None]


_CERTAIN, _GAMBLES = Rung(), Rung(only_certain=False, joins=True)
_LADDER = (_CERTAIN, _GAMBLES)
_LADDER_WITH_MARKS = (
    Rung(only_rules=True),
    Rung(only_rules=True, steered=True),
    _CERTAIN,
    _GAMBLES,
)
# Where marks may choose landings, they do so before pods move for balance alone.
_ONCE_MORE = (Rung(again=True, joins=True), Rung(again=True, only_certain=False, joins=True))


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


def search(draft: Draft, effort: Effort, stop: WhyStop, most_landings: int | None) -> Searched:
    """Plan with the enforced strategies first, then what the observing ones would add.

    ``stop`` returns why planning must end now, or None. Of each move ``most_landings`` are kept; None: all.
    """
    guard = guard_term(draft.view)
    result = Searched()
    passes = [False, True] if any(c.observed for c in draft.problem.contributions) else [False]
    for observed in passes:
        terms = draft.terms if observed else draft.enforced
        one = _Pass(draft, terms, guard, effort, stop, most_landings, observed=observed)
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
    result.pairs |= one.book.seen
    if not observed:
        result.waiting_classes = one.examination.waiting
        result.in_flight = one.examination.in_flight


class _Pass:
    """One search over one set of terms."""

    def __init__(
        self,
        draft: Draft,
        terms: Sequence[WeightedTerm],
        guard: Term,
        effort: Effort,
        stop: WhyStop,
        most_landings: int | None,
        *,
        observed: bool,
    ) -> None:
        self._draft, self._allowance, self._stop = draft, draft.allowance, stop
        self._effort = effort
        self._looks = looks = Looks(draft.state, effort)
        self._largest = 0
        """Moves of the largest wave."""
        self._gained = np.zeros(3)
        """Per entry, what the moves so far gain in expectation."""
        self._little = False
        """Whether the last wave brought little, see ``Threshold.rest``."""
        self.rests = False
        """Whether the plan ends because of that."""
        self.book = book = Book(draft, terms, effort)
        self.examination = Examination(draft, terms, guard, book, looks, effort)
        commit = Commit(draft, terms, self.examination.quota, observed, most_landings)
        self._rounds = Rounds(
            draft, guard, book, looks, self.examination, commit, effort, self._goes_on
        )
        chains = Chains(draft.view, self.examination.judge, draft.problem.costs, effort)
        self._chains = ChainWaves(draft, chains, book, self.examination, commit, looks)

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
            self.examination.end(limit)
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
            self._looks.free(())
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
        self._looks.begin()
        ladder = _LADDER_WITH_MARKS if self._draft.settings.steer else _LADDER
        for rung in ladder + _ONCE_MORE:
            few = len(of_wave) < self._effort.few * self._largest
            few = few or self._is_little(self._gained - before)
            if of_wave and not (rung.joins and few):
                break
            moves = self._rounds.climb(rung, wave)
            for move in moves:
                self._gained += np.maximum(0.0, move.gain)
            of_wave += moves
        self._largest = max(self._largest, len(of_wave))
        return of_wave

    def _goes_on(self) -> bool:
        """Return whether another move may be made in this wave; note what waits for moves of earlier runs."""
        if not self._may_go_on():
            return False
        if (limit := self._allowance.filled_before()) is not None:
            self.examination.end(limit)
            return False
        return not self._allowance.full()
