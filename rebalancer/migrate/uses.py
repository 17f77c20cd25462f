"""The plug-ins that a descheduler policy uses, for both versions of the format.

The old format, v1alpha1 (pkg/api/v1alpha1 until the descheduler's release 0.30), is read as v1alpha2. Its options of
all strategies are in ``params``; the descheduler ignored options of other strategies.

Where a file holds the policy, ``source`` says.
"""

from __future__ import annotations

import enum
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from pydantic import Field

from rebalancer.base.errors import PolicyError
from rebalancer.base.plain_text import closest, did_you_mean
from rebalancer.migrate.plugins import (
    EVICTOR,
    STRATEGIES,
    EvictorArgs,
    PeerArgs,
    PeerLimits,
    PeerNamespaces,
    PeerPluginConfig,
    PeerPolicy,
    PeerProfile,
    Selector,
    Switches,
)
from rebalancer.policy.document import FileProblem, KeyPath, YamlDocument, validate
from rebalancer.policy.values import Section

V1ALPHA1, V1ALPHA2 = "descheduler/v1alpha1", "descheduler/v1alpha2"
KIND = "DeschedulerPolicy"

_WIDTH = 100


class KeyFate(enum.StrEnum):
    """What happens to a key."""

    LOST = "not carried over"
    DIFFERS = "differs"
    ALWAYS = "always so here"
    IDLE = "had no effect there"


class Notes:
    """The notes on one document, without repetitions."""

    def __init__(self, document: YamlDocument) -> None:
        self._document = document
        self._notes: dict[FileProblem, None] = {}

    def add(self, path: KeyPath, fate: KeyFate, text: str) -> None:
        """Add a note on the key at ``path``; an empty path stands for the whole file."""
        problem = self._document.problem(path, f"{fate}: {text}")
        if not path:
            problem = FileProblem(problem.file, 0, (), problem.message)
        self._notes[problem] = None

    def place(self, path: KeyPath, message: str) -> str:
        """Return the error ``message`` at ``path``, with file and line."""
        return str(self._document.problem(path, message))

    def __iter__(self) -> Iterator[FileProblem]:
        """Yield the notes in the order of the file, then the notes on the whole file."""
        return iter(sorted(self._notes, key=lambda note: (not note.line, note.line)))


def as_comments(notes: Iterable[FileProblem]) -> str:
    """Return notes as YAML comments, with the line but without the file."""
    return "".join(map(_comment, notes))


