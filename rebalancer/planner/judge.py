"""Judges one possible move: where it lands, what it brings, whether that is enough."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.cost.term import Alike, Concerned, Entry, Judging, Stamped, Term, View
from rebalancer.plan.plan import Code
from rebalancer.planner.problem import WeightedTerm
from rebalancer.planner.settings import Threshold
from rebalancer.scheduler.prediction import Prediction, takers_text
from rebalancer.snapshot.columns import Bools, Int32s

# Differences below this are rounding, not gain.
TOLERANCE = 1e-9
# Expected loss, in pods, against the best landing, from which on a move counts as a gamble. A move that
# fixes so much less than was hoped for breaks one rule as it fixes another.
GAMBLE = 0.05
# More than this share of the landings on nodes about to go, or that the policy leaves out, and the move is refused.
_UNWANTED_SHARE = 0.05
_NOTHING = (0.0, 0.0, 0.0)
# At most so many nodes that the scheduler may pick without a gain are noted.
DRAWING = 2
# So many landings are kept with the verdicts on them.
_KEPT_LANDINGS = 2_000_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is expected of moving one pod of a class off a node."""

    prediction: Prediction
    gain: tuple[float, float, float]
    """Expected gain per entry; positive is better."""
    best: tuple[float, float, float]
    """Gain per entry at the landing that is best for it."""
    by_strategy: dict[str, float]
    """Expected gain of each strategy in the entry that decides."""
    refused: tuple[Code, str] | None
    vain: tuple[int, ...] = ()
    """Where it is refused: a few nodes of its landings where no rule is fixed, the most probable first."""
    marks: tuple[int, ...] = ()
    """Nodes that are to be marked for this landing, ascending; without marks it would be another one."""


@dataclass(frozen=True, slots=True)
class _Expected:
    """What moving a pod brings."""

    prediction: Prediction
    changes: NDArray[np.float64]
    """Change of each entry at each landing (3, K); negative is better."""
    gain: tuple[float, float, float]
    by_strategy: dict[str, float]

    def verdict(
        self,
        best: tuple[float, float, float],
        refused: tuple[Code, str] | None,
        vain: tuple[int, ...] = (),
    ) -> Verdict:
        return Verdict(self.prediction, self.gain, best, self.by_strategy, refused, vain)


@dataclass(slots=True)
class _Known:
    """A verdict, and what it was computed from."""

    version: int
    """Of the state in which it was last seen to hold."""
    prediction: Prediction
    rules: tuple[int, ...]
    """Stamps of the hard and soft terms that the move concerns, and of the guard."""
    balance: tuple[int, ...]
    """Stamps of the others."""
    verdict: Verdict

    @property
    def by_rules(self) -> bool:
        """Whether rules alone refuse the move: then it is refused however the balance changes."""
        return self.verdict.refused is not None and any(
            abs(gain) > TOLERANCE for gain in self.verdict.gain[:2]
        )


