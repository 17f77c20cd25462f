"""Judge one possible move: its landing, its effect, and whether the effect is sufficient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from rebalancer.core import moves as core
from rebalancer.core.effects import REFUSALS, MoveEffect, find_unwanted
from rebalancer.core.rules import PodMove
from rebalancer.core.views import view_of
from rebalancer.cost.term import Entry, Term
from rebalancer.cost.view import View
from rebalancer.planner.effects import Effects
from rebalancer.planner.problem import WeightedTerm
from rebalancer.planner.refusal import Refusal, Why
from rebalancer.planner.settings import Threshold
from rebalancer.planner.verdict import TOLERANCE, Verdict
from rebalancer.scheduler.lowering import read_landings
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
    _NO_NODE,
    _LIMITED,
    _UNPREDICTED,
) = range(len(REFUSALS))
_WHY = {
    _OTHER_SYSTEM: (Why.OTHER_OS, "foreign"),
    _LEAVING: (Why.LEAVING_NODE, "leaving"),
    _AVOIDED: (Why.AVOIDED_NODE, "avoided"),
    _BACK: (Why.COMES_BACK, "sure"),
    _BREAKS: (Why.BREAKS_HARD, "sure"),
    _RARELY: (Why.RARELY_BETTER, "sure"),
    _OFTEN: (Why.OFTEN_WORSE, "risk"),
    _LITTLE: (Why.LOW_GAIN, "sure"),
    _NOTHING_EXPECTED: (Why.NONE_EXPECTED, "sure"),
}
"""Code -> the reason, and the share of the landings that its sentence names."""
_FOR_OTHERS = {Why.COMES_BACK: Why.MAY_COME_BACK, Why.BREAKS_HARD: Why.BREAKS_RULE}
"""Of a move that has to gain nothing."""


class Judge:
    """Judges moves in the view's state, one at a time; leaves the state unchanged."""

    def __init__(
        self, view: View, terms: Sequence[WeightedTerm], guard: Term, threshold: Threshold
    ) -> None:
        self._view, self._threshold = view, threshold
        self._in_place = [one.term for one in terms if one.term.in_place]
        self.effects = Effects(view, terms, guard, threshold)
        self._code = _GOOD
        """Why the newest move is refused."""
        self._mover: core.Mover
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
        self._mover = mover = self.effects.lower(int(self._view.state.cls_of[pod]))
        self._code = self.effects.judge(
            mover, prediction, pod, node, cost, in_place=self.may_come_back(pod), for_gain=True
        )
        return self.verdict(cost)

    def is_good(self, pod: int, node: int, cost: float, *, for_gain: bool = True) -> bool:
        """Judge the move of ``pod`` off ``node``, with the scheduler's landing; return whether it is good.

        The reasons and the numbers are in :meth:`verdict` until the next judgement, and in ``effects``.
        """
        state, bench, back = self._view.state, self.effects.bench, self.may_come_back(pod)
        self._mover = mover = self.effects.lower(int(state.cls_of[pod]))
        self._code = core.judge_pod(bench, mover, pod, node, cost, state.lives(pod), back, for_gain)
        return not self._code

    def may_come_back(self, pod: int) -> bool:
        """Return whether a replacement on the same node will do for a term that judges ``pod``."""
        return bool(self._in_place) and any(term.judges(pod) for term in self._in_place)

    def take(self, cls: int, code: int) -> Self:
        """Take over the move of a pod of a class as the core has just judged it."""
        self._code, self._mover = code, self.effects.mover(cls)
        return self

    def verdict(self, cost: float, *, for_gain: bool = True) -> Verdict:
        """Return the verdict on the newest move, which was judged at this cost."""
        effects, mover, code = self.effects, self._mover, self._code
        prediction = read_landings(mover.cluster.landings, effects.bench.takers)
        refused = None
        if code:
            newest = effects.newest
            refused = self._refuse(mover.cls, code, newest, prediction, cost, for_gain=for_gain)
        if code in (_NO_NODE, _UNPREDICTED):
            return Verdict(prediction, _NOTHING, _NOTHING, {}, refused)
        gain, best = effects.gain, effects.best
        if refused is None:
            return Verdict(prediction, gain, best, effects.by_strategy(), None)
        vain = tuple(newest.vain[: newest.vain_count]) if for_gain else ()
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
        why, share = _WHY[code]
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
        effects, chance = self.effects, view_of(prediction.probability)
        mover = effects.mover(int(self._view.snapshot.pods.cls[pod]))
        move = PodMove(pod, mover.cls, mover.replacement, -1, view_of(prediction.nodes))
        bench, foreign = effects.bench, mover.foreign
        code = find_unwanted(bench.demands, move, chance, foreign, bench.effect)
        return self._refuse(mover.cls, code, bench.effect, prediction, 1.0) if code else None

    def _refuse_trade(
        self, effect: MoveEffect | core.RefusedRow, prediction: Prediction
    ) -> Refusal:
        """Return which strategies gain, and which lose in the entry that decides, with numbers; or that none gains."""
        shares = sorted(self.effects.shares(effect).items())
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
