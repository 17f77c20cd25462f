"""Models of a KubeSchedulerConfiguration (``kubescheduler.config.k8s.io/v1``), as far as it affects placement.

Keys and validation rules are kube-scheduler's (``apis/config/validation``). Keys without effect on placement, such
as ``leaderElection``, are ignored. A key that is not modelled is no error: ``rebalancer.scheduler.configured``
reports it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeVar

from pydantic import ConfigDict, Field, PrivateAttr, model_validator

from rebalancer.base.data_text import without_nulls
from rebalancer.policy.document import FileProblem, KeyPath, YamlDocument, parse, validate
from rebalancer.policy.values import LabelKey, Section
from rebalancer.wire.objects import DEFAULT_SCHEDULER

API_VERSION, KIND = "kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration"
_NO_EFFECT = (
    "clientConnection",
    "delayCacheUntilActive",
    "enableContentionProfiling",
    "enableProfiling",
    "leaderElection",
    "parallelism",
    "podInitialBackoffSeconds",
    "podMaxBackoffSeconds",
)
"""Keys that do not change where a pod lands."""
Percentage = Annotated[int, Field(ge=0, le=100)]


class ShapePoint(Section):
    """One point of the function from a resource's utilisation to its score."""

    utilization: int = Field(ge=0, le=100, description="Percentage that is requested.")
    score: int = Field(ge=0, le=10, description="Score there; between two points it is linear.")


class RequestedToCapacityRatio(Section):
    """The function from a resource's utilisation to its score."""

    shape: tuple[ShapePoint, ...] = Field(min_length=1, description="Points, by utilisation.")

    @model_validator(mode="after")
    def _rises(self) -> RequestedToCapacityRatio:
        points = [point.utilization for point in self.shape]
        if points != sorted(set(points)):
            raise ValueError("utilization must rise from point to point of shape")
        return self


class ConfiguredResource(Section):
    """A resource that a plug-in scores."""

    name: str = Field(min_length=1)
    weight: int = Field(default=1, ge=0, le=100)
    """0 is 1."""


class ConfiguredScoring(Section):
    """The key ``NodeResourcesFitArgs.scoringStrategy``."""

    type: Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"] = "LeastAllocated"
    resources: tuple[ConfiguredResource, ...] = ()
    requested_to_capacity_ratio: RequestedToCapacityRatio | None = None

    @model_validator(mode="after")
    def _has_shape(self) -> ConfiguredScoring:
        if self.type == "RequestedToCapacityRatio" and self.requested_to_capacity_ratio is None:
            raise ValueError("RequestedToCapacityRatio needs requestedToCapacityRatio")
        return self


class Args(Section):
    """Arguments of a plug-in."""

    api_version: Literal["kubescheduler.config.k8s.io/v1"] | None = None
    kind: str | None = None


class NodeResourcesFitArgs(Args):
    """Arguments of NodeResourcesFit."""

    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: ConfiguredScoring = ConfiguredScoring()


class BalancedResource(ConfiguredResource):
    """A resource that NodeResourcesBalancedAllocation scores."""

    weight: int = Field(default=1, ge=0, le=1)


class NodeResourcesBalancedAllocationArgs(Args):
    """Arguments of NodeResourcesBalancedAllocation."""

    resources: tuple[BalancedResource, ...] = ()


