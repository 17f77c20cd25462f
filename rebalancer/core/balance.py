"""Balance: over-used nodes cost, and so does unevenness, a little.

A node costs ``sum of 10 * max(0, x - over)^2 + 0.001 * (x - mean)^2`` over resources; x is the share of its capacity that is
requested or used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rebalancer.core.rules import PodMove, Rule
from rebalancer.core.views import flags, reals

# Moves are made for nodes above the threshold. Unevenness only breaks ties, so a move that overloads another
# node instead gains nothing worth an eviction.
_OVER_WEIGHT = 10.0
_EVEN_WEIGHT = 0.001
# Shares are quotients of integers: 70 % is as far above 40 % as 50 % above 20 %.
_ROUNDING = 1e-9
_PODS = -2
_INFINITE = math.inf


@dataclass(eq=False, repr=False)
class Amounts:
    """The usage of the pods on nodes, without terminating ones; it changes with the cluster's state."""

    requested: memoryview
    """(R, N) amounts that the pods on each node request."""
    used: memoryview
    """(M, N) measured usage, for the resources that are measured."""
    pods: memoryview
    """(N,) number of pods on each node."""
    changes: memoryview
    """(N + 1,) the number of the newest change on each node, and of all."""


@dataclass(eq=False, repr=False)
class Thresholds:
    """The thresholds for Q resources of N nodes."""

    rows: memoryview
    """(Q,) the row of each resource in ``Amounts.requested``; -1: no node has it; -2: the number of pods."""
    capacity: memoryview[float]
    """(Q, N) capacity of each node."""
    counts: memoryview
    """(Q, N) whether the resource of the node counts."""
    over: memoryview[float]
    """(Q,) above this share a node is over-used."""
    under: memoryview[float]
    """(Q,) up to these shares a node is under-used."""
    mean: memoryview[float]
    """(Q,) the mean share at first."""
    gap: float
    """How much emptier than an over-used node another node must be to receive its pods, unless that node is under-used."""
    usable: memoryview
    """(N,) nodes that may receive pods."""


@dataclass(eq=False, repr=False)
class Measurement:
    """The measured usage of nodes and classes, and how it counts."""

    rows: memoryview
    """(Q,) the row of each resource in ``Amounts.used``; -1: it counts by requests."""
    demands: memoryview[float]
    """(Q, C) measured usage of a pod of each class."""
    known: memoryview
    """(N,) nodes that were measured; others count by requests."""
    judged: memoryview
    """(N,) nodes that may be over-used."""
    lasts: memoryview
    """(N,) nodes whose measured usage allows moving pods off them."""
    by_request: memoryview
    """(Q,) resources by which any node may give pods, once more is requested than the threshold."""
    larger: bool
    """Whether the larger of requests and use counts."""


