"""The equivalent strategy of each plug-in of the descheduler, with its options."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any

from pydantic import ValidationError

from rebalancer.base.durations import format_duration
from rebalancer.base.plain_text import quote_value
from rebalancer.migrate import plugins as theirs
from rebalancer.migrate.plugins import (
    DuplicatesArgs,
    FailedArgs,
    HighUtilizationArgs,
    LifeTimeArgs,
    LowUtilizationArgs,
    PeerCondition,
    PeerNodeAffinityArgs,
    PeerPolicy,
    RestartArgs,
    SpreadArgs,
    TaintArgs,
)
from rebalancer.migrate.uses import FilePart, KeyFate, Notes, Options, Peer, Use
from rebalancer.policy.cluster import Prometheus, looks_back
from rebalancer.policy.document import KeyPath
from rebalancer.policy.values import Params

METRIC = "MetricResource"
"""The only threshold that the descheduler accepts with Prometheus."""
_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_SECRET = "/var/run/secrets/usage"  # noqa: S105  # a path
"""Where our chart mounts the Secret of ``usage.secretName``."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The result of converting measured usage."""

    usage: dict[str, Any]
    """The policy's section, empty without Prometheus."""
    uses: tuple[Use, ...]
    """The plug-ins that can be converted."""


def resource_of(query: str) -> str:
    """Return the resource that a query measures: ``memory`` if the query names it, else ``cpu``."""
    return "memory" if "mem" in query.lower() else "cpu"


def read_usage(peer: Peer, notes: Notes) -> Asked:
    """Return the section ``usage``, and the plug-ins except those whose query cannot be converted."""
    queries: dict[str, str] = {}
    kept: list[Use] = []
    provider = _provider(peer)
    asks = provider is not None and _section(provider[1], {"cpu": "up"}) is not None
    measured = any(_by_metrics_api(use) for use in peer.uses)
    for use in peer.uses:
        if not by_prometheus(use):
            kept.append(use)
        elif (why := _refusal(use, queries, asks=asks, measured=measured)) is None:
            query = use.args.value.metrics_utilization.prometheus.query
            queries[resource_of(query)] = query
            kept.append(use)
        else:
            notes.add(use.args.at("metricsUtilization"), KeyFate.LOST, f"{use.plugin}: {why}")
    if provider is None:
        return Asked({}, tuple(kept))
    if not queries:
        notes.add(provider[0], KeyFate.LOST, "no plug-in that is carried over asks Prometheus")
        return Asked({}, tuple(kept))
    _note(provider, notes)
    return Asked({"prometheus": _section(provider[1], queries)}, tuple(kept))


def by_prometheus(use: Use) -> bool:
    """Return whether a plug-in judges nodes by a Prometheus query."""
    args = use.args.value
    return isinstance(args, LowUtilizationArgs) and args.metrics_utilization.source == "Prometheus"


def _by_metrics_api(use: Use) -> bool:
    args = use.args.value
    if not isinstance(args, LowUtilizationArgs):
        return False
    given = args.metrics_utilization
    return given.metrics_server or given.source == "KubernetesMetrics"


def _refusal(use: Use, queries: dict[str, str], *, asks: bool, measured: bool) -> str | None:
    """Return why a plug-in's query cannot be carried over, or None."""
    args = use.args.value
    query = args.metrics_utilization.prometheus.query
    if set(args.thresholds) != {METRIC}:
        return f"with Prometheus the descheduler takes thresholds of {METRIC} only"
    if not asks:
        return "no provider has an address of Prometheus that can be asked"
    try:
        Prometheus.model_validate({"url": "https://p", "nodes": {"cpu": query}, **_window([query])})
    except ValueError:
        return "its query cannot be asked: it is empty, too long, or looks back too far"
    if measured:
        return "another plug-in goes by metrics.k8s.io, and one policy asks one of the two"
    if queries.get(resource_of(query), query) != query:
        return f"another plug-in has another query, and one policy asks one of {resource_of(query)}"
    return None


def _provider(peer: Peer) -> tuple[KeyPath, theirs.PeerPrometheus] | None:
    for index, provider in enumerate(peer.top.value.metrics_providers):
        if provider.source == "Prometheus":
            return (*peer.top.at("metricsProviders"), index), provider.prometheus
    return None


def _section(provider: theirs.PeerPrometheus, queries: dict[str, str]) -> dict[str, Any] | None:
    """Return ``usage.prometheus``; None if the address is not supported."""
    data: dict[str, Any] = {
        "url": provider.url,
        "nodes": dict(sorted(queries.items())),
        "unit": "share",
        "nodeLabel": "instance",
        **_window(queries.values()),
    }
    if provider.url.startswith("https:"):
        own = provider.auth_token.secret_reference.name
        data["tokenFile"] = f"{_SECRET}/prometheusAuthToken" if own else f"{_ACCOUNT}/token"
        data["caFile"] = f"{_ACCOUNT}/ca.crt"
    try:
        Prometheus.model_validate(data)
    except ValidationError:
        return None
    return data


