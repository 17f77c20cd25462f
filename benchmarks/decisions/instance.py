"""A cluster reduced to counts: nodes, workloads, rules, and how many pods of which stand where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.decisions.rules import HARD, KINDS, Ints, Rule

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Workload:
    """Pods that are alike: those of one Deployment, StatefulSet or ReplicaSet."""

    ref: str
    """``Kind/namespace/name``."""
    namespace: str
    labels: Mapping[str, str]
    spec: Mapping[str, Any]
    """The template's pod spec."""
    replicas: int
    cpu: int
    """Millicores of one pod."""
    memory: int
    """MiB of one pod."""
    held: str = ""
    """Why its pods cannot be moved, if so."""


@dataclass(frozen=True)
class Instance:
    """Everything but the placement: the same for all contenders of a scenario."""

    nodes: tuple[str, ...]
    capacity: Floats
    """(3, N) allocatable millicores, MiB, pods."""
    workloads: tuple[Workload, ...]
    allowed: Bools
    """(W, N) whether labels, taints and the size of the empty node let a new pod in."""
    tolerable: Bools
    """(W, N) whether a running pod may stay: as ``allowed``, but cordoned nodes keep theirs."""
    other: Floats
    """(3, N) used by pods that belong to no workload here (DaemonSets' and bare ones)."""
    rules: tuple[Rule, ...]

    @cached_property
    def demand(self) -> Floats:
        """(3, W) of one pod."""
        return np.array([[w.cpu, w.memory, 1.0] for w in self.workloads], float).T.reshape(
            3, len(self.workloads)
        )

    def used(self, counts: Ints) -> Floats:
        """Return what is requested on each node (3, N)."""
        return np.asarray(self.other + self.demand @ counts, float)

    def violations(self, counts: Ints) -> dict[str, float]:
        """Return the pods that still have to move, by kind of rule (preferred ones by weight)."""
        totals: dict[str, float] = dict.fromkeys(KINDS, 0.0)
        totals["placement"] = float(counts[~self.tolerable].sum())
        for rule in self.rules:
            totals[rule.kind] += rule.weight * rule.potential(counts)
        return {kind: round(value, 6) for kind, value in totals.items()}

    def deviations(self, counts: Ints) -> tuple[float, float]:
        """Return the standard deviation over nodes of requested cpu and memory, as shares."""
        share = self.used(counts)[:2] / self.capacity[:2]
        return float(share[0].std()), float(share[1].std())


def hard(violations: Mapping[str, float]) -> float:
    """Return the sum of the hard rules."""
    return sum(value for kind, value in violations.items() if kind in HARD)


def soft(violations: Mapping[str, float]) -> float:
    """Return the sum of the soft rules."""
    return sum(value for kind, value in violations.items() if kind not in HARD)


def counted(instance: Instance, placement: Counter[tuple[str, str]]) -> Ints:
    """Return counts (W, N) of pods by (workload, node)."""
    rows = {workload.ref: index for index, workload in enumerate(instance.workloads)}
    columns = {name: index for index, name in enumerate(instance.nodes)}
    counts = np.zeros((len(rows), len(columns)), np.int64)
    for (ref, node), pods in placement.items():
        if ref in rows and node in columns:
            counts[rows[ref], columns[node]] += pods
    return counts
