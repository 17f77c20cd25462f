"""Lowers a snapshot, a profile and the rules of a class to the flat arrays that :mod:`rebalancer.core` reads.

What the rules of a class are is found once, here. What they count is read from the state for each prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from rebalancer.core.counts import DomainCounts, has_pods
from rebalancer.core.filters import (
    HardSpread,
    drop_closed,
    drop_occupied,
    keep_attachable,
    keep_even,
)
from rebalancer.core.landings import LandingTable
from rebalancer.core.moves import RefusedRow
from rebalancer.core.prediction import (
    FILTERS,
    ClusterArrays,
    PodArrays,
    count_rules,
    find_feasible,
    keep_attracting,
    keep_passing,
    predict,
    score_each,
)
from rebalancer.core.resources import STRATEGIES, Loads, Requests, Scoring
from rebalancer.core.scores import (
    NORMALISED,
    Board,
    Preference,
    Preferences,
    SpreadArrays,
    Weights,
)
from rebalancer.core.views import view_of
from rebalancer.scheduler.filters import UNSCHEDULABLE, FilterCheck, Filters
from rebalancer.scheduler.interpod import InterPod
from rebalancer.scheduler.placement import NodePlacement
from rebalancer.scheduler.prediction import Prediction, Taker
from rebalancer.scheduler.profile import (
    BALANCED_ALLOCATION,
    DYNAMIC_RESOURCES,
    IMAGE_LOCALITY,
    INTER_POD_AFFINITY,
    NODE_AFFINITY,
    NODE_RESOURCES_FIT,
    POD_TOPOLOGY_SPREAD,
    TAINT_TOLERATION,
    VOLUME_BINDING,
    SchedulerProfile,
)
from rebalancer.scheduler.resources import Resources
from rebalancer.scheduler.scores import Scorer
from rebalancer.scheduler.search_order import search_order
from rebalancer.scheduler.spread import Constraint, Spread, go_log
from rebalancer.scheduler.topology import HOSTNAME, ArrayCache, Topologies, Topology
from rebalancer.snapshot.columns import Bools, Int32s, Ints, Same
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.state import ClusterState

# Of so many classes the rules are kept.
_KEPT_CLASSES = 1024
_SCORED = (NODE_RESOURCES_FIT, BALANCED_ALLOCATION, *NORMALISED)
"""The plug-ins that the core scores."""
_SAID = (
    NODE_RESOURCES_FIT,
    IMAGE_LOCALITY,
    BALANCED_ALLOCATION,
    VOLUME_BINDING,
    *NORMALISED,
    DYNAMIC_RESOURCES,
)
"""All that score, in the order in which explanations name them."""
_ROWS = 4
"""Room for so many soft spread constraints at first."""

_UNEVEN = "node(s) didn't match pod topology spread constraints"
_FAR = "node(s) didn't match pod affinity rules"
_NEAR = "node(s) didn't match pod anti-affinity rules"
_REFUSED = "node(s) didn't satisfy existing pods anti-affinity rules"
_NO_PORTS = "node(s) didn't have free ports for the requested pod ports"
_NO_DISK = "node(s) had no available disk"
_CLAIM_IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
    "already in-use by another pod"
)
_TOO_MANY = "node(s) exceed max volume count"


class Lowering:
    """Converts classes for the core, and calls its predictions."""

    def __init__(
        self,
        snapshot: Snapshot,
        profile: SchedulerProfile,
        placement: NodePlacement,
        resources: Resources,
        spread: Spread,
        interpod: InterPod,
        filters: Filters,
        scorer: Scorer,
    ) -> None:
        self._snapshot, self._profile, self._placement = snapshot, profile, placement
        self._resources, self._spread, self._interpod = resources, spread, interpod
        self._filters, self._scorer = filters, scorer
        self._topologies = Topologies(snapshot.nodes.labels)
        self._counted_in = ArrayCache(len(snapshot.nodes))
        self._lowered: dict[int, PodArrays] = {}
        self._everywhere = np.zeros(len(snapshot.nodes), np.int64)
        """(N,) the domains of a key that has all nodes in one."""
        self._rooms: list[Ints] = []
        self._seen = np.zeros(len(snapshot.nodes) + 2, np.int64)
        sizes = range(len(snapshot.nodes) + 3)
        self._logarithms = np.array([go_log(float(domains + 2)) for domains in sizes])
        self._numbers = np.arange(len(snapshot.nodes), dtype=np.int64)
        self._state: ClusterState | None = None
        self._rows = _ROWS

    def forget(self) -> None:
        """Find the rules of all classes again."""
        self._lowered.clear()

    def predict(self, state: ClusterState, cls: int) -> Prediction:
        """Return the distribution of landings of a pod of the class, whose pods can be predicted, if it is scheduled now."""
        pod = self.lower(state, cls)
        predict(self.cluster, pod)
        return read_landings(self.cluster.landings)

    def lower(self, state: ClusterState, cls: int) -> PodArrays:
        """Return a class for predictions by the core alone; ``cluster`` has the loads of ``state`` then."""
        pod = self._find(cls)
        if state is not self._state:
            self._enter(state)
        return pod

    def find_feasible(self, state: ClusterState, cls: int) -> Int32s:
        """Return the nodes, ascending, that pass all filters."""
        pod = self.lower(state, cls)
        count = find_feasible(self.cluster, pod)
        return np.sort(self._nodes[:count]).astype(np.int32)

    # -- one filter, or one plug-in, by itself --------------------------------------------------------

    def find_passing(self, state: ClusterState, cls: int, left_out: Sequence[str] = ()) -> Bools:
        """Return the nodes (N,) that pass all filters but those ``left_out``, of the ones that depend on other pods."""
        good = self._filters.static(cls).copy()
        self._keep(state, cls, [name for name in FILTERS if name not in left_out], good)
        return good

    def find_roomy(self, state: ClusterState, cls: int) -> Bools:
        """Return the nodes (N,) with room for the requests of a pod of the class."""
        good = np.ones(len(self._snapshot.nodes), bool)
        self._keep(state, cls, [NODE_RESOURCES_FIT], good)
        return good

    def _keep(self, state: ClusterState, cls: int, names: Sequence[str], good: Bools) -> None:
        """Keep of ``good`` (N,) the nodes that pass some filters of the core, as far as these are on."""
        pod = self.lower(state, cls)
        count_rules(self.cluster, pod)
        for number, name in enumerate(FILTERS):
            if name in names and self._filters.checks(name):
                keep_passing(self.cluster, pod, number, view_of(good))

    def find_checks(self, state: ClusterState, cls: int) -> Iterator[FilterCheck]:
        """Yield the checks of the core's filters for a class, in the order of each filter."""
        pod = self.lower(state, cls)
        count_rules(self.cluster, pod)

        def check(name: str, words: str, keep: Callable[..., None], *rule: object) -> FilterCheck:
            good = np.ones(len(self._numbers), bool)
            keep(*rule, view_of(good))
            return FilterCheck(name, words, good)

        yield check("NodeUnschedulable", UNSCHEDULABLE, drop_closed, pod.removed)
        yield from self._check_requests(pod.requests)
        for one, lowered in zip(self._spread.hard(cls), pod.spread, strict=True):
            yield FilterCheck(
                POD_TOPOLOGY_SPREAD, f"{_UNEVEN} (missing required label)", one.topology.present
            )
            yield check(POD_TOPOLOGY_SPREAD, _UNEVEN, keep_even, lowered)
        yield check(INTER_POD_AFFINITY, _FAR, keep_attracting, pod)
        own = len(self._interpod.relation(cls).anti)
        for number, pods in enumerate(pod.repelled):
            yield check(
                INTER_POD_AFFINITY, _NEAR if number < own else _REFUSED, drop_occupied, pods
            )
        for pods in pod.ports:
            yield check("NodePorts", _NO_PORTS, drop_occupied, pods)
        disks = self._filters.disks.rivals(cls) is not None
        for number, pods in enumerate(pod.disks):
            words = _CLAIM_IN_USE if number >= disks else _NO_DISK
            yield check("VolumeRestrictions", words, drop_occupied, pods)
        for limit in pod.volumes:
            attached = self.cluster.existing
            yield check("NodeVolumeLimits", _TOO_MANY, keep_attachable, limit, attached)

    def _check_requests(self, requests: Requests) -> Iterator[FilterCheck]:
        """Yield the checks of a class on the room of nodes, resource by resource."""
        loads, names, devices = self.cluster.loads, self._snapshot.resources, self._snapshot.devices
        places = np.asarray(loads.pod_count) < np.asarray(loads.max_pods)
        yield FilterCheck(NODE_RESOURCES_FIT, "Too many pods", places)
        for row in requests.checked:
            free = np.asarray(loads.allocatable)[row] - np.asarray(loads.used)[row]
            of_devices = devices is not None and row in devices.rows
            name = DYNAMIC_RESOURCES if of_devices else NODE_RESOURCES_FIT
            words = "cannot allocate all claims" if of_devices else f"Insufficient {names[row]}"
            yield FilterCheck(name, words, requests.amounts[row] <= free)

    def score_each(self, state: ClusterState, cls: int, nodes: Int32s) -> dict[str, Ints]:
        """Return plug-in -> weighted score (K,), of those that score the class; the nodes are scored together."""
        pod = self.lower(state, cls)
        nodes = np.ascontiguousarray(nodes, np.int32)
        scores = np.zeros((len(_SCORED), len(nodes)), np.int64)
        if len(nodes):
            score_each(self.cluster, pod, view_of(nodes), view_of(scores.reshape(-1)))
        of_core = dict(zip(_SCORED, scores, strict=True))
        preferences = pod.preferences
        silent = {
            BALANCED_ALLOCATION: not pod.requests.balances,
            NODE_AFFINITY: preferences.affinity is None,
            INTER_POD_AFFINITY: not (
                len(nodes) and any(has_pods(of.pods) for of in preferences.pods)
            ),
            POD_TOPOLOGY_SPREAD: not preferences.spread,
        }
        fixed = {name: score[nodes] for name, score in self._scorer.weigh(cls).items()}
        both = {**of_core, **fixed}
        if self._scores_devices(cls):
            both[DYNAMIC_RESOURCES] = both.pop(NODE_AFFINITY)
        return {
            name: both[name]
            for name in _SAID
            if name in both and self._profile.weights.get(name) and not silent.get(name)
        }

    def _find(self, cls: int) -> PodArrays:
        lowered = self._lowered.get(cls)
        if lowered is None:
            if len(self._lowered) >= _KEPT_CLASSES:
                self._lowered.clear()
            lowered = self._lowered[cls] = self._lower(cls)
        return lowered

    def _enter(self, state: ClusterState) -> None:
        """Read loads from ``state`` from now on."""
        self._state = state
        profile, nodes = self._profile, self._snapshot.nodes
        weights = profile.weights
        self.cluster = ClusterArrays(
            state.living,
            state.existing,
            Loads(
                view_of(nodes.allocatable),
                view_of(state.used),
                view_of(state.scored_used),
                view_of(nodes.max_pods.astype(np.int64)),
                view_of(state.pod_count),
                view_of(np.ascontiguousarray(self._snapshot.requests)),
                view_of(np.ascontiguousarray(self._snapshot.scored)),
            ),
            self._lower_scoring(),
            Weights(
                weights.get(TAINT_TOLERATION, 0),
                weights.get(NODE_AFFINITY, 0),
                weights.get(INTER_POD_AFFINITY, 0),
                weights.get(POD_TOPOLOGY_SPREAD, 0),
            ),
            view_of(search_order(nodes)),
            profile.nodes_to_find(len(nodes)),
            Board(len(nodes), self._rows, view_of(self._logarithms)),
            view_of(np.array([self._filters.checks(name) for name in FILTERS])),
        )
        self._nodes = np.asarray(self.cluster.ring.nodes)

    def _lower_scoring(self) -> Scoring:
        profile, resources = self._profile, self._resources
        return Scoring(
            STRATEGIES.index(profile.scoring.type),
            view_of(resources.scored_rows),
            view_of(resources.weights),
            view_of(resources.ratios),
            view_of(resources.balanced_rows),
            profile.balances_by_improvement,
            profile.weights.get(NODE_RESOURCES_FIT, 0),
            profile.weights.get(BALANCED_ALLOCATION, 0),
        )

    # -- the rules of a class -----------------------------------------------------------------------

    def _lower(self, cls: int) -> PodArrays:
        counted: list[DomainCounts] = []
        relation = self._interpod.relation(cls)
        repelled = [
            self._count(counted, self._topologies[key], classes, terminating=True)
            for key, classes in (*relation.anti, *relation.refused_by)
        ]
        attracted = [
            self._count(counted, self._topologies[key], relation.affinity, terminating=True)
            for key in relation.affinity_keys
        ]
        filters, claims = self._filters, self._filters.users_of_claims(cls)
        disks = self._count_rivals(counted, filters.disks.rivals(cls))
        if len(claims):
            of_claims = self._everywhere, self._everywhere, 1, claims
            disks.append(self._add(counted, *of_claims, terminating=True))
        pod = PodArrays(
            self._lower_requests(cls),
            self._lower_preferences(cls, counted),
            [self._lower_hard(counted, one) for one in self._spread.hard(cls)],
            repelled,
            attracted,
            self._count_rivals(counted, filters.ports.rivals(cls)),
            disks,
            list(filters.limits.of(cls)),
            view_of(filters.static(cls)),
            view_of(self._placement.find_removed(cls)),
            first=relation.matches_itself,
        )
        pod.counted = counted
        return pod

    def _count_rivals(
        self, counted: list[DomainCounts], rivals: Int32s | None
    ) -> list[DomainCounts]:
        """Return the counts on each node of the classes that use the same exclusive thing; none if there is no such thing."""
        if rivals is None:
            return []
        size = len(self._numbers)
        return [self._add(counted, self._numbers, self._numbers, size, rivals, terminating=True)]

    def _lower_requests(self, cls: int) -> Requests:
        resources = self._resources
        return Requests(
            view_of(np.ascontiguousarray(self._snapshot.requests[:, cls])),
            view_of(np.ascontiguousarray(resources.scored[:, cls])),
            view_of(np.array(resources.requested_rows(cls), np.int64)),
            view_of(np.ascontiguousarray(resources.counted[:, cls])),
            resources.balances(cls),
        )

    def _lower_hard(self, counted: list[DomainCounts], constraint: Constraint) -> HardSpread:
        few = len(constraint.domains) < max(1, constraint.min_domains)
        domains = constraint.domains[:0] if few else constraint.domains
        return HardSpread(
            self._count(counted, constraint.topology, constraint.classes, constraint.eligible),
            constraint.max_skew - constraint.matches_itself,
            view_of(domains.astype(np.int64)),
        )

    def _lower_preferences(self, cls: int, counted: list[DomainCounts]) -> Preferences:
        affinity, fixed = self._placement.preferred_affinity(cls), self._scorer.find_fixed(cls)
        if self._scores_devices(cls) and (devices := self._snapshot.devices) is not None:
            affinity = devices.preferred[cls]  # normalised and weighted as NodeAffinity
        ignored = self._spread.ignored_nodes(cls)
        soft = self._spread.soft(cls)
        if len(soft) > self._rows:
            self._rows, self._state = len(soft), None
        return Preferences(
            view_of(self._placement.preferred_taints(cls)),
            view_of(self._placement.find_marked(cls)),
            None if affinity is None else view_of(affinity),
            None if fixed is None else view_of(fixed),
            [
                Preference(
                    self._count(counted, self._topologies[key], classes, terminating=True), weight
                )
                for key, weight, classes in self._interpod.relation(cls).weighted
            ],
            [self._lower_soft(counted, one) for one in soft],
            view_of(ignored),
            ignores=bool(ignored.any()),
        )

    def _scores_devices(self, cls: int) -> bool:
        devices = self._snapshot.devices
        judged = devices is not None and cls in devices.preferred
        return judged and self._profile.scores_alternatives

    def _lower_soft(self, counted: list[DomainCounts], constraint: Constraint) -> SpreadArrays:
        topology, per_node = constraint.topology, constraint.topology.key == HOSTNAME
        return SpreadArrays(
            self._count_per_node(counted, topology, constraint.classes)
            if per_node
            else self._count(counted, topology, constraint.classes, constraint.eligible),
            constraint.max_skew - 1,
            view_of(self._numbers if per_node else topology.named),
            view_of(self._seen),
            per_node=per_node,
        )

    def _count(
        self,
        counted: list[DomainCounts],
        topology: Topology,
        classes: Int32s,
        eligible: Bools | None = None,
        *,
        terminating: bool = False,
    ) -> DomainCounts:
        """Return the counts of pods of ``classes`` per domain, of those on ``eligible`` nodes (N,) if given."""
        domain = topology.domain
        if eligible is not None:
            domain = self._counted_in.get(
                (topology.key, Same(eligible)),
                lambda: np.where(eligible, topology.domain, topology.size),
            )
        return self._add(
            counted, domain, topology.domain, topology.size, classes, terminating=terminating
        )

    def _count_per_node(
        self, counted: list[DomainCounts], topology: Topology, classes: Int32s
    ) -> DomainCounts:
        """Return the counts of all pods of ``classes`` per node; 0 for nodes that lack the key."""
        size = len(self._numbers)
        domain = self._counted_in.get(
            ("per node", topology.key), lambda: np.where(topology.present, self._numbers, size)
        )
        return self._add(counted, self._numbers, domain, size, classes, terminating=False)

    def _add(
        self,
        counted: list[DomainCounts],
        counted_in: Ints,
        domain: Ints,
        size: int,
        classes: Int32s,
        *,
        terminating: bool,
    ) -> DomainCounts:
        """Return counts with room of their own among the rules of one class; classes share it."""
        if len(counted) == len(self._rooms):
            self._rooms.append(np.zeros(len(self._snapshot.nodes) + 1, np.int64))
        room = view_of(self._rooms[len(counted)])
        pods = DomainCounts(
            view_of(np.ascontiguousarray(classes, np.int32)),
            view_of(counted_in),
            view_of(domain),
            size,
            room,
            terminating=terminating,
        )
        counted.append(pods)
        return pods


def read_landings(
    landings: LandingTable | RefusedRow, takers: tuple[Taker, ...] = ()
) -> Prediction:
    """Return landings as the core has found, or noted, them."""
    nodes, probability = np.asarray(landings.nodes), np.asarray(landings.probability)
    count = landings.count
    return Prediction(nodes[:count].copy(), probability[:count].copy(), takers=takers)


def write_landings(landings: LandingTable, prediction: Prediction) -> None:
    """Let landings be those of a prediction."""
    count = landings.count = len(prediction.nodes)
    np.asarray(landings.nodes)[:count] = prediction.nodes
    np.asarray(landings.probability)[:count] = prediction.probability
