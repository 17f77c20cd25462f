"""Judge one possible move: its landing, its effect, and whether the effect is sufficient."""

from __future__ import annotations

from collections.abc import Sequence

from rebalancer.cost.term import Entry, Term
from rebalancer.cost.view import View
from rebalancer.plan.plan import (
    Cause,
    Code,
)
from rebalancer.planner.effects import Effect, Effects, signs
from rebalancer.planner.problem import WeightedTerm
from rebalancer.planner.settings import Threshold
from rebalancer.planner.verdict import TOLERANCE, Verdict
from rebalancer.scheduler.prediction import Prediction, takers_text
from rebalancer.snapshot.columns import Bools, Floats, Int32s

# More than this share of the landings on nodes about to go, or that the policy leaves out, and the move is refused.
_UNWANTED_SHARE = 0.05
_NOTHING = (0.0, 0.0, 0.0)
NOTHING_BETTER = "nothing gets better there"
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
        where = self._where(prediction)
        if refused is None and (prediction.nodes == node).any():
            refused = Code.COMES_BACK, f"the scheduler might put it back ({where})"
        broken = self.effects.breaks(pod, node, prediction)
        if refused is None and (broken or (effect.changes[:2] > 0).any()):
            refused = Code.NO_GAIN, f"would land on {where}: a rule that holds would break"
        return Verdict(prediction, effect.gain, effect.gain, effect.by_strategy, refused)

    def _refuse_unpredicted(self, pod: int, prediction: Prediction) -> Verdict | None:
        """Return a refusal if there is no landing to judge; else None."""
        if prediction.unmodelled:
            refused = Code.UNPREDICTED, f"not predictable: {', '.join(prediction.unmodelled)}"
        elif not len(prediction.nodes):
            snapshot = self._view.snapshot
            cls = snapshot.classes[int(snapshot.pods.cls[pod])].replacement
            known = (takers_text(snapshot, prediction), self._view.missing_zone(cls))
            refused = (
                Code.NO_ROOM,
                ": ".join(filter(None, ("no node takes its replacement", *known))),
            )
        else:
            return None
        return Verdict(prediction, _NOTHING, _NOTHING, {}, refused)

    def _refusal(
        self, pod: int, node: int, prediction: Prediction, effect: Effect, cost: float
    ) -> tuple[Code, str] | None:
        """Return (code, sentence) why the move is not made; None if it pays."""
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
            return Code.COMES_BACK, f"the scheduler would put it back ({self._where(prediction)})"
        if not better.any() or (gain < (0.0, 0.0, 0.0)):
            where = self._where(prediction)
            return (
                Code.NO_GAIN,
                f"would land on {where}: {_describe_trade(effect) or NOTHING_BETTER}",
            )
        if self.effects.breaks(pod, node, prediction) or (changes[0] > 0).any():
            where = self._where(prediction)
            return Code.NO_GAIN, f"would land on {where}: a hard rule that holds would break"
        sure, risk = float(probability[better].sum()), float(probability[sign > 0].sum())
        least, most = self._threshold.better, self._threshold.worse
        if risk <= TOLERANCE:
            least = self._threshold.harmless
        if sure < least - TOLERANCE:
            return Code.UNSURE, (
                f"better in {sure:.0%} of its landings, the policy asks for {least:.0%} "
                f"({self._where(prediction)})"
            )
        if risk > most + TOLERANCE:
            return Code.UNSURE, (
                f"worse in {risk:.0%} of its landings, the policy allows {most:.0%} "
                f"({self._where(prediction)})"
            )
        return self._too_little(prediction, gain, cost)

    def unwanted(self, pod: int, prediction: Prediction) -> tuple[Code, str] | None:
        """Return (code, sentence) if the replacement of ``pod`` may land on a node to avoid; else None."""
        snapshot = self._view.snapshot
        nodes = snapshot.nodes
        foreign = snapshot.foreign_nodes(snapshot.classes[snapshot.pods.cls[pod]].replacement)
        if foreign is not None and (share := _share(prediction, foreign)) > 0:
            text = f"{share:.0%} of its landings are on nodes of another operating system"
            return Code.OTHER_OS, f"{text} ({self._where(prediction)})"
        share = _share(prediction, nodes.leaving)
        if share > _UNWANTED_SHARE:
            return Code.LEAVING_NODE, f"{share:.0%} of its landings are on nodes about to go"
        if nodes.avoided is not None:
            share = _share(prediction, nodes.avoided)
            if share > _UNWANTED_SHARE:
                text = f"{share:.0%} of its landings are on nodes that landings leaves out"
                return Code.AVOIDED_NODE, f"{text} ({self._where(prediction)})"
        return None

    def _too_little(
        self, prediction: Prediction, gain: tuple[float, float, float], cost: float
    ) -> tuple[Code, str] | None:
        for entry, value in enumerate(gain):
            if abs(value) <= TOLERANCE:
                continue
            least = self._threshold.pods if entry < Entry.IMBALANCE else self._threshold.imbalance
            if value / cost + TOLERANCE >= least:
                return None
            return Code.LOW_GAIN, (
                f"gain {value:.3g} at cost {cost:.3g}, the policy asks for {least:g} "
                f"(would land on {self._where(prediction)})"
            )
        return Code.LOW_GAIN, f"would land on {self._where(prediction)}: no gain is expected"

    def _where(self, prediction: Prediction) -> str:
        names = self._view.snapshot.nodes.names
        shown = [
            f"{names[n]} {p:.0%}"
            for n, p in zip(
                prediction.nodes[:2].tolist(), prediction.probability[:2].tolist(), strict=True
            )
        ]
        more = len(prediction.nodes) - len(shown)
        where = ", ".join(shown) + (f" and {more} more" if more else "")
        fed = takers_text(self._view.snapshot, prediction)
        return f"{where}, while {fed}" if fed else where


def _describe_trade(effect: Effect) -> str:
    """Return which strategies gain, and which lose in the entry that decides, with numbers; empty if none gains."""
    shares = sorted(effect.shares.items())
    deciding = min((key[0] for key, gain in shares if gain < -TOLERANCE), default=len(Entry))
    better, worse = (
        ", ".join(
            f"{name} ({sign * gain:.3g} {Entry(entry).name.lower()})"
            for (entry, name), gain in shares
            if sign * gain > TOLERANCE and (sign > 0 or entry == deciding)
        )
        for sign in (1, -1)
    )
    return f"better for {better}, worse for {worse}" if better and worse else ""


def _share(prediction: Prediction, nodes: Bools) -> float:
    """Return the probability of a landing on one of ``nodes`` (N,)."""
    return float(prediction.probability[nodes[prediction.nodes]].sum())
