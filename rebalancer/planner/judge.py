"""Judge one possible move: its landing, its effect, and whether the effect is sufficient."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rebalancer.core import moves as core
from rebalancer.core.effects import REFUSALS, find_unwanted
from rebalancer.core.rules import PodMove
from rebalancer.core.views import view_of
from rebalancer.cost.term import Entry, Term
from rebalancer.cost.view import View
from rebalancer.planner.effects import Effects
from rebalancer.planner.problem import WeightedTerm
from rebalancer.planner.refusal import Refusal, Why
from rebalancer.planner.settings import Threshold
from rebalancer.planner.verdict import TOLERANCE, Verdict
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.prediction import Prediction, uniform

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
) = range(len(REFUSALS))


class Judge:
    """Judges moves in the view's state, one at a time; leaves the state unchanged."""

    def __init__(
        self, view: View, terms: Sequence[WeightedTerm], guard: Term, threshold: Threshold
    ) -> None:
        self._view, self._threshold = view, threshold
        self._in_place = [one.term for one in terms if one.term.in_place]
        self.effects = Effects(view, terms, guard, threshold)
        self._code = _GOOD
        self._model: SchedulerModel | None = None
        """The model of which the core has predicted the newest move; None: it is in ``_prediction``."""
        self._prediction = uniform(np.zeros(0, np.int32))

    def judge(self, pod: int, node: int, cost: float) -> Verdict:
        """Return the verdict on moving ``pod`` off ``node``, with the scheduler's landing."""
        self.is_good(pod, node, cost)
        return self.verdict(pod, cost)

    def harmless(self, pod: int, node: int) -> Verdict:
        """Return the verdict on moving ``pod`` to enable another move: refused if it does harm.

        No improvement is required, but no rule may get worse on any landing, and the replacement must not come back.
        """
        self.is_good(pod, node, 1.0, for_gain=False)
        return self.verdict(pod, 1.0, for_gain=False)

    def judge_landing(self, pod: int, node: int, cost: float, prediction: Prediction) -> Verdict:
        """Return the verdict on moving ``pod`` off ``node``, given the prediction of its landing."""
        self._judge_landing(pod, node, cost, prediction, for_gain=True)
        return self.verdict(pod, cost)

    def is_good(self, pod: int, node: int, cost: float, *, for_gain: bool = True) -> bool:
        """Judge the move of ``pod`` off ``node``, with the scheduler's landing; return whether it is good.

        The reasons and the numbers are in :meth:`verdict` until the next judgement, and in ``effects``.
        """
        state, scheduler = self._view.state, self._view.scheduler
        mover = self.effects.mover(int(state.cls_of[pod]))
        model = scheduler.of(mover.replacement)
        ready = None
        if not scheduler.pending.may_take(state, pod):
            ready = model.make_ready(state, mover.replacement)
        if ready is None:
            prediction = scheduler.pending.foresee(state, pod)
            self._judge_landing(pod, node, cost, prediction, for_gain=for_gain)
            return not self._code
        self._model = model
        self._code = core.judge_pod(
            self.effects.bench,
            mover,
            model.lowering.cluster,
            ready,
            pod,
            node,
            cost,
            state.lives(pod),
            self._may_come_back(pod),
            for_gain,
        )
        return not self._code

    def _judge_landing(
        self, pod: int, node: int, cost: float, prediction: Prediction, *, for_gain: bool
    ) -> None:
        self._model, self._prediction = None, prediction
        self._code = _NO_NODE
        if prediction.unmodelled or not len(prediction.nodes):
            return
        effects, nodes = self.effects, prediction.nodes
        with effects.taking(prediction) as added:
            move = effects.move(pod, node, nodes)
            self._code = core.judge_landing(
                effects.bench,
                effects.mover(move.cls),
                move,
                view_of(prediction.probability),
                added,
                cost,
                self._may_come_back(pod),
                for_gain,
            )

    def _may_come_back(self, pod: int) -> bool:
        """Return whether a replacement on the same node will do for a term that judges ``pod``."""
        return bool(self._in_place) and any(term.judges(pod) for term in self._in_place)

    @property
    def prediction(self) -> Prediction:
        """The landing of the newest move."""
        if self._model is not None:
            self._prediction, self._model = self._model.lowering.read_landings(), None
        return self._prediction

    def verdict(self, pod: int, cost: float, *, for_gain: bool = True) -> Verdict:
        """Return the verdict on the newest move, which was of ``pod`` at this cost."""
        prediction, effects = self.prediction, self.effects
        refused = self.refusal(pod, cost, for_gain=for_gain)
        if self._code == _NO_NODE:
            return Verdict(prediction, _NOTHING, _NOTHING, {}, refused)
        gain, best = effects.gain, effects.best
        if refused is None:
            return Verdict(prediction, gain, best, effects.by_strategy(), None)
        newest = effects.newest
        vain = tuple(newest.vain[: newest.vain_count]) if for_gain else ()
        return Verdict(prediction, gain, best, {}, refused, vain)

    def refusal(self, pod: int, cost: float, *, for_gain: bool = True) -> Refusal | None:
        """Return why the newest move, which was of ``pod`` at this cost, is refused; None if it is not."""
        if self._code == _NO_NODE:
            return self._refuse_unpredicted(pod, self.prediction)
        if not self._code:
            return None
        gain = self.effects.gain
        return self._refuse(pod, self._code, self.prediction, gain, cost, for_gain=for_gain)

    def _refuse_unpredicted(self, pod: int, prediction: Prediction) -> Refusal:
        """Return why there is no landing to judge."""
        if prediction.unmodelled:
            return Refusal.of(Why.UNPREDICTED, parts=prediction.unmodelled)
        snapshot = self._view.snapshot
        cls = snapshot.classes[int(snapshot.pods.cls[pod])].replacement
        zone = self._view.missing_zone(cls)
        return Refusal.of(Why.NO_NODE, landing=prediction, zone=zone)

    def _refuse(
        self,
        pod: int,
        code: int,
        prediction: Prediction,
        gain: tuple[float, ...],
        cost: float,
        *,
        for_gain: bool = True,
    ) -> Refusal:
        """Return why the core refuses the newest move, with the numbers."""
        newest, threshold = self.effects.newest, self._threshold
        if code == _OTHER_SYSTEM:
            snapshot = self._view.snapshot
            cls = snapshot.classes[int(snapshot.pods.cls[pod])].replacement
            is_system = snapshot.has_other_system(cls, prediction.nodes)
            why = Why.OTHER_OS if is_system else Why.OTHER_ARCHITECTURE
            return Refusal.of(why, share=newest.foreign, landing=prediction)
        if code == _LEAVING:
            return Refusal.of(Why.LEAVING_NODE, share=newest.leaving)
        if code == _AVOIDED:
            return Refusal.of(Why.AVOIDED_NODE, share=newest.avoided, landing=prediction)
        if code == _NO_GAIN:
            return self._refuse_trade(prediction)
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
        back, breaks = (
            (Why.COMES_BACK, Why.BREAKS_HARD) if for_gain else (Why.MAY_COME_BACK, Why.BREAKS_RULE)
        )
        why = {_BACK: back, _BREAKS: breaks}.get(code, Why.NONE_EXPECTED)
        return Refusal.of(why, landing=prediction)

    def unwanted(self, pod: int, prediction: Prediction) -> Refusal | None:
        """Return a refusal if the replacement of ``pod`` may land on a node to avoid; else None."""
        effects, chance = self.effects, view_of(prediction.probability)
        mover = effects.mover(int(self._view.snapshot.pods.cls[pod]))
        move = PodMove(pod, mover.cls, mover.replacement, -1, view_of(prediction.nodes))
        bench, foreign = effects.bench, mover.foreign
        code = find_unwanted(bench.demands, move, chance, foreign, bench.effect)
        return self._refuse(pod, code, prediction, _NOTHING, 1.0) if code else None

    def _refuse_trade(self, prediction: Prediction) -> Refusal:
        """Return which strategies gain, and which lose in the entry that decides, with numbers; or that none gains."""
        shares = sorted(self.effects.shares().items())
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