def _comment(note: FileProblem) -> str:
    text = str(replace(note, file="", line=0))
    if note.line:
        text = f"line {note.line}: {text}"
    # A name in the file may contain a line break, which would end the comment.
    text = "".join(c if c.isprintable() else "?" for c in text)
    lines = textwrap.wrap(
        text,
        _WIDTH,
        initial_indent="# - ",
        subsequent_indent="#   ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "".join(f"{line}\n" for line in lines)


_Value_co = TypeVar("_Value_co", covariant=True)


Options = dict[str, Any]
"""The options of a strategy as plain data."""


@dataclass(frozen=True, slots=True)
class FilePart(Generic[_Value_co]):
    """A part of the file, and the paths of its keys."""

    value: _Value_co
    base: KeyPath
    elsewhere: Mapping[str, KeyPath] = field(default_factory=dict)
    """Key -> its path, for keys that are not below ``base``."""

    def at(self, *keys: str) -> KeyPath:
        """Return the path of a key."""
        return self.elsewhere.get(keys[0]) or (*self.base, *keys)


@dataclass(frozen=True, slots=True)
class Use:
    """A plug-in in use, and the DefaultEvictor that limits its evictions."""

    plugin: str
    args: FilePart[Any]
    """A model of ``plugins``."""
    evictor: FilePart[EvictorArgs]
    filters: tuple[tuple[KeyPath, str], ...] = ()
    """Unknown filters of its profile: their paths, and a message for each."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A policy of the descheduler."""

    top: FilePart[PeerPolicy]
    """The keys for all profiles."""
    uses: tuple[Use, ...]
    """In the order of the file."""


def _without_unread(document: YamlDocument, model: type[PeerLimits], notes: Notes) -> YamlDocument:
    """Return a policy without the keys at its top that the descheduler passes over, each with a note.

    It decodes strictly below ``args`` only. A key that looks like a misspelt one is kept, and so refused.
    """
    known = {str(field.alias) for field in model.model_fields.values()}
    unread = [key for key in document.data if key not in known and closest(key, known) is None]
    for key in unread:
        notes.add((key,), KeyFate.IDLE, "the descheduler has no such key")
    return replace(document, data={k: v for k, v in document.data.items() if k not in unread})


def read_v1alpha2(document: YamlDocument, notes: Notes) -> Peer:
    """Parse a document as a v1alpha2 policy.

    Raises:
        PolicyError: the descheduler would refuse it, or it has unknown keys.
    """
    document = _without_unread(document, PeerPolicy, notes)
    policy, problems = validate(PeerPolicy, document.data, document, ())
    reader = _Reader(document, notes, problems)
    uses = tuple(
        use
        for index, profile in enumerate(policy.profiles if policy is not None else ())
        for use in reader.profile(profile, ("profiles", index))
    )
    if policy is None or problems:
        raise PolicyError(in_order(problems))
    return Peer(FilePart(policy, ()), uses)


def in_order(problems: list[FileProblem]) -> list[str]:
    """Return problems as text, in the order of the file."""
    return [str(one) for one in sorted(problems, key=lambda one: (one.line, str(one.path)))]


_KNOWN = (EVICTOR, *STRATEGIES)
_FILTERS = ("filter", "preevictionfilter")
_FOREIGN = "is none of the descheduler's own plug-ins"


def _is_foreign(name: str) -> bool:
    """Return whether a plug-in is one that others compile into the descheduler, and no misspelt one of its own."""
    return name not in _KNOWN and closest(name, _KNOWN) is None


class _Reader:
    def __init__(self, document: YamlDocument, notes: Notes, problems: list[FileProblem]) -> None:
        self._document, self._notes, self._problems = document, notes, problems

    def profile(self, profile: PeerProfile, base: KeyPath) -> Iterator[Use]:
        """Yield the plug-ins that one profile uses."""
        configured = dict(self._read_plugins(profile, base))
        evictor = configured.pop(EVICTOR, None) or FilePart(EvictorArgs(), base)
        filters = dict(self._list_filters(profile, base))
        for name in filters:
            configured.pop(name, None)
        limits = tuple(
            (at, f"{name} {_FOREIGN}, and may keep pods") for name, at in filters.items()
        )
        for name, at in dict(self._list_enabled(profile, base)).items():
            if _is_foreign(name):
                configured.pop(name, None)
                self._notes.add(at, KeyFate.LOST, f"{name} {_FOREIGN}")
            elif name not in configured:
                message = f"{name} is enabled, but not configured; add it to pluginConfig"
                self._problems.append(self._document.problem(at, message))
            elif (args := configured.pop(name)) is not None:
                yield Use(name, args, evictor, limits)
        for index, config in enumerate(profile.plugin_config):
            if config.name in configured:
                at = (*base, "pluginConfig", index)
                text = f"{config.name} is configured, but enabled nowhere"
                self._notes.add(at, KeyFate.IDLE, text)
        self._idle(profile, base)

    def _read_plugins(
        self, profile: PeerProfile, base: KeyPath
    ) -> Iterator[tuple[str, FilePart[Any] | None]]:
        """Yield (plug-in, arguments); the arguments are None if they are invalid."""
        seen: set[str] = set()
        for index, config in enumerate(profile.plugin_config):
            at = (*base, "pluginConfig", index)
            if config.name in seen:
                self._notes.add(
                    at, KeyFate.IDLE, f"{config.name} is configured above; the first holds"
                )
            else:
                yield config.name, self._config(config, at)
            seen.add(config.name)

    def _config(self, config: PeerPluginConfig, at: KeyPath) -> FilePart[Any] | None:
        if config.name not in _KNOWN:
            if _is_foreign(config.name):
                return None
            message = f"unknown plug-in {config.name}{did_you_mean(config.name, _KNOWN)}"
            self._problems.append(self._document.problem((*at, "name"), message))
            return None
        model: type[PeerArgs] = (
            EvictorArgs if config.name == EVICTOR else STRATEGIES[config.name][1]
        )
        args, problems = validate(model, config.args, self._document, (*at, "args"))
        self._problems += problems
        return None if args is None else FilePart(args, (*at, "args"))

    def _list_enabled(self, profile: PeerProfile, base: KeyPath) -> Iterator[tuple[str, KeyPath]]:
        for point in ("deschedule", "balance", "filter", "preevictionfilter"):
            for index, name in enumerate(getattr(profile.plugins, point).enabled):
                at = (*base, "plugins", point, "enabled", index)
                wanted = self._points_of(name)
                if _is_foreign(name):
                    if point not in _FILTERS:
                        yield name, at
                elif point not in wanted:
                    known = [one for one in _KNOWN if point in self._points_of(one)]
                    hint = f"; it belongs to {wanted[0]}" if wanted else did_you_mean(name, known)
                    message = f"{name} is no plug-in for {point}{hint}"
                    self._problems.append(self._document.problem(at, message))
                elif name != EVICTOR:
                    yield name, at

    @staticmethod
    def _list_filters(profile: PeerProfile, base: KeyPath) -> Iterator[tuple[str, KeyPath]]:
        """Yield the filters that are none of the descheduler's own."""
        for point in reversed(_FILTERS):
            for index, name in enumerate(getattr(profile.plugins, point).enabled):
                if _is_foreign(name):
                    yield name, (*base, "plugins", point, "enabled", index)

    @staticmethod
    def _points_of(name: str) -> tuple[str, ...]:
        if name == EVICTOR:
            return _FILTERS
        return (STRATEGIES[name][0],) if name in STRATEGIES else ()

    def _idle(self, profile: PeerProfile, base: KeyPath) -> None:
        """Add notes on the lists that the descheduler ignores."""
        at = (*base, "plugins")
        for field_name in type(profile.plugins).model_fields:
            plugins = getattr(profile.plugins, field_name)
            key = type(profile.plugins).model_fields[field_name].alias or field_name
            if field_name in ("presort", "sort", "pre_sort", "pre_eviction_filter"):
                if plugins.enabled or plugins.disabled:
                    self._notes.add((*at, key), KeyFate.IDLE, "nothing reads it")
            elif plugins.disabled:
                self._notes.add((*at, key, "disabled"), KeyFate.IDLE, "nothing reads it")


_Args = TypeVar("_Args", bound=PeerArgs)


class _Params(Section):
    """Options of all strategies. The fields after ``node_fit`` are validated with the strategy that uses them."""

    namespaces: PeerNamespaces = PeerNamespaces()
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


class _Old(PeerLimits, Switches):
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
    if "profiles" in document.data:
        message = f"profiles belong to {V1ALPHA2}: set apiVersion to it, or list strategies"
        raise PolicyError([str(document.problem(("profiles",), message))])
    document = _without_unread(document, _Old, notes)
    old, problems = validate(_Old, document.data, document, ())
    if old is None:
        raise PolicyError(in_order(problems))
    uses = tuple(_uses(document, old, notes, problems))
    if problems:
        raise PolicyError(in_order(problems))
    same = {key: document.data[key] for key in _LIMITS if key in document.data}
    top = PeerPolicy.model_validate({**same, "apiVersion": V1ALPHA2, "kind": KIND})
    return Peer(FilePart(top, ()), uses)


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
            use = _StrategyReader(name, document, notes, problems).use()
            if use is not None:
                yield use


class _StrategyReader:
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
    ) -> FilePart[_Args] | None:
        """Return ``options`` (name -> value and path) validated as ``model``."""
        given = {key: value for key, (value, _) in options.items()}
        args, problems = validate(model, given, self._document, place)
        self._problems += problems
        where = {key: at for key, (_, at) in options.items()}
        return None if args is None else FilePart(args, self._base, where)

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
        for key, option in _THRESHOLD.items():
            if key in params:
                threshold = args.get("priorityThreshold", ({}, ()))[0]
                args["priorityThreshold"] = {**threshold, option: params[key]}, (*base, key)
        return args