def _window(queries: Iterable[str]) -> dict[str, str]:
    default = Prometheus.model_fields["window"].default
    longest = max(map(looks_back, queries))
    return {"window": format_duration(longest)} if longest > default else {}


def _note(provider: tuple[KeyPath, theirs.PeerPrometheus], notes: Notes) -> None:
    path, prometheus = provider
    secret = prometheus.auth_token.secret_reference
    if not prometheus.url.startswith("https:"):
        notes.add(path, KeyFate.LOST, "a token is sent over https only, and none over this url")
    elif secret.name:
        text = f"the Secret {secret.namespace}/{secret.name} is to be mounted at {_SECRET}"
        notes.add(path, KeyFate.DIFFERS, f"{text}: usage.secretName of the chart")


_MAX_NUMBER = 1_000_000
"""Largest count of a budget."""


_FINISHED = ("Failed", "Succeeded")
_REASONS_OF_ENDED = (
    "NodeAffinity",
    "Shutdown",
    "UnexpectedAdmissionError",
    "DeadlineExceeded",
    "Evicted",
)
"""Reasons that only pods in the phase Failed have: the kubelet, or the Job controller, has ended them."""
_OF_CONTAINERS = ("OOMKilled", "Error", "Completed", "ContainerCannotRun", "StartError")
"""Reasons for which containers have ended, also those of pods that run on."""
_STATUSES = ("", "True", "False", "Unknown")
_OF_EVERY_POD = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "PodScheduled")
_MAX_SECONDS = 999_999 * 3600
"""Seconds of the longest duration that a policy can write: no pod is as old."""


def restarts(use: Use, _default: Mapping[str, Any], notes: Notes) -> Options:
    """Return the options of restarts for RemovePodsHavingTooManyRestarts."""
    args: FilePart[RestartArgs] = use.args
    _backs_off(use, notes)
    return {
        "podRestartThreshold": min(args.value.pod_restart_threshold, 2**31 - 1),
        "includingInitContainers": args.value.including_init_containers,
        "states": list(args.value.states),
    }


def failed_pods(use: Use, _default: Mapping[str, Any], notes: Notes) -> Options:
    """Return the options of failed-pods for RemoveFailedPods."""
    args: FilePart[FailedArgs] = use.args
    given = args.value
    _are_read(use, notes)
    least = given.min_pod_lifetime_seconds
    return {
        **({} if least is None else {"minPodLifetime": _duration(least)}),
        "reasons": list(given.reasons),
        "exitCodes": list(given.exit_codes),
        "includingInitContainers": given.including_init_containers,
        "excludeOwnerKinds": list(given.exclude_owner_kinds),
    }


def lifetime(use: Use, _default: Mapping[str, Any], notes: Notes) -> Options | None:
    """Return the options of lifetime for PodLifeTime; None if it concerns no pod that lifetime may move."""
    args: FilePart[LifeTimeArgs] = use.args
    given = args.value
    states = _states(args, notes, carried=_ended_states(use))
    conditions = list(_conditions(args, notes))
    if (given.states and not states) or (given.conditions and not conditions):
        return None
    _backs_off(use, notes)
    if not given.states:
        text = "pods that have ended stay; failed-pods, with phases, removes them"
        notes.add(args.base, KeyFate.DIFFERS, f"{use.plugin}: {text}")
    options: Options = {
        "states": states,
        "conditions": conditions,
        "exitCodes": list(given.exit_codes),
        "includingInitContainers": given.including_init_containers,
        "includingEphemeralContainers": given.including_ephemeral_containers,
    }
    if given.max_pod_life_time_seconds is not None:
        options = {"maxPodLifeTime": _duration(given.max_pod_life_time_seconds), **options}
    return options


def _ended_states(use: Use) -> set[str]:
    """Return the states of finished pods in a PodLifeTime; none if failed-pods cannot express them together."""
    states, reasons = set(use.args.value.states), set(_REASONS_OF_ENDED)
    # Its phases and reasons must both be true of a pod, and of the states there one is enough.
    mixed = "Succeeded" in states and "Failed" not in states and bool(states & reasons)
    return set() if mixed else states & {*_FINISHED, *reasons}


