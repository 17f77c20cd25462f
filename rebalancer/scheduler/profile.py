"""The modelled scheduler: its version, weights and settings, which no API shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rebalancer.wire.objects import DEFAULT_SCHEDULER, NodeAffinity, TopologySpreadConstraint

NODE_RESOURCES_FIT = "NodeResourcesFit"
BALANCED_ALLOCATION = "NodeResourcesBalancedAllocation"
TAINT_TOLERATION = "TaintToleration"
NODE_AFFINITY = "NodeAffinity"
POD_TOPOLOGY_SPREAD = "PodTopologySpread"
INTER_POD_AFFINITY = "InterPodAffinity"
IMAGE_LOCALITY = "ImageLocality"
VOLUME_BINDING = "VolumeBinding"
DYNAMIC_RESOURCES = "DynamicResources"

DEFAULT_WEIGHTS: Mapping[str, int] = {
    TAINT_TOLERATION: 3,
    NODE_AFFINITY: 2,
    NODE_RESOURCES_FIT: 1,
    VOLUME_BINDING: 1,
    POD_TOPOLOGY_SPREAD: 2,
    INTER_POD_AFFINITY: 2,
    DYNAMIC_RESOURCES: 2,
    BALANCED_ALLOCATION: 1,
    IMAGE_LOCALITY: 1,
}
"""Scoring plug-ins and weights, in the order in which they run.

