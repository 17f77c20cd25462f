"""The plug-ins that a descheduler policy uses. ``source``: where a file contains the policy."""

from __future__ import annotations

import enum
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from rebalancer.base.errors import PolicyError
from rebalancer.base.plain_text import closest, did_you_mean
from rebalancer.migrate.plugins import (
    EVICTOR,
    STRATEGIES,
    EvictorArgs,
    PeerArgs,
    PeerPluginConfig,
    PeerPolicy,
    PeerProfile,
)
from rebalancer.policy.document import FileProblem, KeyPath, YamlDocument, validate

V1ALPHA2 = "descheduler/v1alpha2"
KIND = "DeschedulerPolicy"

_WIDTH = 100


class KeyFate(enum.StrEnum):
    """The result of the migration for a key."""

    LOST = "not carried over"
    DIFFERS = "differs"
    ALWAYS = "always so here"
    IDLE = "had no effect there"


class Notes:
    """The notes on one document, without repetitions."""

    def __init__(self, document: YamlDocument) -> None:
        self._document = document
        self._notes: dict[FileProblem, None] = {}

    def add(
        self, path: KeyPath, fate: KeyFate, text: str, *, of: YamlDocument | None = None
    ) -> None:
        """Add a note on the key at ``path``; an empty path means the whole file.

        ``of``: the document that has the key, if it is not the policy.
        """
        problem = (of or self._document).problem(path, f"{fate}: {text}")
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
    """A value of the policy file, with the path of keys that leads to it."""

    value: _Value_co
    base: KeyPath

    def at(self, *keys: str) -> KeyPath:
        """Return the path of a key within this value."""
        return (*self.base, *keys)


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
    """The plug-ins, in the order of the file."""


def _without_unread(document: YamlDocument, notes: Notes) -> YamlDocument:
    """Return a policy without the keys at its top that the descheduler passes over, each with a note.

    It decodes strictly below ``args`` only. A key that looks like a misspelt one is kept, and so refused.
    """
    known = {str(field.alias) for field in PeerPolicy.model_fields.values()}
    unread = [key for key in document.data if key not in known and closest(key, known) is None]
    for key in unread:
        notes.add((key,), KeyFate.IDLE, "the descheduler has no such key")
    return replace(document, data={k: v for k, v in document.data.items() if k not in unread})


def read_policy(document: YamlDocument, notes: Notes) -> Peer:
    """Parse a document as a policy of the descheduler.

    Raises:
        PolicyError: the descheduler would refuse it, or it has unknown keys.
    """
    document = _without_unread(document, notes)
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
