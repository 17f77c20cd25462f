"""The policy's sections on the cluster: its scheduler, and the safety limits of a run."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from rebalancer.base.plain_text import shown
from rebalancer.policy.params import Section
from rebalancer.policy.select import LabelsField
from rebalancer.policy.values import Duration, LabelKey, Limit, LimitField, PositiveDuration

_VERSION = re.compile(r"v?1\.(\d{2,3})(?:\.\d+)?\Z", re.ASCII)


def _version(value: Any) -> str:
    # An unquoted 1.40 is the number 1.4 in YAML, and 1.4 is no version of today.
    text = str(value) if isinstance(value, float) else value
    match = _VERSION.match(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(
            f'{shown(value)} is no Kubernetes version; write it in quotes, like "1.36"'
        )
    return f"1.{match[1]}"


ScorePlugin = Literal[
    "ImageLocality",
    "InterPodAffinity",
    "NodeAffinity",
    "NodeResourcesBalancedAllocation",
    "NodeResourcesFit",
    "PodTopologySpread",
    "TaintToleration",
]
"""The plug-ins of the default scheduler whose scores are modelled."""


def _scored_resource(name: str) -> str:
    if name not in ("cpu", "memory") and "/" not in name:
        raise ValueError(
            f"{shown(name)} is not modelled; write cpu, memory or an extended resource"
        )
    return name


class SpreadDefault(Section):
    """A topology spread constraint that the scheduler applies to pods without one."""

    topology_key: LabelKey = Field(description="Node label whose values are the domains.")
    max_skew: int = Field(ge=1, le=2**31 - 1, description="Largest allowed difference in pods.")
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = Field(
        default="ScheduleAnyway", description="DoNotSchedule (hard) or ScheduleAnyway (soft)."
    )


class ScoredResource(Section):
    """A resource by which NodeResourcesFit scores."""

    name: Annotated[str, AfterValidator(_scored_resource)] = Field(
        description="cpu, memory or an extended resource."
    )
    weight: int = Field(default=1, ge=1, le=100, description="Its weight.")


class ShapePoint(Section):
    """A point of the function from a resource's utilisation to its score."""

    utilization: int = Field(ge=0, le=100, description="Percentage that is requested.")
    score: int = Field(ge=0, le=10, description="Score there; between two points it is linear.")


class RequestedToCapacityRatio(Section):
    """The function from a resource's utilisation to its score."""

    shape: tuple[ShapePoint, ...] = Field(min_length=1, description="Points, by utilisation.")


class FitScoring(Section):
    """How NodeResourcesFit scores; the keys are those of kube-scheduler's configuration."""

    type: Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"] = Field(
        default="LeastAllocated",
        description="What gets a high score: free nodes, full ones, or by a shape.",
    )
    resources: tuple[ScoredResource, ...] = Field(
        default=(ScoredResource(name="cpu"), ScoredResource(name="memory")),
        min_length=1,
        description="Resources with weights.",
    )
    requested_to_capacity_ratio: RequestedToCapacityRatio | None = Field(
        default=None, description="The shape, for RequestedToCapacityRatio."
    )

    @model_validator(mode="after")
    def _whole(self) -> FitScoring:
        shape = self.requested_to_capacity_ratio
        if (shape is not None) != (self.type == "RequestedToCapacityRatio"):
            raise ValueError(
                "type: RequestedToCapacityRatio and requestedToCapacityRatio go together"
            )
        points = [] if shape is None else [point.utilization for point in shape.shape]
        if points != sorted(set(points)):
            raise ValueError("utilization must rise from point to point of shape")
        names = [resource.name for resource in self.resources]
        if len(set(names)) < len(names):
            raise ValueError("resources names one twice")
        return self


class Scheduler(Section):
    """Differences between the cluster's scheduler and a default kube-scheduler of the API server's version."""

    version: Annotated[str, BeforeValidator(_version)] | None = Field(
        default=None,
        description="kube-scheduler's version, like \"1.36\"; absent: the API server's.",
    )
    weights: dict[ScorePlugin, Annotated[int, Field(ge=0, le=100)]] = Field(
        default_factory=dict,
        description="Score plug-in to weight, where it differs from the default; 0 disables its score.",
    )
    scoring_strategy: FitScoring = Field(
        default=FitScoring(), description="NodeResourcesFit's scoringStrategy."
    )
    default_constraints: tuple[SpreadDefault, ...] | None = Field(
        default=None,
        description="PodTopologySpread's defaultConstraints; absent: the system's; empty: none.",
    )
    percentage_of_nodes_to_score: int | None = Field(
        default=None, ge=0, le=100, description="As in its configuration; absent or 0: adaptive."
    )
    hard_pod_affinity_weight: int = Field(
        default=1, ge=0, le=100, description="InterPodAffinity's hardPodAffinityWeight."
    )

    def version_pair(self) -> tuple[int, int] | None:
        """Return the version as (major, minor), or None for the API server's."""
        return None if self.version is None else (1, int(self.version[2:]))


class Landings(Section):
    """Nodes on which no replacement should land. The scheduler chooses: what would land there is not moved."""

    min_node_age: PositiveDuration | None = Field(
        default=None,
        description="Not on nodes that were made, or became Ready, less than this time ago; absent: on any.",
    )
    exclude: LabelsField | None = Field(
        default=None,
        description="Not on nodes with these labels, or matchLabels and matchExpressions.",
    )

    @model_validator(mode="after")
    def _leaves_some(self) -> Landings:
        if self.exclude is not None and not self.exclude:
            raise ValueError("exclude names no labels, and would leave out every node")
        return self


class Safety(Section):
    """When a run moves nothing, because data are unreliable or the cluster is unhealthy.

    A run also moves nothing if a list could not be read to its end.
    """

    max_not_ready_nodes: LimitField = Field(
        default=Limit.parse("20%"),
        description="With more NotReady nodes, nothing is moved; a share is at least 1.",
    )
    max_pending_pods: LimitField = Field(
        default=Limit.parse("10%"),
        description="With more unscheduled pods (share of all pods), nothing is moved; a share is at least 10.",
    )
    max_clock_skew: Duration = Field(
        default=timedelta(seconds=60),
        description="Largest difference between the clocks of the run and of the API server.",
    )
    max_pending_time: PositiveDuration = Field(
        default=timedelta(seconds=30),
        description="The run ends if a replacement has no node after this time.",
    )
    max_ready_time: PositiveDuration = Field(
        default=timedelta(minutes=2),
        description="The run ends if a wave's replacements are not Ready after this time.",
    )

    def not_ready_nodes_of(self, nodes: int) -> int:
        """Return how many of ``nodes`` may be NotReady."""
        return self.max_not_ready_nodes.of(nodes, 1)

    def pending_pods_of(self, pods: int) -> int:
        """Return how many of ``pods`` may be unscheduled."""
        return self.max_pending_pods.of(pods, 10)
