"""Looks at a planner before and after its moves, at the pods that an explanation is about."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from rebalancer.cost.term import Candidates, Entry, Signalling, Term
from rebalancer.planner.judge import Weighted
from rebalancer.planner.planner import Planner
from rebalancer.planner.pool import Pair
from rebalancer.snapshot.columns import Bools, Int32s


@dataclass(frozen=True, slots=True)
class Breach:
    """A rule for whose sake a strategy would rather see a pod elsewhere."""

    strategy: str
    entry: Entry
    gain: float
    """At most so much of the cost goes away when it leaves, in the unit of its entry."""
    text: str
    observed: bool
    """The strategy only observes."""
    waits: bool
    """It has not been so for enough runs in a row."""
    lasts: bool = True
    """It is still so once the plan's moves are made."""


class Watched:
    """What is wished of the pods of some ``classes`` before the plan, and what is left of it after.

    An ``Onlooker``. ``node`` leaves out what stands elsewhere.
    """

    def __init__(self, classes: Int32s, node: int | None = None) -> None:
        self.classes, self._node = classes, node
        self._breaches: dict[Pair, dict[int, Breach]] = {}
        """Pair -> place of the term -> what it says."""
        self._left: dict[Pair, set[int]] = {}
        """Pair -> places of the terms that still wish it away once the plan's moves are made."""
        self._planner: Planner | None = None

    @property
    def planner(self) -> Planner:
        """Return the planner that was looked at."""
        if self._planner is None:
            raise ValueError("nothing has been planned yet")
        return self._planner

    def breaches(self, pair: Pair) -> list[Breach]:
        """Return what is wished of the pods of a pair before the plan, and whether it is still after it."""
        left = self._left.get(pair, ())
        return [
            replace(breach, lasts=place in left)
            for place, breach in self._breaches.get(pair, {}).items()
        ]

    def before(self, planner: Planner) -> None:
        """See Onlooker."""
        self._planner = planner
        for place, (weighted, observed) in enumerate(planner.all_terms()):
            for rows, waits in _rows(weighted.term):
                for pair, gain in self._mine(rows):
                    breach = _breach(weighted, pair, gain, observed=observed, waits=waits)
                    self._breaches.setdefault(pair, {})[place] = breach

    def after(self, planner: Planner) -> None:
        """See Onlooker."""
        for place, (weighted, _) in enumerate(planner.all_terms()):
            for rows, _ in _rows(weighted.term):
                for pair, _ in self._mine(rows):
                    self._left.setdefault(pair, set()).add(place)

    def _mine(self, rows: Candidates) -> Iterator[tuple[Pair, float]]:
        mine: Bools = np.isin(rows.cls, self.classes)
        if self._node is not None:
            mine &= rows.node == self._node
        for cls, node, gain in zip(
            rows.cls[mine].tolist(), rows.node[mine].tolist(), rows.gain[mine].tolist(), strict=True
        ):
            yield (cls, node), gain


def _rows(term: Term) -> Iterator[tuple[Candidates, bool]]:
    """Yield who contributes to a term, and who would if what is seen had lasted long enough."""
    # Asked about everything: asking about a class may make the term look at more than it would have.
    yield term.candidates(), False
    if isinstance(term, Signalling):
        yield term.waiting(), True


def _breach(weighted: Weighted, pair: Pair, gain: float, *, observed: bool, waits: bool) -> Breach:
    return Breach(
        strategy=weighted.strategy,
        entry=weighted.term.entry,
        gain=gain * weighted.weight,
        text=weighted.term.describe(*pair),
        observed=observed,
        waits=waits,
    )
