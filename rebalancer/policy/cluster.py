"""Policy sections about the cluster: its scheduler, safety limits, measured usage, and machines."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PlainSerializer,
    PrivateAttr,
    Tag,
    model_validator,
)
from pydantic.alias_generators import to_camel

from rebalancer.base.durations import format_duration, parse_go_duration
from rebalancer.base.plain_text import quote_value
from rebalancer.policy.kube_scheduler import KubeSchedulerConfiguration, RequestedToCapacityRatio
from rebalancer.policy.select import LabelsField
from rebalancer.policy.values import (
    Duration,
    LabelKey,
    Limit,
    LimitField,
    Percent,
    PositiveDuration,
    Quantity,
    Section,
)
from rebalancer.wire.quantity import parse_nano

_VERSION = re.compile(r"v?1\.(\d{2,3})(?:\.\d+)?\Z", re.ASCII)


def _version(value: Any) -> str:
    # An unquoted 1.40 is the number 1.4 in YAML, and 1.4 is no version of today.
    text = str(value) if isinstance(value, float) else value
    match = _VERSION.match(text) if isinstance(text, str) else None
    if match is None:
        how = "write it like 1.36" if isinstance(value, str) else 'write it in quotes, like "1.36"'
        raise ValueError(f"{quote_value(value)} is no Kubernetes version; {how}")
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


def _check_scored_resource(name: str) -> str:
    if name not in ("cpu", "memory") and "/" not in name:
        raise ValueError(
            f"{quote_value(name)} is not modelled; write cpu, memory or an extended resource"
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
    """A resource that NodeResourcesFit scores."""

    name: Annotated[str, AfterValidator(_check_scored_resource)] = Field(
        description="cpu, memory or an extended resource."
    )
    weight: int = Field(default=1, ge=1, le=100, description="Its weight.")


class FitScoring(Section):
    """The scoring of NodeResourcesFit; the keys are those of kube-scheduler's configuration."""

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
        names = [resource.name for resource in self.resources]
        if len(set(names)) < len(names):
            raise ValueError("resources names one twice")
        return self


class ConfigMapKey(Section):
    """A ConfigMap that holds a KubeSchedulerConfiguration. It is read at the start of each run."""

    config_map: str = Field(
        pattern=r"^[a-z0-9.-]+/[a-z0-9.-]+$", description="NAMESPACE/NAME of the ConfigMap."
    )
    key: str = Field(default="config.yaml", min_length=1, description="Its key.")

    @property
    def place(self) -> tuple[str, str]:
        """Namespace and name of the ConfigMap."""
        namespace, _, name = self.config_map.partition("/")
        return namespace, name


# By this, what is wrong is said of the form that is meant. Tags must not be keys.
ConfigSource = Annotated[
    Annotated[str, Field(min_length=1), Tag("a file")]
    | Annotated[ConfigMapKey, Tag("a ConfigMap")],
    Discriminator(lambda given: "a file" if isinstance(given, str) else "a ConfigMap"),
]


class Scheduler(Section):
    """How the cluster's scheduler differs from a default kube-scheduler of the API server's version."""

    from_config: ConfigSource | None = Field(
        default=None,
        description="File with the scheduler's KubeSchedulerConfiguration (a relative path starts at the policy's"
        " folder), or {configMap: NAMESPACE/NAME, key: config.yaml}, which needs get on it. Then no key but version"
        " stands beside it.",
    )
    _configuration: KubeSchedulerConfiguration | None = PrivateAttr(default=None)

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

    @model_validator(mode="after")
    def _one_source(self) -> Scheduler:
        others = {
            to_camel(name)
            for name, field in type(self).model_fields.items()
            if name not in ("from_config", "version")
            and getattr(self, name) != field.get_default(call_default_factory=True)
        }
        if self.from_config is not None and others:
            keys = ", ".join(sorted(others))
            raise ValueError(f"fromConfig says all but version: take {keys} out")
        return self

    @property
    def configuration(self) -> KubeSchedulerConfiguration | None:
        """The configuration that ``fromConfig`` names; None until it has been read."""
        return self._configuration

    def with_configuration(self, configuration: KubeSchedulerConfiguration) -> Scheduler:
        """Return a copy with the configuration that ``fromConfig`` names."""
        read = self.model_copy()
        read._configuration = configuration  # noqa: SLF001
        return read

    def version_pair(self) -> tuple[int, int] | None:
        """Return the version as (major, minor); None means the API server's version."""
        return None if self.version is None else (1, int(self.version[2:]))


