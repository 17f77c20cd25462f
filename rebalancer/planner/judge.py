"""Judge one possible move: its landing, its effect on the cost, and whether that suffices.

The core computes it. This module lowers the terms for the core, implements its callbacks
(:class:`~rebalancer.core.moves.MoveCallbacks`), and converts its results into verdicts and refusals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Self

import numpy as np

from rebalancer.core import moves as core
from rebalancer.core.effects import (
    REFUSALS,
    Demands,
    MoveEffect,
    RulesOfMove,
    Terms,
    find_broken,
    find_effect,
    find_unwanted,
)
from rebalancer.core.moves import Mover
from rebalancer.core.rules import PodMove
from rebalancer.core.views import view_of
from rebalancer.cost.term import Entry, Term
from rebalancer.cost.view import View
from rebalancer.planner.problem import WeightedTerm
from rebalancer.planner.refusal import Refusal, Why
from rebalancer.planner.settings import Threshold
from rebalancer.planner.verdict import TOLERANCE, Verdict
from rebalancer.scheduler.lowering import read_landings, write_landings
from rebalancer.scheduler.prediction import Prediction
from rebalancer.snapshot.columns import Bools, Floats, Int32s

# At most so many nodes that the scheduler may pick without a gain are noted.
DRAWING = 2
_NOTHING = (0.0, 0.0, 0.0)
_ENTRIES = len(Entry)
_MINE = 1
"""In ``MoveEffect.named``: the strategy may move the pod."""
_KEPT = 8192
"""So many movers are kept."""
_KEPT_READY = 1024
"""Of so many the replacements are kept."""
_GOOD = 0
_NO_GAIN, _NO_NODE, _UNPREDICTED = map(REFUSALS.index, ("no gain", "no node", "not predicted"))
_WHY = {
    "other system": (Why.OTHER_OS, "foreign"),
    "leaving node": (Why.LEAVING_NODE, "leaving"),
    "avoided node": (Why.AVOIDED_NODE, "avoided"),
    "comes back": (Why.COMES_BACK, "sure"),
    "breaks a rule": (Why.BREAKS_HARD, "sure"),
    "too rarely better": (Why.RARELY_BETTER, "sure"),
    "too often worse": (Why.OFTEN_WORSE, "risk"),
    "too little": (Why.LOW_GAIN, "sure"),
    "nothing expected": (Why.NONE_EXPECTED, "sure"),
}
"""The core's result -> the reason, and the share of the landings that its sentence names."""
_FOR_OTHERS = {Why.COMES_BACK: Why.MAY_COME_BACK, Why.BREAKS_HARD: Why.BREAKS_RULE}
"""Of a move that has to gain nothing."""


