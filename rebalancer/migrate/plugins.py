"""The arguments of the descheduler's plug-ins, as models (pkg/framework/plugins/*: types.go, validation.go)."""

from __future__ import annotations

from collections.abc import Sized
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field, model_validator

from rebalancer.migrate.arguments import Args, Namespaces, Selector
from rebalancer.policy.params import Section

_Given = TypeVar("_Given", bound=Sized)


def _some(given: _Given) -> _Given:
    if not given:
        raise ValueError("names nothing; write at least one")
    return given


Percentage = Annotated[float, Field(ge=0, le=100)]
Thresholds = Annotated[dict[str, Percentage], AfterValidator(_some)]


def _only_exclude(given: Namespaces) -> Namespaces:
    if given.include:
        raise ValueError("only exclude can be set here")
    return given


Evictable = Annotated[Namespaces, AfterValidator(_only_exclude)]


class PodArgs(Args):
    """Restrictions of the pods that most plug-ins may evict."""

    namespaces: Namespaces = Namespaces()
    label_selector: Selector = Selector()


class DuplicatesArgs(Args):
    """RemoveDuplicates."""

    namespaces: Namespaces = Namespaces()
    exclude_owner_kinds: tuple[str, ...] = ()


class AntiAffinityArgs(PodArgs):
    """RemovePodsViolatingInterPodAntiAffinity."""


class NodeAffinityArgs(PodArgs):
    """RemovePodsViolatingNodeAffinity."""

    node_affinity_type: Annotated[tuple[str, ...], AfterValidator(_some)]
    """The descheduler does not validate it."""


class TaintArgs(PodArgs):
    """RemovePodsViolatingNodeTaints."""

    include_prefer_no_schedule: bool = False
    excluded_taints: tuple[str, ...] = ()
    included_taints: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one(self) -> TaintArgs:
        if self.excluded_taints and self.included_taints:
            raise ValueError("only one of includedTaints and excludedTaints can be set")
        return self


class SpreadArgs(PodArgs):
    """RemovePodsViolatingTopologySpreadConstraint."""

    constraints: tuple[Literal["DoNotSchedule", "ScheduleAnyway"], ...] = ()
    include_soft_constraints: bool = False
    """Used instead of constraints until 0.26."""
    topology_balance_node_fit: bool = True


class PrometheusQuery(Section):
    """A query for each node's usage."""

    query: str = ""


class MetricsUtilization(Section):
    """Source of the usage that nodes are judged by."""

    metrics_server: bool = False
    source: Literal["", "KubernetesMetrics", "Prometheus"] = ""
    prometheus: PrometheusQuery = PrometheusQuery()


class EvictionLimits(Section):
    """Evictions in one run of the plug-in."""

    node: int | None = Field(default=None, ge=0)


class LowUtilizationArgs(Args):
    """LowNodeUtilization."""

    use_deviation_thresholds: bool = False
    thresholds: Thresholds
    target_thresholds: Thresholds
    number_of_nodes: int = 0
    metrics_utilization: MetricsUtilization = MetricsUtilization()
    evictable_namespaces: Evictable = Namespaces()
    eviction_limits: EvictionLimits = EvictionLimits()

    @model_validator(mode="after")
    def _same_resources(self) -> LowUtilizationArgs:
        if set(self.thresholds) != set(self.target_thresholds):
            raise ValueError("thresholds and targetThresholds must name the same resources")
        for name, low in self.thresholds.items():
            if not self.use_deviation_thresholds and low > self.target_thresholds[name]:
                raise ValueError(f"thresholds.{name} is above targetThresholds.{name}")
        return self


class HighUtilizationArgs(Args):
    """HighNodeUtilization."""

    thresholds: Thresholds
    number_of_nodes: int = 0
    eviction_modes: tuple[Literal["OnlyThresholdingResources"], ...] = ()
    evictable_namespaces: Evictable = Namespaces()


class RestartArgs(PodArgs):
    """RemovePodsHavingTooManyRestarts."""

    pod_restart_threshold: int = Field(ge=1)
    including_init_containers: bool = False
    states: tuple[Literal["Running", "CrashLoopBackOff"], ...] = ()


class OwnerKinds(Section):
    """Kinds of owners."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one(self) -> OwnerKinds:
        if self.include and self.exclude:
            raise ValueError("only one of include and exclude can be set")
        return self


class PodCondition(Section):
    """A condition of a pod."""

    type: str = ""
    status: str = ""
    reason: str = ""
    min_time_since_last_transition_seconds: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _says_something(self) -> PodCondition:
        if not self.model_fields_set:
            raise ValueError("a condition needs type, status, reason or a time")
        return self


State = Literal[
    "Running",
    "Pending",
    "Succeeded",
    "Failed",
    "Unknown",
    "NodeAffinity",
    "NodeLost",
    "Shutdown",
    "UnexpectedAdmissionError",
    "PodInitializing",
    "ContainerCreating",
    "ImagePullBackOff",
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "ErrImagePull",
    "CreateContainerError",
    "InvalidImageName",
    "OOMKilled",
    "Error",
    "Completed",
    "DeadlineExceeded",
    "Evicted",
    "ContainerCannotRun",
    "StartError",
]
"""What PodLifeTime takes as a state of a pod."""


class LifeTimeArgs(PodArgs):
    """PodLifeTime."""

    owner_kinds: OwnerKinds = OwnerKinds()
    max_pod_life_time_seconds: int | None = Field(default=None, ge=0)
    states: tuple[State, ...] = ()
    conditions: tuple[PodCondition, ...] = ()
    exit_codes: tuple[int, ...] = ()
    including_init_containers: bool = False
    including_ephemeral_containers: bool = False

    @model_validator(mode="after")
    def _asks_for_something(self) -> LifeTimeArgs:
        if self.max_pod_life_time_seconds is None and not (
            self.states or self.conditions or self.exit_codes
        ):
            raise ValueError(
                "one of maxPodLifeTimeSeconds, states, conditions and exitCodes must be set"
            )
        return self


class FailedArgs(PodArgs):
    """RemoveFailedPods."""

    exclude_owner_kinds: tuple[str, ...] = ()
    min_pod_lifetime_seconds: int | None = Field(default=None, ge=0)
    reasons: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = ()
    including_init_containers: bool = False


STRATEGIES: dict[str, tuple[str, type[Args]]] = {
    "HighNodeUtilization": ("balance", HighUtilizationArgs),
    "LowNodeUtilization": ("balance", LowUtilizationArgs),
    "PodLifeTime": ("deschedule", LifeTimeArgs),
    "RemoveDuplicates": ("balance", DuplicatesArgs),
    "RemoveFailedPods": ("deschedule", FailedArgs),
    "RemovePodsHavingTooManyRestarts": ("deschedule", RestartArgs),
    "RemovePodsViolatingInterPodAntiAffinity": ("deschedule", AntiAffinityArgs),
    "RemovePodsViolatingNodeAffinity": ("deschedule", NodeAffinityArgs),
    "RemovePodsViolatingNodeTaints": ("deschedule", TaintArgs),
    "RemovePodsViolatingTopologySpreadConstraint": ("balance", SpreadArgs),
}
"""Plug-in -> its extension point (pkg/descheduler/setupplugins.go) and its arguments."""
