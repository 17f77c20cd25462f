"""The nodes of pods, and the number of pods in each topology domain, for rules between pods."""

from __future__ import annotations

from rebalancer.core.views import nodes_of_pods

_LEAST_ROOM = 4


class PodNodes:
    """The nodes of the pods of C classes. Each class has a part of one array; the order within a part means nothing."""

    def __init__(
        self, start: memoryview, size: memoryview, room: memoryview, nodes: memoryview
    ) -> None:
        self.start = start
        """(C,) where the part of each class begins."""
        self.size = size
        """(C,) how many pods each class has."""
        self.room = room
        """(C,) how many pods its part has room for."""
        self.nodes = nodes
        """(M,) the node of each pod, and room for more."""
        self.used = len(nodes)
        """How much of ``nodes`` belongs to some class."""


class DomainCounts:
    """The pods of some classes in each of D domains; entry D is for nodes without the topology key, and is 0."""

    def __init__(
        self,
        classes: memoryview,
        counted: memoryview,
        domain: memoryview,
        size: int,
        counts: memoryview,
        *,
        terminating: bool,
    ) -> None:
        self.classes = classes
        """(K,) the classes whose pods count."""
        self.counted = counted
        """(N,) the domain in which pods on each node count; D: they do not."""
        self.domain = domain
        """(N,) the domain of each node; D: it lacks the key."""
        self.size = size
        """D."""
        self.counts = counts
        """(D + 1,) the number of pods when they were last counted; more room does no harm."""
        self.terminating = terminating
        """Whether pods that terminate count, too."""


def add_pod(pods: PodNodes, cls: int, node: int) -> None:
    """Add a pod of a class on a node."""
    if pods.size[cls] == pods.room[cls]:
        _widen(pods, cls)
    pods.nodes[pods.start[cls] + pods.size[cls]] = node
    pods.size[cls] += 1


def remove_pod(pods: PodNodes, cls: int, node: int) -> None:
    """Remove a pod of a class from a node.

    Raises:
        ValueError: there is none.
    """
    first = pods.start[cls]
    last = first + pods.size[cls] - 1
    place = last
    while place >= first and pods.nodes[place] != node:
        place -= 1
    if place < first:
        raise ValueError(f"no pod of class {cls} is on node {node}")
    pods.nodes[place] = pods.nodes[last]
    pods.size[cls] -= 1


def count_pods(rule: DomainCounts, pods: PodNodes) -> int:
    """Count the pods of a rule; return how many have a domain."""
    total = 0
    for domain in range(rule.size + 1):
        rule.counts[domain] = 0
    for index in range(len(rule.classes)):
        cls = rule.classes[index]
        first = pods.start[cls]
        for place in range(first, first + pods.size[cls]):
            rule.counts[rule.counted[pods.nodes[place]]] += 1
        total += pods.size[cls]
    total -= rule.counts[rule.size]
    rule.counts[rule.size] = 0
    return total


def has_pods(rule: DomainCounts) -> bool:
    """Return whether the rule counts any pod."""
    for domain in range(rule.size):
        if rule.counts[domain] > 0:
            return True
    return False


def _widen(pods: PodNodes, cls: int) -> None:
    """Move the part of a class to the end, with room for twice as many pods."""
    room = max(_LEAST_ROOM, 2 * pods.room[cls])
    if pods.used + room > len(pods.nodes):
        wider = nodes_of_pods(2 * len(pods.nodes) + room)
        for place in range(pods.used):
            wider[place] = pods.nodes[place]
        pods.nodes = wider
    first = pods.start[cls]
    for place in range(pods.size[cls]):
        pods.nodes[pods.used + place] = pods.nodes[first + place]
    pods.start[cls] = pods.used
    pods.room[cls] = room
    pods.used += room
