"""The plug-ins that a descheduler policy uses, for both versions of the format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from rebalancer.base.errors import PolicyError
from rebalancer.migrate.notes import KeyFate, Notes
from rebalancer.migrate.peer import PeerPolicy, PluginConfig, Profile
from rebalancer.migrate.plugins import EVICTOR, STRATEGIES, Args, EvictorArgs
from rebalancer.policy.document import FileProblem, KeyPath, YamlDocument
from rebalancer.policy.problems import did_you_mean, validate

_Value_co = TypeVar("_Value_co", covariant=True)


Options = dict[str, Any]
"""The options of a strategy as plain data."""


@dataclass(frozen=True, slots=True)
class Written(Generic[_Value_co]):
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
    args: Written[Any]
    """A model of ``plugins``."""
    evictor: Written[EvictorArgs]


@dataclass(frozen=True, slots=True)
class Peer:
    """A policy of the descheduler."""

    top: Written[PeerPolicy]
    """The keys for all profiles."""
    uses: tuple[Use, ...]
    """In the order of the file."""


def read_v1alpha2(document: YamlDocument, notes: Notes) -> Peer:
    """Parse a document as a v1alpha2 policy.

    Raises:
        PolicyError: the descheduler would refuse it, or it has unknown keys.
    """
    policy, problems = validate(PeerPolicy, document.data, document, ())
    reader = _Reader(document, notes, problems)
    uses = tuple(
        use
        for index, profile in enumerate(policy.profiles if policy is not None else ())
        for use in reader.profile(profile, ("profiles", index))
    )
    if policy is None or problems:
        raise PolicyError(in_order(problems))
    return Peer(Written(policy, ()), uses)


def in_order(problems: list[FileProblem]) -> list[str]:
    """Return problems as text, in the order of the file."""
    return [str(one) for one in sorted(problems, key=lambda one: (one.line, str(one.path)))]


class _Reader:
    def __init__(self, document: YamlDocument, notes: Notes, problems: list[FileProblem]) -> None:
        self._document, self._notes, self._problems = document, notes, problems

    def profile(self, profile: Profile, base: KeyPath) -> Iterator[Use]:
        """Yield the plug-ins that one profile uses."""
        configured = dict(self._read_plugins(profile, base))
        evictor = configured.pop(EVICTOR, None) or Written(EvictorArgs(), base)
        for name, at in dict(self._list_enabled(profile, base)).items():
            if name not in configured:
                message = f"{name} is enabled, but not configured; add it to pluginConfig"
                self._problems.append(self._document.problem(at, message))
            elif (args := configured.pop(name)) is not None:
                yield Use(name, args, evictor)
        for index, config in enumerate(profile.plugin_config):
            if config.name in configured:
                at = (*base, "pluginConfig", index)
                text = f"{config.name} is configured, but enabled nowhere"
                self._notes.add(at, KeyFate.IDLE, text)
        self._idle(profile, base)

    def _read_plugins(
        self, profile: Profile, base: KeyPath
    ) -> Iterator[tuple[str, Written[Any] | None]]:
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

    def _config(self, config: PluginConfig, at: KeyPath) -> Written[Any] | None:
        known = [EVICTOR, *STRATEGIES]
        if config.name not in known:
            message = f"unknown plug-in {config.name}{did_you_mean(config.name, known)}"
            self._problems.append(self._document.problem((*at, "name"), message))
            return None
        model: type[Args] = EvictorArgs if config.name == EVICTOR else STRATEGIES[config.name][1]
        args, problems = validate(model, config.args, self._document, (*at, "args"))
        self._problems += problems
        return None if args is None else Written(args, (*at, "args"))

    def _list_enabled(self, profile: Profile, base: KeyPath) -> Iterator[tuple[str, KeyPath]]:
        for point in ("deschedule", "balance", "filter", "preevictionfilter"):
            for index, name in enumerate(getattr(profile.plugins, point).enabled):
                at = (*base, "plugins", point, "enabled", index)
                wanted = self._points_of(name)
                if point not in wanted:
                    known = [one for one in (EVICTOR, *STRATEGIES) if point in self._points_of(one)]
                    hint = f"; it belongs to {wanted[0]}" if wanted else did_you_mean(name, known)
                    message = f"{name} is no plug-in for {point}{hint}"
                    self._problems.append(self._document.problem(at, message))
                elif name != EVICTOR:
                    yield name, at

    @staticmethod
    def _points_of(name: str) -> tuple[str, ...]:
        if name == EVICTOR:
            return ("filter", "preevictionfilter")
        return (STRATEGIES[name][0],) if name in STRATEGIES else ()

    def _idle(self, profile: Profile, base: KeyPath) -> None:
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
