"""Where the scheduler puts one pod: filters, scores, and the distribution over windows of nodes."""

from __future__ import annotations

from dataclasses import dataclass, field

from rebalancer.core.counts import (
    DomainCounts,
    PodNodes,
    add_pod,
    count_pods,
    has_pods,
    remove_pod,
)
from rebalancer.core.filters import (
    AttachLimit,
    HardSpread,
    drop_closed,
    drop_occupied,
    keep_attachable,
    keep_even,
    keep_labelled,
    keep_occupied,
    keep_roomy,
)
from rebalancer.core.landings import LandingTable, collect
from rebalancer.core.resources import (
    Loads,
    Requests,
    Scoring,
    hold,
    score,
    score_balance,
    score_fit,
)
from rebalancer.core.scores import (
    Board,
    Preferences,
    Weights,
    add_up,
    find_extremes,
    read_scores,
    write_each,
)
from rebalancer.core.views import flags
from rebalancer.core.windows import Ring, fold, number_kinds, share_out, weigh_windows

FILTERS = (
    "NodeResourcesFit",
    "PodTopologySpread",
    "InterPodAffinity",
    "NodePorts",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "NodeUnschedulable",
)
"""The filters that depend on other pods, or on assumptions about nodes, by their numbers."""
_ROOM, _EVEN, _PODS, _PORTS, _DISKS, _VOLUMES, _CORDONS = 0, 1, 2, 3, 4, 5, 6
_FILTERS = len(FILTERS)


@dataclass(eq=False, repr=False)
class PodArrays:
    """The pod that is to be scheduled, and all that decides where. (N,) arrays are of all nodes."""

    requests: Requests
    preferences: Preferences
    spread: list[HardSpread]
    repelled: list[DomainCounts]
    """Pods that may not be in the same domain: required anti-affinity, in both directions."""
    attracted: list[DomainCounts]
    """Pods one of which must be in the same domain, for each key of its required affinity."""
    ports: list[DomainCounts]
    """Pods that use a host port of it on the same node."""
    disks: list[DomainCounts]
    """Pods that use a disk of it on the same node, or a claim of it anywhere, which only one pod may use."""
    volumes: list[AttachLimit]
    """The limits on the volumes that it needs."""
    alone: memoryview
    """(N,) the nodes that pass all filters on the pod and the node alone."""
    removed: memoryview
    """(N,) the nodes that are supposed to be cordoned and tainted by scale-in, and that it does not tolerate."""
    first: bool
    """Whether it matches its own required affinity, so that the first pod of a series needs no other."""
    counted: list[DomainCounts] = field(default_factory=list, init=False)
    """All that is counted before a prediction."""
    unknown: bool = field(default=False, init=False)
    """Whether its landing cannot be predicted."""
    fails_to_score: bool = field(default=False, init=False)
    """Whether the scheduler fails with an error where several nodes are feasible."""


@dataclass(eq=False, repr=False)
class ClusterArrays:
    """The nodes and the scheduler's settings, with room for the numbers of one prediction."""

    living: PodNodes
    """The pods that do not terminate."""
    existing: PodNodes
    """All pods, including terminating ones."""
    loads: Loads
    scoring: Scoring
    weights: Weights
    order: memoryview
    """(N,) the nodes in the order of the search."""
    most: int
    """The number of feasible nodes after which the search ends."""
    board: Board
    checks: memoryview
    """Whether each of ``FILTERS`` is on, by its number."""
    ring: Ring = field(init=False)
    landings: LandingTable = field(init=False)
    feasible: memoryview = field(init=False)
    """(N,) the nodes that pass."""

    def __post_init__(self) -> None:
        self.ring = Ring(len(self.order))
        self.landings = LandingTable(len(self.order))
        self.feasible = flags(len(self.order))


def foresee(
    cluster: ClusterArrays, pod: PodArrays, cls: int, node: int, lives: bool, gone: bool
) -> None:
    """Predict where the scheduler places the replacement of a pod of ``cls`` on ``node``, see :func:`predict`.

    ``lives``: the pod is evicted now, and was not terminating before. ``gone``: it is gone by then, and occupies no room.
    The state is restored afterwards.
    """
    if lives:
        remove_pod(cluster.living, cls, node)
    if gone:
        remove_pod(cluster.existing, cls, node)
        hold(cluster.loads, cls, node, -1)
    try:
        predict(cluster, pod)
    finally:
        if gone:
            hold(cluster.loads, cls, node, 1)
            add_pod(cluster.existing, cls, node)
        if lives:
            add_pod(cluster.living, cls, node)