class Landings(Section):
    """Nodes to avoid as landings. A pod whose replacement the scheduler would place there is not moved."""

    min_node_age: PositiveDuration | None = Field(
        default=None,
        description="Not on nodes that were made, or became Ready, less than this time ago; absent: on any.",
    )
    exclude: LabelsField | None = Field(
        default=None,
        description="Not on nodes with these labels, or matchLabels and matchExpressions.",
    )
    same_architecture: bool = Field(
        default=False,
        description="Not on nodes of another architecture (kubernetes.io/arch) than those where pods of the template are"
        " Ready, unless its nodeSelector or required node affinity names that label.",
    )

    @model_validator(mode="after")
    def _leaves_some(self) -> Landings:
        if self.exclude is not None and not self.exclude:
            raise ValueError("exclude names no labels, and would leave out every node")
        return self


class Safety(Section):
    """Limits beyond which a run moves nothing, because the data are unreliable or the cluster is unhealthy.

    A run also moves nothing if a list could not be read completely.
    """

    max_not_ready_nodes: LimitField = Field(
        default=Limit.parse("20%"),
        description="With more nodes that are NotReady, or missing although pods are on them, nothing is moved; a share is at least 1. Likewise with more that Karpenter adds, or removes while pods are on them.",
    )
    max_pending_pods: LimitField = Field(
        default=Limit.parse("10%"),
        description="With more pods that wait for room (share of all pods), nothing is moved; a share is at least 10. Not those that no "
        "room helps: a claim that is missing or not bound, labels or a size that no node has, a scheduling gate. Of a namespace with less than half of the pods on nodes no "
        "more count than it has there, or than half of the limit.",
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
        """Return the tolerated number of NotReady nodes, given the number of nodes."""
        return self.max_not_ready_nodes.of(nodes, 1)

    def pending_pods_of(self, pods: int) -> int:
        """Return the tolerated number of unscheduled pods, given the number of pods."""
        return self.max_pending_pods.of(pods, 10)


_RANGE = re.compile(r"\[\s*((?:\d+(?:ms|[smhdwy]))+)\s*[:\]]", re.ASCII)
_DAYS = {"d": 1, "w": 7, "y": 365}
_LONG = re.compile(r"(\d+)([dwy])", re.ASCII)


def looks_back(query: str) -> timedelta:
    """Return the longest range (``[5m]``) in a PromQL query."""
    return max(map(_span, _RANGE.findall(query)), default=timedelta(0))


def _span(text: str) -> timedelta:
    hours = _LONG.sub(lambda part: f"{int(part[1]) * _DAYS[part[2]] * 24}h", text)
    return parse_go_duration(hours)


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        # Spaces before it are ignored, and line ends in it: neither is to pass for another address.
        usable = usable and url.isascii() and url.isprintable() and " " not in url
    except ValueError:
        usable = False
    if not usable:
        raise ValueError("is no address; write https://HOST[:PORT][/PATH]")
    if parts.username is not None or parts.password is not None:
        raise ValueError("holds a user or password, which policies show; write tokenFile")
    if parts.query or parts.fragment:
        raise ValueError("ends in a query or fragment; write https://HOST[:PORT][/PATH]")
    return url


Address = Annotated[str, AfterValidator(_address)]
Query = Annotated[str, Field(min_length=1, max_length=4000)]
Queries = dict[Literal["cpu", "memory"], Query]


class Prometheus(Section):
    """A server that answers PromQL queries. Each sample belongs to one node or one pod."""

    url: Address = Field(
        description="Address, to which /api/v1/query is added; a token is sent over https only."
    )
    nodes: Queries = Field(
        min_length=1,
        description="Query of what each node uses of cpu, memory or both; of the other nothing is known.",
    )
    unit: Literal["amount", "share"] = Field(
        default="amount",
        description="What nodes gives: amount (cores, bytes) or share (of the node's allocatable, 0 to 1).",
    )
    node_label: str = Field(
        default="node",
        min_length=1,
        description="Label of these samples that has the node's name.",
    )
    pods: Queries = Field(
        default_factory=dict,
        description="Query of what each pod uses, in cores and bytes, with the labels namespace and pod; absent: what it requests.",
    )
    window: Duration = Field(
        default=timedelta(minutes=5),
        description="How far the queries look back. After moves, usage moves nothing for so long.",
    )
    token_file: str | None = Field(
        default=None, min_length=1, description="File with the bearer token; read at each run."
    )
    ca_file: str | None = Field(
        default=None,
        min_length=1,
        description="File with the authorities to trust (PEM); absent: the system's.",
    )
    timeout: PositiveDuration = Field(
        default=timedelta(seconds=10), description="Longest wait for the answers."
    )

    @model_validator(mode="after")
    def _possible(self) -> Prometheus:
        plain = urlsplit(self.url).scheme == "http"
        if plain and self.token_file is not None:
            raise ValueError(
                "tokenFile needs an https url: over http everybody on the way reads it"
            )
        if plain and self.ca_file is not None:
            raise ValueError("caFile needs an https url")
        if self.pods and set(self.pods) != set(self.nodes):
            raise ValueError("nodes and pods must have queries of the same resources")
        for key, queries in (("nodes", self.nodes), ("pods", self.pods)):
            for resource, query in queries.items():
                if (back := looks_back(query)) > self.window:
                    longer = format_duration(back)
                    raise ValueError(
                        f"{key}.{resource} looks back {longer}, further than window; write window: {longer}"
                    )
        return self


class UsageSettings(Section):
    """The source of measured usage, for strategies that judge by it."""

    prometheus: Prometheus | None = Field(
        default=None, description="Prometheus; absent: metrics.k8s.io (metrics-server)."
    )


STARTUP_TAINTS = (
    "ebs.csi.aws.com/agent-not-ready",
    "efs.csi.aws.com/agent-not-ready",
    "fsx.csi.aws.com/agent-not-ready",
    "node.cilium.io/agent-not-ready",
)
"""Those of agents that ask for one in their installation guides."""


class Expander(enum.StrEnum):
    """Which of the suitable groups is scaled up."""

    LEAST_WASTE = "least-waste"
    """The one whose new nodes have the smallest share of cpu and memory left over."""
    MOST_PODS = "most-pods"
    """The one that takes the most pods."""
    PRIORITY = "priority"
    """The one whose name matches the earliest pattern of ``priorities``; without a match it is not increased."""
    PRICE = "price"
    """The one whose new nodes cost the least for each pod that they take, by ``prices``; those without a price come last."""
    LEAST_NODES = "least-nodes"
    """The one that adds the fewest nodes."""
    RANDOM = "random"
    """One by lot: another one in each run, the same one for the same snapshot. Only as the last one."""


def _as_expanders(value: Any) -> Any:
    if isinstance(value, str):
        value = (value,)
    if not isinstance(value, list | tuple):
        return value
    known = {one.value: one for one in Expander}
    return tuple(known.get(one, one) if isinstance(one, str) else one for one in value)


def _chain(expanders: tuple[Expander, ...]) -> tuple[Expander, ...]:
    if not expanders:
        raise ValueError("name at least one expander")
    if len(set(expanders)) < len(expanders):
        raise ValueError("an expander that stands twice changes nothing the second time")
    if Expander.RANDOM in expanders[:-1]:
        raise ValueError("random leaves one group: nothing may come after it")
    return expanders


def _write_expanders(expanders: tuple[Expander, ...]) -> str | list[str]:
    names = [one.value for one in expanders]
    return names[0] if len(names) == 1 else names


Expanders = Annotated[
    tuple[Expander, ...],
    AfterValidator(_chain),
    BeforeValidator(_as_expanders, json_schema_input_type=Expander | tuple[Expander, ...]),
    PlainSerializer(_write_expanders, when_used="json"),
]
"""One expander, or several: each chooses among what the one before it finds equally good."""


class Beside(enum.StrEnum):
    """What to do if another autoscaler is found in the cluster."""

    ADVISE = "advise"
    """Nothing is done to machines: the report says what would be."""
    ACT = "act"
    """As without it: it looks after other machines, or what shows it is none."""


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from None
    return text


Pattern = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_pattern)]