class Judge:
    """Evaluates moves in the view's state; leaves the state as it was."""

    def __init__(
        self, view: View, terms: Sequence[WeightedTerm], guard: Term, threshold: Threshold
    ) -> None:
        self._view, self._terms, self._guard = view, terms, guard
        self._threshold = threshold
        self._asked = [
            (one, _concerns(one.term), one.term if isinstance(one.term, Judging) else None)
            for one in terms
        ]
        self._guards = _concerns(guard)
        self._stamps = [
            (weighted.term.entry is Entry.IMBALANCE, _stamp_of(weighted.term)) for weighted in terms
        ]
        self._guard_stamp = _stamp_of(guard)
        rules = [w.term for w in terms if w.term.entry is not Entry.IMBALANCE]
        alike = [term for term in (*rules, guard) if isinstance(term, Alike)]
        self._seen_from = alike if len(alike) == len(rules) + 1 else None
        self._selected_nodes = [w.selected.nodes for w in terms if w.selected is not None]
        self._judging = [term for *_, term in self._asked if term is not None]
        self._known: dict[Hashable, _Known] = {}
        self._alike: dict[Hashable, _Known] = {}
        """Verdicts by all that rules see of a move: the same for many nodes that pods of a class leave."""
        self._landings = 0

    def judge(
        self, pod: int, cls: int, node: int, cost: float, *, unless_gamble: bool = False
    ) -> Verdict:
        """Return the verdict on moving ``pod``, of class ``cls``, off ``node``.

        ``unless_gamble``: the gain in balance need not be exact if the move is a gamble, see :func:`is_gamble`.
        """
        judged = self._judged(pod)
        key, version = (cls, node, cost, judged), self._view.state.version
        known = self._known.get(key)
        if known is not None and known.version == version:
            return known.verdict
        prediction = self._view.scheduler.pending.foresee(self._view.state, pod)
        alike: Hashable | None = None
        rules = self._stamped(cls, node, prediction, balance=False)
        if known is not None and known.prediction is prediction and known.rules == rules:
            if known.by_rules or (unless_gamble and is_gamble(known.verdict)):
                return known.verdict
            balance = self._stamped(cls, node, prediction, balance=True)
            if known.balance == balance:
                known.version = version
                return known.verdict
        else:
            alike = self._alike_key(cls, node, cost, prediction, (rules, judged))
            sibling = self._alike.get(alike) if alike is not None else None
            if sibling is not None and (
                sibling.by_rules or (unless_gamble and is_gamble(sibling.verdict))
            ):
                return sibling.verdict
            balance = self._stamped(cls, node, prediction, balance=True)
        verdict = self._judge(pod, node, cost, prediction)
        self._landings += len(prediction.nodes)
        if self._landings > _KEPT_LANDINGS:
            self._known.clear()
            self._alike.clear()
            self._landings = len(prediction.nodes)
        known = self._known[key] = _Known(version, prediction, rules, balance, verdict)
        if alike is not None:
            self._alike[alike] = known
        return verdict

    def _judged(self, pod: int) -> tuple[int, ...]:
        """Return which terms judge a pod by itself: only its like have the same verdict."""
        return tuple([index for index, term in enumerate(self._judging) if term.judges(pod)])

    def _alike_key(
        self, cls: int, node: int, cost: float, prediction: Prediction, rules: Hashable
    ) -> Hashable | None:
        """Return what is equal for moves that rules see alike; None if this is like no other."""
        if self._seen_from is None or prediction.takers or (prediction.nodes == node).any():
            return None
        replacement = self._view.snapshot.classes[cls].replacement
        seen = tuple([term.seen_from(cls, node, replacement) for term in self._seen_from])
        # The prediction is kept with the verdict, so that its identity stands for it.
        may_move = tuple([bool(nodes[node]) for nodes in self._selected_nodes])
        return cls, cost, id(prediction), rules, seen, may_move

    def _stamped(
        self, cls: int, node: int, prediction: Prediction, *, balance: bool
    ) -> tuple[int, ...]:
        """Return what is the same only while terms of balance, or those of rules and the guard, say the same."""
        replacement = self._view.snapshot.classes[cls].replacement
        move = (cls, node, replacement, prediction.nodes)
        stamps = [
            self._view.state.version if stamp is None else stamp(*move)
            for (_, concerns, _), (of_balance, stamp) in zip(self._asked, self._stamps, strict=True)
            if of_balance is balance and concerns(cls, replacement)
        ]
        if not balance and self._guards(cls, replacement):
            guard = self._guard_stamp
            stamps.append(self._view.state.version if guard is None else guard(*move))
        return tuple(stamps)

    def _judge(self, pod: int, node: int, cost: float, prediction: Prediction) -> Verdict:
        expected = self._expect(pod, node, prediction)
        if isinstance(expected, Verdict):
            return expected
        refused = self._refusal(pod, node, expected, cost)
        most = -expected.changes.min(axis=1)
        best = (float(most[0]), float(most[1]), float(most[2]))
        if refused is None:
            return expected.verdict(best, None)
        vain = expected.prediction.nodes[signs(expected.changes[:2]) >= 0]
        return expected.verdict(best, refused, tuple(vain[:DRAWING].tolist()))

    def judge_landing(self, pod: int, node: int, cost: float, prediction: Prediction) -> Verdict:
        """Return the verdict on moving ``pod`` off ``node`` if its replacement lands as ``prediction`` says."""
        return self._judge(pod, node, cost, prediction)

    def changes(self, pod: int, node: int, nodes: Int32s) -> NDArray[np.float64]:
        """Return the change of each entry (3, K) if ``pod`` goes from ``node`` to each of ``nodes``.

        Infinite where a hard rule that holds would break. Pending pods that the move feeds are left out.
        """
        cls, replacement = self._classes(pod)
        anywhere = Prediction(nodes, np.full(len(nodes), 1 / max(1, len(nodes))))
        changes, _ = self._changes(pod, node, anywhere, [])
        if self._guards(cls, replacement):
            broken = self._guard.delta(cls, node, replacement, nodes) > TOLERANCE
            changes[0, broken] = np.inf
        return changes

    def harmless(self, pod: int, node: int) -> Verdict:
        """Return the verdict on moving ``pod`` for the sake of another: refused wherever it does harm.

        Nothing need get better, but no rule may get worse in any landing, nor may it come back.
        """
        prediction = self._view.scheduler.pending.foresee(self._view.state, pod)
        expected = self._expect(pod, node, prediction)
        if isinstance(expected, Verdict):
            return expected
        refused = self._unwanted(prediction)
        where = self._where(prediction)
        if refused is None and (prediction.nodes == node).any():
            refused = Code.COMES_BACK, f"the scheduler might put it back ({where})"
        broken = self._breaks(pod, node, prediction)
        if refused is None and (broken or (expected.changes[:2] > 0).any()):
            refused = Code.NO_GAIN, f"would land on {where}: a rule that holds would break"
        return expected.verdict(expected.gain, refused)

    def _classes(self, pod: int) -> tuple[int, int]:
        """Return the class of a pod as it is now, and of its replacement."""
        cls = int(self._view.state.cls_of[pod])
        return cls, self._view.snapshot.classes[cls].replacement

    def _expect(self, pod: int, node: int, prediction: Prediction) -> _Expected | Verdict:
        """Return what moving a pod brings at each landing, or the refusal where no landing is known."""
        if (missing := self._unpredicted(prediction)) is not None:
            return Verdict(prediction, _NOTHING, _NOTHING, {}, missing)
        before = [weighted.term.potential() for weighted in self._terms if prediction.takers]
        with self._view.scheduler.pending.placed(self._view.state, prediction.takers):
            # A pending pod may fix a rule by its landing: that is no gain of the move.
            worse = [
                max(0.0, weighted.term.potential() - was)
                for weighted, was in zip(self._terms, before, strict=False)
            ]
            changes, by_strategy = self._changes(pod, node, prediction, worse)
        mean = changes @ prediction.probability
        gain = (float(-mean[0]), float(-mean[1]), float(-mean[2]))
        return _Expected(prediction, changes, gain, by_strategy)

    def _breaks(self, pod: int, node: int, prediction: Prediction) -> bool:
        """Return whether some landing would break a hard rule that holds."""
        cls, replacement = self._classes(pod)
        if not self._guards(cls, replacement):
            return False
        broken = self._guard.delta(cls, node, replacement, prediction.nodes) > TOLERANCE
        return bool(broken.any())

    def _changes(
        self, pod: int, node: int, prediction: Prediction, worse: Sequence[float]
    ) -> tuple[NDArray[np.float64], dict[str, float]]:
        """Return the change of each entry at each landing (3, K), and each strategy's expected gain.

        ``worse`` is what the pending pods that the move feeds add to each term, empty if it feeds none.
        """
        cls, replacement = self._classes(pod)
        changes = np.zeros((len(Entry), len(prediction.nodes)))
        expected: dict[tuple[int, str], float] = {}
        for index, (weighted, concerns, judging) in enumerate(self._asked):
            entry = int(weighted.term.entry)
            may_move = weighted.may_move(cls, node)
            before = expected.setdefault((entry, weighted.strategy), 0.0) if may_move else 0.0
            added = worse[index] if worse else 0.0
            if not (added or concerns(cls, replacement)):
                continue
            if judging is not None:
                delta = judging.delta_of(pod, prediction.nodes)
            else:
                delta = weighted.term.delta(cls, node, replacement, prediction.nodes)
            change = weighted.weight * (delta + added)
            if not may_move:
                # What a strategy gains by a pod that it may not move is no reason to move it; harm counts.
                changes[entry] += np.maximum(0.0, change)
                continue
            changes[entry] += change
            expected[entry, weighted.strategy] = before - float(change @ prediction.probability)
        changes[np.abs(changes) < TOLERANCE] = 0.0
        deciding = next((e for e in range(3) if changes[e].any()), 0)
        return changes, {
            name: gain for (entry, name), gain in expected.items() if entry == deciding
        }

    def _refusal(
        self, pod: int, node: int, expected: _Expected, cost: float
    ) -> tuple[Code, str] | None:
        prediction, changes, gain = expected.prediction, expected.changes, expected.gain
        nodes, probability = prediction.nodes, prediction.probability
        if (refused := self._unwanted(prediction)) is not None:
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
            return Code.NO_GAIN, f"would land on {where}: nothing gets better there"
        if self._breaks(pod, node, prediction) or (changes[0] > 0).any():
            where = self._where(prediction)
            return Code.NO_GAIN, f"would land on {where}: a hard rule that holds would break"
        sure, risk = float(probability[better].sum()), float(probability[sign > 0].sum())
        least, most = self._threshold.better, self._threshold.worse
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

    def _unwanted(self, prediction: Prediction) -> tuple[Code, str] | None:
        """Return that a landing may be on a node on which none should be, if so."""
        nodes = self._view.snapshot.nodes
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

    def _unpredicted(self, prediction: Prediction) -> tuple[Code, str] | None:
        """Return why there is no landing to judge, if there is none."""
        if prediction.unmodelled:
            return Code.UNPREDICTED, f"not predictable: {', '.join(prediction.unmodelled)}"
        if not len(prediction.nodes):
            fed = takers_text(self._view.snapshot, prediction)
            return Code.NO_ROOM, "no node takes its replacement" + (f": {fed}" if fed else "")
        return None


def _share(prediction: Prediction, nodes: Bools) -> float:
    """Return how probable a landing on one of ``nodes`` (N,) is."""
    return float(prediction.probability[nodes[prediction.nodes]].sum())


def is_gamble(verdict: Verdict) -> bool:
    """Return whether some of the landings are clearly worse than the best in a hard or soft rule."""
    best, expected = verdict.best[:2], verdict.gain[:2]
    return min(expected) < -GAMBLE or any(
        most - mean > GAMBLE for most, mean in zip(best, expected, strict=True)
    )


def _concerns(term: Term) -> Callable[[int, int], bool]:
    """Return a test whether moving (class, replacement) could change a term.

    Most could not, and need not be asked of every landing.
    """
    return term.concerns if isinstance(term, Concerned) else lambda *_: True


def _stamp_of(term: Term) -> Callable[[int, int, int, Int32s], int] | None:
    """Return a function of how long a term's delta holds; None if it does not know."""
    return term.stamp if isinstance(term, Stamped) else None


def signs(changes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return -1 where a landing (K,) makes the cost better, +1 where worse, entries left to right."""
    decided = np.zeros(changes.shape[1])
    for entry in changes[::-1]:
        decided = np.where(entry != 0, np.sign(entry), decided)
    return decided