class BalanceRule(Rule):
    """The cost of over-used nodes and of unevenness. Its value is not computed here."""

    def __init__(
        self,
        amounts: Amounts,
        demands: memoryview[float],
        thresholds: Thresholds,
        measured: Measurement | None,
        masks: Callable[[int], Any],
    ) -> None:
        super().__init__(None)
        self.amounts = amounts
        self.demands = demands
        """(Q, C) what a pod of each class requests."""
        self.thresholds, self.measured = thresholds, measured
        self.masks = masks
        """Returns for a class a view of the nodes (N,) that its replacement could ever use."""
        resources, nodes = len(thresholds.over), len(thresholds.usable)
        self.inviting = reals(nodes)
        """(N,) utilisation of each node as a target; -inf: under-used, inf: it receives no pods."""
        self.full = reals(nodes)
        """(N,) the highest ``inviting`` of a target for pods of the node."""
        self.cost = reals(nodes)
        """(N,)"""
        self.gives = flags(nodes)
        """(N,) nodes that are over-used, for long enough."""
        self.below = reals(max(1, resources), max(1, nodes))
        """(Q, N) how far the share of each resource is below the mean; 0 where it is above, or does not count."""
        self.changes = -1
        """The number of changes at that time."""
        self.most_even = -1.0
        """The most that the unevenness of any node can fall when a pod lands there; negative: to be computed."""
        self.is_ready = False
        """Whether the next is computed."""
        self.emptiest = _INFINITE
        """The lowest ``inviting`` of the nodes that the class in question could use."""
        self.cls = -1

    def find_requested(self, row: int, node: int, leaves: int, enters: int) -> float:
        """Return the requested amount of a resource on a node after a pod of one class has left and one of another has come (-1: none)."""
        kind = self.thresholds.rows[row]
        amount = 0.0
        if kind == _PODS:
            amount = float(self.amounts.pods[node])
        elif kind >= 0:
            amount = float(self.amounts.requested[kind, node])
        if leaves >= 0:
            amount -= self.demands[row, leaves]
        if enters >= 0:
            amount += self.demands[row, enters]
        return amount

    def find_used(self, row: int, node: int, leaves: int, enters: int) -> float:
        """Return the same for the used amount; if usage is not measured, for the requested one."""
        measured = self.measured
        if measured is None or measured.rows[row] < 0:
            return self.find_requested(row, node, leaves, enters)
        amount = float(self.amounts.used[measured.rows[row], node])
        if leaves >= 0:
            amount -= measured.demands[row, leaves]
        if enters >= 0:
            amount += measured.demands[row, enters]
        return amount

    def share_of(self, row: int, node: int, leaves: int, enters: int) -> float:
        """Return the share that decides; 0 where the resource does not count."""
        if not self.thresholds.counts[row, node]:
            return 0.0
        amount = self.find_requested(row, node, leaves, enters)
        measured = self.measured
        if measured is not None and measured.known[node]:
            used = self.find_used(row, node, leaves, enters)
            amount = max(amount, used) if measured.larger else used
        return amount / self.thresholds.capacity[row, node]

    def cost_of(self, node: int, leaves: int, enters: int) -> float:
        """Return the cost of a node after a pod of one class has left and one of another has come (-1: none)."""
        limits, total = self.thresholds, 0.0
        for row in range(len(limits.over)):
            if limits.counts[row, node]:
                share = self.share_of(row, node, leaves, enters)
                over = max(0.0, share - limits.over[row])
                uneven = share - limits.mean[row]
                total += _OVER_WEIGHT * (over * over) + _EVEN_WEIGHT * (uneven * uneven)
        return total

    def change(self, move: PodMove, out: memoryview[float]) -> None:
        """Write the change at each landing. What lands on the node that was left finds it without the pod."""
        node = move.node
        was, left = self.cost_of(node, -1, -1), self.cost_of(node, move.cls, -1)
        for place in range(len(move.nodes)):
            target = move.nodes[place]
            if target == node:
                now, then = left, self.cost_of(node, move.cls, move.replacement)
            else:
                now, then = self.cost_of(target, -1, -1), self.cost_of(target, -1, move.replacement)
            out[place] = ((left - was) + then) - now

    # -- what can be gained ------------------------------------------------------------------------------

    def begin(self, cls: int) -> None:
        """Prepare :meth:`gain_at` for pods of a class; where no node gives any, nothing more is computed."""
        self.update()
        self.cls = cls
        self.is_ready = False

    def gain_at(self, node: int) -> float:
        """Return the most that a pod gains by leaving a node that gives some."""
        return self.relief_at(node) if self.gives[node] else 0.0

    def relief_at(self, node: int) -> float:
        """Return the most that a pod would gain by leaving the node; 0 where no node is empty enough to take it."""
        if not self.is_ready:
            self.get_ready()
        if self.emptiest > self.full[node]:
            return 0.0
        return max(0.0, self.cost[node] - self.cost_of(node, self.cls, -1) + self.most_even)

    def get_ready(self) -> None:
        """Find the emptiest node that the replacement of the class could use, and how much the unevenness of any node can fall."""
        self.is_ready = True
        self.emptiest = _find_least(self.inviting, self.masks(self.cls))
        if self.most_even >= 0.0:
            return
        self.most_even = 0.0
        for row in range(len(self.thresholds.over)):
            most = 0.0
            for node in range(len(self.cost)):
                most = max(most, self.below[row, node])
            self.most_even += most * most
        self.most_even *= _EVEN_WEIGHT

    def update(self) -> None:
        """Compute the state of the nodes that pods have left or come to."""
        changes, nodes = self.amounts.changes, len(self.cost)
        if self.changes == changes[nodes]:
            return
        for node in range(nodes):
            if changes[node] > self.changes:
                self.look_at(node)
        self.changes = changes[nodes]
        self.most_even = -1.0

    def look_at(self, node: int) -> None:
        """Compute the state of a node."""
        limits, fullness, under, over = self.thresholds, 0.0, True, False
        for row in range(len(limits.over)):
            share = self.share_of(row, node, -1, -1)
            fullness = max(fullness, share)
            self.below[row, node] = 0.0
            if limits.counts[row, node]:
                under = under and share <= limits.under[row]
                over = over or share > limits.over[row]
                self.below[row, node] = max(0.0, limits.mean[row] - share)
        self.inviting[node] = _INFINITE
        if limits.usable[node]:
            self.inviting[node] = -_INFINITE if under else fullness
        self.full[node] = fullness - limits.gap + _ROUNDING
        self.gives[node] = over and self.may_give(node)
        self.cost[node] = self.cost_of(node, -1, -1)

    def may_give(self, node: int) -> bool:
        """Return whether an over-used node may give pods: by requests, or by its usage in enough runs."""
        measured, limits = self.measured, self.thresholds
        if measured is None:
            return True
        if not measured.judged[node]:
            return False
        if measured.lasts[node]:
            return True
        for row in range(len(limits.over)):
            if measured.by_request[row] and limits.counts[row, node]:
                requested = self.find_requested(row, node, -1, -1)
                if requested / limits.capacity[row, node] > limits.over[row]:
                    return True
        return False


def write_relief(rule: BalanceRule, cls: int, nodes: memoryview, out: memoryview[float]) -> None:
    """Write the most that a pod of a class would gain by leaving each of ``nodes`` (K,), whether these give pods or not."""
    rule.begin(cls)
    for place in range(len(nodes)):
        out[place] = rule.relief_at(nodes[place])


def update(rule: BalanceRule) -> None:
    """Compute the present state of nodes: ``inviting``, ``full``, ``cost`` and ``gives``."""
    rule.update()


def _find_least(values: memoryview[float], some: memoryview) -> float:
    """Return the least of some values; infinite if there are none."""
    least = _INFINITE
    for index in range(len(values)):
        if some[index] and values[index] < least:
            least = values[index]
    return least
