"""Near groups: each pod of a workload needs a matching pod in its domain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rebalancer.core.nearness import NearRule
from rebalancer.core.rules import read
from rebalancer.cost.groups import Domains, Room, RuledGroup, class_set
from rebalancer.cost.view import View
from rebalancer.snapshot.columns import Int32s, Ints


class NearGroup(RuledGroup):
    """Pods of the classes ``own`` that each need a pod of the classes ``matched`` in their domain of ``key``.

    The potential is the number of pods without a match, minus the hopeless ones of them. A pod is hopeless if no node near
    a matching pod could take its replacement when the group was created.
    """

    def __init__(
        self, view: View, *, label: str, key: str, own: Int32s, matched: Int32s, weight: float = 1.0
    ) -> None:
        self.label, self.weight = label, weight
        self.movers = own
        self.members = np.union1d(own, matched).astype(np.int32)
        self.fixed_by = self.members
        self._view = view
        self.domains = Domains.of(view, key, np.ones(len(view.snapshot.nodes), bool))
        self._own, self._matched = own, matched
        self._near = self._rule = self._lower_for(own)
        self._hopeless = self._near.hopeless = self._count_hopeless() if self._apart() else 0

    def _lower_for(self, own: Int32s) -> NearRule:
        """Return the rule for some of the classes."""
        both = np.intersect1d(own, self._matched)
        roles = np.setdiff1d(own, both), both, np.setdiff1d(self._matched, both)
        return NearRule(
            class_set(self._view, own),
            [class_set(self._view, role.astype(np.int32)) for role in roles],
            self._view.state.living,
            self.domains.lowered,
            Room.of(self._view).tally,
        )

    def _count_hopeless(self) -> int:
        """Return the pods without a match whose replacements fit on no node near a matching pod."""
        hopeless = 0
        for classes in self._view.split_by_landing(self.movers.tolist()):
            if not self._some_place_is_near(classes):
                rule = self._lower_for(np.array(classes, np.int32))
                read(rule)
                hopeless += rule.apart
        return hopeless

    def _some_place_is_near(self, classes: Sequence[int]) -> bool:
        near, of_node = self._count_matched() > 0, self.domains.of_node
        replacements = dict.fromkeys(self._view.snapshot.classes[of].replacement for of in classes)
        rooms = map(self._view.with_room, replacements)
        return any(bool(near[of_node[room & (of_node >= 0)]].any()) for room in rooms)

    def _count_matched(self) -> Ints:
        """Return the number of matching pods in each domain (D,)."""
        of_node, size = self.domains.of_node, len(self.domains.names)
        return self._view.state.counts_by(self._matched, of_node, size)

    def _apart(self) -> int:
        """Return the pods without a matching pod in their domain."""
        read(self._near)
        return int(self._near.apart)

    def minimum(self) -> float:
        """Return a lower bound on the moves: one move can satisfy all pods of at most two domains."""
        if self.potential() <= 0:
            return 0.0
        outside, inside = int(self._near.now.outside), int(self._near.apart_domains)
        return float(max(outside - self._hopeless, -(-max(0, inside - self._hopeless) // 2)))

    def unsatisfiable(self) -> str | None:
        """Return why no placement can satisfy the pods; None if one can."""
        if not self._hopeless:
            return None
        return f"no node near a matching pod takes {self._hopeless} of its pods"

    def describe(self, node: int) -> str:
        """Return the matching pods in the node's domain, and the number of pods without a match."""
        domain = int(self.domains.of_node[node])
        where = self.domains.names[domain] if domain >= 0 else "a node without the label"
        matched = int(self._count_matched()[domain]) if domain >= 0 else 0
        return f"{self.label}: {matched} matching pods in {where}, {self.standing()}"

    def requirement(self) -> str:
        """Describe which pods must be near which others, in a few words."""
        return "each in a domain with a matching pod"

    def standing(self) -> str:
        """Return the number of pods without a match, out of all pods of the group."""
        pods = len(self._view.state.nodes_of(self._own))
        return f"{self._apart()} of {pods} pods apart"
