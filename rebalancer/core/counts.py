"""Pods per topology domain: what rules between pods count."""

from __future__ import annotations


class DomainCounts:
    """The pods that one rule counts, in each of D domains; entry D stands for nodes that lack the topology key, and is 0."""

    def __init__(
        self, counted: memoryview, domain: memoryview, size: int, counts: memoryview
    ) -> None:
        self.counted = counted
        """(N,) the domain in which pods on each node count; D: they do not."""
        self.domain = domain
        """(N,) the domain of each node; D: it lacks the key."""
        self.size = size
        """D."""
        self.counts = counts
        """(D + 1,) the number of pods; more room does no harm."""


def count_pods(rule: DomainCounts, nodes: memoryview) -> None:
    """Count pods, given the node (K,) of each."""
    for domain in range(rule.size):
        rule.counts[domain] = 0
    for pod in range(len(nodes)):
        rule.counts[rule.counted[nodes[pod]]] += 1
    rule.counts[rule.size] = 0


def count_per_node(rule: DomainCounts, pods: memoryview) -> None:
    """Count pods, given their number on each node (N,)."""
    for domain in range(rule.size):
        rule.counts[domain] = 0
    for node in range(len(pods)):
        rule.counts[rule.counted[node]] += pods[node]
    rule.counts[rule.size] = 0


def has_pods(rule: DomainCounts) -> bool:
    """Return whether the rule counts any pod."""
    for domain in range(rule.size):
        if rule.counts[domain] > 0:
            return True
    return False
