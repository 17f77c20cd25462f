"""Convert the format v1alpha1, which the descheduler read until its release 0.30, into v1alpha2.

As its own conversion did (pkg/api/v1alpha1: conversion.go, strategymigration.go): each enabled strategy becomes a profile
with a DefaultEvictor of its own. Two limits that this conversion dropped are carried over, with a note.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from rebalancer.base.errors import PolicyError
from rebalancer.base.plain_text import did_you_mean
from rebalancer.migrate.plugins import EVICTOR, STRATEGIES
from rebalancer.migrate.uses import V1ALPHA2, KeyFate, Notes, in_order
from rebalancer.policy.document import FileProblem, KeyPath, YamlDocument, validate
from rebalancer.policy.values import Section

V1ALPHA1 = "descheduler/v1alpha1"


class _Strategy(Section):
    enabled: bool = False
    weight: int = 0
    params: dict[str, Any] = Field(default={})


class _Strategies(Section):
    strategies: dict[str, _Strategy] = Field(default={})


def _within(section: str, *keys: str) -> dict[str, str]:
    return {f"{section}.{key}": key for key in keys}


_OF_PODS = {"namespaces": "namespaces", "labelSelector": "labelSelector"}
_NODES = "nodeResourceUtilizationThresholds"
_OF_NODES = {
    "namespaces": "evictableNamespaces",
    **_within(_NODES, "thresholds", "numberOfNodes"),
}
_INIT, _KINDS = "includingInitContainers", "excludeOwnerKinds"
_ARGS: Mapping[str, Mapping[str, str]] = {
    "HighNodeUtilization": _OF_NODES,
    "LowNodeUtilization": _OF_NODES | _within(_NODES, "targetThresholds", "useDeviationThresholds"),
    "PodLifeTime": {
        **_OF_PODS,
        "podLifeTime.podStatusPhases": "states",
        **_within("podLifeTime", "maxPodLifeTimeSeconds", "states"),
    },
    "RemoveDuplicates": {"namespaces": "namespaces", **_within("removeDuplicates", _KINDS)},
    "RemoveFailedPods": _OF_PODS
    | _within("failedPods", _KINDS, "minPodLifetimeSeconds", "reasons", _INIT),
    "RemovePodsHavingTooManyRestarts": _OF_PODS
    | _within("podsHavingTooManyRestarts", "podRestartThreshold", _INIT),
    "RemovePodsViolatingInterPodAntiAffinity": _OF_PODS,
    "RemovePodsViolatingNodeAffinity": _OF_PODS | {"nodeAffinityType": "nodeAffinityType"},
    "RemovePodsViolatingNodeTaints": _OF_PODS
    | {key: key for key in ("includePreferNoSchedule", "excludedTaints", "includedTaints")},
    "RemovePodsViolatingTopologySpreadConstraint": _OF_PODS
    | {"includeSoftConstraints": "includeSoftConstraints"},
}
"""Strategy -> its parameters, as dotted paths -> the arguments of the plug-in."""
_LIMITS = {
    "nodeFit": "nodeFit",
    "thresholdPriority": "priorityThreshold.value",
    "thresholdPriorityClassName": "priorityThreshold.name",
}
"""Parameters of every strategy -> arguments of DefaultEvictor; PodLifeTime does not read the first one."""
_PARAMS = {key for table in (*_ARGS.values(), _LIMITS) for key in table}
_SECTIONS = {key.partition(".")[0] for key in _PARAMS if "." in key}
_OF_ALL = (
    "evictDaemonSetPods",
    "evictFailedBarePods",
    "evictLocalStoragePods",
    "evictSystemCriticalPods",
    "ignorePvcPods",
)
"""Keys at the top that are arguments of each DefaultEvictor."""
_TOTAL, _INCLUDED = "maxNoOfPodsToEvictTotal", "includedTaints"
"""Limits that the descheduler's conversion left out."""
_NOT_KEPT = "a limit here; the descheduler kept to it in v1alpha2 only"


@dataclass(frozen=True, slots=True)
class _Converted(YamlDocument):
    """A document in the form of v1alpha2, whose problems are those of the file."""

    origins: Mapping[KeyPath, KeyPath] = field(default_factory=dict)
    """Path in the data -> path in the file."""

    def problem(self, path: Any, message: str) -> FileProblem:
        whole = tuple(path)
        for length in range(len(whole), 0, -1):
            if (origin := self.origins.get(whole[:length])) is not None:
                whole = (*origin, *whole[length:])
                break
        return YamlDocument.problem(self, whole, message)


