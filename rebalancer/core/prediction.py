"""Where the scheduler puts one pod: filters, scores, and the distribution over windows of nodes."""

from __future__ import annotations

from rebalancer.core.counts import DomainCounts, PodNodes, count_pods, has_pods
from rebalancer.core.filters import (
    HardSpread,
    drop_occupied,
    keep_even,
    keep_labelled,
    keep_occupied,
    keep_roomy,
)
from rebalancer.core.landings import LandingTable, collect
from rebalancer.core.resources import Loads, Requests, Scoring, score
from rebalancer.core.scores import (
    Board,
    Preferences,
    Weights,
    add_up,
    find_extremes,
    read_scores,
)
from rebalancer.core.views import flags
from rebalancer.core.windows import Ring, fold, number_kinds, share_out, weigh_windows


class PodArrays:
    """The pod that is to be scheduled, and all that decides where. (N,) arrays are of all nodes."""

    def __init__(
        self,
        requests: Requests,
        preferences: Preferences,
        spread: list[HardSpread],
        repelled: list[DomainCounts],
        attracted: list[DomainCounts],
        counted: list[DomainCounts],
        *,
        first: bool,
    ) -> None:
        self.requests = requests
        self.preferences = preferences
        self.spread = spread
        self.repelled = repelled
        """Pods that may not be in the same domain: required anti-affinity, in both directions."""
        self.attracted = attracted
        """Pods one of which must be in the same domain, for each key of its required affinity."""
        self.counted = counted
        """All that is counted before a prediction."""
        self.first = first
        """Whether it matches its own required affinity, so that the first pod of a series needs no other."""


class ClusterArrays:
    """The nodes and the scheduler's settings, with room for the numbers of one prediction."""

    def __init__(
        self,
        living: PodNodes,
        existing: PodNodes,
        loads: Loads,
        scoring: Scoring,
        weights: Weights,
        order: memoryview,
        most: int,
        board: Board,
        *,
        checks_room: bool,
        checks_spread: bool,
        checks_pods: bool,
    ) -> None:
        self.living = living
        """The pods that do not terminate."""
        self.existing = existing
        """All pods."""
        self.loads = loads
        self.scoring = scoring
        self.weights = weights
        self.order = order
        """(N,) the nodes in the order of the search."""
        self.most = most
        """After so many feasible nodes the search ends."""
        self.board = board
        self.checks_room = checks_room
        """Whether the filter NodeResourcesFit is on."""
        self.checks_spread = checks_spread
        """Whether the filter PodTopologySpread is on."""
        self.checks_pods = checks_pods
        """Whether the filter InterPodAffinity is on."""
        self.ring = Ring(len(order))
        self.landings = LandingTable(len(order))
        self.feasible = flags(len(order))
        """(N,) the nodes that pass; before the prediction those that pass all filters that are not asked here."""


def predict(cluster: ClusterArrays, pod: PodArrays) -> None:
    """Predict where the scheduler puts a pod, into ``cluster.landings``.

    Before, ``cluster.feasible`` holds the nodes that pass the filters on the pod and the node alone.
    """
    ring = cluster.ring
    find_feasible(cluster, pod)
    if ring.count > 0:
        weigh_windows(ring, len(cluster.order), cluster.most)
        if ring.count == 1:
            ring.chance[0] = 1.0
        else:
            _choose(cluster, pod)
    collect(cluster.landings, ring)


def _choose(cluster: ClusterArrays, pod: PodArrays) -> None:
    """Give each feasible node of the ring its chance to be chosen."""
    ring, board, preferences = cluster.ring, cluster.board, pod.preferences
    for place in range(ring.count):
        node = ring.nodes[place]
        board.fixed[place] = score(cluster.loads, cluster.scoring, pod.requests, node)
    read_scores(board, ring, preferences)
    kinds = number_kinds(ring, board.extremes, find_extremes(board, ring, preferences))
    for index in range(kinds):
        kind = ring.sorted[index]
        add_up(board, ring, preferences, cluster.weights, ring.first[kind])
        share_out(ring, board.totals, kind)
    fold(ring)


def find_feasible(cluster: ClusterArrays, pod: PodArrays) -> int:
    """Write the nodes that pass all filters into ``cluster.ring``, and return their number; see :func:`predict`."""
    feasible = cluster.feasible
    for rule in pod.counted:
        count_pods(rule, cluster.existing if rule.terminating else cluster.living)
    if cluster.checks_room:
        keep_roomy(cluster.loads, pod.requests, feasible)
    if cluster.checks_spread:
        for constraint in pod.spread:
            keep_even(constraint, feasible)
    if cluster.checks_pods:
        for pods in pod.repelled:
            drop_occupied(pods, feasible)
        _keep_attracting(pod, feasible)
    return _line_up(cluster)


def _keep_attracting(pod: PodArrays, feasible: memoryview) -> None:
    """Keep the nodes that required affinity allows."""
    alone = pod.first
    for pods in pod.attracted:
        alone = alone and not has_pods(pods)
    for pods in pod.attracted:
        if alone:
            keep_labelled(pods, feasible)
        else:
            keep_occupied(pods, feasible)


def _line_up(cluster: ClusterArrays) -> int:
    """Write the feasible nodes into the ring, in the order of the search; return their number."""
    ring = cluster.ring
    count = 0
    for rank in range(len(cluster.order)):
        node = cluster.order[rank]
        if cluster.feasible[node]:
            ring.nodes[count] = node
            ring.rank[count] = rank
            count += 1
    ring.count = count
    return count
