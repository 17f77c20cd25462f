"""Changes of a policy on the command line: ``--set KEY=VALUE``, ``--strategy NAME``, ``--mode MODE``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rebalancer.policy.document import FileProblem, KeyPath, YamlDocument, parse

_PART = re.compile(r'\.?([A-Za-z0-9_-]+)|\[(\d{1,4})\]|\["([^"]+)"\]')

_TEXT = {("scheduler", "version")}
"""Keys whose value is the text as it was typed: quotes of a shell do not reach us, and 1.40 is a number in YAML."""


@dataclass(frozen=True, slots=True)
class PolicyChanges:
    """What the flags change of a policy that was read."""

    settings: tuple[str, ...] = ()
    """``KEY=VALUE``: KEY is a path in the policy file, VALUE is YAML."""
    only: tuple[str, ...] = ()
    """The strategies that remain; none: all."""
    mode: str | None = None

    def __str__(self) -> str:
        flags = [f"--set {setting}" for setting in self.settings]
        flags += [f"--strategy {name}" for name in self.only]
        return " ".join([*flags, *([] if self.mode is None else [f"--mode {self.mode}"])])


@dataclass(frozen=True, slots=True)
class Setting:
    """One value to set."""

    flag: str
    """What the user wrote, for messages."""
    path: KeyPath
    value: Any


def parsed(changes: PolicyChanges) -> tuple[list[Setting], list[FileProblem]]:
    """Return the values to set, and the problems of what is written wrongly."""
    settings: list[Setting] = []
    problems: list[FileProblem] = []
    for text in changes.settings:
        flag = f"--set {text}"
        key, equals, value = text.partition("=")
        path = _path(key)
        if not equals or path is None:
            problems.append(
                FileProblem(flag, 0, (), "write --set KEY=VALUE, such as budgets.perRun=5")
            )
            continue
        document, wrong = parse(value.encode() or b"~", flag)
        problems += [FileProblem(flag, 0, path, one.message) for one in wrong]
        if document is not None:
            settings.append(Setting(flag, path, _typed(path, value, document.data)))
    if changes.mode is not None:
        settings.append(Setting(f"--mode {changes.mode}", ("mode",), changes.mode))
    return settings, problems


def _typed(path: KeyPath, text: str, value: Any) -> Any:
    return text if path in _TEXT and not isinstance(value, str) else value


def with_setting(
    document: YamlDocument, base: KeyPath, setting: Setting
) -> YamlDocument | FileProblem:
    """Return the document with one value set at ``setting.path`` below ``base``, or why that cannot be done."""
    path = (*base, *setting.path)
    data = _set(document.data, path, setting.value)
    if isinstance(data, _NoWay):
        what = "lies below a value, not below a mapping or list"
        return FileProblem(setting.flag, 0, setting.path, what)
    return YamlDocument(document.file, data, document.lines, {**document.flags, path: setting.flag})


class _NoWay:
    """There is no such place in the data."""


def _set(data: Any, path: KeyPath, value: Any) -> Any:
    """Return ``data`` with ``value`` at ``path``; mappings that are missing on the way are made."""
    if not path:
        return value
    first, further = path[0], path[1:]
    if isinstance(first, int):
        if not isinstance(data, list) or first >= len(data):
            return _NoWay()
        inner = _set(data[first], further, value)
        return inner if isinstance(inner, _NoWay) else [*data[:first], inner, *data[first + 1 :]]
    if data is not None and not isinstance(data, Mapping):
        return _NoWay()
    known = dict(data or {})
    inner = _set(known.get(first), further, value)
    return inner if isinstance(inner, _NoWay) else {**known, first: inner}


def _path(text: str) -> KeyPath | None:
    """Return ``windows[0].allow`` or ``labels["k8s.io/app"]`` as a path, None if it is none."""
    path: list[str | int] = []
    at = 0
    while at < len(text):
        match = _PART.match(text, at)
        if match is None or (at == 0 and text.startswith(".")):
            return None
        name, index, quoted = match.groups()
        path.append(int(index) if index is not None else name or quoted)
        at = match.end()
    return tuple(path) or None