def lifetime_of_ended(use: Use, _default: Mapping[str, Any], notes: Notes) -> Options | None:
    """Return the options of failed-pods for a PodLifeTime on finished pods.

    None if a condition cannot be expressed.
    """
    args: FilePart[LifeTimeArgs] = use.args
    given = args.value
    conditions = list(_conditions(args, notes))
    if given.conditions and not conditions:
        return None
    _are_read(use, notes)
    if given.including_ephemeral_containers:
        text = "only states of containers read it, and these have ended"
        notes.add(args.at("includingEphemeralContainers"), KeyFate.IDLE, text)
    return {
        "phases": [phase for phase in _FINISHED if phase in given.states] or ["Failed"],
        # Pods of these reasons are Failed: where that phase is asked for, they are in it.
        "reasons": []
        if "Failed" in given.states
        else [s for s in given.states if s in _REASONS_OF_ENDED],
        "minPodLifetime": _duration(given.max_pod_life_time_seconds or 0),
        "exitCodes": list(given.exit_codes),
        "conditions": conditions,
        "includingInitContainers": given.including_init_containers,
    }


def _are_read(use: Use, notes: Notes) -> None:
    text = "pods of a Job stay until it has ended, and those of custom controllers and without one stay"
    notes.add(
        use.args.base, KeyFate.DIFFERS, f"{use.plugin}: {text}: their results may still be read"
    )


def _backs_off(use: Use, notes: Notes) -> None:
    text = "a pod goes only if its replacement has a place; owners whose replacements do no better cool down"
    notes.add(use.args.base, KeyFate.DIFFERS, f"{use.plugin}: {text}")


def _duration(seconds: int) -> str:
    return format_duration(timedelta(seconds=min(seconds, _MAX_SECONDS)))


def _states(args: FilePart[LifeTimeArgs], notes: Notes, *, carried: Collection[str]) -> list[str]:
    """Return the states in the arguments that a running or pending pod can have; ``carried``: failed-pods has them."""
    given = list(dict.fromkeys(args.value.states))
    finished = [state for state in given if state in (*_FINISHED, *_REASONS_OF_ENDED)]
    if lost := [state for state in finished if state not in carried]:
        text = f"{' and '.join(lost)}: lifetime is about pods that run; failed-pods, with phases and reasons, removes what has ended"
        notes.add(args.at("states"), KeyFate.LOST, text)
    if either := [state for state in given if state in _OF_CONTAINERS]:
        text = f"{' and '.join(either)}: of pods that run; failed-pods, with reasons, removes those that have ended"
        notes.add(args.at("states"), KeyFate.DIFFERS, text)
    if "Pending" in given:
        text = "Pending: a pod without a node stays, it would only wait again"
        notes.add(args.at("states"), KeyFate.DIFFERS, text)
    return [state for state in given if state not in finished]


def _conditions(args: FilePart[LifeTimeArgs], notes: Notes) -> Iterator[dict[str, Any]]:
    for index, condition in enumerate(args.value.conditions):
        path = (*args.at("conditions"), index)
        if (why := _inexpressible(condition)) is not None:
            notes.add(path, *why)
            continue
        least = condition.min_time_since_last_transition_seconds
        written = {"type": condition.type, "status": condition.status, "reason": condition.reason}
        yield {
            **{key: value for key, value in written.items() if value},
            **({} if least is None else {"minTimeSinceLastTransition": _duration(least)}),
        }


def _inexpressible(condition: PeerCondition) -> tuple[KeyFate, str] | None:
    """Return why a condition cannot be carried over, or None if it can."""
    if condition.status not in _STATUSES:
        return KeyFate.IDLE, "no condition has such a status"
    if not (condition.type or condition.status or condition.reason):
        return KeyFate.LOST, "a condition needs type, status or reason here"
    if condition.status == "True" and condition.type in _OF_EVERY_POD and not condition.reason:
        return KeyFate.LOST, f"every healthy pod has {condition.type} True"
    return None


@dataclass(frozen=True, slots=True)
class Equivalent:
    """The strategy that replaces a plug-in."""

    strategy: str
    options: Callable[[Use, Mapping[str, Any], Notes], Options | None]
    """Converts the descheduler's arguments, given our defaults; None if the strategy would have nothing to do."""


def list_equivalents(use: Use) -> tuple[Equivalent, ...]:
    """Return the strategies that replace a plug-in: two for a PodLifeTime on pods that run and on pods that have ended."""
    ended = _ended_states(use) if use.plugin == "PodLifeTime" else set()
    if not ended:
        return (_EQUIVALENTS[use.plugin],)
    if ended == set(use.args.value.states):
        return (_OF_ENDED,)
    return _EQUIVALENTS[use.plugin], _OF_ENDED


