"""The arguments of the descheduler's plug-ins, as models (pkg/framework/plugins/*: types.go, validation.go).

What the descheduler refuses is refused here, except for values that are not carried over. It ignores unknown
keys at the top level; here they are problems, except for those in its own documentation.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field, model_validator

from rebalancer.base.durations import parse_go_duration
from rebalancer.policy.select import LabelSelect, NamespacePattern
from rebalancer.policy.values import Section

_Given = TypeVar("_Given", bound=Sized)


Selector = LabelSelect
"""A label selector; an empty one selects everything."""


EVICTOR = "DefaultEvictor"


class PeerNamespaces(Section):
    """Namespaces, by inclusion or by exclusion. The descheduler reads patterns as names, which no namespace has."""

    include: tuple[NamespacePattern, ...] = ()
    exclude: tuple[NamespacePattern, ...] = ()

    @model_validator(mode="after")
    def _one(self) -> PeerNamespaces:
        if self.include and self.exclude:
            raise ValueError("only one of include and exclude can be set")
        return self


class PeerArgs(Section):
    """Keys common to the arguments of all plug-ins."""

    api_version: str = ""
    kind: str = ""


def _some(given: _Given) -> _Given:
    if not given:
        raise ValueError("names nothing; write at least one")
    return given


Percentage = Annotated[float, Field(ge=0, le=100)]
Thresholds = Annotated[dict[str, Percentage], AfterValidator(_some)]


def _only_exclude(given: PeerNamespaces) -> PeerNamespaces:
    if given.include:
        raise ValueError("only exclude can be set here")
    return given


Evictable = Annotated[PeerNamespaces, AfterValidator(_only_exclude)]


class PodArgs(PeerArgs):
    """Restrictions on the pods that a plug-in may evict, common to most plug-ins."""

    namespaces: PeerNamespaces = PeerNamespaces()
    label_selector: Selector = Selector()


class DuplicatesArgs(PeerArgs):
    """Arguments of RemoveDuplicates."""

    namespaces: PeerNamespaces = PeerNamespaces()
    exclude_owner_kinds: tuple[str, ...] = ()


class AntiAffinityArgs(PodArgs):
    """Arguments of RemovePodsViolatingInterPodAntiAffinity."""


class PeerNodeAffinityArgs(PodArgs):
    """Arguments of RemovePodsViolatingNodeAffinity."""

    node_affinity_type: Annotated[tuple[str, ...], AfterValidator(_some)]
    """The descheduler does not validate it."""


class TaintArgs(PodArgs):
    """Arguments of RemovePodsViolatingNodeTaints."""

    include_prefer_no_schedule: bool = False
    excluded_taints: tuple[str, ...] = ()
    included_taints: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one(self) -> TaintArgs:
        if self.excluded_taints and self.included_taints:
            raise ValueError("only one of includedTaints and excludedTaints can be set")
        return self


class SpreadArgs(PodArgs):
    """Arguments of RemovePodsViolatingTopologySpreadConstraint."""

    constraints: tuple[Literal["DoNotSchedule", "ScheduleAnyway"], ...] = ()
    include_soft_constraints: bool = False
    """Used instead of constraints until 0.26."""
    topology_balance_node_fit: bool = True


class PrometheusQuery(Section):
    """A query that returns each node's usage."""

    query: str = ""


class MetricsUtilization(Section):
    """Where the usage of nodes is measured."""

    metrics_server: bool = False
    source: Literal["", "KubernetesMetrics", "Prometheus"] = ""
    prometheus: PrometheusQuery = PrometheusQuery()


class EvictionLimits(Section):
    """Limits on evictions in one run of the plug-in."""

    node: int | None = Field(default=None, ge=0)


class LowUtilizationArgs(PeerArgs):
    """Arguments of LowNodeUtilization."""

    use_deviation_thresholds: bool = False
    thresholds: Thresholds
    target_thresholds: Thresholds
    number_of_nodes: int = 0
    metrics_utilization: MetricsUtilization = MetricsUtilization()
    evictable_namespaces: Evictable = PeerNamespaces()
    eviction_limits: EvictionLimits = EvictionLimits()

    @model_validator(mode="after")
    def _same_resources(self) -> LowUtilizationArgs:
        if set(self.thresholds) != set(self.target_thresholds):
            raise ValueError("thresholds and targetThresholds must name the same resources")
        for name, low in self.thresholds.items():
            if not self.use_deviation_thresholds and low > self.target_thresholds[name]:
                raise ValueError(f"thresholds.{name} is above targetThresholds.{name}")
        return self