class Judge:
    """Judges moves in the view's state, one at a time; leaves the state unchanged."""

    def __init__(
        self, view: View, terms: Sequence[WeightedTerm], guard: Term, threshold: Threshold
    ) -> None:
        self._view, self._terms, self._guard, self._threshold = view, terms, guard, threshold
        self._in_place = [one.term for one in terms if one.term.in_place]
        self._strategies = sorted({weighted.strategy for weighted in terms})
        number = {name: index for index, name in enumerate(self._strategies)}
        lowered = Terms(
            view_of(np.array([int(of.term.entry) for of in terms], np.int64)),
            view_of(np.array([of.weight for of in terms], float)),
            view_of(np.array([number[of.strategy] for of in terms], np.int64)),
            len(self._strategies),
            [None if of.selected is None else view_of(of.selected.nodes) for of in terms],
        )
        demands, classes = _demands(view, threshold), len(view.snapshot.classes)
        has_pending = view.scheduler.pending.has_any
        self.bench = core.Bench(lowered, demands, classes, self, has_pending=has_pending)
        self._kept, self._ready = list[Mover](), list[Mover]()
        self._effect = self.bench.effect
        # Views of its arrays: each look at a field of the core makes a new one.
        self._gain, self._best, self._shares, self._named = map(
            np.asarray,
            (self._effect.gain, self._effect.best, self._effect.shares, self._effect.named),
        )
        self._numbered = [(index, of.term) for index, of in enumerate(terms)]
        self._mine = _find_mine(terms, classes)
        self._keys = [(entry, name) for entry in range(_ENTRIES) for name in self._strategies]
        self._in_order = list(dict.fromkeys(weighted.strategy for weighted in terms))
        self._code = _GOOD
        """Why the newest move is refused."""
        self._mover: Mover
        """Its class."""

    def judge(self, pod: int, node: int, cost: float) -> Verdict:
        """Return the verdict on moving ``pod`` off ``node``, with the scheduler's landing."""
        self.is_good(pod, node, cost)
        return self.verdict(cost)

    def harmless(self, pod: int, node: int) -> Verdict:
        """Return the verdict on moving ``pod`` to enable another move: refused if it does harm.

        No improvement is required, but no rule may get worse on any landing, and the replacement must not come back.
        """
        self.is_good(pod, node, 1.0, for_gain=False)
        return self.verdict(1.0, for_gain=False)

    def judge_landing(self, pod: int, node: int, cost: float, prediction: Prediction) -> Verdict:
        """Return the verdict on moving ``pod`` off ``node``, given the prediction of its landing."""
        self._mover = mover = self.lower(int(self._view.state.cls_of[pod]))
        back = self.may_come_back(pod)
        self._code = self._judge_given(mover, prediction, pod, node, cost, back, for_gain=True)
        return self.verdict(cost)

    def is_good(self, pod: int, node: int, cost: float, *, for_gain: bool = True) -> bool:
        """Judge the move of ``pod`` off ``node``, with the scheduler's landing; return whether it is good.

        The reasons and the numbers are in :meth:`verdict` until the next judgement.
        """
        state, bench, back = self._view.state, self.bench, self.may_come_back(pod)
        self._mover = mover = self.lower(int(state.cls_of[pod]))
        self._code = core.judge_pod(bench, mover, pod, node, cost, state.lives(pod), back, for_gain)
        return not self._code

    def may_come_back(self, pod: int) -> bool:
        """Return whether a replacement on the same node will do for a term that judges ``pod``."""
        return bool(self._in_place) and any(term.judges(pod) for term in self._in_place)

    def take(self, cls: int, code: int) -> Self:
        """Take over the move of a pod of a class as the core has just judged it."""
        self._code, self._mover = code, self.mover(cls)
        return self

    def verdict(self, cost: float, *, for_gain: bool = True) -> Verdict:
        """Return the verdict on the newest move, which was judged at this cost."""
        effect, mover, code = self._effect, self._mover, self._code
        prediction = read_landings(mover.cluster.landings, self.bench.takers)
        refused = None
        if code:
            refused = self._refuse(mover.cls, code, effect, prediction, cost, for_gain=for_gain)
        if code in (_NO_NODE, _UNPREDICTED):
            return Verdict(prediction, _NOTHING, _NOTHING, {}, refused)
        gain, best = tuple(self._gain.tolist()), tuple(self._best.tolist())
        if refused is None:
            return Verdict(prediction, gain, best, self._by_strategy(), None)
        vain = tuple(effect.vain[: effect.vain_count]) if for_gain else ()
        return Verdict(prediction, gain, best, {}, refused, vain)

    def refusal_of(self, cls: int, look: core.RefusedRow) -> Refusal:
        """Return why a pod of a class was refused when the core looked at its move."""
        prediction = read_landings(look, look.takers)
        return self._refuse(cls, look.code, look, prediction, look.cost)

    def _refuse(
        self,
        cls: int,
        code: int,
        effect: MoveEffect | core.RefusedRow,
        prediction: Prediction,
        cost: float,
        *,
        for_gain: bool = True,
    ) -> Refusal:
        """Return why the core refuses a move, with the numbers."""
        snapshot, threshold = self._view.snapshot, self._threshold
        replacement = snapshot.classes[cls].replacement
        if code == _UNPREDICTED:
            parts = self._view.scheduler.why_unpredicted(replacement)
            return Refusal.of(Why.UNPREDICTED, parts=parts)
        if code == _NO_NODE:
            zone = self._view.missing_zone(replacement)
            return Refusal.of(Why.NO_NODE, landing=prediction, zone=zone)
        if code == _NO_GAIN:
            return self._refuse_trade(effect, prediction)
        why, share = _WHY[REFUSALS[code]]
        if not for_gain:
            why = _FOR_OTHERS.get(why, why)
        if why is Why.OTHER_OS and not snapshot.has_other_system(replacement, prediction.nodes):
            why = Why.OTHER_ARCHITECTURE
        entry = next((e for e in Entry if abs(effect.gain[e]) > TOLERANCE), Entry.IMBALANCE)
        least = threshold.pods if entry < Entry.IMBALANCE else threshold.imbalance
        if why is Why.RARELY_BETTER:
            least = threshold.harmless if effect.risk <= TOLERANCE else threshold.better
        return Refusal.of(
            why,
            landing=prediction,
            share=getattr(effect, share),
            gain=effect.gain[entry],
            cost=cost,
            least=least,
            most=threshold.worse,
        )

    def unwanted(self, pod: int, prediction: Prediction) -> Refusal | None:
        """Return a refusal if the replacement of ``pod`` may land on a node to avoid; else None."""
        mover = self.mover(int(self._view.snapshot.pods.cls[pod]))
        move = PodMove(pod, mover.cls, mover.replacement, -1, view_of(prediction.nodes))
        chance, effect = view_of(prediction.probability), self._effect
        code = find_unwanted(self.bench.demands, move, chance, mover.foreign, effect)
        return self._refuse(mover.cls, code, effect, prediction, 1.0) if code else None

    def _refuse_trade(
        self, effect: MoveEffect | core.RefusedRow, prediction: Prediction
    ) -> Refusal:
        """Return which strategies gain, and which lose in the entry that decides, with numbers; or that none gains."""
        columns = zip(self._keys, effect.shares, effect.named, strict=False)
        shares = [(key, gain) for key, gain, named in columns if named]
        deciding = min((key[0] for key, gain in shares if gain < -TOLERANCE), default=len(Entry))
        better, worse = (
            [
                (name, entry, sign * gain)
                for (entry, name), gain in shares
                if sign * gain > TOLERANCE and (sign > 0 or entry == deciding)
            ]
            for sign in (1, -1)
        )
        if better and worse:
            return Refusal.of(Why.TRADE, landing=prediction, better=better, worse=worse)
        return Refusal.of(Why.NOTHING_BETTER, landing=prediction)

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
        """Return a class lowered with the rules of only some terms, to compute the largest gain that its moves promise."""
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
        """Judge a move whose room pending pods may take; return -1 if none may."""
        pending, state = self._view.scheduler.pending, self._view.state
        if not (concerned := pending.find_concerned(state, pod)):
            return -1
        prediction = pending.foresee_with(state, pod, concerned)
        return self._judge_given(mover, prediction, pod, node, cost, in_place, for_gain=for_gain)

    def _judge_given(
        self,
        mover: Mover,
        prediction: Prediction,
        pod: int,
        node: int,
        cost: float,
        in_place: bool,
        *,
        for_gain: bool,
    ) -> int:
        """Judge a move with this prediction, see :func:`~rebalancer.core.moves.judge_landings`."""
        bench = self.bench
        bench.takers = prediction.takers
        write_landings(mover.cluster.landings, prediction)
        if prediction.unmodelled:
            return _UNPREDICTED
        with self._taking(prediction) as added:
            return core.judge_landings(bench, mover, pod, node, added, cost, in_place, for_gain)

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

    # -- what it changes ---------------------------------------------------------------------------

    def _changes(self) -> Floats:
        """Return the change of each entry at each landing (3, K) by the newest move; negative is better."""
        landings = self._effect.landings
        changes = np.asarray(self._effect.changes)[: _ENTRIES * landings]
        return changes.reshape(_ENTRIES, landings).copy()

    def _by_strategy(self) -> dict[str, float]:
        """Return the expected gain of each strategy that may move the pod, in the entry that decides."""
        landings = self._effect.landings
        changing = np.flatnonzero(np.asarray(self._effect.changes)[: _ENTRIES * landings])
        deciding = int(changing[0]) // landings if len(changing) else 0
        first = deciding * len(self._strategies)
        values, named = self._shares.tolist(), self._named.tolist()
        return {
            name: values[place]
            for name in self._in_order
            if named[place := first + self._strategies.index(name)] == _MINE
        }

    def on_nodes(self, pod: int, node: int, nodes: Int32s) -> Floats:
        """Return the change of each entry (3, K) if ``pod`` moves from ``node`` to each of ``nodes``.

        Infinite where a satisfied hard rule would be violated. Pending pods that would take freed room are ignored.
        """
        mover, effect = self.mover(int(self._view.state.cls_of[pod])), self._effect
        to = view_of(np.ascontiguousarray(nodes, np.int32))
        move = PodMove(pod, mover.cls, mover.replacement, node, to)
        evenly, nothing = np.full(len(nodes), 1 / max(1, len(nodes))), self.bench.nothing
        find_effect(
            self.bench.terms, mover.rules, move, view_of(evenly), mover.mine, nothing, effect
        )
        changes = self._changes()
        if find_broken(mover.guards, move, effect):
            changes[0, np.asarray(effect.broken)[: len(nodes)] > TOLERANCE] = np.inf
        return changes


