"""The policy that a team keeps in its own namespace: for its pods it narrows the cluster's policy, and does nothing else.

It applies in addition to the cluster's policy, so that no value of it can widen anything.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Literal

from pydantic import Field

from rebalancer.base.durations import parse_duration
from rebalancer.base.plain_text import did_you_mean, printable
from rebalancer.policy.document import FileProblem, KeyPath, YamlDocument, parse, validate
from rebalancer.policy.forms import as_yaml, plain
from rebalancer.policy.load import LoadedPolicy
from rebalancer.policy.model import Mode, ModeField, Policy, Protect
from rebalancer.policy.select import NamespaceSelect
from rebalancer.policy.values import LimitField, Section
from rebalancer.policy.windows import Window, is_open

CONFIG_MAP, KEY = "rebalancer-policy", "policy.yaml"
"""Name of the ConfigMap, and its key. The name is fixed: RBAC can allow ConfigMaps of one name, but not those with a label."""

_LIFTED = {
    "volumes": False,
    "localStorage": False,
    "singleReplicas": False,
    "minPodAge": "0s",
    "systemCritical": False,
    "jobs": False,
    "gangs": False,
}
"""Protections that protect no pod: what a team does not write is as the cluster's policy has it."""
_OF_CLUSTER = ("afterScaling", "recreatedBy")
"""Keys of ``protect`` that need a right, or that lift a protection."""
_MAX_SELECTS = 20
"""In ``protect.pods``: each is compared with all pods of the namespace."""
_MAX_WINDOWS = 20
_SHOWN, _MAX_PROBLEM = 5, 200
"""Problems of a namespace that are shown, and characters of each."""
MAX_TEXT = 32 * 1024
"""Characters of the text: all that may be read are held at once."""


class NamespaceBudgets(Section):
    """Budgets of one namespace's pods, beside the policy's."""

    per_run: LimitField | None = None
    per_owner: LimitField | None = None


class NamespaceStrategy(Section):
    """A team's settings of one strategy."""

    mode: ModeField = Mode.ENFORCE
    windows: tuple[Window, ...] = Field(default=(), max_length=_MAX_WINDOWS)


class NamespacePolicy(Section):
    """A part of the policy's keys, for the pods of one namespace."""

    api_version: Literal["rebalancer/v1"]
    kind: Literal["Policy"]
    mode: ModeField = Mode.ENFORCE
    windows: tuple[Window, ...] = Field(default=(), max_length=_MAX_WINDOWS)
    budgets: NamespaceBudgets = NamespaceBudgets()
    protect: Protect = Protect.model_validate(_LIFTED)
    strategies: dict[str, NamespaceStrategy] = Field(default_factory=dict)

    def moves(self, now: float) -> bool:
        """Return whether pods of the namespace may be moved at ``now`` (Unix seconds)."""
        return _moves(self, now)

    def moves_by(self, strategy: str, now: float) -> bool:
        """Return the same of the moves of one strategy."""
        return strategy not in self.strategies or _moves(self.strategies[strategy], now)


def _moves(of: NamespacePolicy | NamespaceStrategy, now: float) -> bool:
    return of.mode is Mode.ENFORCE and is_open(of.windows, now)


@dataclass(frozen=True, slots=True)
class ReadNamespacePolicy:
    """The policy of a namespace as it was read."""

    policy: NamespacePolicy | None
    """None: it has problems, and only the cluster's policy applies."""
    document: YamlDocument
    problems: tuple[FileProblem, ...] = ()
    """Why it is not used, or which parts of it do nothing."""

    def describe(self) -> str:
        """Return the problems in one text, as long as a report can show of one namespace."""
        shown = [printable(str(problem))[:_MAX_PROBLEM] for problem in self.problems[:_SHOWN]]
        more = len(self.problems) - len(shown)
        return "; ".join([*shown, *([f"and {more} more"] if more else [])])


def may_narrow(policy: Policy, namespace: str) -> bool:
    """Return whether the cluster's policy lets ``namespace`` have a policy of its own."""
    return any(fnmatchcase(namespace, pattern) for pattern in policy.namespace_policies)


def read_namespace_policy(
    text: str | None, namespace: str, policy: Policy, known: Collection[str]
) -> ReadNamespacePolicy:
    """Read the text of a namespace's policy; None: its ConfigMap has no such key.

    ``policy`` is the cluster's, ``known`` are the names of all strategies.
    """
    file = f"ConfigMap {namespace}/{CONFIG_MAP}"
    if text is None:
        problem = FileProblem(file, 0, (), f"has no key {KEY}, in which the policy stands")
        return ReadNamespacePolicy(None, YamlDocument(file, {}, {}), (problem,))
    if len(text) > MAX_TEXT:
        problem = FileProblem(file, 0, (), f"is larger than {MAX_TEXT // 1024} KiB; shorten it")
        return ReadNamespacePolicy(None, YamlDocument(file, {}, {}), (problem,))
    document, problems = parse(text.encode(errors="replace"), file)
    if document is None:
        return ReadNamespacePolicy(None, YamlDocument(file, {}, {}), tuple(problems))
    data = document.data
    unknown: list[FileProblem] = []
    if isinstance(data, dict):
        problems += _find_others(data, document)
        unknown += _find_unknown(data, document, {*known, *policy.strategies})
        # A section whose every key is commented out reads as null: it is absent.
        data = {key: value for key, value in data.items() if value is not None}
        if isinstance(data.get("protect"), dict):
            data["protect"] = _LIFTED | data["protect"]
    if problems:
        return ReadNamespacePolicy(None, document, tuple(problems))
    read, problems = validate(NamespacePolicy, data, document, ())
    if read is None:
        return ReadNamespacePolicy(None, document, tuple(problems))
    return ReadNamespacePolicy(_within(read, namespace, policy), document, tuple(unknown))


