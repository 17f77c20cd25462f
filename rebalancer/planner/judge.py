"""Judge one possible move: its landing, its effect, and whether the effect is sufficient."""

from __future__ import annotations

from collections.abc import Sequence

from rebalancer.cost.term import Entry, Term
from rebalancer.cost.view import View
from rebalancer.plan.plan import Cause
from rebalancer.planner.effects import Effect, Effects, signs
from rebalancer.planner.problem import WeightedTerm
from rebalancer.planner.refusal import Refusal, Why
from rebalancer.planner.settings import Threshold
from rebalancer.planner.verdict import TOLERANCE, Verdict
from rebalancer.scheduler.prediction import Prediction
from rebalancer.snapshot.columns import Bools, Floats, Int32s

# More than this share of the landings on nodes about to go, or that the policy leaves out, and the move is refused.
_UNWANTED_SHARE = 0.05
_NOTHING = (0.0, 0.0, 0.0)
# At most so many nodes that the scheduler may pick without a gain are noted.
DRAWING = 2


Priced = tuple[int, int, float, Prediction]
"""A pod, the node that it leaves, what its eviction costs, and where its replacement lands."""


class Judge:
    """Evaluates moves in the view's state; leaves the state unchanged."""

    def __init__(
        self, view: View, terms: Sequence[WeightedTerm], guard: Term, threshold: Threshold
    ) -> None:
        self._view, self._threshold = view, threshold
        self._judging = [one.term for one in terms if one.term.cause is not Cause.PLACE]
        self.effects = Effects(view, terms, guard)

    def judge(self, pod: int, node: int, cost: float) -> Verdict:
        """Return the verdict on moving ``pod`` off ``node``, with the scheduler's landing."""
        prediction = self._view.scheduler.pending.foresee(self._view.state, pod)
        return self.judge_landing(pod, node, cost, prediction)

    def judge_many(self, pods: Int32s, costs: Floats) -> list[Verdict]:
        """Return :meth:`judge` for each of ``pods`` (K,), with its cost (K,), off its current node."""
        state = self._view.state
        predictions = self._view.scheduler.pending.foresee_many(state, pods)
        nodes = state.node_of[pods]
        moves = zip(pods.tolist(), nodes.tolist(), costs.tolist(), predictions, strict=True)
        return self.judge_landings(list(moves))

    def judge_landing(self, pod: int, node: int, cost: float, prediction: Prediction) -> Verdict:
        """Return the verdict on moving ``pod`` off ``node``, given the prediction of its landing."""
        return self.judge_landings([(pod, node, cost, prediction)])[0]

    def judge_landings(self, moves: Sequence[Priced]) -> list[Verdict]:
        """Return the verdict on each of ``moves``, given the predictions of their landings."""
        verdicts = [self._refuse_unpredicted(pod, prediction) for pod, *_, prediction in moves]
        rows = [row for row, verdict in enumerate(verdicts) if verdict is None]
        landings = [(moves[row][0], moves[row][1], moves[row][3]) for row in rows]
        for row, effect in zip(rows, self.effects.of_many(landings), strict=True):
            verdicts[row] = self._verdict(moves[row], effect)
        return [verdict for verdict in verdicts if verdict is not None]

    def _verdict(self, move: Priced, effect: Effect) -> Verdict:
        """Return the verdict on a move with this effect."""
        pod, node, cost, prediction = move
        most = -effect.changes.min(axis=1)
        best = (float(most[0]), float(most[1]), float(most[2]))
        refused = self._refusal(pod, node, prediction, effect, cost)
        vain: tuple[int, ...] = ()
        if refused is not None:
            nowhere_better = prediction.nodes[signs(effect.changes[:2]) >= 0]
            vain = tuple(nowhere_better[:DRAWING].tolist())
        return Verdict(prediction, effect.gain, best, effect.by_strategy, refused, vain)

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

    def _refusal(
        self, pod: int, node: int, prediction: Prediction, effect: Effect, cost: float
    ) -> Refusal | None:
        """Return why the move is not made; None if it pays."""
        changes, gain = effect.changes, effect.gain
        nodes, probability = prediction.nodes, prediction.probability
        if (refused := self.unwanted(pod, prediction)) is not None:
            return refused
        # A landing is good if it is so in the entry that the move is for, and no earlier one is worse.
        sign = signs(changes[: next((e for e in range(3) if abs(gain[e]) > TOLERANCE), 2) + 1])
        better = sign < 0
        back = float(probability[nodes == node].sum())
        in_place = any(term.in_place and term.judges(pod) for term in self._judging)
        if back >= 0.5 and not in_place:
            return Refusal.of(Why.COMES_BACK, landing=prediction)
        if not better.any() or (gain < (0.0, 0.0, 0.0)):
            return _refuse_trade(prediction, effect)
        if self.effects.breaks(pod, node, prediction) or (changes[0] > 0).any():
            return Refusal.of(Why.BREAKS_HARD, landing=prediction)
        sure, risk = float(probability[better].sum()), float(probability[sign > 0].sum())
        least, most = self._threshold.better, self._threshold.worse
        if risk <= TOLERANCE:
            least = self._threshold.harmless
        if sure < least - TOLERANCE:
            return Refusal.of(Why.RARELY_BETTER, share=sure, least=least, landing=prediction)
        if risk > most + TOLERANCE:
            return Refusal.of(Why.OFTEN_WORSE, share=risk, most=most, landing=prediction)
        return self._too_little(prediction, gain, cost)

    def unwanted(self, pod: int, prediction: Prediction) -> Refusal | None:
        """Return a refusal if the replacement of ``pod`` may land on a node to avoid; else None."""
        snapshot = self._view.snapshot
        nodes = snapshot.nodes
        foreign = snapshot.foreign_nodes(snapshot.classes[snapshot.pods.cls[pod]].replacement)
        if foreign is not None and (share := _share(prediction, foreign)) > 0:
            return Refusal.of(Why.OTHER_OS, share=share, landing=prediction)
        share = _share(prediction, nodes.leaving)
        if share > _UNWANTED_SHARE:
            return Refusal.of(Why.LEAVING_NODE, share=share)
        if nodes.avoided is not None:
            share = _share(prediction, nodes.avoided)
            if share > _UNWANTED_SHARE:
                return Refusal.of(Why.AVOIDED_NODE, share=share, landing=prediction)
        return None

    def _too_little(
        self, prediction: Prediction, gain: tuple[float, float, float], cost: float
    ) -> Refusal | None:
        for entry, value in enumerate(gain):
            if abs(value) <= TOLERANCE:
                continue
            least = self._threshold.pods if entry < Entry.IMBALANCE else self._threshold.imbalance
            if value / cost + TOLERANCE >= least:
                return None
            return Refusal.of(Why.LOW_GAIN, gain=value, cost=cost, least=least, landing=prediction)
        return Refusal.of(Why.NONE_EXPECTED, landing=prediction)


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


def _share(prediction: Prediction, nodes: Bools) -> float:
    """Return the probability of a landing on one of ``nodes`` (N,)."""
    return float(prediction.probability[nodes[prediction.nodes]].sum())
