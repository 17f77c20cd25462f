"""Convert a KubeSchedulerConfiguration into profiles of the model, and list what the model does not support.

The enabled plug-ins and their weights follow ``apis/config/v1/default_plugins.go`` (``mergePlugins``) and
``framework/runtime/framework.go`` (``expandMultiPointPlugins``, ``getScoreWeights``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rebalancer.policy import kube_scheduler as config
from rebalancer.scheduler.filters import FILTERS
from rebalancer.scheduler.profile import (
    DEFAULT_WEIGHTS,
    KNOWN_VERSIONS,
    SchedulerProfile,
    ScoringStrategy,
)
from rebalancer.wire import objects as o

_NEITHER_FILTER_NOR_SCORE = (
    "PrioritySort",
    "NodeName",
    "DefaultPreemption",
    "DefaultBinder",
)
_DEFAULT_PLUGINS = dict.fromkeys(
    # The first and the last of FILTERS are no plug-ins.
    (*FILTERS[1:-1], *DEFAULT_WEIGHTS, *_NEITHER_FILTER_NOR_SCORE),
    1,
)
"""Plug-ins that run by default -> weight 1."""
_INDISPENSABLE = (
    "SchedulingGates",
    "NodeName",
    "NodeResourcesFit",
    "VolumeBinding",
    "DefaultBinder",
)
"""What they refuse or do is taken for granted: API server and kubelet insist on it, or nothing would be bound."""
_DECIDING = ("pre_filter", "filter", "pre_score")
"""Extension points that decide landings only together with the plug-in's other parts."""


def profiles_of(configuration: config.KubeSchedulerConfiguration) -> SchedulerProfile:
    """Return the first profile of the configuration; it contains the others."""
    first, *others = (_profile(configuration, profile) for profile in configuration.profiles)
    return replace(first, others=tuple(others))


def not_followed(configuration: config.KubeSchedulerConfiguration) -> Iterator[str]:
    """Yield sentences on pods whose landings the model cannot predict under this configuration."""
    for profile in configuration.profiles:
        for reason in _find_unmodelled(configuration, profile):
            yield (
                f"{configuration.source}: pods of schedulerName {profile.scheduler_name} are not judged: {reason}"
            )
    managed = ", ".join(sorted(_list_managed(configuration)))
    if managed:
        yield f"{configuration.source}: pods that request {managed} are not judged: an extender decides"


def _profile(
    configuration: config.KubeSchedulerConfiguration, profile: config.Profile
) -> SchedulerProfile:
    fit = profile.args(config.NodeResourcesFitArgs)
    pods = profile.args(config.InterPodAffinityArgs)
    enabled = _list_enabled(profile.plugins.multi_point)
    percentage = profile.percentage_of_nodes_to_score
    if percentage is None:
        percentage = configuration.percentage_of_nodes_to_score
    ignored = {*fit.ignored_resources, *fit.ignored_resource_groups}
    ignored |= {
        resource.name
        for extender in configuration.extenders
        for resource in extender.managed_resources
        if resource.ignored_by_scheduler
    }
    return SchedulerProfile(
        version=KNOWN_VERSIONS[-1],
        scheduler_name=profile.scheduler_name,
        weights=_weights(profile.plugins, enabled),
        percentage_of_nodes_to_score=percentage,
        hard_pod_affinity_weight=pods.hard_pod_affinity_weight,
        ignores_preferred_terms=pods.ignore_preferred_terms_of_existing_pods,
        scoring=_scoring(fit.scoring_strategy),
        balanced=_names(profile.args(config.NodeResourcesBalancedAllocationArgs).resources),
        ignored_resources=frozenset(ignored),
        added_affinity=_add(profile.args(config.NodeAffinityArgs).added_affinity),
        default_constraints=_constraints(profile.args(config.PodTopologySpreadArgs)),
        filter_order=_filter_order(profile.plugins, enabled),
        off=frozenset(_DEFAULT_PLUGINS) - enabled.keys(),
        managed_resources=frozenset(_list_managed(configuration)),
        unmodelled=tuple(_find_unmodelled(configuration, profile)),
    )


# -- plug-ins --------------------------------------------------------------------------------------------


def _list_enabled(multi_point: config.PluginSet) -> dict[str, int]:
    """Return the plug-ins enabled at ``multiPoint``, with the weights of their scores."""
    disabled = {plugin.name for plugin in multi_point.disabled}
    enabled = {} if "*" in disabled else _DEFAULT_PLUGINS | dict(DEFAULT_WEIGHTS)
    enabled = {name: weight for name, weight in enabled.items() if name not in disabled}
    return enabled | {plugin.name: plugin.weight or 1 for plugin in multi_point.enabled}