def predict(cluster: ClusterArrays, pod: PodArrays) -> None:
    """Predict where the scheduler puts a pod, into ``cluster.landings``."""
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
    """Write the nodes that pass all filters into ``cluster.ring``, and return their number."""
    count_rules(cluster, pod)
    for node in range(len(cluster.feasible)):
        cluster.feasible[node] = pod.alone[node]
    for number in range(_FILTERS):
        if cluster.checks[number]:
            keep_passing(cluster, pod, number, cluster.feasible)
    return _line_up(cluster)


def count_rules(cluster: ClusterArrays, pod: PodArrays) -> None:
    """Count all that the rules of a pod count."""
    for rule in pod.counted:
        count_pods(rule, cluster.existing if rule.terminating else cluster.living)


def keep_passing(cluster: ClusterArrays, pod: PodArrays, number: int, feasible: memoryview) -> None:
    """Keep the nodes that pass one of ``FILTERS``, after :func:`count_rules`."""
    if number == _ROOM:
        keep_roomy(cluster.loads, pod.requests, feasible)
    elif number == _EVEN:
        _keep_all_even(pod, feasible)
    elif number == _PODS:
        _drop_all(pod.repelled, feasible)
        keep_attracting(pod, feasible)
    elif number == _PORTS:
        _drop_all(pod.ports, feasible)
    elif number == _DISKS:
        _drop_all(pod.disks, feasible)
    elif number == _VOLUMES:
        _keep_within_limits(cluster, pod, feasible)
    elif number == _CORDONS:
        drop_closed(pod.removed, feasible)


def _keep_all_even(pod: PodArrays, feasible: memoryview) -> None:
    """Keep the nodes that all hard spread constraints allow."""
    for constraint in pod.spread:
        keep_even(constraint, feasible)


def _keep_within_limits(cluster: ClusterArrays, pod: PodArrays, feasible: memoryview) -> None:
    """Keep the nodes that can attach all volumes of the pod."""
    for limit in pod.volumes:
        keep_attachable(limit, cluster.existing, feasible)


def _drop_all(kinds: list[DomainCounts], feasible: memoryview) -> None:
    """Drop the nodes in whose domain is a pod of any of these kinds."""
    for pods in kinds:
        drop_occupied(pods, feasible)


def keep_attracting(pod: PodArrays, feasible: memoryview) -> None:
    """Keep the nodes that required affinity allows."""
    alone = pod.first
    for pods in pod.attracted:
        alone = alone and not has_pods(pods)
    for pods in pod.attracted:
        if alone:
            keep_labelled(pods, feasible)
        else:
            keep_occupied(pods, feasible)


def score_each(
    cluster: ClusterArrays, pod: PodArrays, nodes: memoryview, scores: memoryview
) -> None:
    """Write the weighted score of each plug-in for each of ``nodes`` (K,), which are scored together, into ``scores``.

    Plug-in by plug-in, K numbers each: NodeResourcesFit, NodeResourcesBalancedAllocation, and ``scores.NORMALISED``.
    """
    ring, board, scoring, count = cluster.ring, cluster.board, cluster.scoring, len(nodes)
    count_rules(cluster, pod)
    ring.count = count
    for place in range(count):
        node = nodes[place]
        ring.nodes[place] = node
        board.fixed[place] = 0
        fit = score_fit(cluster.loads, scoring, pod.requests, node)
        balance = 0
        if pod.requests.balances:
            balance = score_balance(cluster.loads, scoring, pod.requests, node)
        scores[place] = scoring.fit_weight * fit
        scores[count + place] = scoring.balance_weight * balance
    weigh_windows(ring, count, count)
    read_scores(board, ring, pod.preferences)
    find_extremes(board, ring, pod.preferences)
    write_each(board, ring, pod.preferences, cluster.weights, scores, 2 * count)


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