def _find_unknown(
    data: Mapping[str, Any], document: YamlDocument, strategies: Collection[str]
) -> Iterator[FileProblem]:
    """Yield a problem for each unknown strategy.

    The rest of the policy remains in force. So its protections still apply if the cluster's policy drops a strategy.
    """
    named = data.get("strategies")
    for name in named if isinstance(named, dict) else ():
        if name not in strategies:
            message = f"unknown strategy {name}{did_you_mean(name, strategies)}: nothing is narrowed by it"
            yield document.problem(("strategies", name), message)


def _find_others(data: Mapping[str, Any], document: YamlDocument) -> Iterator[FileProblem]:
    """Yield a problem for each key that only the cluster's policy may have."""
    keys = {field.alias or name for name, field in Policy.model_fields.items()}
    mine = {field.alias or name for name, field in NamespacePolicy.model_fields.items()}
    protect = data.get("protect")
    paths: list[KeyPath] = [(key,) for key in data if key in keys - mine]
    if isinstance(protect, dict):
        paths += [("protect", key) for key in _OF_CLUSTER if key in protect]
    for path in paths:
        yield document.problem(path, "only the cluster's policy may say this; remove it")
    pods = protect.get("pods") if isinstance(protect, dict) else None
    for place, one in enumerate(pods if isinstance(pods, list) else ()):
        if place == _MAX_SELECTS:
            message = f"a namespace may have {_MAX_SELECTS} entries at most; join some"
            yield document.problem(("protect", "pods", place), message)
        if isinstance(one, dict) and "namespaces" in one:
            message = "it is about pods of its own namespace in any case; remove it"
            yield document.problem(("protect", "pods", place, "namespaces"), message)


def describe_sum(loaded: LoadedPolicy, document: YamlDocument) -> str:
    """Return the policy for the pods of a namespace in YAML, each value with where it comes from.

    ``document``: that of the namespace's own policy, which has no problems.
    """
    data, changed = plain(loaded.policy), plain(loaded.policy, defaults=False)
    origins: dict[KeyPath, str] = {}
    for path, value in _list_values(document.data):
        section, key = _value_at(data, path[:-1]), path[-1]
        if not isinstance(section, dict):
            continue  # of a strategy that the cluster's policy does not use
        before = section.get(key)
        joined = _join(str(key), before, value)
        if joined != before:
            section[key] = value if joined is None else joined
            origins[path] = replace(document.problem(path, ""), path=()).place
        if joined is None:
            origins[path] += f", beside the cluster's {json.dumps(before)}"

    def find_origin(path: KeyPath) -> str:
        own = (origins[path[:n]] for n in range(len(path), 0, -1) if path[:n] in origins)
        differs = _value_at(changed, path) is not None
        if path[0] == "strategies" and path[-1] == "mode" and not differs:
            path = ("mode",)  # it has none of its own
        return next(own, None) or loaded.origin_of(path, differs=differs)

    text = as_yaml(data, width=math.inf)
    written, _ = parse(text.encode(), "")
    lines = text.splitlines()
    for path, line in written.lines.items() if written is not None else ():
        value = _value_at(data, path)
        if path and (value in ([], {}) or not isinstance(value, dict | list)):
            said = lines[line - 1]
            # A text of several lines has no end of a line for a comment.
            above = isinstance(value, str) and "\n" in value
            origin = f"# {find_origin(path)}"
            lines[line - 1] = f"{origin}\n{said}" if above else f"{said}  {origin}"
    return "\n".join([*lines, ""])


def _list_values(data: Mapping[str, Any], within: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield path and value of each setting in a namespace's policy."""
    for key, value in data.items():
        path = (*within, key)
        is_section = path in (("budgets",), ("protect",)) or path[0] == "strategies"
        if (
            isinstance(value, dict)
            and is_section
            and len(path) < len(("strategies", "name", "key"))
        ):
            yield from _list_values(value, path)
        elif value is not None and key not in ("apiVersion", "kind"):
            yield path, value


def _value_at(data: Any, path: KeyPath) -> Any:
    for part in path:
        if isinstance(data, dict):
            data = data.get(str(part))
        elif isinstance(data, list) and isinstance(part, int):
            data = data[part]
        else:
            return None
    return data


def _join(key: str, ours: Any, own: Any) -> Any:
    """Return the narrower of two values; None if both apply, and no single value expresses that."""
    if ours in (None, [], {}):
        return own
    if own == ours or own in ([], {}):
        return ours
    if key == "mode":
        own = "off" if own is False else own  # as YAML 1.1 reads it
        return Mode(ours).stricter(Mode(own)).value
    if key == "minPodAge":
        return max(ours, own, key=parse_duration)
    if isinstance(ours, bool) or isinstance(own, bool):
        return True if True in (ours, own) else ours if own is False else own
    if isinstance(ours, int) and isinstance(own, int):
        return min(ours, own)
    return None


def _within(read: NamespacePolicy, namespace: str, policy: Policy) -> NamespacePolicy:
    """Return the policy with selects of pods of its own namespace only."""
    here = NamespaceSelect(include=(namespace,))
    pods = tuple(one.model_copy(update={"namespaces": here}) for one in read.protect.pods)
    update = {"pods": pods, "recreated_by": policy.protect.recreated_by}
    return read.model_copy(update={"protect": read.protect.model_copy(update=update)})
