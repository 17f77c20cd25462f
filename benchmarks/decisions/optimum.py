"""The fewest moves that any rebalancer could make: proven by an integer programme over counts.

It assigns freely, where a descheduler can only choose victims and the scheduler places: no real plan can
need fewer. Objective, left to right: least hard violations, then least soft ones, then fewest moves, with
every node's requested cpu within a band. Capacity, labels and taints, and pods that may not be moved hold.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.decisions.instance import Instance, hard, soft
from benchmarks.decisions.programme import Programme, Solved
from benchmarks.decisions.rules import HARD, Apart, Cap, Even, Ints, Rule

_SLACK = 1e-6
Band = tuple[float, float]
"""Least and most requested cpu of a node, as shares of its allocatable."""


@dataclass(frozen=True)
class Optimum:
    """The best state, and the fewest moves to it."""

    status: str
    """``proven``, or what was not."""
    hard: float
    soft: float
    moves: float
    bound: float
    """Proven: no plan to such a state has fewer moves."""
    seconds: float
    counts: Ints | None


def optimum(
    instance: Instance,
    start: Ints,
    band: Band | None = None,
    *,
    seconds: float = 60.0,
) -> Optimum:
    """Return the optimum from ``start``; each of the three steps may take ``seconds``."""
    began = time.monotonic()
    model = _Model(instance, start, band)
    least = [np.inf, np.inf, np.inf]
    status, bound, counts = "proven", 0.0, None
    for entry, objective in enumerate((model.hard, model.soft, model.moves)):
        if objective or entry == 2:
            solved = model.programme.minimise(objective, seconds)
        else:
            solved = Solved("proven", 0.0, 0.0, None)
        if solved.status != "proven":
            names = ("hard", "soft", "moves")
            status = f"{names[entry]}: {solved.status}" if status == "proven" else status
        if solved.value == np.inf:
            break
        least[entry] = solved.value
        bound = solved.bound
        if entry == 2:
            assert solved.variables is not None
            counts = model.counts(solved.variables)
        elif objective:
            model.programme.row(objective, high=solved.value + _SLACK)
    took = time.monotonic() - began
    if counts is None:
        return Optimum(status, least[0], least[1], least[2], bound, took, None)
    # By the ruler, not by the objective: rules among pods that may not be moved are no variables.
    left = instance.violations(counts)
    return Optimum(status, hard(left), soft(left), round(least[2], 6), bound, took, counts)


class _Model:
    """The programme, with its three objectives."""

    def __init__(self, instance: Instance, start: Ints, band: Band | None) -> None:
        self.programme = Programme()
        self.hard: dict[int, float] = {}
        self.soft: dict[int, float] = {}
        self.moves: dict[int, float] = {}
        self._instance, self._start = instance, start
        self._x = np.full(start.shape, -1, np.int64)
        """(W, N) variable of a count, -1 where it is fixed at the start's."""
        for index, workload in enumerate(instance.workloads):
            if not workload.held:
                self._free(index)
        self._limits(band)
        for rule in instance.rules:
            self._rule(rule)

    def counts(self, variables: NDArray[np.float64]) -> Ints:
        """Return counts (W, N) of a solution."""
        counts = self._start.copy()
        free = self._x >= 0
        counts[free] = np.rint(variables[self._x[free]]).astype(np.int64)
        return counts

    def _free(self, index: int) -> None:
        start, allowed = self._start[index], self._instance.allowed[index]
        total = int(start.sum())
        for node in np.flatnonzero(allowed | (start > 0)).tolist():
            here = int(start[node])
            most = total if allowed[node] else here
            count = self._x[index, node] = self.programme.variable(0, most, whole=True)
            if here:
                leaves = self.programme.variable(0, here)
                self.programme.row({leaves: 1.0, int(count): 1.0}, low=here)
                self.moves[leaves] = 1.0
            if not self._instance.tolerable[index, node]:
                self.hard[int(count)] = 1.0
        row = {int(count): 1.0 for count in self._x[index][self._x[index] >= 0]}
        self.programme.row(row, total, total)

    def _limits(self, band: Band | None) -> None:
        instance = self._instance
        fixed = instance.used(np.where(self._x < 0, self._start, 0))
        for node in range(len(instance.nodes)):
            free = np.flatnonzero(self._x[:, node] >= 0)
            for resource in range(3):
                low, high = -np.inf, instance.capacity[resource, node]
                if resource == 0 and band is not None:
                    low, high = band[0] * high, min(high, band[1] * high)
                row = {
                    int(self._x[w, node]): float(instance.demand[resource, w])
                    for w in free.tolist()
                    if instance.demand[resource, w]
                }
                used = float(fixed[resource, node])
                if row:
                    self.programme.row(row, low - used - _SLACK, high - used + _SLACK)
                elif not low - _SLACK <= used <= high + _SLACK:
                    self.programme.forbid()

    # -- rules -------------------------------------------------------------------------------------

    def _rule(self, rule: Rule) -> None:
        entry = self.hard if rule.kind in HARD else self.soft
        if isinstance(rule, Even):
            variables = self._even(rule)
        elif isinstance(rule, Cap):
            variables = self._cap(rule)
        else:
            variables = self._apart(rule)
        for variable in variables:
            entry[variable] = entry.get(variable, 0.0) + rule.weight

    def _in_domain(
        self, rule: Rule, domain: int, members: tuple[int, ...]
    ) -> tuple[dict[int, float], int]:
        """Return the row of the members' free counts in a domain, and the sum of the fixed ones."""
        row: dict[int, float] = {}
        fixed = 0
        for node in np.flatnonzero(rule.domain_of == domain).tolist():
            for member in members:
                if (variable := int(self._x[member, node])) >= 0:
                    row[variable] = 1.0
                else:
                    fixed += int(self._start[member, node])
        return row, fixed

    def _even(self, rule: Even) -> list[int]:
        programme = self.programme
        sums = [self._in_domain(rule, d, rule.members) for d in range(rule.domains)]
        if not any(row for row, _ in sums):
            return []
        total = int(sum(self._start[m].sum() for m in rule.members))
        top = 0 if rule.domains < rule.min_domains else -(-total // rule.domains)
        level = programme.variable(0, top, whole=True)
        need = programme.variable()
        leaving, entering = {need: 1.0}, {need: 1.0}
        for row, fixed in sums:
            above, below = programme.variable(), programme.variable()
            programme.row({above: 1.0, level: 1.0, **_negative(row)}, low=fixed - rule.skew)
            programme.row({below: 1.0, level: -1.0, **row}, low=-fixed)
            leaving[above] = entering[below] = -1.0
        programme.row(leaving, low=0)
        programme.row(entering, low=0)
        return [need]

    def _cap(self, rule: Cap) -> list[int]:
        rows = []
        for domain in range(rule.domains):
            row, fixed = self._in_domain(rule, domain, rule.members)
            if row:
                above = self.programme.variable()
                self.programme.row({above: 1.0, **_negative(row)}, low=fixed - rule.cap)
                rows.append(above)
        return rows

    def _apart(self, rule: Apart) -> list[int]:
        rows = []
        for domain in range(rule.domains):
            mine, my_fixed = self._in_domain(rule, domain, rule.members)
            theirs, their_fixed = self._in_domain(rule, domain, rule.others)
            if not mine and not theirs:
                continue
            most = float(sum(self._start[m].sum() for m in (*rule.members, *rule.others)))
            side = self.programme.variable(0, 1, whole=True)
            less = self.programme.variable()
            # less >= mine if side is 1, less >= theirs if it is 0: the smaller of the two.
            self.programme.row({less: 1.0, side: -most, **_negative(mine)}, low=my_fixed - most)
            self.programme.row({less: 1.0, side: most, **_negative(theirs)}, low=their_fixed)
            rows.append(less)
        return rows


def _negative(row: dict[int, float]) -> dict[int, float]:
    return {variable: -value for variable, value in row.items()}
