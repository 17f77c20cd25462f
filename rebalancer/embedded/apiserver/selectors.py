"""Label and field selectors, in the string form of a query."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from rebalancer.base.errors import PolicyError
from rebalancer.embedded.apiserver.kinds import Kind
from rebalancer.embedded.apiserver.status import bad_request
from rebalancer.policy.selector_text import parse_selector
from rebalancer.snapshot.labels import matches

Test = Callable[[Mapping[str, Any]], bool]

_FIELD = re.compile(r"\s*([^\s,=!()]+)\s*(==|=|!=)\s*([^\s,=!()]*)\s*\Z")

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


def label_selector(text: str) -> Test:
    """Return the test of a ``labelSelector`` query; 400 if it cannot be parsed."""
    try:
        selector = parse_selector(text).wire()
    except PolicyError:
        raise bad_request(f"unable to parse requirement in label selector {text!r}") from None
    return lambda obj: matches(selector, obj["metadata"].get("labels") or {})


def field_selector(kind: Kind, text: str) -> Test:
    """Return the test of a ``fieldSelector`` query; 400 for a field that this kind does not support."""
    tests = [_field_test(kind, part, text) for part in text.split(",") if part.strip()]
    return lambda obj: all(test(obj) for test in tests)


def _field_test(kind: Kind, part: str, whole: str) -> Test:
    match = _FIELD.match(part)
    if match is None:
        raise bad_request(f"invalid field selector: {whole!r}")
    field, operator, wanted = match.groups()
    if field not in ("metadata.name", "metadata.namespace", *_FIELDS.get(kind.kind, ())):
        raise bad_request(
            f'Unable to find "{kind.group}/{kind.version}, Resource={kind.plural}" that match label '
            f'selector "", field selector "{whole}": field label not supported: {field}'
        )
    path = field.split(".")
    return lambda obj: (_text(obj, path) == wanted) is not (operator == "!=")


def _text(obj: Mapping[str, Any], path: list[str]) -> str:
    value: Any = obj
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "false" if path[-1] in ("unschedulable", "hostNetwork") else ""
    return str(value)
