"""What moving one pod does to the cost, as the core computes it; and what the core asks back (:class:`~rebalancer.core.moves.MoveCallbacks`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from rebalancer.core import effects as core
from rebalancer.core.moves import Bench, Mover, RefusedRow, judge_landings
from rebalancer.core.rules import PodMove
from rebalancer.core.views import view_of
from rebalancer.cost.term import Entry, Term
from rebalancer.cost.view import View
from rebalancer.planner.problem import WeightedTerm
from rebalancer.planner.settings import Threshold
from rebalancer.planner.verdict import TOLERANCE
from rebalancer.scheduler.lowering import write_landings
from rebalancer.scheduler.prediction import Prediction
from rebalancer.snapshot.columns import Bools, Floats, Int32s

_ENTRIES = len(Entry)
_MINE = 1
"""In ``core.MoveEffect.named``: the strategy may move the pod."""
_UNPREDICTED = core.REFUSALS.index("not predicted")
_KEPT = 8192
"""So many movers are kept."""
_KEPT_READY = 1024
"""Of so many the replacements are kept."""


class Effects:
    """Lowers the terms and the guard, and shows what the core finds; leaves the view's state unchanged.

    ``newest`` is the effect of the last move that was judged, as the core has it.
    """

    def __init__(
        self, view: View, terms: Sequence[WeightedTerm], guard: Term, threshold: Threshold
    ) -> None:
        self._view, self._terms, self._guard = view, terms, guard
        self.strategies = sorted({weighted.strategy for weighted in terms})
        number = {name: index for index, name in enumerate(self.strategies)}
        lowered = core.Terms(
            view_of(np.array([int(of.term.entry) for of in terms], np.int64)),
            view_of(np.array([of.weight for of in terms], float)),
            view_of(np.array([number[of.strategy] for of in terms], np.int64)),
            len(self.strategies),
            [None if of.selected is None else view_of(of.selected.nodes) for of in terms],
        )
        demands, classes = _demands(view, threshold), len(view.snapshot.classes)
        has_pending = view.scheduler.pending.has_any
        self.bench = Bench(lowered, demands, classes, self, has_pending=has_pending)
        self._kept, self._ready = list[Mover](), list[Mover]()
        self.newest = self.bench.effect
        # Views of its arrays: each look at a field of the core makes a new one.
        self._gain, self._best, self._shares, self._named = map(
            np.asarray,
            (self.newest.gain, self.newest.best, self.newest.shares, self.newest.named),
        )
        self._numbered = [(index, of.term) for index, of in enumerate(terms)]
        self._mine = _find_mine(terms, classes)
        self._keys = [(entry, name) for entry in range(_ENTRIES) for name in self.strategies]
        self._in_order = list(dict.fromkeys(weighted.strategy for weighted in terms))

    # -- for the core ------------------------------------------------------------------------------------

    def mover(self, cls: int) -> Mover:
        """Return a class as the core moves it."""
        known = self.bench.movers[cls]
        if known is None:
            if len(self._kept) >= _KEPT:
                for mover in self._kept:
                    self.bench.movers[mover.cls] = None
                self._kept.clear()
            known = self.bench.movers[cls] = self._lower(cls)
            self._kept.append(known)
        return known

    def promising(self, cls: int, terms: Sequence[int]) -> Mover:
        """Return a class with the rules of only some terms, to be asked what it promises."""
        replacement = self._view.snapshot.classes[cls].replacement
        rules = _rules_of(cls, replacement, [self._numbered[index] for index in terms])
        mine = view_of(self._mine[cls])
        return Mover(cls, replacement, rules, rules, mine, None, leaves=True, gone=False)

    def lower(self, cls: int) -> Mover:
        """Return a class with its replacement lowered."""
        mover = self.mover(cls)
        if mover.pod is None:
            if len(self._ready) >= _KEPT_READY:
                for other in self._ready:
                    other.pod = None
                self._ready.clear()
            self._ready.append(mover)
        lowered = self._view.scheduler.lower(self._view.state, mover.replacement)
        mover.pod, mover.cluster = lowered
        return mover

    def judge_feeding(
        self, mover: Mover, pod: int, node: int, cost: float, in_place: bool, for_gain: bool
    ) -> int:
        """Judge a move whose room pending pods may take, see :func:`judge_landings`; return -1 if none may."""
        pending, state = self._view.scheduler.pending, self._view.state
        if not (concerned := pending.find_concerned(state, pod)):
            return -1
        prediction = pending.foresee_with(state, pod, concerned)
        return self.judge(mover, prediction, pod, node, cost, in_place=in_place, for_gain=for_gain)

    def judge(
        self,
        mover: Mover,
        prediction: Prediction,
        pod: int,
        node: int,
        cost: float,
        *,
        in_place: bool,
        for_gain: bool,
    ) -> int:
        """Judge a move with this prediction, see :func:`judge_landings`."""
        self.bench.takers = prediction.takers
        write_landings(mover.cluster.landings, prediction)
        if prediction.unmodelled:
            return _UNPREDICTED
        with self._taking(prediction) as added:
            return judge_landings(self.bench, mover, pod, node, added, cost, in_place, for_gain)

    def _lower(self, cls: int) -> Mover:
        snapshot = self._view.snapshot
        replacement = snapshot.classes[cls].replacement
        foreign = snapshot.foreign_nodes(replacement)
        return Mover(
            cls,
            replacement,
            _rules_of(cls, replacement, self._numbered),
            _rules_of(cls, replacement, [(0, self._guard)]),
            view_of(self._mine[cls]),
            None if foreign is None else view_of(np.ascontiguousarray(foreign)),
            leaves=not snapshot.classes[cls].restarts,
            gone=snapshot.waits(cls),
        )

    @contextmanager
    def _taking(self, prediction: Prediction) -> Iterator[Any]:
        """Place the pending pods that take the freed room; yield what they add to each term (T,).

        A pending pod may fix a rule by its landing: that is no gain of the move.
        """
        if not prediction.takers:
            yield self.bench.nothing
            return
        taking = {int(self._view.state.cls_of[taker.pod]) for taker in prediction.takers}
        before = self._values_of(taking)
        with self._view.scheduler.pending.placed(self._view.state, prediction.takers):
            yield view_of(np.maximum(0.0, self._values_of(taking) - before))

    def _values_of(self, classes: Iterable[int]) -> Floats:
        """Return of each term (T,) a value that changes as its potential does while pods of ``classes`` come."""
        return np.array([weighted.term.value_for(classes) for weighted in self._terms], float)

    def move(self, pod: int, node: int, nodes: Int32s) -> PodMove:
        """Return a move of ``pod`` from ``node`` to one of ``nodes``."""
        mover = self.mover(int(self._view.state.cls_of[pod]))
        return PodMove(pod, mover.cls, mover.replacement, node, view_of(nodes))

    # -- for people --------------------------------------------------------------------------------------

    def changes(self) -> Floats:
        """Return the change of each entry at each landing (3, K) by the newest move; negative is better."""
        landings = self.newest.landings
        changes = np.asarray(self.newest.changes)[: _ENTRIES * landings]
        return changes.reshape(_ENTRIES, landings).copy()

    def shares(self, of: core.MoveEffect | RefusedRow) -> dict[tuple[int, str], float]:
        """Return entry and strategy -> expected gain, of what a strategy may not move only the harm."""
        columns = zip(self._keys, of.shares, of.named, strict=False)
        return {key: value for key, value, some in columns if some}

    def by_strategy(self) -> dict[str, float]:
        """Return the expected gain of each strategy that may move the pod, in the entry that decides."""
        deciding = int(self.changes().any(axis=1).argmax())
        first = deciding * len(self.strategies)
        values, named = self._shares.tolist(), self._named.tolist()
        return {
            name: values[place]
            for name in self._in_order
            if named[place := first + self.strategies.index(name)] == _MINE
        }

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

    def on_nodes(self, pod: int, node: int, nodes: Int32s) -> Floats:
        """Return the change of each entry (3, K) if ``pod`` moves from ``node`` to each of ``nodes``.

        Infinite where a satisfied hard rule would be violated. Pending pods that would take freed room are ignored.
        """
        nodes = np.ascontiguousarray(nodes, np.int32)
        move, evenly = self.move(pod, node, nodes), np.full(len(nodes), 1 / max(1, len(nodes)))
        bench, mover = self.bench, self.mover(move.cls)
        core.find_effect(
            bench.terms,
            mover.rules,
            move,
            view_of(evenly),
            mover.mine,
            bench.nothing,
            bench.effect,
        )
        changes = self.changes()
        if core.find_broken(mover.guards, move, bench.effect):
            changes[0, np.asarray(self.newest.broken)[: len(nodes)] > TOLERANCE] = np.inf
        return changes


def _demands(view: View, threshold: Threshold) -> core.Demands:
    """Return what the policy asks of a move."""
    nodes = view.snapshot.nodes
    avoided = nodes.avoided if nodes.avoided is not None else np.zeros(len(nodes), bool)
    return core.Demands(
        threshold.better,
        threshold.worse,
        threshold.harmless,
        threshold.pods,
        threshold.imbalance,
        view_of(np.ascontiguousarray(nodes.leaving)),
        view_of(np.ascontiguousarray(avoided)),
    )


def _find_mine(terms: Sequence[WeightedTerm], classes: int) -> Bools:
    """Return whether the strategy of each term may move pods of each class (C, T)."""
    mine = np.ones((classes, len(terms)), bool)
    for index, of in enumerate(terms):
        mine[list(of.resting), index] = False
        if of.selected is not None:
            mine[:, index] &= of.selected.classes
        mine[:, index] &= not of.held
    return mine


def _rules_of(cls: int, replacement: int, terms: Sequence[tuple[int, Term]]) -> core.RulesOfMove:
    """Return the rules of ``terms``, each with its number, that a move between two classes may change."""
    named = [
        (index, rule, weight)
        for index, term in terms
        for rule, weight in term.rules_of_move(cls, replacement)
    ]
    return core.RulesOfMove(
        [rule for _, rule, _ in named],
        view_of(np.array([index for index, _, _ in named], np.int64)),
        view_of(np.array([weight for _, _, weight in named], float)),
    )


def signs(changes: Floats) -> Floats:
    """Return per landing (K,) -1 if the cost improves, +1 if it gets worse, 0 if it is equal; entries compared in order."""
    decided = np.zeros(changes.shape[1])
    for entry in changes[::-1]:
        decided = np.where(entry != 0, np.sign(entry), decided)
    return decided
