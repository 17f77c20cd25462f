"""The effect of moving one pod on the cost, at each possible landing, as the core computes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.core import effects as core
from rebalancer.core.rules import PodMove
from rebalancer.core.views import view_of
from rebalancer.cost.term import Entry, Term
from rebalancer.cost.view import View
from rebalancer.planner.problem import WeightedTerm
from rebalancer.planner.verdict import TOLERANCE
from rebalancer.scheduler.prediction import Prediction
from rebalancer.snapshot.columns import Bools, Floats, Int32s, Ints

_ENTRIES = len(Entry)
_MINE = 1
"""In ``core.MoveEffect.named``: the strategy may move the pod."""
_KEPT = 8192
"""Of so many moves between classes the rules are kept."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of moving a pod on the cost."""

    changes: Floats
    """Change of each entry at each landing (3, K); negative is better."""
    gain: tuple[float, float, float]
    """Expected gain per entry; positive is better."""
    by_strategy: dict[str, float]
    """Expected gain of each strategy in the entry that decides."""
    shares: Mapping[tuple[int, str], float]
    """Entry and strategy -> expected gain, of what a strategy may not move only the harm."""


class Effects:
    """Computes effects from the terms and the guard in the view's state; leaves the state unchanged.

    ``newest`` is the effect of the last move that it was asked about, as the core has it.
    """

    def __init__(self, view: View, terms: Sequence[WeightedTerm], guard: Term) -> None:
        self._view, self._terms, self._guard = view, terms, guard
        self.strategies = sorted({weighted.strategy for weighted in terms})
        number = {name: index for index, name in enumerate(self.strategies)}
        self.lowered = core.Terms(
            view_of(np.array([int(of.term.entry) for of in terms], np.int64)),
            view_of(np.array([of.weight for of in terms], float)),
            view_of(np.array([number[of.strategy] for of in terms], np.int64)),
            len(self.strategies),
            [None if of.selected is None else view_of(of.selected.nodes) for of in terms],
        )
        self._all_terms = [of.term for of in terms]
        self._varying = [
            index
            for index, of in enumerate(terms)
            if of.held or of.resting or of.selected is not None
        ]
        """The terms that may not move every pod."""
        self._mine = np.ones(len(terms), bool)
        self._nothing = np.zeros(len(terms))
        self._rules: dict[tuple[int, int], core.RulesOfMove] = {}
        self._guards: dict[tuple[int, int], core.RulesOfMove] = {}
        self.newest = core.MoveEffect(len(self.strategies))
        # Views of its arrays: each look at a field of the core makes a new one.
        self._gain, self._best, self._shares, self._named = map(
            np.asarray,
            (self.newest.gain, self.newest.best, self.newest.shares, self.newest.named),
        )
        self._keys = [(entry, name) for entry in range(_ENTRIES) for name in self.strategies]
        self._in_order = list(dict.fromkeys(weighted.strategy for weighted in terms))

    # -- for the core ------------------------------------------------------------------------------------

    def rules_of(self, cls: int, replacement: int) -> core.RulesOfMove:
        """Return the rules that a move may change."""
        return _rules_of((cls, replacement), self._all_terms, self._rules)

    def guards_of(self, cls: int, replacement: int) -> core.RulesOfMove:
        """Return the hard rules that a move must not violate."""
        return _rules_of((cls, replacement), [self._guard], self._guards)

    def may_move(self, cls: int, node: int) -> Bools:
        """Return the terms (T,) whose strategy may move pods of ``cls`` off ``node``. One array, written anew each time."""
        for index in self._varying:
            self._mine[index] = self._terms[index].may_move(cls, node)
        return self._mine

    def promises(self, cls: int, nodes: Int32s) -> tuple[Floats, Ints]:
        """Return the most that one pod of ``cls`` can gain per entry by leaving each of ``nodes`` (3, M), and the leading terms (M,).

        The leading term has the largest share in the first entry at stake; -1: nothing can be gained.
        """
        gains, leading = np.zeros((_ENTRIES, len(nodes))), np.zeros(len(nodes), np.int64)
        for index in self._varying:
            of = self._terms[index]
            kept = of.held or cls in of.resting
            self._mine[index] = not kept and (of.selected is None or of.selected.classes[cls])
        core.find_promises(
            self.lowered,
            self.rules_of(cls, self._view.snapshot.classes[cls].replacement),
            cls,
            view_of(np.ascontiguousarray(nodes, np.int32)),
            view_of(self._mine),
            view_of(gains.reshape(-1)),
            view_of(leading),
        )
        return gains, leading

    def find(self, pod: int, node: int, prediction: Prediction) -> PodMove:
        """Have the core find the effect of moving ``pod`` off ``node``; it is in ``newest``, until the next is asked for."""
        if not prediction.takers:
            return self._find(pod, node, prediction, self._nothing)
        taking = {int(self._view.state.cls_of[taker.pod]) for taker in prediction.takers}
        before = self._values_of(taking)
        with self._view.scheduler.pending.placed(self._view.state, prediction.takers):
            # A pending pod may fix a rule by its landing: that is no gain of the move.
            added = np.maximum(0.0, self._values_of(taking) - before)
            return self._find(pod, node, prediction, added)

    def _values_of(self, classes: Iterable[int]) -> Floats:
        """Return of each term (T,) a value that changes as its potential does while pods of ``classes`` come."""
        return np.array([weighted.term.value_for(classes) for weighted in self._terms], float)

    def _find(self, pod: int, node: int, prediction: Prediction, added: Floats) -> PodMove:
        move = self._move(pod, node, prediction.nodes)
        core.find_effect(
            self.lowered,
            self.rules_of(move.cls, move.replacement),
            move,
            view_of(prediction.probability),
            view_of(self.may_move(move.cls, node)),
            view_of(added),
            self.newest,
        )
        return move

    def _move(self, pod: int, node: int, nodes: Int32s) -> PodMove:
        cls = int(self._view.state.cls_of[pod])
        replacement = self._view.snapshot.classes[cls].replacement
        return PodMove(pod, cls, replacement, node, view_of(nodes))

    # -- for people --------------------------------------------------------------------------------------

    def of(self, pod: int, node: int, prediction: Prediction) -> Effect:
        """Return the effect of moving ``pod`` off ``node`` at the landings of ``prediction``."""
        self.find(pod, node, prediction)
        return self.show_newest()

    def show_newest(self) -> Effect:
        """Return the newest effect in plain values."""
        landings, size = self.newest.landings, len(self.strategies)
        changes = np.asarray(self.newest.changes)[: _ENTRIES * landings]
        changes = changes.reshape(_ENTRIES, landings).copy()
        deciding = int(changes.any(axis=1).argmax())
        # Without any strategy the core's arrays have an entry all the same.
        values, named = (of.tolist()[: len(self._keys)] for of in (self._shares, self._named))
        columns = zip(self._keys, values, named, strict=True)
        shares = {key: value for key, value, some in columns if some}
        mine = {
            name: shares[deciding, name]
            for name in self._in_order
            if named[deciding * size + self.strategies.index(name)] == _MINE
        }
        hard, soft, imbalance = self._gain.tolist()
        return Effect(changes, (hard, soft, imbalance), mine, shares)

    @property
    def gain(self) -> tuple[float, float, float]:
        """The expected gain of each entry by the newest move."""
        hard, soft, imbalance = self._gain.tolist()
        return hard, soft, imbalance

    @property
    def best(self) -> tuple[float, float, float]:
        """The gain of each entry at the landing of the newest move that is best for it."""
        hard, soft, imbalance = self._best.tolist()
        return hard, soft, imbalance

    def breaks(self, pod: int, node: int, prediction: Prediction) -> bool:
        """Return whether some landing would violate a satisfied hard rule."""
        return self._break(self._move(pod, node, prediction.nodes))

    def _break(self, move: PodMove) -> bool:
        return core.find_broken(self.guards_of(move.cls, move.replacement), move, self.newest)

    def on_nodes(self, pod: int, node: int, nodes: Int32s) -> Floats:
        """Return the change of each entry (3, K) if ``pod`` moves from ``node`` to each of ``nodes``.

        Infinite where a satisfied hard rule would be violated. Pending pods that would take freed room are ignored.
        """
        nodes = np.ascontiguousarray(nodes, np.int32)
        anywhere = Prediction(nodes, np.full(len(nodes), 1 / max(1, len(nodes))))
        move = self._find(pod, node, anywhere, self._nothing)
        changes = self.show_newest().changes
        if self._break(move):
            changes[0, np.asarray(self.newest.broken)[: len(nodes)] > TOLERANCE] = np.inf
        return changes


def _rules_of(
    pair: tuple[int, int], terms: Sequence[Term], kept: dict[tuple[int, int], core.RulesOfMove]
) -> core.RulesOfMove:
    """Return the rules of ``terms`` that a move between two classes may change; they are kept."""
    if (known := kept.get(pair)) is not None:
        return known
    named = [
        (index, rule, weight)
        for index, term in enumerate(terms)
        for rule, weight in term.rules_of_move(*pair)
    ]
    if len(kept) >= _KEPT:
        kept.clear()
    rules = kept[pair] = core.RulesOfMove(
        [rule for _, rule, _ in named],
        view_of(np.array([index for index, _, _ in named], np.int64)),
        view_of(np.array([weight for _, _, weight in named], float)),
    )
    return rules


def signs(changes: Floats) -> Floats:
    """Return per landing (K,) -1 if the cost improves, +1 if it gets worse, 0 if it is equal; entries compared in order."""
    decided = np.zeros(changes.shape[1])
    for entry in changes[::-1]:
        decided = np.where(entry != 0, np.sign(entry), decided)
    return decided
