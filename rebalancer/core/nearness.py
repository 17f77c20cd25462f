"""Nearness: each pod that declares an affinity needs a matching pod in its domain.

A pod that matches its own affinity needs another one, unless it is the first of its kind: that may be in any domain.
No affinity is satisfied on a node without the topology key.
"""

from __future__ import annotations

from rebalancer.core.counts import PodNodes
from rebalancer.core.rules import PodMove, RoleRule
from rebalancer.core.tallies import (
    ClassSet,
    DomainMap,
    Tally,
    class_at,
    clear,
    count_role,
)

_ROLES = 4
_DECLARE, _BOTH, _MATCH = 0, 1, 2
"""The roles in the tally: pods that only declare the affinity, that declare and match it, and that only match it."""
_NO_DOMAIN = -1


class Apart:
    """The number of pods without a match, and the data that decide it."""

    def __init__(self) -> None:
        self.inside = 0
        """Pods in domains without any match."""
        self.alone = 0
        """Domains with a single match that needs one itself."""
        self.outside = 0
        """Pods on nodes without the topology key that declare the affinity."""
        self.matched = 0
        """Matching pods in all domains."""


class NearRule(RoleRule):
    """The affinity of one workload."""

    def __init__(
        self,
        movers: ClassSet,
        roles: list[ClassSet],
        pods: PodNodes,
        domains: DomainMap,
        tally: Tally,
    ) -> None:
        """``roles``: three sets of classes, see the names of the roles."""
        super().__init__(movers, roles, pods, domains, tally)
        self.now, self.left, self.then = Apart(), Apart(), Apart()
        """As pods are; once a pod has left; and once its replacement has landed."""
        self.apart = 0
        """The pods without a match."""
        self.apart_domains = 0
        """The domains with such pods."""
        self.helped = 0
        """The most other pods that one pod can help by entering a domain."""

    def read(self) -> None:
        """Count the pods of each role per domain."""
        tally, now = self.tally, self.now
        clear(tally)
        now.inside = now.alone = now.outside = now.matched = 0
        for role in range(len(self.roles)):
            inside = count_role(tally, role, self.roles[role], self.pods, self.domains)
            if role != _DECLARE:
                now.matched += inside
            if role != _MATCH:
                now.outside += _count_all(self.roles[role], self.pods) - inside
        for index in range(tally.used):
            self.count_in(now, tally.touched[index], 1, -1, 0, -1, 0)
        self.apart = _sum_up(now)
        self.apart_domains = 0
        for index in range(tally.used):
            self.apart_domains += self.count_at(tally.touched[index], 0) > 0
        self.value = float(max(0, self.apart - self.hopeless))

    def count_in(
        self, apart: Apart, domain: int, sign: int, role: int, more: int, other: int, others: int
    ) -> None:
        """Add (``sign`` 1) or take away (-1) a domain, once pods of up to two roles have come (or left: negative)."""
        counts, at = self.tally.counts, _ROLES * domain
        declare = counts[at] + (more if role == _DECLARE else 0)
        both = counts[at + 1] + (more if role == _BOTH else 0)
        match = counts[at + 2] + (more if role == _MATCH else 0)
        declare += others if other == _DECLARE else 0
        both += others if other == _BOTH else 0
        match += others if other == _MATCH else 0
        if both + match == 0:
            apart.inside += sign * declare
        if both == 1 and match == 0:
            apart.alone += sign

    def begin(self, cls: int) -> None:  # noqa: ARG002  # each mover gains the same
        """Find how many pods a pod can help by entering a domain."""
        self.helped = 0
        for index in range(self.tally.used):
            domain = self.tally.touched[index]
            self.helped = max(self.helped, self.count_at(domain, 0) - self.count_at(domain, 1))

    def count_at(self, domain: int, more: int) -> int:
        """Return the pods without a match in a domain, once the given number of pods that declare and match has come."""
        then = self.then
        then.inside = then.alone = then.outside = 0
        then.matched = self.now.matched
        self.count_in(then, domain, 1, _BOTH, more, -1, 0)
        return _sum_up(then)

    def gain_at(self, node: int) -> float:
        """Return the largest gain of moving a pod without a match: itself, and the pods that it helps where it lands."""
        if self.value <= 0.0:
            return 0.0
        domain = self.domains.of_node[node]
        apart = self.now.outside if domain < 0 else self.count_at(domain, 0)
        return min(self.value, 1.0 + self.helped) if apart > 0 else 0.0

    def change(self, move: PodMove, out: memoryview[float]) -> None:
        """Write the change of the value at each landing."""
        of_node, left, then = self.domains.of_node, self.left, self.then
        source = of_node[move.node]
        leaves, enters = self.role_of(move.cls), self.role_of(move.replacement)
        _copy(self.now, left)
        self.shift(left, source, -1, leaves, -1, -1, 0)
        before = max(0, self.apart - self.hopeless)
        for place in range(len(move.nodes)):
            domain = of_node[move.nodes[place]]
            _copy(left, then)
            if domain == source:
                self.shift(then, domain, 1, enters, 1, leaves, -1)
            else:
                self.shift(then, domain, 1, enters, 1, -1, 0)
            out[place] = float(max(0, _sum_up(then) - self.hopeless) - before)

    def shift(
        self, apart: Apart, domain: int, sign: int, role: int, more: int, other: int, others: int
    ) -> None:
        """Note that a pod of a role (-1: none) comes to a domain (-1: to a node without one), or leaves it.

        ``other`` and ``others``: what has changed there before.
        """
        if role < 0:
            return
        if domain == _NO_DOMAIN:
            apart.outside += sign if role != _MATCH else 0
            return
        apart.matched += sign if role != _DECLARE else 0
        self.count_in(apart, domain, -1, other, others, -1, 0)
        self.count_in(apart, domain, 1, role, more, other, others)


def _sum_up(apart: Apart) -> int:
    """Return the pods without a match. The first pod of a class with affinity to itself may be in any domain."""
    alone = apart.alone if apart.matched > 1 else 0
    return apart.inside + apart.outside + alone


def _copy(apart: Apart, other: Apart) -> None:
    """Write one count into another."""
    other.inside, other.alone = apart.inside, apart.alone
    other.outside, other.matched = apart.outside, apart.matched


def _count_all(some: ClassSet, pods: PodNodes) -> int:
    """Return how many pods some classes have."""
    total = 0
    for index in range(some.size):
        total += pods.size[class_at(some, index)]
    return total
