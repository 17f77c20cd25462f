"""Label and field selectors, in the string form of a query and in the object form of a spec."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from rebalancer.embedded.apiserver.kinds import Kind
from rebalancer.embedded.apiserver.status import bad_request
from rebalancer.snapshot.labels import matches
from rebalancer.wire.objects import LabelSelector

Labels = Mapping[str, str]
Test = Callable[[Mapping[str, Any]], bool]

_SET = re.compile(r"\s*([^\s,=!()]+)\s+(in|notin)\s+\(([^()]*)\)\s*\Z")
_EQUAL = re.compile(r"\s*([^\s,=!()]+)\s*(==|=|!=)\s*([^\s,=!()]*)\s*\Z")
_PRESENT = re.compile(r"\s*(!?)\s*([^\s,=!()]+)\s*\Z")
_OUTSIDE_PARENTHESES = re.compile(r",(?![^(]*\))")

_FIELDS: Mapping[str, tuple[str, ...]] = {
    "Pod": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "Node": ("spec.unschedulable",),
    "Namespace": ("status.phase",),
    "ReplicaSet": ("status.replicas",),
    "ReplicationController": ("status.replicas",),
    "Job": ("status.successful",),
    "Event": ("reason", "type", "regarding.kind", "regarding.name", "regarding.namespace"),
}


def object_selector(selector: Mapping[str, Any] | None) -> Callable[[Labels], bool]:
    """Return the test of a metav1.LabelSelector; an absent one matches nothing."""
    parsed = None if selector is None else msgspec.convert(selector, LabelSelector)
    return lambda labels: matches(parsed, labels)


def label_selector(text: str) -> Test:
    """Return the test of a ``labelSelector`` query; 400 if it cannot be parsed."""
    tests = [_label_test(part, text) for part in _OUTSIDE_PARENTHESES.split(text) if part.strip()]

    def test(found: Mapping[str, Any]) -> bool:
        labels = found["metadata"].get("labels") or {}
        return all(test(labels) for test in tests)

    return test


def _label_test(part: str, whole: str) -> Callable[[Labels], bool]:
    if match := _SET.match(part):
        key, operator, listed = match.groups()
        values = {value.strip() for value in listed.split(",")}
        if operator == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if match := _EQUAL.match(part):
        key, operator, value = match.groups()
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if match := _PRESENT.match(part):
        absent, key = bool(match[1]), match[2]
        return lambda labels: (key in labels) is not absent
    raise bad_request(f"unable to parse requirement: {part!r} in label selector {whole!r}")


def field_selector(kind: Kind, text: str) -> Test:
    """Return the test of a ``fieldSelector`` query; 400 for a field that this kind does not index."""
    tests = [_field_test(kind, part, text) for part in text.split(",") if part.strip()]
    return lambda found: all(test(found) for test in tests)


def _field_test(kind: Kind, part: str, whole: str) -> Test:
    match = _EQUAL.match(part)
    if match is None:
        raise bad_request(f"invalid field selector: {whole!r}")
    field, operator, wanted = match.groups()
    if field not in ("metadata.name", "metadata.namespace", *_FIELDS.get(kind.kind, ())):
        raise bad_request(
            f'Unable to find "{kind.group}/{kind.version}, Resource={kind.plural}" that match label '
            f'selector "", field selector "{whole}": field label not supported: {field}'
        )
    path = field.split(".")
    return lambda found: (_text(found, path) == wanted) is not (operator == "!=")


def _text(found: Mapping[str, Any], path: list[str]) -> str:
    value: Any = found
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "false" if path[-1] in ("unschedulable", "hostNetwork") else ""
    return str(value)
