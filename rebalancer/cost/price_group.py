"""Rules of a pod and its node alone: every node has a price for a class, and its pods pay it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rebalancer.cost.term import View
from rebalancer.snapshot.columns import Floats, Int32s


class PriceGroup:
    """Classes that pay ``price`` for each of their pods, whatever else is on the node.

    A :class:`rebalancer.cost.groups.Group`. The potential is what its pods pay above what they must: what
    no feasible node would spare them when the group is made is taken off, so that nothing is left to fix
    where nothing can be, yet a pod that leaves a good node still makes things worse.
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
        """``price`` (N,) is in moves, ``least`` the lowest price of a node that could take a pod now.

        ``least`` is infinite if no node could. ``describe`` says what is wrong with a node, by its index.
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
        """Return what is paid beyond the hopeless part; negative if things went better than thought."""
        paid = float((self._view.state.counts(self.members) * self._price).sum())
        return paid - self._hopeless

    def potential(self) -> float:
        """See Group."""
        return max(0.0, self._above())

    def minimum(self) -> float:
        """Return what its movable pods pay, one move each at most."""
        view = self._view
        pods = np.concatenate([view.state.living_of(cls) for cls in self.members.tolist()])
        nodes = view.state.node_of[pods[view.movable[pods]]]
        return float(np.minimum(1.0, self._spared()[nodes[nodes >= 0]]).sum())

    def _spared(self) -> Floats:
        """Return per node (N,) what a pod leaving it for the best node that could take it is spared."""
        return np.maximum(0.0, self._price - self._least)

    def unsatisfiable(self) -> str | None:
        """Return how many pods no feasible node would serve better."""
        if not self._stuck:
            return None
        return f"no better node takes {self._stuck} of its pods"

    def gains(self) -> Floats:
        """See Group."""
        if (left := self.potential()) <= 0:
            return np.zeros(len(self._price))
        return np.where(self._spared() > 0, np.minimum(self._price, left), 0.0)

    def delta(self, cls: int, node: int, replacement: int, destinations: Int32s) -> Floats:
        """See Group."""
        change = np.zeros(len(destinations))
        if cls in self._mine:
            change -= self._price[node]
        if replacement in self._mine:
            change += self._price[destinations]
        now = self._above()
        return np.maximum(0.0, now + change) - max(0.0, now)

    def describe(self, node: int) -> str:
        """See Group."""
        return f"{self.label}: {self._describe(node)}"

    def requirement(self) -> str:
        """See Described."""
        return "on nodes that suit them"

    def standing(self) -> str:
        """See Described: a node that does not suit as an example, and how many pods are on such nodes."""
        counts = self._view.state.counts(self.members)
        badly = np.flatnonzero((counts > 0) & (self._price > 0))
        if not len(badly):
            return "all on nodes that suit them"
        worst = int(badly[np.argmax(self._price[badly])])
        return f"{int(counts[badly].sum())} of {int(counts.sum())} not: {self._describe(worst)}"