class HighUtilizationArgs(PeerArgs):
    """Arguments of HighNodeUtilization."""

    thresholds: Thresholds
    number_of_nodes: int = 0
    eviction_modes: tuple[Literal["OnlyThresholdingResources"], ...] = ()
    evictable_namespaces: Evictable = PeerNamespaces()


class RestartArgs(PodArgs):
    """Arguments of RemovePodsHavingTooManyRestarts."""

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


class PeerCondition(Section):
    """A condition of a pod."""

    type: str = ""
    status: str = ""
    reason: str = ""
    min_time_since_last_transition_seconds: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _says_something(self) -> PeerCondition:
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
"""The values that PodLifeTime accepts as a state of a pod."""


class LifeTimeArgs(PodArgs):
    """Arguments of PodLifeTime."""

    owner_kinds: OwnerKinds = OwnerKinds()
    max_pod_life_time_seconds: int | None = Field(default=None, ge=0)
    states: tuple[State, ...] = ()
    conditions: tuple[PeerCondition, ...] = ()
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
    """Arguments of RemoveFailedPods."""

    exclude_owner_kinds: tuple[str, ...] = ()
    min_pod_lifetime_seconds: int | None = Field(default=None, ge=0)
    reasons: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = ()
    including_init_containers: bool = False


STRATEGIES: dict[str, tuple[str, type[PeerArgs]]] = {
    "HighNodeUtilization": ("balance", HighUtilizationArgs),
    "LowNodeUtilization": ("balance", LowUtilizationArgs),
    "PodLifeTime": ("deschedule", LifeTimeArgs),
    "RemoveDuplicates": ("balance", DuplicatesArgs),
    "RemoveFailedPods": ("deschedule", FailedArgs),
    "RemovePodsHavingTooManyRestarts": ("deschedule", RestartArgs),
    "RemovePodsViolatingInterPodAntiAffinity": ("deschedule", AntiAffinityArgs),
    "RemovePodsViolatingNodeAffinity": ("deschedule", PeerNodeAffinityArgs),
    "RemovePodsViolatingNodeTaints": ("deschedule", TaintArgs),
    "RemovePodsViolatingTopologySpreadConstraint": ("balance", SpreadArgs),
}
"""Plug-in -> its extension point (pkg/descheduler/setupplugins.go) and its arguments."""


class PriorityThreshold(Section):
    """The priority from which on pods are protected."""

    value: int | None = None
    name: str = ""

    @model_validator(mode="after")
    def _one(self) -> PriorityThreshold:
        if self.value is not None and self.name:
            raise ValueError("only one of value and name can be set")
        return self


class PeerStorageClass(Section):
    """A storage class by its name."""

    name: str = Field(min_length=1)


class PvcConfig(Section):
    """The claims that the protection PodsWithPVC covers."""

    protected_storage_classes: tuple[PeerStorageClass, ...] = ()


class ProtectionsConfig(Section):
    """Details of the protections."""

    pods_with_pvc: PvcConfig = Field(default=PvcConfig(), alias="PodsWithPVC")


class PodProtections(Section):
    """Additional protections, and default protections that are disabled."""

    extra_enabled: tuple[
        Literal["PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims"], ...
    ] = ()
    default_disabled: tuple[
        Literal["PodsWithLocalStorage", "DaemonSetPods", "SystemCriticalPods", "FailedBarePods"],
        ...,
    ] = ()
    config: ProtectionsConfig = ProtectionsConfig()


_SWITCHES = {
    "evict_local_storage_pods": "PodsWithLocalStorage",
    "evict_daemon_set_pods": "DaemonSetPods",
    "evict_system_critical_pods": "SystemCriticalPods",
    "evict_failed_bare_pods": "FailedBarePods",
    "ignore_pvc_pods": "PodsWithPVC",
    "ignore_pods_without_pdb": "PodsWithoutPDB",
}
"""Deprecated switch -> the protection that it disables (evict...) or adds (ignore...)."""