``pkg/scheduler/apis/config/v1/default_plugins.go``, the same from 1.34 to 1.38, but for DynamicResources, which scores
from 1.35 on, and only alternatives of a request (``firstAvailable``). 1.37 runs NodeName before NodeUnschedulable, which
changes nothing: no pod that is scheduled names a node.
"""


@dataclass(frozen=True, slots=True)
class ScoringStrategy:
    """How NodeResourcesFit scores (``NodeResourcesFitArgs.scoringStrategy``)."""

    type: str = "LeastAllocated"
    """Or MostAllocated, or RequestedToCapacityRatio."""
    resources: tuple[tuple[str, int], ...] = (("cpu", 1), ("memory", 1))
    """Names with weights: cpu, memory, ephemeral-storage and extended resources."""
    shape: tuple[tuple[int, int], ...] = ()
    """The shape of RequestedToCapacityRatio: utilisation (0 to 100, ascending) and score (0 to 10)."""


KNOWN_VERSIONS = ((1, 34), (1, 35), (1, 36), (1, 37), (1, 38))
"""The modelled versions: those that ran beside the model on a real control plane, and those before that differ by the
properties of :class:`SchedulerProfile`. Sources: ``pkg/scheduler`` and the defaults in
``pkg/features/kube_features.go`` of each.
"""

_MIN_NODES = 100
_MIN_PERCENTAGE = 5


@dataclass(frozen=True, slots=True)
class SchedulerProfile:
    """The settings of one kube-scheduler profile that affect decisions."""

    version: tuple[int, int]
    """Which of the known versions is modelled."""
    weights: Mapping[str, int] = field(default_factory=lambda: dict(DEFAULT_WEIGHTS))
    """Score weight by plug-in; a plug-in that is missing does not score."""
    default_constraints: tuple[TopologySpreadConstraint, ...] | None = None
    """Spread of pods without constraints (``defaultingType: List``); None means the system's defaults."""
    percentage_of_nodes_to_score: int | None = None
    """The setting of that name; None or 0: adaptive."""
    hard_pod_affinity_weight: int = 1
    """Weight, 0 to 100, of required affinity terms of pods on nodes, in the score InterPodAffinity of a pod that matches them."""
    scoring: ScoringStrategy = ScoringStrategy()
    balanced: tuple[str, ...] = ("cpu", "memory")
    """Resources whose balance NodeResourcesBalancedAllocation scores."""
    ignored_resources: frozenset[str] = frozenset()
    """Extended resources, and groups of them, that NodeResourcesFit does not check."""
    added_affinity: NodeAffinity | None = None
    """The affinity that NodeAffinity adds to that of pods (``addedAffinity``)."""
    ignores_preferred_terms: bool = False
    """Whether preferred terms of other pods count only for pods that have such terms themselves."""
    filter_order: tuple[str, ...] = ()
    """Filters in the order in which they run; empty: the default one. Of several that fail, the first one is reported."""
    off: frozenset[str] = frozenset()
    """Plug-ins that do not run at all."""
    managed_resources: frozenset[str] = frozenset()
    """Resources about which an extender decides: pods that request one cannot be predicted."""
    offered: frozenset[str] = frozenset()
    """Extended resources that are known to come from device plug-ins, although no node has any yet."""
    unmodelled: tuple[str, ...] = ()
    """The parts of the profile that are not modelled; if there are any, its pods cannot be predicted."""
    scheduler_name: str = DEFAULT_SCHEDULER
    """Pods that name another one cannot be predicted, unless it is that of one of ``others``."""
    others: tuple[SchedulerProfile, ...] = ()
    """Further profiles, each for the pods that name it."""
    note: str = ""
    """A note if the cluster's version is outside the known ones; else empty."""

    @classmethod
    def for_version(cls, version: tuple[int, int], **overrides: Any) -> SchedulerProfile:
        """Return the profile for a cluster version; for an unknown version the nearest one, with a note.

        ``overrides`` replace fields, ``weights`` are merged over the defaults; an unknown field raises TypeError.
        """
        weights = {**DEFAULT_WEIGHTS, **(overrides.pop("weights", None) or {})}
        return replace(cls(version=version, weights=weights), **overrides).at(version)

    def at(self, version: tuple[int, int]) -> SchedulerProfile:
        """Return a copy, with all of its profiles, for another cluster version; see :meth:`for_version`."""
        nearest = min(max(version, KNOWN_VERSIONS[0]), KNOWN_VERSIONS[-1])
        note = ""
        if nearest != version:
            note = (
                f"Kubernetes {version[0]}.{version[1]} is outside the scheduler versions that are "
                f"modelled; predicted as {nearest[0]}.{nearest[1]}"
            )
        others = tuple(other.at(version) for other in self.others)
        return replace(self, version=nearest, note=note, others=others)

    def with_offered(self, resources: frozenset[str]) -> SchedulerProfile:
        """Return a copy, with all of its profiles, that knows these resources as ``offered``."""
        others = tuple(other.with_offered(resources) for other in self.others)
        return replace(self, offered=resources, others=others)

    @property
    def scores_alternatives(self) -> bool:
        """Whether DynamicResources scores the alternatives of a request (1.35)."""
        return self.version >= (1, 35)

    @property
    def balances_by_improvement(self) -> bool:
        """Whether BalancedAllocation compares the node with and without the pod (1.36)."""
        return self.version >= (1, 36)

    @property
    def asks_declared_features(self) -> bool:
        """Whether the filter NodeDeclaredFeatures is on (1.36)."""
        return self.version >= (1, 36)

    @property
    def allocates_extended_resources(self) -> bool:
        """Whether DeviceClasses may provide extended resources (DRAExtendedResource, on from 1.36)."""
        return self.version >= (1, 36)

    @property
    def counts_image_volumes(self) -> bool:
        """Whether ImageLocality also counts the images of image volumes (1.36)."""
        return self.version >= (1, 36)

    @property
    def expects_image_volumes(self) -> bool:
        """Whether image volumes raise the total size needed for ImageLocality's full score (1.37)."""
        return self.version >= (1, 37)

    @property
    def scores_free_volumes(self) -> bool:
        """Whether VolumeBinding scores how much of a volume a claim would use (StorageCapacityScoring, 1.37)."""
        return self.version >= (1, 37)

    @property
    def counts_by_empty_selectors(self) -> bool:
        """Whether a spread constraint with an empty selector counts all pods of the namespace, and not none (1.38)."""
        return self.version >= (1, 38)

    @property
    def scores_pod_level_requests(self) -> bool:
        """Whether NodeResourcesFit scores a new pod by its pod-level requests, and not by its containers (1.38)."""
        return self.version >= (1, 38)

    def nodes_to_find(self, nodes: int) -> int:
        """Return the number of feasible nodes at which the search ends (``numFeasibleNodesToFind``)."""
        if nodes < _MIN_NODES:
            return nodes
        percentage = self.percentage_of_nodes_to_score or max(_MIN_PERCENTAGE, 50 - nodes // 125)
        return max(_MIN_NODES, nodes * percentage // 100)