def _demands(view: View, threshold: Threshold) -> Demands:
    """Return what the policy requires of a move."""
    nodes = view.snapshot.nodes
    avoided = nodes.avoided if nodes.avoided is not None else np.zeros(len(nodes), bool)
    return Demands(
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


def _rules_of(cls: int, replacement: int, terms: Sequence[tuple[int, Term]]) -> RulesOfMove:
    """Return the rules of ``terms``, each with its number, that a move between two classes may change."""
    named = [
        (index, rule, weight)
        for index, term in terms
        for rule, weight in term.rules_of_move(cls, replacement)
    ]
    return RulesOfMove(
        [rule for _, rule, _ in named],
        _view_of_indices(tuple(index for index, _, _ in named)),
        _view_of_weights(tuple(weight for _, _, weight in named)),
    )


# Thousands of classes have rules of the same terms.
@lru_cache(maxsize=1024)
def _view_of_indices(values: tuple[int, ...]) -> Any:
    return view_of(np.array(values, np.int64))


@lru_cache(maxsize=1024)
def _view_of_weights(values: tuple[float, ...]) -> Any:
    return view_of(np.array(values, float))


def signs(changes: Floats) -> Floats:
    """Return per landing (K,) -1 if the cost improves, +1 if it gets worse, 0 if it is equal; entries compared in order."""
    decided = np.zeros(changes.shape[1])
    for entry in changes[::-1]:
        decided = np.where(entry != 0, np.sign(entry), decided)
    return decided
