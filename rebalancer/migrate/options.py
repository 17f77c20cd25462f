"""The equivalent strategy of each plug-in of the descheduler, with its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rebalancer.base.plain_text import shown
from rebalancer.migrate.budgets import per_node
from rebalancer.migrate.judged import (
    ended_lifetime,
    failed_pods,
    lifetime,
    only_ended,
    restarts,
)
from rebalancer.migrate.notes import KeyFate, Notes
from rebalancer.migrate.plugins import (
    DuplicatesArgs,
    HighUtilizationArgs,
    LowUtilizationArgs,
    NodeAffinityArgs,
    SpreadArgs,
    TaintArgs,
)
from rebalancer.migrate.usage import METRIC, by_prometheus, resource_of
from rebalancer.migrate.uses import Options, Use, Written
from rebalancer.policy.params import Params


@dataclass(frozen=True, slots=True)
class Equivalent:
    """The strategy for a plug-in."""

    strategy: str
    options: Callable[[Use, Mapping[str, Any], Notes], Options | None]
    """Converts the arguments, given our defaults; None if the strategy would have nothing to do."""


def equivalent(use: Use) -> Equivalent:
    """Return the strategy for a plug-in."""
    if use.plugin == "PodLifeTime" and only_ended(use):
        return _OF_ENDED
    return _EQUIVALENTS[use.plugin]


def defaults(params: type[Params]) -> dict[str, Any]:
    """Return the defaults of a strategy's options as plain data."""
    # Not every strategy may stand without options; they have defaults anyway.
    return params.model_construct().model_dump(mode="json", by_alias=True)


def _topology_spread(use: Use, default: Mapping[str, Any], notes: Notes) -> Options:
    args: Written[SpreadArgs] = use.args
    constraints = set(args.value.constraints or ("DoNotSchedule",))
    if args.value.include_soft_constraints:
        constraints = {"DoNotSchedule", "ScheduleAnyway"}
    if "topology_balance_node_fit" in args.value.model_fields_set:
        notes.add(args.at("topologyBalanceNodeFit"), KeyFate.ALWAYS, _PREDICTED)
    names = {"hard": "DoNotSchedule", "soft": "ScheduleAnyway"}
    return {"constraints": [ours for ours in default["constraints"] if names[ours] in constraints]}


def _anti_affinity(_use: Use, _default: Mapping[str, Any], _notes: Notes) -> Options:
    return {"preferred": False}


def _duplicates(use: Use, _default: Mapping[str, Any], notes: Notes) -> Options:
    args: Written[DuplicatesArgs] = use.args
    kinds: dict[str, None] = {}
    for kind in args.value.exclude_owner_kinds:
        kinds.update(dict.fromkeys((kind, *_TOP.get(kind, ()))))
    if len(kinds) > len(set(args.value.exclude_owner_kinds)):
        text = "kinds are those of top owners: a Deployment or Rollout beside its ReplicaSet"
        notes.add(
            args.at("excludeOwnerKinds"), KeyFate.DIFFERS, f"{text}, a CronJob beside its Job"
        )
    return {"excludeOwnerKinds": list(kinds)}


def _low_utilisation(use: Use, _default: Mapping[str, Any], notes: Notes) -> Options:
    args: Written[LowUtilizationArgs] = use.args
    given = args.value
    text = "an over-used node also gives while another is far below it; gap: 100% waits for one under all"
    notes.add(args.base, KeyFate.DIFFERS, f"{use.plugin}: {text} thresholds, as there")
    names = {name: name for name in given.thresholds}
    if by_prometheus(use):
        ours = names[METRIC] = resource_of(given.metrics_utilization.prometheus.query)
        text = f"{METRIC} is {ours} here: a pod takes along what it requests of it"
        notes.add(args.at("metricsUtilization"), KeyFate.DIFFERS, text)
    options: Options = {
        "under": {ours: _percent(given.thresholds[name]) for name, ours in names.items()},
        "over": {ours: _percent(given.target_thresholds[name]) for name, ours in names.items()},
        "deviation": given.use_deviation_thresholds,
    }
    if given.metrics_utilization.metrics_server or given.metrics_utilization.source:
        options["signal"] = "usage"
        text = (
            "a node gives once it was over-used in three runs in a row (runs), which needs --memory"
        )
        notes.add(args.at("metricsUtilization"), KeyFate.DIFFERS, text)
    if given.number_of_nodes > 0:
        text = "one node that is under-used is enough"
        notes.add(args.at("numberOfNodes"), KeyFate.LOST, text)
    if given.eviction_limits.node is not None:
        path = args.at("evictionLimits", "node")
        options["budgets"] = per_node(given.eviction_limits.node, path, notes)
    return options


