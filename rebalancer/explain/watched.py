"""Record the candidates of all terms before and after the planner's moves, for the explained pods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rebalancer.cost.term import Candidates, Entry, Term
from rebalancer.plan.plan import Cause
from rebalancer.planner.draft import Draft
from rebalancer.planner.problem import Pair, WeightedTerm
from rebalancer.planner.rendering import Chosen
from rebalancer.snapshot.columns import Bools, Int32s


@dataclass(frozen=True, slots=True)
class Breach:
    """A rule that a pod violates: the reason why a strategy asks for its move."""

    strategy: str
    entry: Entry
    gain: float
    """Upper limit of the gain when the pod leaves its node, in the unit of the entry."""
    text: str
    observed: bool
    """The strategy only observes."""
    waits: bool
    """The rule was not broken for enough runs in a row yet."""
    lasts: bool = True
    """The rule is still broken after the planned moves."""


class Recorder:
    """Records the rules that the pods of ``classes`` violate before the plan and after it.

    Implements ``PlanObserver``. With ``node``, only the pods on this node are recorded.
    """

    def __init__(self, classes: Int32s, node: int | None = None) -> None:
        self.classes, self._node = classes, node
        self._breaches: dict[Pair, dict[int, Breach]] = {}
        """Pair -> index of the term -> its rule."""
        self._lasting: dict[Pair, set[int]] = {}
        """Pair -> indices of the terms of which it is a candidate after the planned moves."""
        self._draft: Draft | None = None
        self.chosen: Sequence[Chosen] = ()
        """The moves of the plan, in its order."""

    @property
    def draft(self) -> Draft:
        """The draft of the plan."""
        if self._draft is None:
            raise ValueError("nothing has been planned yet")
        return self._draft

    def breaches(self, pair: Pair, pod: int | None = None) -> list[Breach]:
        """Return the rules that a pair violates before the plan; with ``pod``, only those of this pod."""
        lasting = self._lasting.get(pair, ())
        breaches = {
            index: replace(breach, lasts=index in lasting)
            for index, breach in self._breaches.get(pair, {}).items()
        }
        for index in list(breaches) if pod is not None else ():
            term = self.draft.terms[index].term
            if pod is not None and term.judges(pod):
                breaches[index] = replace(breaches[index], text=term.reason(pod))
            elif term.cause is not Cause.PLACE:
                del breaches[index]
        return list(breaches.values())

    def before(self, draft: Draft) -> None:
        """Record the candidates before the moves (PlanObserver)."""
        self._draft = draft
        for index, weighted in enumerate(draft.terms):
            for rows, waits in _candidates(weighted.term):
                for pair, gain in self._of_pods(rows):
                    breach = _breach(weighted, pair, gain, waits=waits)
                    self._breaches.setdefault(pair, {})[index] = breach

    def after(self, draft: Draft, chosen: Sequence[Chosen]) -> None:
        """Record the candidates after the moves (PlanObserver)."""
        self.chosen = chosen
        for index, weighted in enumerate(draft.terms):
            for rows, _ in _candidates(weighted.term):
                for pair, _ in self._of_pods(rows):
                    self._lasting.setdefault(pair, set()).add(index)

    def _of_pods(self, rows: Candidates) -> Iterator[tuple[Pair, float]]:
        selected: Bools = np.isin(rows.cls, self.classes)
        if self._node is not None:
            selected &= rows.node == self._node
        for cls, node, gain in zip(
            rows.cls[selected].tolist(),
            rows.node[selected].tolist(),
            rows.gain[selected].tolist(),
            strict=True,
        ):
            yield (cls, node), gain


def _candidates(term: Term) -> Iterator[tuple[Candidates, bool]]:
    """Yield (candidates, False), then (pairs that wait for more runs, True)."""
    # Of all classes: asking for one class may make the term create further groups.
    yield term.candidates(), False
    yield term.waiting(), True


def _breach(weighted: WeightedTerm, pair: Pair, gain: float, *, waits: bool) -> Breach:
    return Breach(
        strategy=weighted.strategy,
        entry=weighted.term.entry,
        gain=gain * weighted.weight,
        text=weighted.term.describe(*pair),
        observed=weighted.observed,
        waits=waits,
    )
