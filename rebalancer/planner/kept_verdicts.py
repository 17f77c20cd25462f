"""A cache of verdicts on moves, valid until something they depend on changes.

A move changes the state, but few verdicts: each depends on a prediction, on the terms that the move concerns, and on
the guard. The scheduler model caches predictions, so object identity is their key; terms and guard return *stamps*,
which are equal while their answers are equal.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from rebalancer.cost.term import Entry, Term, View
from rebalancer.plan.plan import Cause
from rebalancer.planner.problem import WeightedTerm
from rebalancer.planner.verdict import TOLERANCE, Verdict, is_gamble
from rebalancer.scheduler.prediction import Prediction

# So many landings are kept with the verdicts on them.
_KEPT_LANDINGS = 2_000_000


Move = tuple[int, int, int, float]
"""A pod, its class, the node that it leaves, and what its eviction costs."""


@dataclass(slots=True)
class _Kept:
    """A verdict with its inputs."""

    version: int
    """Of the state in which it was last seen to hold."""
    prediction: Prediction
    rules: tuple[int, ...]
    """Stamps of the hard and soft terms that the move concerns, and of the guard."""
    balance: tuple[int, ...]
    """Stamps of the others."""
    verdict: Verdict

    def holds_by_rules(self, *, unless_gamble: bool) -> bool:
        """Return whether the verdict is valid for any change of balance."""
        if unless_gamble and is_gamble(self.verdict):
            return True
        # Rules alone refuse the move.
        return self.verdict.refused is not None and any(
            abs(gain) > TOLERANCE for gain in self.verdict.gain[:2]
        )


@dataclass(frozen=True, slots=True)
class Missing:
    """The cache keys for a verdict that is still to be computed."""

    key: Hashable
    alike: Hashable | None
    rules: tuple[int, ...]
    balance: tuple[int, ...]


class KeptVerdicts:
    """The cached verdicts of one draft."""

    def __init__(self, view: View, terms: Sequence[WeightedTerm], guard: Term) -> None:
        self._view = view
        rules = [one.term for one in terms if one.term.entry is not Entry.IMBALANCE]
        self._rules = _Stamps(view, [*rules, guard])
        self._balance = _Stamps(
            view, [one.term for one in terms if one.term.entry is Entry.IMBALANCE]
        )
        self._seen_from = [*rules, guard]
        self._selected_nodes = [one.selected.nodes for one in terms if one.selected is not None]
        self._judging = [one.term for one in terms if one.term.cause is not Cause.PLACE]
        self._of_move: dict[Hashable, _Kept] = {}
        self._alike: dict[Hashable, _Kept] = {}
        """Verdicts by all that rules see of a move: the same for many nodes that pods of a class leave."""
        self._landings = 0

    def known(self, pod: int, cls: int, node: int, cost: float) -> Verdict | None:
        """Return the verdict on moving ``pod``, of class ``cls``, off ``node``, if computed in the current state."""
        kept = self._of_move.get((cls, node, cost, self._judged(pod)))
        return (
            kept.verdict if kept is not None and kept.version == self._view.state.version else None
        )

    def standing(
        self, move: Move, prediction: Prediction, *, unless_gamble: bool
    ) -> Verdict | Missing:
        """Return the cached verdict on a move with this prediction if it is valid; else the keys to store it.

        ``unless_gamble``: the gain in balance may be inexact if the landing is uncertain.
        """
        pod, cls, node, cost = move
        judged = self._judged(pod)
        key = cls, node, cost, judged
        kept = self._of_move.get(key)
        rules = self._rules.of(cls, node, prediction)
        if kept is not None and (kept.prediction is not prediction or kept.rules != rules):
            kept = None
        alike = None
        if kept is None:
            alike = self._alike_key(cls, node, cost, prediction, (rules, judged))
        by_rules = kept or self._alike.get(alike)
        if by_rules is not None and by_rules.holds_by_rules(unless_gamble=unless_gamble):
            return by_rules.verdict
        # Balance changes with nearly every move, so that it is asked last.
        balance = self._balance.of(cls, node, prediction)
        if kept is not None and kept.balance == balance:
            kept.version = self._view.state.version
            return kept.verdict
        return Missing(key, alike, rules, balance)

    def keep(self, missing: Missing, verdict: Verdict) -> None:
        """Cache a verdict computed in the current state."""
        self._make_room(len(verdict.prediction.nodes))
        version = self._view.state.version
        kept = _Kept(version, verdict.prediction, missing.rules, missing.balance, verdict)
        self._of_move[missing.key] = kept
        if missing.alike is not None:
            self._alike[missing.alike] = kept

    def _make_room(self, landings: int) -> None:
        """Empty the cache if ``landings`` more entries would exceed its limit."""
        self._landings += landings
        if self._landings > _KEPT_LANDINGS:
            self._of_move.clear()
            self._alike.clear()
            self._landings = landings

    def _judged(self, pod: int) -> tuple[int, ...]:
        """Return the terms that judge this single pod; only pods with equal terms share a verdict."""
        return tuple([index for index, term in enumerate(self._judging) if term.judges(pod)])

    def _alike_key(
        self, cls: int, node: int, cost: float, prediction: Prediction, rules: Hashable
    ) -> Hashable | None:
        """Return a key that is equal for moves with equal verdicts by rules; None if the move is unique."""
        if prediction.takers or (prediction.nodes == node).any():
            return None
        replacement = self._view.snapshot.classes[cls].replacement
        seen = tuple([term.seen_from(cls, node, replacement) for term in self._seen_from])
        # The prediction is kept with the verdict, so that its identity stands for it.
        may_move = tuple([bool(nodes[node]) for nodes in self._selected_nodes])
        return cls, cost, id(prediction), rules, seen, may_move


class _Stamps:
    """How long the answers of some terms about a move are valid."""

    def __init__(self, view: View, terms: Iterable[Term]) -> None:
        self._view, self._terms = view, tuple(terms)

    def of(self, cls: int, node: int, prediction: Prediction) -> tuple[int, ...]:
        """Return a key that is equal only while these terms give the same answers about a move."""
        replacement = self._view.snapshot.classes[cls].replacement
        move = (cls, node, replacement, prediction.nodes)
        return tuple(
            [
                self._view.state.version if (stamp := term.stamp(*move)) is None else stamp
                for term in self._terms
                if term.concerns(cls, replacement)
            ]
        )