def _consolidation(use: Use, _default: Mapping[str, Any], notes: Notes) -> Options:
    args: Written[HighUtilizationArgs] = use.args
    given = args.value
    text = (
        "a node is emptied whole or not at all, where every pod on it has a landing elsewhere, and is marked"
        " (steer: marks), so that it stays empty; where all nodes are below the thresholds nothing is done there,"
        " and here the pods of some are packed onto the others"
    )
    notes.add(args.base, KeyFate.DIFFERS, f"{use.plugin}: {text}")
    if given.number_of_nodes > 0:
        notes.add(args.at("numberOfNodes"), KeyFate.LOST, "one node that can be emptied is enough")
    if given.eviction_modes:
        text = "every pod of a node goes, whatever it requests"
        notes.add(args.at("evictionModes"), KeyFate.LOST, text)
    return {"under": {name: _percent(value) for name, value in given.thresholds.items()}}


def _node_affinity(use: Use, _default: Mapping[str, Any], notes: Notes) -> Options | None:
    args: Written[NodeAffinityArgs] = use.args
    types = args.value.node_affinity_type
    for unknown in sorted(set(types) - set(_AFFINITY.values())):
        text = f"{unknown} is no type of node affinity"
        notes.add(args.at("nodeAffinityType"), KeyFate.IDLE, text)
    options = {ours: theirs in types for ours, theirs in _AFFINITY.items()}
    if options["required"]:
        text = "a nodeSelector is fixed like required node affinity"
        notes.add(args.at("nodeAffinityType"), KeyFate.DIFFERS, text)
    return options if any(options.values()) else None


def _taints(use: Use, default: Mapping[str, Any], notes: Notes) -> Options | None:
    args: Written[TaintArgs] = use.args
    given = args.value
    include = _taint_names(args, "includedTaints", given.included_taints, notes)
    if not include and "included_taints" in given.model_fields_set:
        notes.add(args.base, KeyFate.IDLE, f"{use.plugin}: includedTaints includes none")
        return None
    if not include:
        text = (
            "taints of cordons and node conditions are left out; without them in exclude they count"
        )
        notes.add(args.base, KeyFate.DIFFERS, f"{use.plugin}: {text}, as there")
    included = {taint.partition("=")[0] for taint in include}
    exclude = [taint for taint in default["exclude"] if taint not in included]
    more = _taint_names(args, "excludedTaints", given.excluded_taints, notes)
    return {
        "preferNoSchedule": given.include_prefer_no_schedule,
        "include": include,
        "exclude": list(dict.fromkeys((*exclude, *more))),
    }


def _taint_names(
    args: Written[TaintArgs], key: str, given: tuple[str, ...], notes: Notes
) -> list[str]:
    """Return the valid names of taints (``key`` or ``key=value``), each once, with notes on the others."""
    names: dict[str, None] = {}
    for text in given:
        if text.partition("=")[0].strip() and not text.endswith("="):
            names[text] = None
        else:
            notes.add(args.at(key), KeyFate.IDLE, f"{shown(text)} names no taint")
    return list(names)


def _percent(value: float) -> str:
    digits = f"{value:.6f}".rstrip("0").rstrip(".")
    return f"{digits}%"


_PREDICTED = "every move is made for where the replacement will land"
_AFFINITY = {
    "required": "requiredDuringSchedulingIgnoredDuringExecution",
    "preferred": "preferredDuringSchedulingIgnoredDuringExecution",
}
_TOP = {"ReplicaSet": ("Deployment", "Rollout"), "Job": ("CronJob",)}
"""Kind of a controller -> kinds that own such controllers (``rebalancer.snapshot.owners``)."""

_EQUIVALENTS = {
    "HighNodeUtilization": Equivalent("consolidation", _consolidation),
    "PodLifeTime": Equivalent("lifetime", lifetime),
    "RemoveFailedPods": Equivalent("failed-pods", failed_pods),
    "RemovePodsHavingTooManyRestarts": Equivalent("restarts", restarts),
    "LowNodeUtilization": Equivalent("low-utilisation", _low_utilisation),
    "RemoveDuplicates": Equivalent("duplicates", _duplicates),
    "RemovePodsViolatingInterPodAntiAffinity": Equivalent("anti-affinity", _anti_affinity),
    "RemovePodsViolatingNodeAffinity": Equivalent("node-affinity", _node_affinity),
    "RemovePodsViolatingNodeTaints": Equivalent("taints", _taints),
    "RemovePodsViolatingTopologySpreadConstraint": Equivalent("topology-spread", _topology_spread),
}
_OF_ENDED = Equivalent("failed-pods", ended_lifetime)
