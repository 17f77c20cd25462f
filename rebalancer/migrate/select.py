"""Convert the restrictions of a plug-in's pods into the ``select`` of a strategy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rebalancer.base.errors import PolicyError
from rebalancer.migrate.notes import KeyFate, Notes
from rebalancer.migrate.peer import PeerPolicy
from rebalancer.migrate.plugins import EvictorArgs, Namespaces, OwnerKinds, Selector
from rebalancer.migrate.uses import Use, Written
from rebalancer.policy.select import parse_selector

_SYSTEM_CRITICAL = 2_000_000_000
_LEAST_PRIORITY = -(2**31)
_SYSTEM_CLASSES = ("system-cluster-critical", "system-node-critical")

Plain = dict[str, Any]


def select_of(use: Use, top: Written[PeerPolicy], notes: Notes) -> Plain:
    """Return the ``select`` that replaces a plug-in's restrictions, as plain data; empty if it has none."""
    evictor = use.evictor.value
    converted = {
        "namespaces": _namespaces(use),
        "labels": _labels(
            [getattr(use.args.value, "label_selector", None), evictor.label_selector]
        ),
        "nodes": _nodes(top, notes),
        "priority": _priority(evictor),
        "minReplicas": evictor.min_replicas if evictor.min_replicas > 2 else None,
        "ownerKinds": _owner_kinds(use, notes),
        "podDisruptionBudget": True if evictor.list_switches("PodsWithoutPDB") else None,
    }
    if converted["minReplicas"]:
        text = "counted are the replicas that the owner asks for"
        notes.add(use.evictor.at("minReplicas"), KeyFate.DIFFERS, text)
    return {key: value for key, value in converted.items() if value not in (None, {})}


def _namespaces(use: Use) -> Plain | list[str]:
    converted: Plain = {}
    for field in ("namespaces", "evictable_namespaces"):
        given = getattr(use.args.value, field, None)
        if isinstance(given, Namespaces):
            converted |= {"include": list(given.include)} if given.include else {}
            converted |= {"exclude": list(given.exclude)} if given.exclude else {}
    if labels := _labels([use.evictor.value.namespace_label_selector]):
        converted["labels"] = labels
    return converted["include"] if list(converted) == ["include"] else converted


def _owner_kinds(use: Use, notes: Notes) -> Plain | list[str]:
    given = getattr(use.args.value, "owner_kinds", None)
    if not isinstance(given, OwnerKinds) or not (given.include or given.exclude):
        return {}
    text = "kinds are those of the controller and of its top owner, like a ReplicaSet and its Deployment"
    notes.add(use.args.at("ownerKinds"), KeyFate.DIFFERS, text)
    return list(given.include) or {"exclude": list(given.exclude)}


def _labels(selectors: list[Selector | None]) -> Plain:
    """Return one selector equivalent to all ``selectors`` together, as a plain map of labels if possible."""
    labels: dict[str, str] = {}
    expressions: list[Plain] = []
    for selector in filter(None, selectors):
        for key, value in selector.match_labels.items():
            if labels.setdefault(key, value) != value:
                expressions.append({"key": key, "operator": "In", "values": [value]})
        for rule in selector.match_expressions:
            expression: Plain = {"key": rule.key, "operator": rule.operator}
            expressions.append(expression | ({"values": list(rule.values)} if rule.values else {}))
    if not expressions:
        return dict(labels)
    return ({"matchLabels": labels} if labels else {}) | {"matchExpressions": expressions}


def _nodes(top: Written[PeerPolicy], notes: Notes) -> Plain:
    text = top.value.node_selector
    if not text:
        return {}
    path = top.at("nodeSelector")
    try:
        requirements = parse_selector(text).match_expressions
    except PolicyError:
        raise PolicyError([notes.place(path, f"{text!r} is no label selector")]) from None
    notes.add(
        path, KeyFate.DIFFERS, "pods leave these nodes only; all nodes count, and may take them"
    )
    rules = [
        {"key": r.key, "operator": r.operator, **({"values": list(r.values)} if r.values else {})}
        for r in requirements
    ]
    if all(r.operator == "In" and len(r.values) == 1 for r in requirements):
        labels = {r.key: r.values[0] for r in requirements}
        if len(labels) == len(rules):
            return labels
    return {"matchExpressions": rules}


def _priority(evictor: EvictorArgs) -> Plain:
    threshold = evictor.priority_threshold
    if evictor.list_switches("SystemCriticalPods"):
        return {}  # In the descheduler, both are one protection.
    if threshold.name:
        return {} if threshold.name in _SYSTEM_CLASSES else {"below": threshold.name}
    if threshold.value is None or threshold.value >= _SYSTEM_CRITICAL:
        return {}
    return {"below": max(threshold.value, _LEAST_PRIORITY)}


def common(selects: Iterable[Plain]) -> Plain:
    """Return the ``select`` that all strategies have in common; empty if they differ."""
    first, *others = list(selects) or [{}]
    return first if all(other == first for other in others) else {}
