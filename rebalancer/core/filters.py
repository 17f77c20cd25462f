"""The scheduler's filters that depend on other pods: each takes nodes out of ``feasible`` (N,), where 1 is a node that passes.

Sources: ``plugins/noderesources/fit.go``, ``plugins/podtopologyspread/filtering.go``, ``plugins/interpodaffinity/filtering.go``.
"""

from __future__ import annotations

from rebalancer.core.counts import DomainCounts, has_pods
from rebalancer.core.resources import Loads, Requests, fits


class HardSpread:
    """A topology spread constraint with DoNotSchedule."""

    def __init__(self, pods: DomainCounts, limit: int, domains: memoryview) -> None:
        self.pods = pods
        """The pods that it counts."""
        self.limit = limit
        """By how many pods a domain may exceed the emptiest one before the pod comes."""
        self.domains = domains
        """The domains among which the emptiest one is looked for; none: there are fewer than ``minDomains``, and it is 0."""


def keep_roomy(loads: Loads, requests: Requests, feasible: memoryview) -> None:
    """Keep the nodes that have room for the requests."""
    for node in range(len(feasible)):
        if feasible[node] and not fits(loads, requests, node):
            feasible[node] = 0


def keep_even(rule: HardSpread, feasible: memoryview) -> None:
    """Keep the nodes in whose domain one pod more violates no hard spread constraint; not those that lack its key."""
    pods = rule.pods
    most = rule.limit
    if len(rule.domains):
        least = pods.counts[rule.domains[0]]
        for index in range(1, len(rule.domains)):
            least = min(least, pods.counts[rule.domains[index]])
        most += least
    for node in range(len(feasible)):
        domain = pods.domain[node]
        if domain == pods.size or pods.counts[domain] > most:
            feasible[node] = 0


def drop_occupied(pods: DomainCounts, feasible: memoryview) -> None:
    """Drop the nodes in whose domain is a pod that required anti-affinity keeps away, in either direction."""
    if not has_pods(pods):
        return
    for node in range(len(feasible)):
        if pods.counts[pods.domain[node]] > 0:
            feasible[node] = 0


def keep_occupied(pods: DomainCounts, feasible: memoryview) -> None:
    """Keep the nodes in whose domain is a pod that required affinity asks for."""
    for node in range(len(feasible)):
        if pods.counts[pods.domain[node]] == 0:
            feasible[node] = 0


def keep_labelled(pods: DomainCounts, feasible: memoryview) -> None:
    """Keep the nodes that have the topology key: all that affinity asks for the first pod of a series."""
    for node in range(len(feasible)):
        if pods.domain[node] == pods.size:
            feasible[node] = 0