_NAMED = ("cpu", "memory", "ephemeral-storage")
_Bound = TypeVar("_Bound", str, int)


def _machine_resource(name: str) -> str:
    if name not in _NAMED and "/" not in name:
        raise ValueError(
            f"{name!r} is nothing that machines have: write cpu, memory, ephemeral-storage, or a name such as nvidia.com/gpu"
        )
    return name


def _check_bounds(
    least: _Bound | None, most: _Bound | None, number: Callable[[_Bound], int]
) -> None:
    """Raise ValueError unless there is a bound, and the least is at most the most."""
    if least is None and most is None:
        raise ValueError("write min, max or both")
    if least is not None and most is not None and number(least) > number(most):
        raise ValueError(f"min {least} is more than max {most}")


class Total(Section):
    """Bounds of what all machines of the cluster have of a resource."""

    min: Quantity | None = Field(
        default=None, description="Least amount that scale-in leaves; absent: none."
    )
    max: Quantity | None = Field(
        default=None, description="Most to which groups are increased; absent: no bound."
    )

    @model_validator(mode="after")
    def _bounds_something(self) -> Total:
        _check_bounds(self.min, self.max, parse_nano)
        return self


class Balance(Section):
    """Which groups are similar, so that they share new nodes."""

    labels: tuple[LabelKey, ...] = Field(
        default=(),
        description="Groups are similar if their nodes have equal values of all of these labels, and nothing else counts; none: by allocatable, taints and labels.",
    )
    ignore_labels: tuple[LabelKey, ...] = Field(
        default=(),
        description="Labels in which similar groups may differ, beside those of the place, of the group and of its template.",
    )

    @model_validator(mode="after")
    def _one_way(self) -> Balance:
        if self.labels and self.ignore_labels:
            raise ValueError("with labels nothing else counts: leave out ignoreLabels")
        return self