def _weights(plugins: config.Plugins, enabled: dict[str, int]) -> dict[str, int]:
    """Return the weight of each plug-in that scores, in default order."""
    disabled = {plugin.name for plugin in plugins.score.disabled}
    kept = {} if "*" in disabled else {n: w for n, w in enabled.items() if n not in disabled}
    kept |= {plugin.name: plugin.weight or 1 for plugin in plugins.score.enabled}
    return {name: kept[name] for name in DEFAULT_WEIGHTS if name in kept}


def _filter_order(plugins: config.Plugins, enabled: dict[str, int]) -> tuple[str, ...]:
    """Return the filters in the order in which they run, those named at ``filter`` first; empty: default order."""
    names = dict.fromkeys((*(plugin.name for plugin in plugins.filter.enabled), *enabled))
    order = [name for name in names if name in FILTERS]
    return () if order == sorted(order, key=FILTERS.index) else tuple(order)


def _find_unmodelled(
    configuration: config.KubeSchedulerConfiguration, profile: config.Profile
) -> Iterator[str]:
    """Yield the features of a profile that the model does not support."""
    if any(
        _decides(extender) and not extender.managed_resources
        for extender in configuration.extenders
    ):
        yield "an extender of the scheduler decides"
    enabled = _list_enabled(profile.plugins.multi_point)
    for name in _INDISPENSABLE:
        if name not in enabled:
            yield f"plug-in {name} is disabled"
    points = [(point, getattr(profile.plugins, point)) for point in config.Plugins.model_fields]
    named = {plugin.name for _, point in points for plugin in point.enabled}
    for name in sorted(named - {*_DEFAULT_PLUGINS}):
        yield f"plug-in {name} is not modelled"
    for point, plugins in points:
        yield from _find_parted(point, plugins, enabled)
    if profile.args(config.VolumeBindingArgs).shape:
        yield "VolumeBinding scores (shape), which is not modelled"


def _find_parted(point: str, plugins: config.PluginSet, enabled: dict[str, int]) -> Iterator[str]:
    """Yield the plug-ins that are enabled or disabled at only one extension point."""
    again = {plugin.name for plugin in plugins.enabled} & {*_DEFAULT_PLUGINS}
    if point in _DECIDING:
        for name in sorted({plugin.name for plugin in plugins.disabled} - again):
            yield f"plug-in {name} is disabled at {config.Plugins.model_fields[point].alias} only"
    if point in (*_DECIDING, "score"):
        for name in sorted(again - enabled.keys()):
            yield f"plug-in {name} is enabled at {config.Plugins.model_fields[point].alias} only"


def _decides(extender: config.Extender) -> bool:
    return bool(extender.filter_verb or extender.prioritize_verb)


def _list_managed(configuration: config.KubeSchedulerConfiguration) -> set[str]:
    return {
        resource.name
        for extender in configuration.extenders
        if _decides(extender)
        for resource in extender.managed_resources
    }


# -- arguments -------------------------------------------------------------------------------------------


def _names(resources: tuple[config.ConfiguredResource, ...]) -> tuple[str, ...]:
    return tuple(resource.name for resource in resources) or ("cpu", "memory")


def _scoring(given: config.ConfiguredScoring) -> ScoringStrategy:
    shape = given.requested_to_capacity_ratio
    resources = tuple((resource.name, resource.weight or 1) for resource in given.resources)
    ratio = given.type == "RequestedToCapacityRatio" and shape is not None
    return ScoringStrategy(
        type=given.type,
        resources=resources or ScoringStrategy().resources,
        shape=tuple((p.utilization, p.score) for p in shape.shape) if shape and ratio else (),
    )


def _constraints(
    args: config.PodTopologySpreadArgs,
) -> tuple[o.TopologySpreadConstraint, ...] | None:
    if args.defaulting_type == "System":
        return None
    return tuple(o.TopologySpreadConstraint(**one.model_dump()) for one in args.default_constraints)


def _add(given: config.AddedAffinity | None) -> o.NodeAffinity | None:
    if given is None:
        return None
    required = given.required_during_scheduling_ignored_during_execution
    preferred = given.preferred_during_scheduling_ignored_during_execution
    return o.NodeAffinity(
        required=None
        if required is None
        else o.NodeSelector(tuple(_term(term) for term in required.node_selector_terms)),
        preferred=tuple(
            o.PreferredSchedulingTerm(term.weight, _term(term.preference)) for term in preferred
        ),
    )


def _term(given: config.ConfiguredSelectorTerm) -> o.NodeSelectorTerm:
    def read(
        requirements: tuple[config.NodeRequirement, ...],
    ) -> tuple[o.LabelSelectorRequirement, ...]:
        return tuple(o.LabelSelectorRequirement(**one.model_dump()) for one in requirements)

    return o.NodeSelectorTerm(read(given.match_expressions), read(given.match_fields))
