"""Rules about a pod and its node alone: each node has a price for a class, and each pod on the node pays it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rebalancer.cost.view import View
from rebalancer.snapshot.columns import Floats, Int32s


class PriceGroup:
    """Classes whose pods pay the ``price`` of their node, independent of other pods.

    A :class:`rebalancer.cost.groups.Group`. The potential is the sum of the prices minus the part that cannot be
    saved: what the pods would pay at best when the group is created. So the potential is 0 if nothing can be fixed,
    yet a pod that leaves a good node still makes it worse.
    """

    def __init__(
        self,
        view: View,
        *,
        label: str,
        classes: Int32s,
        price: Floats,
        least: float,
        describe: Callable[[int], str],
        weight: float = 1.0,
    ) -> None:
        """``price`` (N,) is in moves; ``least`` is the lowest price of a node that could take a pod now.

        ``least`` is infinite if no node could. ``describe`` returns what is wrong with a node, given its index.
        """
        self.label, self.weight = label, weight
        self.members = self.movers = classes
        self._view, self._price, self._least = view, price, least
        self._mine = set(classes.tolist())
        self._describe = describe
        counts = view.state.counts(self.members)
        beyond = np.minimum(price, least)
        self._hopeless = float((counts * beyond)[counts > 0].sum())
        self._stuck = int(counts[(price > 0) & (beyond == price)].sum())

    def _above(self) -> float:
        """Return the sum of prices above the part that cannot be saved; negative if more could be saved."""
        paid = float((self._view.state.counts(self.members) * self._price).sum())
        return paid - self._hopeless

    def potential(self) -> float:
        """Return the sum of prices above the part that cannot be saved, at least 0."""
        return max(0.0, self._above())

    def minimum(self) -> float:
        """Return a lower bound on the moves: what movable pods can save, at most 1 per pod."""
        view = self._view
        pods = np.concatenate([view.state.living_of(cls) for cls in self.members.tolist()])
        nodes = view.state.node_of[pods[view.movable[pods]]]
        return float(np.minimum(1.0, self._find_savings()[nodes[nodes >= 0]]).sum())

    def _find_savings(self) -> Floats:
        """Return per node (N,) the price that a pod saves by moving to the best node that could take it."""
        return np.maximum(0.0, self._price - self._least)

    def unsatisfiable(self) -> str | None:
        """Return a phrase on the number of pods for which no feasible node is better; None if 0."""
        if not self._stuck:
            return None
        return f"no better node takes {self._stuck} of its pods"

    def gains(self) -> Floats:
        """Return per node (N,) the maximum gain of moving one pod off the node."""
        if (left := self.potential()) <= 0:
            return np.zeros(len(self._price))
        return np.where(self._find_savings() > 0, np.minimum(self._price, left), 0.0)

    def delta(self, cls: int, node: int, replacement: int, destinations: Int32s) -> Floats:
        """Return the change of the potential (K,) if a pod moves from ``node`` to each destination."""
        change = np.zeros(len(destinations))
        if cls in self._mine:
            change -= self._price[node]
        if replacement in self._mine:
            change += self._price[destinations]
        now = self._above()
        return np.maximum(0.0, now + change) - max(0.0, now)

    def describe(self, node: int) -> str:
        """Return what is wrong with ``node``, in a phrase."""
        return f"{self.label}: {self._describe(node)}"

    def requirement(self) -> str:
        """Return what the rule requires, in a few words."""
        return "on nodes that suit them"

    def standing(self) -> str:
        """Return the number of pods on unsuitable nodes, and one such node as an example."""
        counts = self._view.state.counts(self.members)
        badly = np.flatnonzero((counts > 0) & (self._price > 0))
        if not len(badly):
            return "all on nodes that suit them"
        worst = int(badly[np.argmax(self._price[badly])])
        return f"{int(counts[badly].sum())} of {int(counts.sum())} not: {self._describe(worst)}"