class NodeRequirement(Section):
    """A requirement on a label or field of a node."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] = ()


class ConfiguredSelectorTerm(Section):
    """Requirements that must all hold. A term without requirements matches no node."""

    match_expressions: tuple[NodeRequirement, ...] = ()
    match_fields: tuple[NodeRequirement, ...] = ()


class ConfiguredSelector(Section):
    """Node selector terms; at least one must match."""

    node_selector_terms: tuple[ConfiguredSelectorTerm, ...] = Field(min_length=1)


class PreferredTerm(Section):
    """A node selector term that raises the score of matching nodes."""

    weight: int = Field(ge=1, le=100)
    preference: ConfiguredSelectorTerm


class AddedAffinity(Section):
    """Node affinity that a profile adds to all of its pods."""

    required_during_scheduling_ignored_during_execution: ConfiguredSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredTerm, ...] = ()


class NodeAffinityArgs(Args):
    """Arguments of NodeAffinity."""

    added_affinity: AddedAffinity | None = None


class InterPodAffinityArgs(Args):
    """Arguments of InterPodAffinity."""

    hard_pod_affinity_weight: Percentage = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class ConfiguredConstraint(Section):
    """A topology spread constraint for pods without one."""

    max_skew: int = Field(ge=1, le=2**31 - 1)
    topology_key: LabelKey
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    min_domains: int | None = Field(default=None, ge=1)
    node_affinity_policy: Literal["Honor", "Ignore"] | None = None
    node_taints_policy: Literal["Honor", "Ignore"] | None = None


class PodTopologySpreadArgs(Args):
    """Arguments of PodTopologySpread."""

    default_constraints: tuple[ConfiguredConstraint, ...] = ()
    defaulting_type: Literal["System", "List"] = "System"

    @model_validator(mode="after")
    def _whole(self) -> PodTopologySpreadArgs:
        if self.defaulting_type == "System" and self.default_constraints:
            raise ValueError("defaultConstraints need defaultingType: List")
        return self


class VolumeBindingArgs(Args):
    """Arguments of VolumeBinding."""

    bind_timeout_seconds: int | None = None
    shape: tuple[Any, ...] = ()


_Args = TypeVar("_Args", bound=Args)
ARGS: dict[str, type[Args]] = {
    model.__name__.removesuffix("Args"): model
    for model in (
        InterPodAffinityArgs,
        NodeAffinityArgs,
        NodeResourcesBalancedAllocationArgs,
        NodeResourcesFitArgs,
        PodTopologySpreadArgs,
        VolumeBindingArgs,
    )
}
"""Plug-in -> model of its arguments, where these decide something."""


class Plugin(Section):
    """A plug-in at an extension point."""

    name: str = Field(min_length=1)
    weight: int = Field(default=0, ge=0, le=2**31 - 1)
    """0: no weight was given."""


class PluginSet(Section):
    """The plug-ins that an extension point enables in addition to the default ones, or disables."""

    enabled: tuple[Plugin, ...] = ()
    disabled: tuple[Plugin, ...] = ()


class Plugins(Section):
    """The plug-ins of each extension point."""

    multi_point: PluginSet = PluginSet()
    pre_enqueue: PluginSet = PluginSet()
    queue_sort: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    pre_score: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()
    placement_generate: PluginSet = PluginSet()
    placement_score: PluginSet = PluginSet()


class PluginConfig(Section):
    """Arguments of a plug-in, unparsed."""

    name: str = Field(min_length=1)
    args: dict[str, Any] = Field(default_factory=dict)


class Profile(Section):
    """The configuration for pods with one ``schedulerName``."""

    scheduler_name: str = ""
    percentage_of_nodes_to_score: Percentage | None = None
    plugins: Plugins = Plugins()
    plugin_config: tuple[PluginConfig, ...] = ()
    _args: dict[str, Args] = PrivateAttr(default_factory=dict)

    def args(self, model: type[_Args]) -> _Args:
        """Return the arguments of a plug-in, or its defaults if the profile has none."""
        given = self._args.get(model.__name__.removesuffix("Args"))
        return given if isinstance(given, model) else model()


class ManagedResource(Section):
    """A resource that an extender manages."""

    name: str
    ignored_by_scheduler: bool = False


class Extender(Section):
    """An HTTP server that the scheduler calls. Its other keys have no effect on placement."""

    model_config = ConfigDict(extra="ignore")

    filter_verb: str = ""
    prioritize_verb: str = ""
    managed_resources: tuple[ManagedResource, ...] = ()


class KubeSchedulerConfiguration(Section):
    """The root of the file."""

    api_version: Literal["kubescheduler.config.k8s.io/v1"]
    kind: Literal["KubeSchedulerConfiguration"]
    percentage_of_nodes_to_score: Percentage | None = None
    profiles: tuple[Profile, ...] = ()
    extenders: tuple[Extender, ...] = ()
    _source: str = PrivateAttr(default="")

    @property
    def source(self) -> str:
        """The name of the file that the configuration was read from."""
        return self._source


def read_configuration(
    raw: bytes, source: str
) -> tuple[KubeSchedulerConfiguration | None, list[FileProblem]]:
    """Parse the YAML text ``raw``; return the configuration, or None and its problems.

    ``source`` names the text in messages.
    """
    document, problems = parse(raw, source)
    if document is None or problems:
        return None, problems
    if not isinstance(document.data, dict):
        return None, [document.problem((), f"is no {KIND}")]
    data = {key: value for key, value in document.data.items() if key not in _NO_EFFECT}
    data = without_nulls(data)
    given, problems = validate(KubeSchedulerConfiguration, data, document, (), also=_NO_EFFECT)
    if given is None:
        return None, problems
    if not given.profiles:
        given = given.model_copy(update={"profiles": (Profile(),)})
    profiles = []
    for index, profile in enumerate(given.profiles):
        read, wrong = _profile(
            profile, document, ("profiles", index), alone=len(given.profiles) == 1
        )
        profiles.append(read)
        problems += wrong
    problems += _twice(
        document, ("profiles",), "schedulerName", [p.scheduler_name for p in profiles]
    )
    given = given.model_copy(update={"profiles": tuple(profiles)})
    given._source = source  # noqa: SLF001
    return (None if problems else given), problems


def _profile(
    profile: Profile, document: YamlDocument, path: KeyPath, *, alone: bool
) -> tuple[Profile, list[FileProblem]]:
    """Return ``profile`` with validated arguments, and its problems. ``alone``: it is the only profile."""
    problems: list[FileProblem] = []
    if not profile.scheduler_name:
        profile = profile.model_copy(update={"scheduler_name": DEFAULT_SCHEDULER})
        if not alone:
            message = "is missing: each of several profiles needs one"
            problems.append(document.problem((*path, "schedulerName"), message))
    args: dict[str, Args] = {}
    at = (*path, "pluginConfig")
    for index, config in enumerate(profile.plugin_config):
        if config.name not in ARGS:
            continue
        read, wrong = validate(ARGS[config.name], config.args, document, (*at, index, "args"))
        problems += wrong
        if read is not None:
            args[config.name] = read
    problems += _twice(document, at, "name", [config.name for config in profile.plugin_config])
    profile = profile.model_copy()
    profile._args = args  # noqa: SLF001
    return profile, problems


def _twice(
    document: YamlDocument, path: KeyPath, key: str, names: list[str]
) -> Iterator[FileProblem]:
    for index, name in enumerate(names):
        if name in names[:index]:
            yield document.problem((*path, index, key), f"{name} stands here twice; remove one")