def as_v1alpha2(document: YamlDocument) -> tuple[YamlDocument, Notes]:
    """Return a policy of v1alpha1 in the form of v1alpha2, and notes on what has no effect or another one.

    Raises:
        PolicyError: strategies or parameters are unknown.
    """
    given = {"strategies": document.data.get("strategies", {})}
    read, problems = validate(_Strategies, given, document, ())
    conversion = _Conversion(document)
    for name, strategy in (read.strategies if read is not None else {}).items():
        if name not in STRATEGIES:
            text = f"unknown strategy {name}{did_you_mean(name, STRATEGIES)}"
            problems.append(document.problem(("strategies", name), text))
        elif strategy.enabled:
            problems += conversion.add(name, strategy.params)
    if problems:
        raise PolicyError(in_order(problems))
    return conversion.document, conversion.notes


class _Conversion:
    """A policy of v1alpha2 that is made."""

    def __init__(self, old: YamlDocument) -> None:
        kept = {key: v for key, v in old.data.items() if key not in (*_OF_ALL, "strategies")}
        self._old, self._profiles = old, list[dict[str, Any]]()
        self._origins: dict[KeyPath, KeyPath] = {}
        data = {**kept, "apiVersion": V1ALPHA2, "profiles": self._profiles}
        self.document = _Converted(old.file, data, old.lines, origins=self._origins)
        self.notes = Notes(self.document)
        if "profiles" in old.data:
            self.notes.add(("profiles",), KeyFate.IDLE, f"{V1ALPHA1} has no such key", of=old)
        if _TOTAL in kept:
            self.notes.add((_TOTAL,), KeyFate.DIFFERS, _NOT_KEPT)

    def add(self, name: str, params: dict[str, Any]) -> Iterator[FileProblem]:
        """Add the profile of a strategy; yield a problem for each unknown parameter."""
        profile, base = _profile(name, self._old.data), ("profiles", len(self._profiles))
        at: KeyPath = ("strategies", name, "params")
        places = _places(name)
        self._origins |= {(*base, *_args(number)): at for number in (0, 1)}
        self._origins |= {(*base, *_args(0), key): (key,) for key in _OF_ALL}
        self._origins |= {(*base, *to): (*at, *key.split(".")) for key, to in places.items()}
        for key, value in _leaves(params):
            path = (*at, *key.split("."))
            if (to := places.get(key)) is not None:
                _put(profile, to, value)
                self._origins[*base, *to] = path
                if key == _INCLUDED:
                    self.notes.add(path, KeyFate.DIFFERS, _NOT_KEPT)
            elif key in _PARAMS:
                self.notes.add(path, KeyFate.IDLE, f"{name} does not read it")
            else:
                hint = did_you_mean(key, _PARAMS, listed=0)
                yield self._old.problem(path, f"unknown key{hint}")
        self._profiles.append(profile)


def _args(number: int) -> KeyPath:
    return ("pluginConfig", number, "args")


def _places(name: str) -> dict[str, KeyPath]:
    """Return the parameters that a strategy reads -> their paths in its profile."""
    return {
        key: (*_args(number), *argument.split("."))
        for number, table in enumerate((_LIMITS, _ARGS[name]))
        for key, argument in table.items()
        if (name, key) != ("PodLifeTime", "nodeFit")
    }


def _profile(name: str, data: dict[str, Any]) -> dict[str, Any]:
    evictor = {key: data[key] for key in _OF_ALL if key in data}
    configs = [{"name": EVICTOR, "args": evictor}, {"name": name, "args": {}}]
    plugins = {STRATEGIES[name][0]: {"enabled": [name]}}
    return {"name": name, "pluginConfig": configs, "plugins": plugins}


def _put(here: Any, path: KeyPath, value: Any) -> None:
    """Set a value of nested data; a list is appended to one that is there."""
    for key in path[:-1]:
        here = here[key] if isinstance(key, int) else here.setdefault(key, {})
    both = isinstance(value, list) and isinstance(here.get(path[-1]), list)
    here[path[-1]] = [*here[path[-1]], *value] if both else value


def _leaves(params: dict[str, Any], base: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (parameter as a dotted path, value)."""
    for key, value in params.items():
        if isinstance(value, dict) and key in _SECTIONS:
            yield from _leaves(value, f"{key}.")
        else:
            yield f"{base}{key}", value