class EvictorArgs(PeerArgs):
    """Arguments of DefaultEvictor: which pods the plug-ins of its profile may evict."""

    node_selector: str = ""
    label_selector: Selector = Selector()
    namespace_label_selector: Selector = Selector()
    priority_threshold: PriorityThreshold = PriorityThreshold()
    node_fit: bool = False
    min_replicas: int = Field(default=0, ge=0)
    min_pod_age: str | None = None
    no_eviction_policy: Literal["", "Preferred", "Mandatory"] = ""
    pod_protections: PodProtections = PodProtections()
    evict_local_storage_pods: bool = False
    evict_daemon_set_pods: bool = False
    evict_system_critical_pods: bool = False
    evict_failed_bare_pods: bool = False
    ignore_pvc_pods: bool = False
    ignore_pods_without_pdb: bool = Field(default=False, alias="ignorePodsWithoutPDB")

    @model_validator(mode="after")
    def _as_the_descheduler(self) -> EvictorArgs:
        if self.min_pod_age is not None:
            parse_go_duration(self.min_pod_age)
        if self._by_lists and any(getattr(self, field) for field in _SWITCHES):
            raise ValueError(
                "the deprecated switches cannot stand beside extraEnabled or defaultDisabled"
            )
        return self

    @property
    def _by_lists(self) -> bool:
        lists = self.pod_protections
        return bool(lists.extra_enabled or lists.default_disabled)

    def list_switches(self, protection: str) -> tuple[str, ...] | None:
        """Return the keys that change ``protection`` from its default; None if there are none."""
        lists = self.pod_protections
        for key, names in (
            ("extraEnabled", lists.extra_enabled),
            ("defaultDisabled", lists.default_disabled),
        ):
            if protection in names:
                return ("podProtections", key)
        for field, name in _SWITCHES.items():
            if name == protection and getattr(self, field):
                return (_alias(field),)
        return None

    def list_refusals(self, protection: str) -> tuple[str, ...] | None:
        """Return the deprecated switch of ``protection`` if it is false, which means the default; else None."""
        for field, name in _SWITCHES.items():
            if name == protection and field in self.model_fields_set and not getattr(self, field):
                return (_alias(field),)
        return None


def _alias(field: str) -> str:
    return EvictorArgs.model_fields[field].alias or field


class PeerPluginConfig(Section):
    """A plug-in's arguments; their models are in ``plugins``."""

    name: str
    args: dict[str, Any] = Field(default={})


class PeerPluginSet(Section):
    """The plug-ins of an extension point."""

    enabled: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    """The descheduler does not read it."""


class PeerPlugins(Section):
    """The extension points. Of these, ``presort``, ``preEvictionFilter`` and ``preSort`` have no effect."""

    presort: PeerPluginSet = PeerPluginSet()
    sort: PeerPluginSet = PeerPluginSet()
    deschedule: PeerPluginSet = PeerPluginSet()
    balance: PeerPluginSet = PeerPluginSet()
    filter: PeerPluginSet = PeerPluginSet()
    preevictionfilter: PeerPluginSet = PeerPluginSet()
    pre_eviction_filter: PeerPluginSet = PeerPluginSet()
    pre_sort: PeerPluginSet = PeerPluginSet()


class PeerProfile(Section):
    """Plug-ins that share one DefaultEvictor."""

    name: str = ""
    plugin_config: tuple[PeerPluginConfig, ...] = ()
    plugins: PeerPlugins = PeerPlugins()


class MetricsCollector(Section):
    """Deprecated in favour of MetricsProvider."""

    enabled: bool = False


class SecretReference(Section):
    """A Secret."""

    namespace: str = ""
    name: str = ""


class AuthToken(Section):
    """Source of the token for Prometheus."""

    secret_reference: SecretReference = SecretReference()


class PeerPrometheus(Section):
    """Address and token of Prometheus."""

    url: str = ""
    auth_token: AuthToken = AuthToken()


class MetricsProvider(Section):
    """Source of measured usage."""

    source: Literal["KubernetesMetrics", "Prometheus"]
    prometheus: PeerPrometheus = PeerPrometheus()


class PeerPolicy(Section):
    """The root of a policy file."""

    kind: Literal["DeschedulerPolicy"]
    node_selector: str = ""
    max_no_of_pods_to_evict_per_node: int | None = Field(default=None, ge=0)
    max_no_of_pods_to_evict_per_namespace: int | None = Field(default=None, ge=0)
    api_version: Literal["descheduler/v1alpha2"]
    profiles: tuple[PeerProfile, ...] = ()
    max_no_of_pods_to_evict_total: int | None = Field(default=None, ge=0)
    eviction_failure_event_notification: bool = False
    metrics_collector: MetricsCollector = MetricsCollector()
    metrics_providers: tuple[MetricsProvider, ...] = ()
    grace_period_seconds: int | None = None
    tracing: Any = None
    """A key of the descheduler's chart that the descheduler itself does not read."""
