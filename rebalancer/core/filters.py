"""The scheduler's filters that depend on other pods: each removes nodes from ``feasible`` (N,), where 1 is a node that passes.

Sources: ``plugins/noderesources/fit.go``, ``plugins/podtopologyspread/filtering.go``, ``plugins/interpodaffinity/filtering.go``,
``plugins/nodevolumelimits/csi.go``.
"""

from __future__ import annotations

from dataclasses import dataclass

from rebalancer.core.counts import DomainCounts, PodNodes, has_pods
from rebalancer.core.resources import Loads, Requests, fits
from rebalancer.core.views import ints, minus_ones


@dataclass(eq=False, repr=False)
class HardSpread:
    """A topology spread constraint with DoNotSchedule."""

    pods: DomainCounts
    """The pods that the constraint counts."""
    limit: int
    """By how many pods a domain may exceed the emptiest one before the pod comes."""
    domains: memoryview
    """The domains among which the emptiest one is looked for; none: there are fewer than ``minDomains``, and it is 0."""


class AttachCounts:
    """Counts of volumes on each of N nodes, for one limit at a time: all limits share them."""

    def __init__(self, nodes: int) -> None:
        self.attached, self.there = ints(nodes), ints(nodes)
        """(N,) how many volumes each node has, and how many of the pod's that pods there use."""
        self.newest = minus_ones(nodes)
        """(N,) the volume that was last counted on each node."""


@dataclass(eq=False, repr=False)
class AttachLimit:
    """The V volumes of a driver, of which each node attaches a limited number, and those that a pod needs."""

    start: memoryview
    """(V + 1,) where the classes of each volume begin."""
    classes: memoryview
    """(U,) the classes whose pods share each volume."""
    left_start: memoryview
    left: memoryview
    """The same for the nodes to which each is attached although no pod there uses it."""
    own: memoryview
    """(O,) the classes whose pods have volumes of their own."""
    own_count: memoryview
    """(O,) how many volumes each pod of them has."""
    limit: memoryview
    """(N,) how many volumes each node attaches; negative: there is no limit."""
    mine: memoryview
    """(V,) whether the pod shares each volume."""
    wanted: int
    """The number of volumes that the pod needs, its own included."""
    counts: AttachCounts


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
    """Drop the nodes in whose domain is any of these pods."""
    if not has_pods(pods):
        return
    for node in range(len(feasible)):
        if pods.counts[pods.domain[node]] > 0:
            feasible[node] = 0


def keep_occupied(pods: DomainCounts, feasible: memoryview) -> None:
    """Keep the nodes in whose domain is a pod that the required affinity selects."""
    for node in range(len(feasible)):
        if pods.counts[pods.domain[node]] == 0:
            feasible[node] = 0


def keep_labelled(pods: DomainCounts, feasible: memoryview) -> None:
    """Keep the nodes that have the topology key: affinity requires no more for the first pod of a series."""
    for node in range(len(feasible)):
        if pods.domain[node] == pods.size:
            feasible[node] = 0


def keep_attachable(rule: AttachLimit, pods: PodNodes, feasible: memoryview) -> None:
    """Keep the nodes that can attach the volumes of the pod. One that is attached for no pod counts twice: as attached, and as new."""
    counts = rule.counts
    for node in range(len(feasible)):
        counts.attached[node] = counts.there[node] = 0
        counts.newest[node] = -1
    for volume in range(len(rule.mine)):
        _count_volume(rule, pods, volume)
    for index in range(len(rule.own)):
        cls = rule.own[index]
        for place in range(pods.start[cls], pods.start[cls] + pods.size[cls]):
            counts.attached[pods.nodes[place]] += rule.own_count[index]
    for node in range(len(feasible)):
        new = rule.wanted - counts.there[node]
        if 0 <= rule.limit[node] < counts.attached[node] + new and new != 0:
            feasible[node] = 0


def _count_volume(rule: AttachLimit, pods: PodNodes, volume: int) -> None:
    """Count a volume on each node that has it, once."""
    counts = rule.counts
    for index in range(rule.start[volume], rule.start[volume + 1]):
        cls = rule.classes[index]
        for place in range(pods.start[cls], pods.start[cls] + pods.size[cls]):
            node = pods.nodes[place]
            if counts.newest[node] != volume:
                counts.newest[node] = volume
                counts.attached[node] += 1
                counts.there[node] += rule.mine[volume]
    for index in range(rule.left_start[volume], rule.left_start[volume + 1]):
        node = rule.left[index]
        if counts.newest[node] != volume:
            counts.newest[node] = volume
            counts.attached[node] += 1


def drop_closed(closed: memoryview, feasible: memoryview) -> None:
    """Drop the nodes (N,) that are closed."""
    for node in range(len(feasible)):
        if closed[node]:
            feasible[node] = 0
