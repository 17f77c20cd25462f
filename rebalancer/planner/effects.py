"""What moving one pod brings at each place where its replacement may land."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.cost.term import Entry, Judging, Term, View
from rebalancer.planner.problem import WeightedTerm, concern_of
from rebalancer.planner.verdict import TOLERANCE
from rebalancer.scheduler.prediction import Prediction
from rebalancer.snapshot.columns import Int32s


@dataclass(frozen=True, slots=True)
class Effect:
    """What moving a pod brings."""

    changes: NDArray[np.float64]
    """Change of each entry at each landing (3, K); negative is better."""
    gain: tuple[float, float, float]
    """Expected gain per entry; positive is better."""
    by_strategy: dict[str, float]
    """Expected gain of each strategy in the entry that decides."""


class Effects:
    """Asks terms and guard what moves change in the view's state; leaves the state as it was."""

    def __init__(self, view: View, terms: Sequence[WeightedTerm], guard: Term) -> None:
        self._view, self._terms, self._guard = view, terms, guard
        self._asked = [
            (one, concern_of(one.term), one.term if isinstance(one.term, Judging) else None)
            for one in terms
        ]
        self._guards = concern_of(guard)

    def of(self, pod: int, node: int, prediction: Prediction) -> Effect:
        """Return what moving ``pod`` off ``node`` brings at the landings of ``prediction``."""
        before = [weighted.term.potential() for weighted in self._terms if prediction.takers]
        with self._view.scheduler.pending.placed(self._view.state, prediction.takers):
            # A pending pod may fix a rule by its landing: that is no gain of the move.
            worse = [
                max(0.0, weighted.term.potential() - was)
                for weighted, was in zip(self._terms, before, strict=False)
            ]
            changes, by_strategy = self._changes(pod, node, prediction, worse)
        mean = changes @ prediction.probability
        return Effect(changes, (float(-mean[0]), float(-mean[1]), float(-mean[2])), by_strategy)

    def breaks(self, pod: int, node: int, prediction: Prediction) -> bool:
        """Return whether some landing would break a hard rule that holds."""
        cls, replacement = self._classes(pod)
        if not self._guards(cls, replacement):
            return False
        broken = self._guard.delta(cls, node, replacement, prediction.nodes) > TOLERANCE
        return bool(broken.any())

    def on_nodes(self, pod: int, node: int, nodes: Int32s) -> NDArray[np.float64]:
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

    def _classes(self, pod: int) -> tuple[int, int]:
        """Return the class of a pod as it is now, and of its replacement."""
        cls = int(self._view.state.cls_of[pod])
        return cls, self._view.snapshot.classes[cls].replacement


def signs(changes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return -1 where a landing (K,) makes the cost better, +1 where worse, entries left to right."""
    decided = np.zeros(changes.shape[1])
    for entry in changes[::-1]:
        decided = np.where(entry != 0, np.sign(entry), decided)
    return decided
