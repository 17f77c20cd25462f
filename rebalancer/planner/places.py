"""Budgets per namespace, of a run, and per zone, of what is in flight."""

from __future__ import annotations

from collections import Counter

import numpy as np

from rebalancer.planner.problem import Problem
from rebalancer.policy.budgets import Budgets
from rebalancer.snapshot.columns import Int32s
from rebalancer.snapshot.labels import ZONE_KEYS
from rebalancer.snapshot.model import Snapshot


class Places:
    """What one set of budgets has been used for, by namespace and by zone."""

    def __init__(self, problem: Problem, budgets: Budgets) -> None:
        self._budgets = budgets
        self._snapshot = problem.snapshot
        self._movable = _unprotected_of(problem) if budgets.per_namespace is not None else {}
        self._zone_of, self._zones = np.zeros(0, np.int32), list[str]()
        if budgets.per_zone is not None:
            self._zone_of, self._zones = _zones_of(problem.snapshot)
        nodes = problem.snapshot.pods.node
        zones = self._zone_of[nodes[nodes >= 0]] if self._zones else self._zone_of
        self._pods_in = np.bincount(zones[zones >= 0], minlength=len(self._zones))
        self._moved: Counter[str] = Counter()
        self._left: Counter[int] = Counter()

    def over_in(self, namespace: str) -> str | None:
        """Return the limit of the run that a pod of ``namespace`` would exceed, if any."""
        if self._left_in(namespace) > 0:
            return None
        return f"perNamespace {self._most(namespace)} in {namespace}"

    def left(self, cls: int) -> float:
        """Return how many pods of the namespace of ``cls`` this run may still move."""
        return self._left_in(self._snapshot.classes[cls].namespace)

    def _left_in(self, namespace: str) -> float:
        most = self._most(namespace)
        return np.inf if most is None else most - self._moved[namespace]

    def _most(self, namespace: str) -> int | None:
        return self._budgets.per_namespace_of(self._movable.get(namespace, 0))

    def waits(self, node: int) -> str | None:
        """Return the limit of what is in flight that a pod leaving ``node`` would exceed, if any."""
        zone = int(self._zone_of[node]) if self._zones else -1
        if zone < 0:
            return None
        most = self._budgets.per_zone_of(int(self._pods_in[zone]))
        if most is None or self._left[zone] < most:
            return None
        return f"perZone {most} from {self._zones[zone]}"

    def leave(self, node: int) -> None:
        """Count a pod in flight that left ``node``."""
        if self._zones:
            self._left[int(self._zone_of[node])] += 1

    def count(self, cls: int) -> None:
        """Count a move of this run."""
        self.count_in(self._snapshot.classes[cls].namespace)

    def count_in(self, namespace: str) -> None:
        """Count a pod of ``namespace`` that goes in this run."""
        self._moved[namespace] += 1

    def land(self) -> None:
        """Let all have landed."""
        self._left.clear()


def _unprotected_of(problem: Problem) -> dict[str, int]:
    """Return namespace -> its pods that may be moved."""
    of_class = np.bincount(
        problem.snapshot.pods.cls[problem.is_unprotected], minlength=len(problem.snapshot.classes)
    )
    counts: Counter[str] = Counter()
    for cls, count in zip(problem.snapshot.classes, of_class.tolist(), strict=True):
        counts[cls.namespace] += count
    return counts


def _zones_of(snapshot: Snapshot) -> tuple[Int32s, list[str]]:
    """Return the zone of each node (N,), -1 for none, and the names of the zones."""
    labels = snapshot.nodes.labels
    zone_of = np.full(len(snapshot.nodes), -1, np.int32)
    names: dict[str, int] = {}
    for key in reversed(ZONE_KEYS):
        column = labels.column(key)
        for value, name in enumerate(labels.values(key)):
            zone_of[column == value] = names.setdefault(name, len(names))
    return zone_of, list(names)
