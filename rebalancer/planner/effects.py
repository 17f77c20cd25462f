"""The effect of moving one pod on the cost, at each possible landing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.cost.term import Entry, Term
from rebalancer.cost.view import View
from rebalancer.plan.plan import Cause
from rebalancer.planner.problem import WeightedTerm
from rebalancer.planner.verdict import TOLERANCE
from rebalancer.scheduler.prediction import Prediction
from rebalancer.snapshot.columns import Floats, Int32s

Landing = tuple[int, int, Prediction]
"""A pod, the node that it leaves, and where its replacement lands."""


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
    """Computes effects from the terms and the guard in the view's state; leaves the state unchanged."""

    def __init__(self, view: View, terms: Sequence[WeightedTerm], guard: Term) -> None:
        self._view, self._terms, self._guard = view, terms, guard

    def of(self, pod: int, node: int, prediction: Prediction) -> Effect:
        """Return the effect of moving ``pod`` off ``node`` at the landings of ``prediction``."""
        before = [weighted.term.potential() for weighted in self._terms if prediction.takers]
        with self._view.scheduler.pending.placed(self._view.state, prediction.takers):
            # A pending pod may fix a rule by its landing: that is no gain of the move.
            worse = [
                max(0.0, weighted.term.potential() - was)
                for weighted, was in zip(self._terms, before, strict=False)
            ]
            return self._effects([(pod, node, prediction)], worse)[0]

    def of_many(self, landings: Sequence[Landing]) -> list[Effect]:
        """Return :meth:`of` for each of ``landings``, in much less time than one by one."""
        alone = iter(self._effects([one for one in landings if not one[2].takers], []))
        return [self.of(*one) if one[2].takers else next(alone) for one in landings]

    def breaks(self, pod: int, node: int, prediction: Prediction) -> bool:
        """Return whether some landing would violate a satisfied hard rule."""
        cls, replacement = self._classes(pod)
        if not self._guard.concerns(cls, replacement):
            return False
        broken = self._guard.delta(cls, node, replacement, prediction.nodes) > TOLERANCE
        return bool(broken.any())

    def on_nodes(self, pod: int, node: int, nodes: Int32s) -> Floats:
        """Return the change of each entry (3, K) if ``pod`` moves from ``node`` to each of ``nodes``.

        Infinite where a satisfied hard rule would be violated. Pending pods that would take freed room are ignored.
        """
        cls, replacement = self._classes(pod)
        anywhere = Prediction(nodes, np.full(len(nodes), 1 / max(1, len(nodes))))
        changes = self._effects([(pod, node, anywhere)], [])[0].changes
        if self._guard.concerns(cls, replacement):
            broken = self._guard.delta(cls, node, replacement, nodes) > TOLERANCE
            changes[0, broken] = np.inf
        return changes

    def _effects(self, landings: Sequence[Landing], worse: Sequence[float]) -> list[Effect]:
        """Return the effect of each of ``landings``.

        ``worse``: what the pending pods that take freed room add to each term; empty if there are none.
        """
        if not landings:
            return []
        classes = [self._classes(pod) for pod, *_ in landings]
        ends = np.cumsum([0, *(len(prediction.nodes) for *_, prediction in landings)]).tolist()
        changes = np.zeros((len(Entry), ends[-1]))
        expected: list[dict[tuple[int, str], float]] = [{} for _ in landings]
        harmed: list[dict[tuple[int, str], float]] = [{} for _ in landings]
        for index, weighted in enumerate(self._terms):
            entry, added = int(weighted.term.entry), worse[index] if worse else 0.0
            key = entry, weighted.strategy
            may_move = [
                weighted.may_move(cls, node)
                for (cls, _), (_, node, _) in zip(classes, landings, strict=True)
            ]
            for of_move, mine in zip(expected, may_move, strict=True):
                if mine:
                    of_move.setdefault(key, 0.0)
            some = [
                row for row, pair in enumerate(classes) if added or weighted.term.concerns(*pair)
            ]
            deltas = self._deltas(weighted.term, [landings[row] for row in some])
            for row, delta in zip(some, deltas, strict=True):
                change = weighted.weight * (delta + added)
                of_row = changes[entry, ends[row] : ends[row + 1]]
                if may_move[row]:
                    of_row += change
                    expected[row][key] -= float(change @ landings[row][2].probability)
                else:
                    # What a strategy gains by a pod that it may not move is no reason to move it; harm counts.
                    of_row += np.maximum(0.0, change)
                    harm = float(np.maximum(0.0, change) @ landings[row][2].probability)
                    harmed[row][key] = harmed[row].get(key, 0.0) - harm
        changes[np.abs(changes) < TOLERANCE] = 0.0
        return [
            _effect(changes[:, ends[row] : ends[row + 1]], prediction, expected[row], harmed[row])
            for row, (*_, prediction) in enumerate(landings)
        ]

    def _deltas(self, term: Term, landings: Sequence[Landing]) -> Sequence[Floats]:
        """Return the delta (K,) of ``term`` at each of ``landings``."""
        if term.cause is not Cause.PLACE:
            return [term.delta_of(pod, prediction.nodes) for pod, _, prediction in landings]
        if not landings:
            return []
        classes = [self._classes(pod) for pod, *_ in landings]
        cls, replacement = np.array(classes, np.int32).T
        node = np.array([node for _, node, _ in landings], np.int32)
        sizes = [len(prediction.nodes) for *_, prediction in landings]
        destinations = np.concatenate([prediction.nodes for *_, prediction in landings])
        of = np.repeat(np.arange(len(landings)), sizes)
        deltas = term.deltas(cls, node, replacement, destinations, of)
        return np.split(deltas, np.cumsum(sizes[:-1]))

    def _classes(self, pod: int) -> tuple[int, int]:
        """Return the current class of a pod and the class of its replacement."""
        cls = int(self._view.state.cls_of[pod])
        return cls, self._view.snapshot.classes[cls].replacement


def _effect(
    changes: Floats,
    prediction: Prediction,
    expected: Mapping[tuple[int, str], float],
    harmed: Mapping[tuple[int, str], float],
) -> Effect:
    """Return an effect, given its changes (3, K) and (entry, strategy) -> expected gain.

    ``harmed``: the same of strategies that may not move the pod.
    """
    changes = np.ascontiguousarray(changes)
    deciding = next((entry for entry in range(3) if changes[entry].any()), 0)
    mean = changes @ prediction.probability
    return Effect(
        changes,
        (float(-mean[0]), float(-mean[1]), float(-mean[2])),
        {name: gain for (entry, name), gain in expected.items() if entry == deciding},
        {**harmed, **expected} if harmed else expected,
    )


def signs(changes: Floats) -> Floats:
    """Return per landing (K,) -1 if the cost improves, +1 if it gets worse, 0 if it is equal; entries compared in order."""
    decided = np.zeros(changes.shape[1])
    for entry in changes[::-1]:
        decided = np.where(entry != 0, np.sign(entry), decided)
    return decided
