"""Rules about a pod and its node alone: each node has a price for a class, and each pod on the node pays it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rebalancer.core.rules import PriceRule
from rebalancer.core.views import view_of
from rebalancer.cost.groups import Domains, Room, RuledGroup, class_set
from rebalancer.cost.view import View
from rebalancer.snapshot.columns import Floats, Int32s


class PriceGroup(RuledGroup):
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
        self._describe = describe
        counts = view.state.counts(self.members)
        self._stuck = int(counts[(price > 0) & (price <= least)].sum())
        self._rule = self._lower()  # at once: it notes what cannot be saved

    def _lower(self) -> PriceRule:
        view, price = self._view, np.ascontiguousarray(self._price, np.float64)
        return PriceRule(
            class_set(self._view, self.members),
            view.state.living,
            Domains.nodes(view).lowered,
            Room.of(view).tally,
            view_of(price),
            self._least,
        )

    def minimum(self) -> float:
        """Return a lower bound on the moves: the saving by movable pods, at most 1 per pod."""
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
