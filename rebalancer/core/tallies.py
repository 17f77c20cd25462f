"""How many pods are in the domains of a rule, counted anew at each call.

Only domains with pods are touched, so that a rule of three pods costs the same on 10 nodes and on 5,000.
"""

from __future__ import annotations

from dataclasses import dataclass

from rebalancer.core.counts import PodNodes
from rebalancer.core.views import ints

_ROLES = 4


@dataclass(eq=False, repr=False)
class ClassSet:
    """Some classes of pods: a range of numbers, as most sets are, or an array."""

    first: int
    """The lowest number of a class in the set."""
    size: int
    """The number K of classes."""
    classes: memoryview | None
    """(K,) ascending; None: they follow each other."""


@dataclass(eq=False, repr=False)
class DomainMap:
    """The domains of the nodes for one topology key. Rules share it."""

    of_node: memoryview
    """(N,) the domain of each node; -1: it has none, or does not count."""
    size: int
    """The number of domains."""


class Tally:
    """Pods per domain, in four roles. All rules over a cluster share one: each clears what the last has counted."""

    def __init__(self, nodes: int) -> None:
        self.counts = ints(_ROLES * max(1, nodes))
        """(N * 4,) the number of pods of each role in each domain, the roles of a domain side by side."""
        self.touched = ints(max(1, nodes))
        """(N,) the domains with pods, in the order in which they were counted."""
        self.used = 0
        """How many these are."""
        self.least = self.most = 0
        """See :func:`find_extremes`."""


def has_class(some: ClassSet, cls: int) -> bool:
    """Return whether a class is in the set."""
    return place_of(some, cls) >= 0


def place_of(some: ClassSet, cls: int) -> int:
    """Return which one of the set a class is; -1: none."""
    if some.classes is None:
        return cls - some.first if some.first <= cls < some.first + some.size else -1
    return find(some.classes, 0, some.size, cls)


def class_at(some: ClassSet, place: int) -> int:
    """Return one class of the set."""
    return some.first + place if some.classes is None else some.classes[place]


def find(sorted_: memoryview, first: int, last: int, value: int) -> int:
    """Return the place of a value between two places of ascending numbers, the last one left out; -1: it is not there."""
    low, high = first, last
    while low < high:
        middle = (low + high) // 2
        if sorted_[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low if low < last and sorted_[low] == value else -1


def clear(tally: Tally) -> None:
    """Forget all counts."""
    counts = tally.counts
    for index in range(tally.used):
        first = _ROLES * tally.touched[index]
        for role in range(_ROLES):
            counts[first + role] = 0
    tally.used = 0


def count_role(tally: Tally, role: int, some: ClassSet, pods: PodNodes, domains: DomainMap) -> int:
    """Add the pods of some classes to one role; return how many have a domain."""
    total = 0
    for index in range(some.size):
        cls = class_at(some, index)
        first = pods.start[cls]
        for place in range(first, first + pods.size[cls]):
            domain = domains.of_node[pods.nodes[place]]
            if domain >= 0:
                add(tally, domain, role, 1)
                total += 1
    return total


def add(tally: Tally, domain: int, role: int, amount: int) -> None:
    """Add pods of a role to a domain."""
    counts = tally.counts
    first = _ROLES * domain
    if counts[first] + counts[first + 1] + counts[first + 2] + counts[first + 3] == 0:
        tally.touched[tally.used] = domain
        tally.used += 1
    counts[first + role] += amount


def find_extremes(tally: Tally, some: ClassSet, pods: PodNodes, domains: DomainMap) -> None:
    """Write into ``tally`` how many pods of some classes are in the emptiest and in the fullest domain; 0 if there is none."""
    clear(tally)
    count_role(tally, 0, some, pods, domains)
    tally.least = tally.most = 0
    for index in range(tally.used):
        pods_here = tally.counts[_ROLES * tally.touched[index]]
        tally.most = max(tally.most, pods_here)
        tally.least = pods_here if index == 0 else min(tally.least, pods_here)
    if tally.used < domains.size:
        tally.least = 0
