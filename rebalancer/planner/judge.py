"""Judge one possible move: its landing, its effect, and whether the effect is sufficient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rebalancer.core import effects as core
from rebalancer.core.rules import PodMove
from rebalancer.core.views import view_of
from rebalancer.cost.term import Entry, Term
from rebalancer.cost.view import View
from rebalancer.plan.plan import Cause
from rebalancer.planner.effects import Effect, Effects
from rebalancer.planner.problem import WeightedTerm
from rebalancer.planner.refusal import Refusal, Why
from rebalancer.planner.settings import Threshold
from rebalancer.planner.verdict import TOLERANCE, Verdict
from rebalancer.scheduler.prediction import Prediction

# At most so many nodes that the scheduler may pick without a gain are noted.
DRAWING = 2
_NOTHING = (0.0, 0.0, 0.0)
(
    _GOOD,
    _OTHER_SYSTEM,
    _LEAVING,
    _AVOIDED,
    _BACK,
    _NO_GAIN,
    _BREAKS,
    _RARELY,
    _OFTEN,
    _LITTLE,
    _NOTHING_EXPECTED,
) = range(len(core.REFUSALS))


class Judge:
    """Evaluates moves in the view's state; leaves the state unchanged."""

    def __init__(
        self, view: View, terms: Sequence[WeightedTerm], guard: Term, threshold: Threshold
    ) -> None:
        self._view, self._threshold = view, threshold
        self._judging = [one.term for one in terms if one.term.cause is not Cause.PLACE]
        self.effects = Effects(view, terms, guard)
        nodes = view.snapshot.nodes
        avoided = nodes.avoided if nodes.avoided is not None else np.zeros(len(nodes), bool)
        self._demands = core.Demands(
            threshold.better,
            threshold.worse,
            threshold.harmless,
            threshold.pods,
            threshold.imbalance,
            view_of(np.ascontiguousarray(nodes.leaving)),
            view_of(np.ascontiguousarray(avoided)),
        )

    def judge(self, pod: int, node: int, cost: float) -> Verdict:
        """Return the verdict on moving ``pod`` off ``node``, with the scheduler's landing."""
        prediction = self._view.scheduler.pending.foresee(self._view.state, pod)
        return self.judge_landing(pod, node, cost, prediction)

    def judge_landing(self, pod: int, node: int, cost: float, prediction: Prediction) -> Verdict:
        """Return the verdict on moving ``pod`` off ``node``, given the prediction of its landing."""
        if (missing := self._refuse_unpredicted(pod, prediction)) is not None:
            return missing
        effects, newest = self.effects, self.effects.newest
        move = effects.find(pod, node, prediction)
        in_place = any(term.in_place and term.judges(pod) for term in self._judging)
        code = core.judge(
            self._demands,
            effects.guards_of(move.cls, move.replacement),
            move,
            view_of(prediction.probability),
            self._foreign(move.replacement),
            newest,
            cost,
            in_place,
        )
        gain, best = effects.gain, effects.best
        if not code:
            shares = effects.show_newest().by_strategy
            return Verdict(prediction, gain, best, shares, None)
        refused = self._refuse(code, prediction, gain, cost)
        vain = tuple(newest.vain[: newest.vain_count])
        return Verdict(prediction, gain, best, {}, refused, vain)

    def _foreign(self, cls: int) -> Any:
        """Return a view of the nodes (N,) that have another operating system than a class asks for; None if there are none."""
        foreign = self._view.snapshot.foreign_nodes(cls)
        return None if foreign is None else view_of(np.ascontiguousarray(foreign))

    def harmless(self, pod: int, node: int) -> Verdict:
        """Return the verdict on moving ``pod`` to enable another move: refused if it does harm.

        No improvement is required, but no rule may get worse on any landing, and the replacement must not come back.
        """
        prediction = self._view.scheduler.pending.foresee(self._view.state, pod)
        if (missing := self._refuse_unpredicted(pod, prediction)) is not None:
            return missing
        effect = self.effects.of(pod, node, prediction)
        refused = self.unwanted(pod, prediction)
        if refused is None and (prediction.nodes == node).any():
            refused = Refusal.of(Why.MAY_COME_BACK, landing=prediction)
        broken = self.effects.breaks(pod, node, prediction)
        if refused is None and (broken or (effect.changes[:2] > 0).any()):
            refused = Refusal.of(Why.BREAKS_RULE, landing=prediction)
        return Verdict(prediction, effect.gain, effect.gain, effect.by_strategy, refused)

    def _refuse_unpredicted(self, pod: int, prediction: Prediction) -> Verdict | None:
        """Return a refusal if there is no landing to judge; else None."""
        if prediction.unmodelled:
            refused = Refusal.of(Why.UNPREDICTED, parts=prediction.unmodelled)
        elif not len(prediction.nodes):
            snapshot = self._view.snapshot
            cls = snapshot.classes[int(snapshot.pods.cls[pod])].replacement
            zone = self._view.missing_zone(cls)
            refused = Refusal.of(Why.NO_NODE, landing=prediction, zone=zone)
        else:
            return None
        return Verdict(prediction, _NOTHING, _NOTHING, {}, refused)

    def _refuse(
        self, code: int, prediction: Prediction, gain: tuple[float, ...], cost: float
    ) -> Refusal:
        """Return why the core refuses the newest move, with the numbers."""
        newest, threshold = self.effects.newest, self._threshold
        if code == _OTHER_SYSTEM:
            return Refusal.of(Why.OTHER_OS, share=newest.foreign, landing=prediction)
        if code == _LEAVING:
            return Refusal.of(Why.LEAVING_NODE, share=newest.leaving)
        if code == _AVOIDED:
            return Refusal.of(Why.AVOIDED_NODE, share=newest.avoided, landing=prediction)
        if code == _NO_GAIN:
            return _refuse_trade(prediction, self.effects.show_newest())
        if code == _RARELY:
            harmless = newest.risk <= TOLERANCE
            least = threshold.harmless if harmless else threshold.better
            share = newest.sure
            return Refusal.of(Why.RARELY_BETTER, share=share, least=least, landing=prediction)
        if code == _OFTEN:
            share, most = newest.risk, threshold.worse
            return Refusal.of(Why.OFTEN_WORSE, share=share, most=most, landing=prediction)
        if code == _LITTLE:
            entry = next(e for e in Entry if abs(gain[e]) > TOLERANCE)
            least = threshold.pods if entry < Entry.IMBALANCE else threshold.imbalance
            return Refusal.of(
                Why.LOW_GAIN, gain=gain[entry], cost=cost, least=least, landing=prediction
            )
        why = {_BACK: Why.COMES_BACK, _BREAKS: Why.BREAKS_HARD}.get(code, Why.NONE_EXPECTED)
        return Refusal.of(why, landing=prediction)

    def unwanted(self, pod: int, prediction: Prediction) -> Refusal | None:
        """Return a refusal if the replacement of ``pod`` may land on a node to avoid; else None."""
        cls = self._view.snapshot.classes[self._view.snapshot.pods.cls[pod]].replacement
        nodes = view_of(prediction.nodes)
        move, newest = PodMove(pod, cls, cls, -1, nodes), self.effects.newest
        chance = view_of(prediction.probability)
        code = core.find_unwanted(self._demands, move, chance, self._foreign(cls), newest)
        return self._refuse(code, prediction, _NOTHING, 1.0) if code else None


def _refuse_trade(prediction: Prediction, effect: Effect) -> Refusal:
    """Return which strategies gain, and which lose in the entry that decides, with numbers; or that none gains."""
    shares = sorted(effect.shares.items())
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