_WRITTEN_AS = {
    "thresholds": ("under",),
    "targetThresholds": ("over",),
    "useDeviationThresholds": ("deviation",),
    "metricsUtilization": ("signal",),
    "states": ("states", "phases", "reasons"),
    "maxPodLifeTimeSeconds": ("maxPodLifeTime", "minPodLifetime"),
    "minPodLifetimeSeconds": ("minPodLifetime",),
    "nodeAffinityType": ("required", "preferred"),
    "includePreferNoSchedule": ("preferNoSchedule",),
    "includedTaints": ("include",),
    "excludedTaints": ("exclude",),
    "includeSoftConstraints": ("constraints",),
}
"""Argument of a plug-in -> our options; all others that our options have keep their names."""


def list_stated(use: Use) -> Iterator[str]:
    """Yield our options in the place of the arguments in the file; they are written even if they are our defaults."""
    model = type(use.args.value)
    for field in use.args.value.model_fields_set:
        name = model.model_fields[field].alias or field
        yield from _WRITTEN_AS.get(name, (name,))


def defaults(params: type[Params]) -> dict[str, Any]:
    """Return the defaults of a strategy's options as plain data."""
    # Not every strategy may stand without options; they have defaults anyway.
    return params.model_construct().model_dump(mode="json", by_alias=True)


def _topology_spread(use: Use, default: Mapping[str, Any], notes: Notes) -> Options:
    args: FilePart[SpreadArgs] = use.args
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
    args: FilePart[DuplicatesArgs] = use.args
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
    args: FilePart[LowUtilizationArgs] = use.args
    given = args.value
    text = (
        "a pod leaves only for a node that it does not over-use; gap: 100% lets nodes give pods only while one is"
        " under all thresholds, as there, and without it new nodes are filled further"
    )
    notes.add(args.base, KeyFate.DIFFERS, f"{use.plugin}: {text}")
    names = {name: name for name in given.thresholds}
    if by_prometheus(use):
        ours = names[METRIC] = resource_of(given.metrics_utilization.prometheus.query)
        text = f"{METRIC} is {ours} here: a pod takes along what it requests of it"
        notes.add(args.at("metricsUtilization"), KeyFate.DIFFERS, text)
    options: Options = {
        "under": {ours: _percent(given.thresholds[name]) for name, ours in names.items()},
        "over": {ours: _percent(given.target_thresholds[name]) for name, ours in names.items()},
        "gap": "100%",
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
        options["budgets"] = {"perNodeInRun": min(given.eviction_limits.node, _MAX_NUMBER)}
    return options


def _consolidation(use: Use, _default: Mapping[str, Any], notes: Notes) -> Options:
    args: FilePart[HighUtilizationArgs] = use.args
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
    args: FilePart[PeerNodeAffinityArgs] = use.args
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
    args: FilePart[TaintArgs] = use.args
    given = args.value
    include = _taint_names(args, "includedTaints", given.included_taints, notes)
    if not include and "included_taints" in given.model_fields_set:
        notes.add(args.base, KeyFate.IDLE, f"{use.plugin}: includedTaints includes none")
        return None
    if not include:
        text = "taints of cordons, node conditions and agents that are not ready are left out; without them in exclude they count"
        notes.add(args.base, KeyFate.DIFFERS, f"{use.plugin}: {text}, as there")
    included = {taint.partition("=")[0] for taint in include}
    exclude = [
        name for name in default["exclude"] if not any(fnmatchcase(key, name) for key in included)
    ]
    more = _taint_names(args, "excludedTaints", given.excluded_taints, notes)
    return {
        "preferNoSchedule": given.include_prefer_no_schedule,
        "include": include,
        "exclude": list(dict.fromkeys((*exclude, *more))),
    }


def _taint_names(
    args: FilePart[TaintArgs], key: str, given: tuple[str, ...], notes: Notes
) -> list[str]:
    """Return the valid taints (``key`` or ``key=value``) without repetitions, and add notes on the others."""
    names: dict[str, None] = {}
    for text in given:
        if text.partition("=")[0].strip() and not text.endswith("="):
            names[text] = None
        else:
            notes.add(args.at(key), KeyFate.IDLE, f"{quote_value(text)} names no taint")
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
_OF_ENDED = Equivalent("failed-pods", lifetime_of_ended)


def budgets(top: FilePart[PeerPolicy]) -> dict[str, Any]:
    """Return the budgets that the file has."""
    policy = top.value
    converted: dict[str, Any] = {}
    if (most := policy.max_no_of_pods_to_evict_per_node) is not None:
        converted["perNodeInRun"] = min(most, _MAX_NUMBER)
    if (most := policy.max_no_of_pods_to_evict_total) is not None:
        converted["perRun"] = min(most, _MAX_NUMBER)
    if (most := policy.max_no_of_pods_to_evict_per_namespace) is not None:
        converted["perNamespace"] = min(most, _MAX_NUMBER)
    return converted
