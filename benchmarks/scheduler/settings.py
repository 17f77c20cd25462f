"""A scheduler with other settings than the defaults, and the same as a profile of the model."""

from __future__ import annotations

from typing import Any

from benchmarks.scheduler.vocabulary import HOSTNAME, ZONE
from rebalancer.scheduler.profile import IMAGE_LOCALITY, NODE_RESOURCES_FIT, ScoringStrategy
from rebalancer.wire.objects import TopologySpreadConstraint

_API = "kubescheduler.config.k8s.io/v1"
_SPREAD = (
    {"maxSkew": 4, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway"},
    {"maxSkew": 9, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule"},
)
_WEIGHT, _HARD_WEIGHT, _PERCENTAGE = 5, 10, 30


def _arguments(kind: str, **values: Any) -> dict[str, Any]:
    name = kind.removesuffix("Args")
    return {"name": name, "args": {"apiVersion": _API, "kind": kind, **values}}


CUSTOM: tuple[dict[str, Any], dict[str, Any]] = (
    {
        "percentageOfNodesToScore": _PERCENTAGE,
        "profiles": [
            {
                "schedulerName": "default-scheduler",
                "plugins": {
                    "score": {
                        "disabled": [{"name": IMAGE_LOCALITY}, {"name": NODE_RESOURCES_FIT}],
                        "enabled": [{"name": NODE_RESOURCES_FIT, "weight": _WEIGHT}],
                    }
                },
                "pluginConfig": [
                    _arguments("InterPodAffinityArgs", hardPodAffinityWeight=_HARD_WEIGHT),
                    _arguments(
                        "PodTopologySpreadArgs",
                        defaultingType="List",
                        defaultConstraints=list(_SPREAD),
                    ),
                ],
            }
        ],
    },
    {
        "percentage_of_nodes_to_score": _PERCENTAGE,
        "weights": {NODE_RESOURCES_FIT: _WEIGHT, IMAGE_LOCALITY: 0},
        "hard_pod_affinity_weight": _HARD_WEIGHT,
        "default_constraints": tuple(
            TopologySpreadConstraint(
                max_skew=int(str(one["maxSkew"])),
                topology_key=str(one["topologyKey"]),
                when_unsatisfiable=str(one["whenUnsatisfiable"]),
            )
            for one in _SPREAD
        ),
    },
)
"""(KubeSchedulerConfiguration, fields of SchedulerProfile)"""


def scoring(name: str, strategy: ScoringStrategy) -> dict[str, Any]:
    """Return a profile that is as by default, but for how NodeResourcesFit scores."""
    given: dict[str, Any] = {
        "type": strategy.type,
        "resources": [{"name": name, "weight": weight} for name, weight in strategy.resources],
    }
    if strategy.shape:
        shape = [{"utilization": at, "score": score} for at, score in strategy.shape]
        given["requestedToCapacityRatio"] = {"shape": shape}
    return _profile(name, _arguments("NodeResourcesFitArgs", scoringStrategy=given))


def _profile(name: str, *arguments: dict[str, Any], **plugins: Any) -> dict[str, Any]:
    return {"schedulerName": name, "plugins": plugins, "pluginConfig": list(arguments)}


def _plugins(*names: str, **weighted: int) -> list[dict[str, Any]]:
    plain: list[dict[str, Any]] = [{"name": name} for name in names]
    return [*plain, *({"name": name, "weight": weight} for name, weight in weighted.items())]


_GPU = "example.com/gpu"
PROFILES: dict[str, Any] = {
    "percentageOfNodesToScore": 60,
    "profiles": [
        _profile("default-scheduler"),
        _profile(
            "packing",
            _arguments(
                "NodeResourcesFitArgs",
                ignoredResources=[_GPU],
                scoringStrategy={
                    "type": "MostAllocated",
                    "resources": [
                        {"name": "memory", "weight": 3},
                        {"name": "ephemeral-storage", "weight": 2},
                        {"name": _GPU, "weight": 4},
                    ],
                },
            ),
            _arguments(
                "NodeResourcesBalancedAllocationArgs",
                resources=[{"name": name} for name in ("memory", _GPU, "cpu", "ephemeral-storage")],
            ),
            score={
                "disabled": _plugins(IMAGE_LOCALITY),
                "enabled": _plugins(NodeResourcesFit=5, NodeResourcesBalancedAllocation=3),
            },
        ),
        _profile(
            "pooled",
            _arguments(
                "NodeAffinityArgs",
                addedAffinity={
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "rack", "operator": "NotIn", "values": ["rack-1"]}
                                ]
                            }
                        ]
                    },
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 30,
                            "preference": {
                                "matchExpressions": [{"key": "rack", "operator": "Exists"}]
                            },
                        },
                        {
                            "weight": 20,
                            "preference": {
                                "matchFields": [
                                    {
                                        "key": "metadata.name",
                                        "operator": "In",
                                        "values": ["node-0001"],
                                    }
                                ]
                            },
                        },
                    ],
                },
            ),
            _arguments(
                "InterPodAffinityArgs",
                hardPodAffinityWeight=7,
                ignorePreferredTermsOfExistingPods=True,
            ),
            _arguments("NodeResourcesFitArgs", ignoredResourceGroups=["example.com"]),
        )
        | {"percentageOfNodesToScore": 100},
        _profile(
            "spreading",
            _arguments(
                "PodTopologySpreadArgs",
                defaultingType="List",
                defaultConstraints=[
                    *_SPREAD,
                    {**_SPREAD[1], "maxSkew": 2, "topologyKey": ZONE, "minDomains": 2},
                ],
            ),
            _arguments("InterPodAffinityArgs", hardPodAffinityWeight=0),
            multiPoint={"enabled": _plugins(PodTopologySpread=9)},
        ),
        _profile(
            "lean",
            multiPoint={
                "disabled": _plugins("*"),
                "enabled": _plugins(
                    *("PrioritySort", "SchedulingGates", "NodeName", "DefaultBinder"),
                    *("NodeUnschedulable", "VolumeBinding", "VolumeRestrictions", "ImageLocality"),
                    *("DynamicResources", "NodeAffinity"),
                    NodeResourcesFit=2,
                ),
            },
        ),
    ],
}
"""A KubeSchedulerConfiguration of several profiles: every argument and every way to leave a plug-in out."""