class GroupBounds(Section):
    """The sizes between which a group is scaled, in the place of the provider's own."""

    min: int | None = Field(
        default=None,
        ge=0,
        le=100_000,
        description="Least machines that scale-in leaves in the group; absent: as the provider says.",
    )
    max: int | None = Field(
        default=None,
        ge=0,
        le=100_000,
        description="Most machines to which scale-out increases the group; absent: as the provider says.",
    )

    @model_validator(mode="after")
    def _bounds_something(self) -> GroupBounds:
        _check_bounds(self.min, self.max, int)
        return self


class CapacitySettings(Section):
    """Settings of ``rebalancer capacity``."""

    under: Percent = Field(
        default=0.5,
        description="Only nodes of whose cpu and memory less than this is requested can be removed; of nodes with GPUs, of these alone. 0 keeps all nodes.",
    )
    expander: Expanders = Field(
        default=(Expander.LEAST_WASTE,),
        description="Which group is increased where several would help: least-waste, most-pods, least-nodes, priority, price or random; or a"
        " list, of which each chooses among what the one before it finds equally good.",
    )
    priorities: tuple[Pattern, ...] = Field(
        default=(),
        description="For expander: priority. Regular expressions that groups' names contain, the first ones first; others are not increased.",
    )

    startup_taints: tuple[LabelKey, ...] = Field(
        default=STARTUP_TAINTS,
        description="Keys of taints that a node has until its agents are ready: until then it is an upcoming machine. Those that begin with"
        " startup-taint.cluster-autoscaler.kubernetes.io/ or ignore-taint.cluster-autoscaler.kubernetes.io/ always count.",
    )
    max_nodes: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="Most nodes of the cluster, with upcoming machines, to which groups are increased; absent: only their own maxima count.",
    )
    total: dict[Annotated[str, AfterValidator(_machine_resource)], Total] = Field(
        default_factory=dict,
        description="What all nodes and upcoming machines may have together at least (min) and at most (max), by resource: cpu (whole cores), memory, or for example nvidia.com/gpu.",
    )
    groups: dict[Annotated[str, Field(min_length=1)], GroupBounds] = Field(
        default_factory=dict,
        description="Sizes of groups by name, each with min, max or both: scale-in and scale-out keep within them, and never leave the provider's own.",
    )
    balance: Balance = Field(
        default=Balance(), description="Which groups share new nodes, as similar ones."
    )
    buffers: bool = Field(
        default=False,
        description="Whether CapacityBuffers (autoscaling.x-k8s.io) count: scale-out makes room for them, scale-in keeps it, and no move fills it."
        " Needs list on capacitybuffers and get on podtemplates.",
    )
    beside_autoscaler: Beside = Field(
        default=Beside.ADVISE,
        description="What scale-in and scale-out do where Cluster Autoscaler or Karpenter is seen: advise, or act (it looks after other machines).",
    )

    @model_validator(mode="after")
    def _goes_together(self) -> CapacitySettings:
        if (Expander.PRIORITY in self.expander) != bool(self.priorities):
            raise ValueError("expander: priority and priorities go together")
        return self
