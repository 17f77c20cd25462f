"""The documents of a policy: the files of a directory, one file or standard input, changed by flags."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from rebalancer import API_VERSION
from rebalancer.base.errors import PolicyError
from rebalancer.base.plain_text import quote_value
from rebalancer.policy.document import MAX_BYTES, FileProblem, KeyPath, YamlDocument, parse
from rebalancer.policy.kube_scheduler import API_VERSION as SCHEDULER_VERSION
from rebalancer.policy.kube_scheduler import KIND as SCHEDULER_KIND

_MAIN_FILE = "rebalancer.yaml"


FLAG = "--strategy"
"""In the place of a file, for a strategy that only the command line names."""


_PART = re.compile(r'\.?([A-Za-z0-9_-]+)|\[(\d{1,4})\]|\["([^"]+)"\]')

_TEXT = {("scheduler", "version")}
"""Keys whose value is the text as it was typed: quotes of a shell do not reach us, and 1.40 is a number in YAML."""


@dataclass(slots=True)
class StrategySource:
    """The options of one strategy before validation."""

    name: str
    document: YamlDocument
    base: KeyPath
    """Path of the options in the document."""
    value: Any


@dataclass(slots=True)
class Sources:
    """The documents of a policy and their problems."""

    main: YamlDocument | None = None
    strategies: dict[str, StrategySource] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    problems: list[FileProblem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    changed_by: str = ""
    """The flags that changed the policy."""
    changed: set[str] = field(default_factory=set)
    """The strategies that flags remove or change."""

    def read_directory(self, directory: Traversable, label: str) -> None:
        """Read all files of a directory; messages name the directory ``label``."""
        try:
            entries = sorted(directory.iterdir(), key=lambda e: (e.name != _MAIN_FILE, e.name))
        except OSError as error:
            raise PolicyError(
                [f"{label}: cannot be read ({error.strerror}); check its permissions"]
            ) from None
        for entry in entries:
            # A mounted ConfigMap keeps its versions under names with a leading dot.
            if not entry.name.startswith(".") and not entry.is_dir():
                self._read_entry(entry, f"{label}/{entry.name}")
        if not self.files:
            raise PolicyError(
                [
                    f"{label}: holds no policy; it needs {_MAIN_FILE} and a <strategy>.yaml per strategy"
                ]
            )

    def _read_entry(self, entry: Traversable, file: str) -> None:
        if entry.name == self._scheduler_file():
            # Read with the scheduler's keys; it may lie beside the strategies.
            return
        if entry.name.endswith((".yml", ".json")):
            self.files.append(file)
            rename = f"rename it to {entry.name.rpartition('.')[0]}.yaml"
            self.problems.append(FileProblem(file, 0, (), f"is not read; {rename}"))
        elif not entry.name.endswith(".yaml"):
            self.warnings.append(f"{file}: is no .yaml file, ignored")
        else:
            self.read(entry, file, "Policy" if entry.name == _MAIN_FILE else "Strategy")

    def _scheduler_file(self) -> str | None:
        """Return the file of the directory that ``scheduler.fromConfig`` names; None if it names none."""
        scheduler = self.main.data.get("scheduler") if self.main is not None else None
        named = scheduler.get("fromConfig") if isinstance(scheduler, dict) else None
        return os.path.normpath(named) if isinstance(named, str) and named else None

    def read(self, entry: Traversable, file: str, kind: str) -> None:
        """Read one file; messages name it ``file``."""
        # Reading a pipe without a writer, or a device, has no end.
        if isinstance(entry, Path) and entry.exists() and not entry.is_file():
            self.files.append(file)
            message = "is no regular file; --policy - reads standard input"
            self.problems.append(FileProblem(file, 0, (), message))
            return
        try:
            with entry.open("rb") as stream:
                self.add(stream.read(MAX_BYTES + 1), file, kind)
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            message = (
                "does not exist; check the path"
                if missing
                else f"cannot be read ({error.strerror})"
            )
            self.files.append(file)
            self.problems.append(FileProblem(file, 0, (), message))

    def add(self, raw: bytes, file: str, kind: str, *, nested: bool = False) -> None:
        """Add a document of kind ``Policy`` or ``Strategy``; a strategy is named after its file.

        A ConfigMap in the place of a policy, such as the chart's, is read like the directory that it is mounted as; not one in
        another, ``nested``.
        """
        self.files.append(file)
        document, problems = parse(raw, file)
        self.problems += problems
        may_hold = kind == "Policy" and not nested
        if document is not None and may_hold and _is_config_map(document.data):
            self._add_config_map(document)
            return
        if document is None or not self._is_of_kind(document, kind):
            return
        if kind == "Policy":
            self._add_main(document)
            return
        name = file.rpartition("/")[2].removesuffix(".yaml")
        value = {k: item for k, item in document.data.items() if k not in ("apiVersion", "kind")}
        self._add_strategy(StrategySource(name, document, (), value))

    def _add_config_map(self, document: YamlDocument) -> None:
        given = document.data.get("data")
        texts = given if isinstance(given, dict) else {}
        names = [name for name in texts if name.endswith(".yaml")]
        for name in sorted({*texts, *(document.data.get("binaryData") or {})} - set(names)):
            message = "is not read: a policy is the text of keys that end with .yaml"
            self._problem(document, ("data", name), message)
        if not names:
            message = f"holds no policy; it needs {_MAIN_FILE} and a <strategy>.yaml per strategy"
            self._problem(document, ("data",), message)
        for name in sorted(names, key=lambda name: (name != _MAIN_FILE, name)):
            text, kind = texts[name], "Policy" if name == _MAIN_FILE else "Strategy"
            if not isinstance(text, str):
                self._problem(document, ("data", name), "is no text: the API server refuses it")
            elif name == self._scheduler_file():
                message = (
                    "is the scheduler's configuration, which is read from a file only:"
                    " save the keys as files of a directory, and name that"
                )
                self._problem(document, ("data", name), message)
            else:
                # What is no text is said where it is parsed.
                raw = text.encode("utf-8", "surrogatepass")
                self.add(raw, f"{document.file}/{name}", kind, nested=True)

    def _is_of_kind(self, document: YamlDocument, kind: str) -> bool:
        """Check apiVersion and kind; return whether checking the other keys makes sense."""
        if not isinstance(document.data, dict):
            message = f"{quote_value(document.data)} should be a mapping of keys to values"
            self._problem(document, (), message)
            return False
        foreign = self._foreign(document, kind)
        if foreign is not None:
            self._problem(document, ("kind",), foreign)
            return False
        useful = True
        for key, expected in (("apiVersion", API_VERSION), ("kind", kind)):
            value = document.data.get(key)
            if value == expected:
                continue
            what = (
                "is missing"
                if key not in document.data
                else f"{quote_value(value)} is not known here"
            )
            self._problem(document, (key,), f"{what}; write {key}: {expected}")
            # In a document of another kind or version, every other key would be wrong, too.
            useful = useful and key not in document.data
        return useful

    def _foreign(self, document: YamlDocument, kind: str) -> str | None:
        """Return a hint for a valid document of another kind, or None."""
        data = document.data
        if str(data.get("apiVersion")).startswith("descheduler/"):
            return (
                "is a policy of the descheduler;"
                f" rebalancer policy migrate {document.file} turns it into one of ours"
            )
        if (data.get("apiVersion"), data.get("kind")) == (SCHEDULER_VERSION, SCHEDULER_KIND):
            name = document.file.rpartition("/")[2]
            return (
                "is the configuration of kube-scheduler; a policy names it:"
                f" scheduler: {{fromConfig: {name}}}"
                + (f" in {_MAIN_FILE}" if kind == "Strategy" else "")
            )
        if kind == "Strategy" and (data.get("apiVersion"), data.get("kind")) == (
            API_VERSION,
            "Policy",
        ):
            return (
                f"in a directory, kind: Policy stands in {_MAIN_FILE}: rename the file to that,"
                f" or give --policy {document.file}"
            )
        return None

    def _add_main(self, document: YamlDocument) -> None:
        self.main = document
        strategies = document.data.get("strategies")
        if strategies is None:
            return
        if not isinstance(strategies, dict):
            message = (
                f"{quote_value(strategies)} should be a mapping of strategies to their options"
            )
            self._problem(document, ("strategies",), message)
            return
        for name, value in strategies.items():
            self._add_strategy(StrategySource(name, document, ("strategies", name), value))

    def _add_strategy(self, strategy: StrategySource) -> None:
        first = self.strategies.setdefault(strategy.name, strategy)
        if first is not strategy:
            place = first.document.problem(first.base, "").place
            message = f"{strategy.name} stands in {place}, too; remove one of them"
            self._problem(strategy.document, strategy.base, message)

    def _problem(self, document: YamlDocument, path: KeyPath, message: str) -> None:
        self.problems.append(document.problem(path, message))

    # -- flags ---------------------------------------------------------------------------------------

    def change(self, changes: PolicyChanges) -> None:
        """Apply the changes of the command line."""
        settings, problems = parse_changes(changes)
        self.problems += problems
        for setting in settings:
            self._set(setting)
        self._keep_only(changes.only)
        if text := str(changes):
            self.warnings.append(f"the policy was changed by {text}")
            self.changed_by = text

    def _set(self, setting: Setting) -> None:
        if setting.path[0] == "strategies":
            self._set_of_strategy(setting)
            return
        if self.main is None:
            self.main = YamlDocument(setting.flag, {}, {})
        changed = with_setting(self.main, (), setting)
        if isinstance(changed, FileProblem):
            self.problems.append(changed)
        else:
            self.main = changed

    def _set_of_strategy(self, setting: Setting) -> None:
        if len(setting.path) < 2:
            message = "name a strategy, such as strategies.duplicates.mode"
            self.problems.append(FileProblem(setting.flag, 0, setting.path, message))
            return
        name = str(setting.path[1])
        self.changed.add(name)
        known = self.strategies.get(name)
        if known is None:
            known = StrategySource(name, YamlDocument(setting.flag, {}, {}), (), {})
        inner = Setting(setting.flag, setting.path[2:], setting.value)
        changed = with_setting(known.document, known.base, inner)
        if isinstance(changed, FileProblem):
            self.problems.append(changed)
            return
        value = changed.data
        for part in known.base:
            value = value[part]
        if not known.base and isinstance(value, dict):
            value = {key: item for key, item in value.items() if key not in ("apiVersion", "kind")}
        self.strategies[name] = StrategySource(name, changed, known.base, value)

    def _keep_only(self, names: Sequence[str]) -> None:
        if not names:
            return
        for name in names:
            flag = f"{FLAG} {name}"
            self.strategies.setdefault(
                name, StrategySource(name, YamlDocument(flag, {}, {}), (), {})
            )
        self.changed |= self.strategies.keys() - set(names)
        self.strategies = {name: one for name, one in self.strategies.items() if name in names}


@dataclass(frozen=True, slots=True)
class PolicyChanges:
    """The changes that flags make to a policy."""

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
    """The flag as the user wrote it, for messages."""
    path: KeyPath
    value: Any


def parse_changes(changes: PolicyChanges) -> tuple[list[Setting], list[FileProblem]]:
    """Return the values to set, and a problem for each malformed change."""
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
            settings.append(Setting(flag, path, _convert(path, value, document.data)))
    if changes.mode is not None:
        settings.append(Setting(f"--mode {changes.mode}", ("mode",), changes.mode))
    return settings, problems


def _convert(path: KeyPath, text: str, value: Any) -> Any:
    return text if path in _TEXT and not isinstance(value, str) else value


def with_setting(
    document: YamlDocument, base: KeyPath, setting: Setting
) -> YamlDocument | FileProblem:
    """Return the document with one value set at ``setting.path`` below ``base``, or why that is impossible."""
    path = (*base, *setting.path)
    data = _set(document.data, path, setting.value)
    if isinstance(data, _NoWay):
        what = "lies below a value, not below a mapping or list"
        return FileProblem(setting.flag, 0, setting.path, what)
    return YamlDocument(document.file, data, document.lines, {**document.flags, path: setting.flag})


class _NoWay:
    """The path does not exist in the data."""


def _set(data: Any, path: KeyPath, value: Any) -> Any:
    """Return ``data`` with ``value`` at ``path``; missing mappings on the way are created."""
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
    """Parse a path such as ``windows[0].allow`` or ``labels["k8s.io/app"]``; None if it is malformed."""
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


def _is_config_map(data: Any) -> bool:
    return isinstance(data, dict) and (data.get("apiVersion"), data.get("kind")) == (
        "v1",
        "ConfigMap",
    )
