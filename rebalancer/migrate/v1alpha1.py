"""Read the descheduler's old format, v1alpha1 (pkg/api/v1alpha1 until its release 0.30), as v1alpha2.

The options of all strategies are in ``params``; the descheduler ignored options of other strategies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from pydantic import Field

from rebalancer.base.errors import PolicyError
from rebalancer.migrate.notes import KeyFate, Notes
from rebalancer.migrate.peer import Limits, PeerPolicy
from rebalancer.migrate.plugins import STRATEGIES, Args, EvictorArgs, Namespaces, Selector, Switches
from rebalancer.migrate.source import KIND, V1ALPHA2
from rebalancer.migrate.uses import Peer, Use, Written, in_order
from rebalancer.policy.document import FileProblem, KeyPath, YamlDocument
from rebalancer.policy.problems import did_you_mean, validate
from rebalancer.policy.values import Section

_Args = TypeVar("_Args", bound=Args)


class _Params(Section):
    """Options of all strategies. The fields after ``node_fit`` are validated with the strategy that uses them."""

    namespaces: Namespaces = Namespaces()
    label_selector: Selector = Selector()
    threshold_priority: int | None = None
    threshold_priority_class_name: str = ""
    node_fit: bool = False
    node_resource_utilization_thresholds: dict[str, Any] = Field(default={})
    node_affinity_type: Any = None
    pods_having_too_many_restarts: dict[str, Any] = Field(default={})
    pod_life_time: dict[str, Any] = Field(default={})
    remove_duplicates: dict[str, Any] = Field(default={})
    failed_pods: dict[str, Any] = Field(default={})
    include_soft_constraints: Any = None
    include_prefer_no_schedule: Any = None
    excluded_taints: Any = None
    included_taints: Any = None


class _Strategy(Section):
    enabled: bool = False
    weight: int = 0
    params: _Params = _Params()


class _Old(Limits, Switches):
    api_version: Any = ""
    strategies: dict[str, _Strategy] = Field(default={})


_EVICTOR_KEYS = tuple(str(field.alias) for field in Switches.model_fields.values())
_THRESHOLD = {"thresholdPriority": "value", "thresholdPriorityClassName": "name"}
_LIMITS = ("nodeSelector", "maxNoOfPodsToEvictPerNode", "maxNoOfPodsToEvictPerNamespace")
_EVERYWHERE = (*_THRESHOLD, "nodeFit")
# Strategy -> key of its options in params -> keys of v1alpha2 below it; "" is params itself.
_OWN: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "HighNodeUtilization": {"nodeResourceUtilizationThresholds": ("thresholds", "numberOfNodes")},
    "LowNodeUtilization": {
        "nodeResourceUtilizationThresholds": (
            "thresholds",
            "targetThresholds",
            "useDeviationThresholds",
            "numberOfNodes",
        ),
    },
    "PodLifeTime": {
        "podLifeTime": ("maxPodLifeTimeSeconds", "podStatusPhases", "states"),
        "": ("labelSelector",),
    },
    "RemoveDuplicates": {"removeDuplicates": ("excludeOwnerKinds",)},
    "RemoveFailedPods": {
        "failedPods": (
            "excludeOwnerKinds",
            "minPodLifetimeSeconds",
            "reasons",
            "includingInitContainers",
        ),
        "": ("labelSelector",),
    },
    "RemovePodsHavingTooManyRestarts": {
        "podsHavingTooManyRestarts": ("podRestartThreshold", "includingInitContainers"),
        "": ("labelSelector",),
    },
    "RemovePodsViolatingInterPodAntiAffinity": {"": ("labelSelector",)},
    "RemovePodsViolatingNodeAffinity": {"": ("labelSelector", "nodeAffinityType")},
    "RemovePodsViolatingNodeTaints": {
        "": ("labelSelector", "includePreferNoSchedule", "excludedTaints", "includedTaints")
    },
    "RemovePodsViolatingTopologySpreadConstraint": {
        "": ("labelSelector", "includeSoftConstraints")
    },
}


def read_v1alpha1(document: YamlDocument, notes: Notes) -> Peer:
    """Parse a document as a v1alpha1 policy.

    Raises:
        PolicyError: the descheduler would refuse it, or it has unknown keys.
    """
    old, problems = validate(_Old, document.data, document, ())
    if old is None:
        raise PolicyError(in_order(problems))
    uses = tuple(_uses(document, old, notes, problems))
    if problems:
        raise PolicyError(in_order(problems))
    same = {key: document.data[key] for key in _LIMITS if key in document.data}
    top = PeerPolicy.model_validate({**same, "apiVersion": V1ALPHA2, "kind": KIND})
    return Peer(Written(top, ()), uses)


def _uses(
    document: YamlDocument, old: _Old, notes: Notes, problems: list[FileProblem]
) -> Iterator[Use]:
    for name, strategy in old.strategies.items():
        at: KeyPath = ("strategies", name)
        if name not in STRATEGIES:
            message = f"unknown strategy{did_you_mean(name, STRATEGIES)}"
            problems.append(document.problem(at, message))
        elif strategy.enabled:
            if strategy.weight:
                notes.add((*at, "weight"), KeyFate.IDLE, "nothing reads it")
            use = _Reader(name, document, notes, problems).use()
            if use is not None:
                yield use


class _Reader:
    """Converts one strategy into a plug-in of v1alpha2."""

    def __init__(
        self, name: str, document: YamlDocument, notes: Notes, problems: list[FileProblem]
    ) -> None:
        self._name, self._own = name, _OWN[name]
        self._document, self._notes, self._problems = document, notes, problems
        self._base: KeyPath = ("strategies", name, "params")
        self._params: Mapping[str, Any] = document.data["strategies"][name].get("params", {})

    def use(self) -> Use | None:
        """Return the plug-in of v1alpha2; None if the options are invalid."""
        # Problems are reported at the options' own key, if there is one.
        inner = next((key for key in self._own if key and key in self._params), None)
        place = self._base if inner is None else (*self._base, inner)
        args = self._check(STRATEGIES[self._name][1], self._args(), place)
        evictor = self._check(EvictorArgs, self._evictor(), self._base)
        return None if args is None or evictor is None else Use(self._name, args, evictor)

    def _check(
        self, model: type[_Args], options: Mapping[str, tuple[Any, KeyPath]], place: KeyPath
    ) -> Written[_Args] | None:
        """Return ``options`` (name -> value and path) validated as ``model``."""
        given = {key: value for key, (value, _) in options.items()}
        args, problems = validate(model, given, self._document, place)
        self._problems += problems
        where = {key: at for key, (_, at) in options.items()}
        return None if args is None else Written(args, self._base, where)

    def _args(self) -> dict[str, tuple[Any, KeyPath]]:
        """Return the arguments of the plug-in as name -> (value, path)."""
        args: dict[str, tuple[Any, KeyPath]] = {}
        is_load = self._name.endswith("Utilization")
        for key, value in self._params.items():
            at = (*self._base, key)
            if key == "namespaces":
                args["evictableNamespaces" if is_load else key] = value, at
            elif key in self._own.get("", ()):
                args[key] = value, at
            elif key in self._own:
                args |= self._below(key, value)
            elif key not in _EVERYWHERE:
                self._notes.add(at, KeyFate.IDLE, f"{self._name} does not read it")
        return args

    def _below(self, key: str, value: Mapping[str, Any]) -> dict[str, tuple[Any, KeyPath]]:
        args: dict[str, tuple[Any, KeyPath]] = {}
        for inner, item in value.items():
            at = (*self._base, key, inner)
            if inner in self._own[key]:
                args["states" if inner == "podStatusPhases" else inner] = item, at
            else:
                message = f"unknown key{did_you_mean(inner, self._own[key])}"
                self._problems.append(self._document.problem(at, message))
        return args

    def _evictor(self) -> dict[str, tuple[Any, KeyPath]]:
        """Return the arguments of DefaultEvictor as name -> (value, path)."""
        data, params, base = self._document.data, self._params, self._base
        args: dict[str, tuple[Any, KeyPath]] = {
            key: (data[key], (key,)) for key in _EVICTOR_KEYS if key in data
        }
        if "nodeFit" in params:
            args["nodeFit"] = params["nodeFit"], (*base, "nodeFit")
        for key, field in _THRESHOLD.items():
            if key in params:
                threshold = args.get("priorityThreshold", ({}, ()))[0]
                args["priorityThreshold"] = {**threshold, field: params[key]}, (*base, key)
        return args
