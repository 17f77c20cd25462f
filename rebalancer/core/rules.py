"""Rules of the cost: how many moves each still needs, and how one move changes that.

Call the functions of a rule in this order: :func:`read` counts its pods as they are now. Then :func:`write_changes` returns
the changes by a move, and :func:`gain_at` the largest gain of leaving a node. Rules share their arrays of counts: the
results are those of the rule that was read last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rebalancer.core.counts import PodNodes
from rebalancer.core.tallies import (
    ClassSet,
    DomainMap,
    Tally,
    add,
    clear,
    count_role,
    find,
    has_class,
    place_of,
)

_ROLES = 4


@dataclass(eq=False, repr=False)
class PodMove:
    """One pod that leaves its node, and the nodes where its replacement may land."""

    pod: int
    cls: int
    replacement: int
    """The class of the replacement."""
    node: int
    """The node that is left."""
    nodes: memoryview
    """(K,) the nodes where the replacement may land."""


class Rule:
    """A part of the cost. Subclasses say how it is computed."""

    def __init__(self, movers: ClassSet | None) -> None:
        self.movers = movers
        """The classes that may be moved for it; None: all."""
        self.value = 0.0
        """The moves that it still needs, when it was read."""

    def read(self) -> None:
        """Count the pods as they are now."""

    def begin(self, cls: int) -> None:
        """Prepare :meth:`gain_at` for pods of a class."""

    def gain_at(self, node: int) -> float:  # noqa: ARG002  # for subclasses
        """Return the most that one mover can gain by leaving the node."""
        return 0.0

    def change(self, move: PodMove, out: memoryview[float]) -> None:
        """Write the change of the value at each landing into ``out`` (K,)."""


def read(rule: Rule) -> float:
    """Count the pods of a rule as they are now; return its value."""
    rule.read()
    return rule.value


def write_changes(rule: Rule, move: PodMove, out: memoryview[float]) -> None:
    """Read a rule, and write its change at each landing of a move into ``out`` (K,)."""
    rule.read()
    rule.change(move, out)


def write_gains(rule: Rule, cls: int, nodes: memoryview, out: memoryview[float]) -> None:
    """Read a rule, and write the most that a pod of a class gains by leaving each of ``nodes`` (K,) into ``out`` (K,)."""
    rule.read()
    rule.begin(cls)
    for place in range(len(nodes)):
        out[place] = rule.gain_at(nodes[place])


def moves_for(rule: Rule, cls: int) -> bool:
    """Return whether pods of a class may be moved for a rule."""
    return rule.movers is None or has_class(rule.movers, cls)


class AskedRule(Rule):
    """A rule of a strategy of a third party, which the core does not know. Each answer is a call."""

    def __init__(self, movers: ClassSet | None, asked: Any) -> None:
        super().__init__(movers)
        self.asked = asked
        """Has the methods ``read() -> float``, ``begin(cls)``, ``gain_at(node) -> float``, ``change(move) -> array (K,)``."""

    def read(self) -> None:
        """Compute its value."""
        self.value = self.asked.read()

    def begin(self, cls: int) -> None:
        """Say whose gains come next."""
        self.asked.begin(cls)

    def gain_at(self, node: int) -> float:
        """Compute the gain at a node, if something is left to fix."""
        gain: float = self.asked.gain_at(node) if self.value > 0.0 else 0.0
        return gain

    def change(self, move: PodMove, out: memoryview[float]) -> None:
        """Compute the changes."""
        _copy(self.asked.change(move), out)


def _copy(values: memoryview[float], out: memoryview[float]) -> None:
    """Write ``values`` (K,) into ``out``, which may have more room."""
    for place in range(len(values)):
        out[place] = values[place]


class RoleRule(Rule):
    """A rule that counts pods of several roles in each domain."""

    def __init__(
        self,
        movers: ClassSet,
        roles: list[ClassSet],
        pods: PodNodes,
        domains: DomainMap,
        tally: Tally,
    ) -> None:
        super().__init__(movers)
        self.roles = roles
        """Up to four sets of classes without a common one; what their pods do to each other depends on the rule."""
        self.pods, self.domains, self.tally = pods, domains, tally
        self.hopeless = 0
        """How many pods no placement can help."""

    def role_of(self, cls: int) -> int:
        """Return the role of a class; -1: none."""
        for role in range(len(self.roles)):
            some: ClassSet = self.roles[role]
            if has_class(some, cls):
                return role
        return -1


class SeparableRule(RoleRule):
    """A rule whose value is a sum over domains, in which a move changes two at most. Empty domains add nothing."""

    def __init__(
        self,
        movers: ClassSet,
        roles: list[ClassSet],
        pods: PodNodes,
        domains: DomainMap,
        tally: Tally,
    ) -> None:
        super().__init__(movers, roles, pods, domains, tally)
        self.total = 0
        """The pods that have to leave their domains."""
        self.counted = 0
        """The pods of the first role that are in domains."""

    def cover(self, first: int, second: int, third: int, fourth: int) -> int:  # noqa: ARG002  # for subclasses
        """Return how many pods have to leave a domain with the given number of each role."""
        return 0

    def find_hopeless(self, pods: int) -> int:  # noqa: ARG002  # for subclasses
        """Return how many pods no placement can help, if ``pods`` pods of the first role are in domains."""
        return 0

    def read(self) -> None:
        """Count the pods of each role, and those that have to leave."""
        tally = self.tally
        clear(tally)
        for role in range(len(self.roles)):
            counted = count_role(tally, role, self.roles[role], self.pods, self.domains)
            if role == 0:
                self.counted = counted
        self.total = 0
        for index in range(tally.used):
            self.total += self.cover_with(tally.touched[index], -1, 0, -1, 0)
        self.hopeless = self.find_hopeless(self.counted)
        self.value = float(max(0, self.total - self.hopeless))

    def cover_with(self, domain: int, role: int, more: int, other: int, others: int) -> int:
        """Return how many pods have to leave a domain once pods of up to two roles come (or leave: negative).

        ``domain``: -1 for an empty one.
        """
        first = second = third = fourth = 0
        if domain >= 0:
            counts, at = self.tally.counts, _ROLES * domain
            first, second, third, fourth = (
                counts[at],
                counts[at + 1],
                counts[at + 2],
                counts[at + 3],
            )
        first += (more if role == 0 else 0) + (others if other == 0 else 0)
        second += (more if role == 1 else 0) + (others if other == 1 else 0)
        third += (more if role == 2 else 0) + (others if other == 2 else 0)
        fourth += (more if role == 3 else 0) + (others if other == 3 else 0)
        return self.cover(first, second, third, fourth)

    def gain_at(self, node: int) -> float:
        """Return the most that a pod of some role gains by leaving the domain of the node."""
        domain = self.domains.of_node[node]
        if self.value <= 0.0 or domain < 0:
            return 0.0
        now = self.cover_with(domain, -1, 0, -1, 0)
        least = now
        for role in range(_ROLES):
            if self.tally.counts[_ROLES * domain + role] > 0:
                least = min(least, self.cover_with(domain, role, -1, -1, 0))
        return float(now - least)

    def change(self, move: PodMove, out: memoryview[float]) -> None:
        """Write the change of the value at each landing."""
        of_node, floor = self.domains.of_node, max(0, self.total - self.hopeless)
        source = of_node[move.node]
        leaves = self.role_of(move.cls) if source >= 0 else -1
        enters = self.role_of(move.replacement)
        left = self.total
        pods = self.counted - (leaves == 0)
        if leaves >= 0:
            left += self.cover_with(source, leaves, -1, -1, 0)
            left -= self.cover_with(source, -1, 0, -1, 0)
        for place in range(len(move.nodes)):
            domain = of_node[move.nodes[place]]
            then = left
            joins = 1 if enters == 0 and domain >= 0 else 0
            hopeless = self.find_hopeless(pods + joins)
            if enters >= 0 and domain >= 0 and domain == source:
                then += self.cover_with(source, leaves, -1, enters, 1)
                then -= self.cover_with(source, leaves, -1, -1, 0)
            elif enters >= 0 and domain >= 0:
                then += self.cover_with(domain, enters, 1, -1, 0)
                then -= self.cover_with(domain, -1, 0, -1, 0)
            out[place] = float(max(0, then - hopeless) - floor)


def cover_at(rule: SeparableRule, domain: int) -> int:
    """Return how many pods have to leave a domain, after :func:`read`."""
    return rule.cover_with(domain, -1, 0, -1, 0)


class CapRule(SeparableRule):
    """A limit on the number of pods in a domain."""

    def __init__(
        self,
        movers: ClassSet,
        roles: list[ClassSet],
        pods: PodNodes,
        domains: DomainMap,
        tally: Tally,
        cap: int,
    ) -> None:
        super().__init__(movers, roles, pods, domains, tally)
        self.cap = cap

    def cover(self, first: int, second: int, third: int, fourth: int) -> int:  # noqa: ARG002  # it has one role
        """Return how many pods are above the cap."""
        return max(0, first - self.cap)


class ConflictRule(SeparableRule):
    """Pods that repel each other. The roles: both declare and match, only declare, only match, match and cannot move."""

    def __init__(
        self,
        movers: ClassSet,
        roles: list[ClassSet],
        pods: PodNodes,
        domains: DomainMap,
        tally: Tally,
        *,
        mutual: bool,
    ) -> None:
        super().__init__(movers, roles, pods, domains, tally)
        self.mutual = mutual
        """Whether every pod repels every other one: only the first role has classes."""

    def cover(self, first: int, second: int, third: int, fourth: int) -> int:
        """Return the smallest number of pods after whose leaving none repels another one."""
        if self.mutual:
            return max(0, first - 1)
        if fourth > 0:
            return first + second
        return first + second + third - max(min(first, 1), second, third)

    def find_hopeless(self, pods: int) -> int:
        """Return how many pods are more than there are domains."""
        return max(0, pods - self.domains.size) if self.mutual else 0


class AttractionRule(SeparableRule):
    """Pods that each need a match in their domain. The roles: declare and match, only declare, only match."""

    def cover(self, first: int, second: int, third: int, fourth: int) -> int:  # noqa: ARG002  # it has three roles
        """Return how many pods are without a match."""
        return second if first + third == 0 else 0


class PriceRule(Rule):
    """Nodes have a price for some classes, and each of their pods pays that of its node."""

    def __init__(
        self,
        classes: ClassSet,
        pods: PodNodes,
        nodes: DomainMap,
        tally: Tally,
        price: memoryview[float],
        least: float,
    ) -> None:
        super().__init__(classes)
        self.classes, self.pods, self.nodes, self.tally = classes, pods, nodes, tally
        self.price = price
        """(N,) in moves."""
        self.least = least
        """The lowest price of a node that could take one of them at first; infinite if none could."""
        self.paid = 0.0
        self.hopeless = 0.0
        """What the pods that were there at first would pay at best."""
        clear(tally)
        count_role(tally, 0, classes, pods, nodes)
        for node in range(nodes.size):
            if tally.counts[_ROLES * node] > 0:
                self.hopeless += tally.counts[_ROLES * node] * min(price[node], least)

    def read(self) -> None:
        """Add up the prices. In the order of the nodes, since sums of floats depend on it."""
        tally = self.tally
        clear(tally)
        count_role(tally, 0, self.classes, self.pods, self.nodes)
        self.paid = 0.0
        for node in range(self.nodes.size):
            if tally.counts[_ROLES * node] > 0:
                self.paid += tally.counts[_ROLES * node] * self.price[node]
        self.value = max(0.0, self.paid - self.hopeless)

    def gain_at(self, node: int) -> float:
        """Return the price of the node, if another one is cheaper."""
        if self.value <= 0.0 or self.price[node] <= self.least:
            return 0.0
        return min(self.price[node], self.value)

    def change(self, move: PodMove, out: memoryview[float]) -> None:
        """Write the change of the value at each landing."""
        now = self.paid - self.hopeless
        left = 0.0
        if has_class(self.classes, move.cls):
            left -= self.price[move.node]
        enters = has_class(self.classes, move.replacement)
        for place in range(len(move.nodes)):
            change = left
            if enters:
                change += self.price[move.nodes[place]]
            out[place] = max(0.0, now + change) - max(0.0, now)


class PodRule(Rule):
    """Pods that are judged one by one: each counts 1 until it has moved. Its value is not computed here."""

    def __init__(
        self,
        classes: ClassSet,
        first: memoryview,
        judged: memoryview,
        mine: memoryview,
        home: memoryview,
        node_of: memoryview,
        moved: memoryview,
        tally: Tally,
        first_bad: memoryview,
        bad: memoryview,
    ) -> None:
        super().__init__(classes)
        self.classes = classes
        """The K classes of judged pods."""
        self.first = first
        """(K + 1,) where the pods of each class begin in ``judged``, and where they end."""
        self.judged = judged
        """The judged pods, class by class."""
        self.mine = mine
        """(P,) whether each pod is judged."""
        self.home = home
        """(P,) the node of each pod at first."""
        self.node_of = node_of
        """(P,) its node now."""
        self.moved = moved
        """(P,) whether it was evicted."""
        self.tally = tally
        self.first_bad = first_bad
        """(K + 1,) where the nodes of each class begin in ``bad``, and where they end."""
        self.bad = bad
        """Nodes where a replacement helps nothing, class by class; ascending in each."""

    def is_left(self, pod: int) -> bool:
        """Return whether a pod has not moved."""
        return self.node_of[pod] == self.home[pod] and not self.moved[pod]

    def begin(self, cls: int) -> None:
        """Count the judged pods of a class that are left on each node."""
        clear(self.tally)
        index = place_of(self.classes, cls)
        if index < 0:
            return
        for place in range(self.first[index], self.first[index + 1]):
            pod = self.judged[place]
            if self.is_left(pod):
                add(self.tally, self.home[pod], 0, 1)

    def gain_at(self, node: int) -> float:
        """Return 1 for a node where a judged pod of the class is left."""
        return 1.0 if self.tally.counts[_ROLES * node] > 0 else 0.0

    def change(self, move: PodMove, out: memoryview[float]) -> None:
        """Write -1 for each landing that will do, if the pod itself is judged and left."""
        index = -1
        if move.pod >= 0 and self.mine[move.pod] and self.is_left(move.pod):
            index = place_of(self.classes, move.cls)
        for place in range(len(move.nodes)):
            out[place] = 0.0
            if index >= 0 and not self.is_bad(index, move.nodes[place]):
                out[place] = -1.0

    def is_bad(self, index: int, node: int) -> bool:
        """Return whether a node helps no replacement of a class."""
        return find(self.bad, self.first_bad[index], self.first_bad[index + 1], node) >= 0
