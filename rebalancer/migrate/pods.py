"""Convert the restrictions on pods: the protections of DefaultEvictor, and the ``select`` of a plug-in.

Each profile has its own DefaultEvictor; our protections apply to the whole policy. So a pod that any profile
protects is protected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from rebalancer.base.durations import format_duration, parse_go_duration
from rebalancer.base.errors import PolicyError
from rebalancer.migrate.plugins import EvictorArgs, OwnerKinds, PeerNamespaces, PeerPolicy, Selector
from rebalancer.migrate.uses import FilePart, KeyFate, Notes, Use
from rebalancer.policy.document import KeyPath
from rebalancer.policy.protect import Protect
from rebalancer.policy.select import parse_selector

# Durations of a policy are not longer; no pod is that old.
_MAX_AGE = timedelta(hours=999_999)
Evictor = FilePart[EvictorArgs]
Plain = dict[str, Any]


def protections(evictors: Sequence[Evictor], notes: Notes) -> dict[str, Any]:
    """Return the keys of ``protect``, without namespaces, that the evictors set."""
    converted: dict[str, Any] = {
        "localStorage": _default_protection("PodsWithLocalStorage", evictors, notes),
        "systemCritical": _default_protection("SystemCriticalPods", evictors, notes),
        "volumes": _volumes(evictors),
        "singleReplicas": _strictest([_single_replicas(evictor) for evictor in evictors]),
        "minPodAge": _min_age(evictors, notes),
    }
    defaulted = ", ".join(
        f"{_DEFAULTS[key]} (protect.{key})" for key in _DEFAULTS if converted.get(key) is None
    )
    lifted = "false lifts a protection, 0s that of minPodAge, a list of kinds that of recreatedBy"
    text = f"protected here, though not there: {defaulted}; {lifted}; {_ANNOTATED}"
    if not any(evictor.value.no_eviction_policy for evictor in evictors):
        text += "; pods annotated prefer-no-eviction are never moved, which it evicts last"
    notes.add((), KeyFate.DIFFERS, text)
    _add_shared(evictors, notes)
    for evictor in evictors:
        _remarks(evictor, notes)
    return {key: value for key, value in converted.items() if value is not None}


_DEFAULTS = {
    "volumes": "pods with volumes",
    "singleReplicas": "single replicas",
    "minPodAge": f"pods younger than {format_duration(Protect().min_pod_age)}",
    "jobs": "pods of Jobs",
    "recreatedBy": "pods of custom controllers",
}
"""Key of ``protect`` -> pods that our defaults protect and the descheduler's do not."""


_ANNOTATED = (
    'descheduler.alpha.kubernetes.io/evict lifts none of these here, and "false" keeps a pod: there any value,'
    ' also "false", lifts all'
)


def limits(use: Use, landings: Plain) -> Iterator[tuple[KeyPath, str]]:
    """Yield the path and text of each limit that cannot be expressed here; ``landings`` are those of the policy."""
    yield from use.filters
    if not landings and _fitting(use.evictor):
        text = "one policy avoids landings by one requirement, for all profiles"
        yield use.evictor.at("nodeSelector"), text
    for path, given in _given_namespaces(use):
        for pattern in filter(_is_pattern, given.include):
            text = f"{pattern} chose no namespace there, for patterns are not read, and does here"
            yield (*path, "include"), text


def _fitting(evictor: Evictor) -> str:
    """Return the selector of the nodes that must have a place for a pod; empty if any node may."""
    return evictor.value.node_selector if evictor.value.node_fit else ""


def landings_of(evictors: Sequence[Evictor], notes: Notes) -> Plain:
    """Return ``landings``, which leave out the nodes that no profile looks at; empty if one selector does not say so."""
    selectors = {_fitting(evictor) for evictor in evictors}
    if len(selectors) != 1 or not (text := selectors.pop()):
        return {}
    rules = _requirements(text, evictors[0].at("nodeSelector"), notes)
    if len(rules) != 1:
        return {}
    for evictor in evictors:
        text = "a pod moves only if its replacement will land on such a node (landings.exclude)"
        notes.add(evictor.at("nodeSelector"), KeyFate.DIFFERS, text)
    return {"exclude": {"matchExpressions": [{**rules[0], "operator": _NOT[rules[0]["operator"]]}]}}


_NOT = {"In": "NotIn", "NotIn": "In", "Exists": "DoesNotExist", "DoesNotExist": "Exists"}


def _requirements(text: str, path: KeyPath, notes: Notes) -> list[Plain]:
    """Return the requirements of a selector as plain data.

    Raises:
        PolicyError: it is none.
    """
    try:
        requirements = parse_selector(text).match_expressions
    except PolicyError:
        raise PolicyError([notes.place(path, f"{text!r} is no label selector")]) from None
    return [
        {"key": r.key, "operator": r.operator, **({"values": list(r.values)} if r.values else {})}
        for r in requirements
    ]


def _default_protection(protection: str, evictors: Sequence[Evictor], notes: Notes) -> bool | None:
    """Return False if all profiles disable a default protection, True if one says that it stays, else None.

    Adds a note on each profile whose setting has no effect.
    """
    disabling = [evictor for evictor in evictors if evictor.value.list_switches(protection)]
    if disabling and len(disabling) == len(evictors):
        return False
    for evictor in disabling:
        path = evictor.at(*evictor.value.list_switches(protection) or ())
        notes.add(path, KeyFate.LOST, f"{protection}: another profile protects them")
    return any(evictor.value.list_refusals(protection) for evictor in evictors) or None


def _strictest(given: Sequence[bool | None]) -> bool | None:
    """Return whether at least one profile protects; None if no profile sets the protection."""
    set_values = [one for one in given if one is not None]
    return any(set_values) if set_values else None


def _volumes(evictors: Sequence[Evictor]) -> bool | dict[str, Any] | None:
    """Return whether at least one profile protects pods with volumes.

    Returns the storage classes instead if every protecting profile limits the protection to some.
    """
    protecting = [evictor for evictor in evictors if evictor.value.list_switches("PodsWithPVC")]
    if not protecting:
        refused = any(evictor.value.list_refusals("PodsWithPVC") for evictor in evictors)
        return False if refused else None
    classes: dict[str, None] = {}
    for evictor in protecting:
        names = evictor.value.pod_protections.config.pods_with_pvc.protected_storage_classes
        if not names:
            return True
        classes.update(dict.fromkeys(one.name for one in names))
    return {"except": {"storageClasses": {"exclude": list(classes)}}}


def _single_replicas(evictor: Evictor) -> bool | None:
    if "min_replicas" not in evictor.value.model_fields_set:
        return None
    return evictor.value.min_replicas > 1


def _min_age(evictors: Sequence[Evictor], notes: Notes) -> str | None:
    given = {
        evictor.at("minPodAge"): parse_go_duration(evictor.value.min_pod_age)
        for evictor in evictors
        if evictor.value.min_pod_age is not None
    }
    if not given:
        return None
    longest = max(given.values())
    for path, age in given.items():
        text = "counted from when a pod was Ready"
        also = "" if age == longest else "; another profile's is longer, and holds"
        notes.add(path, KeyFate.DIFFERS, text + also)
    return format_duration(min(max(longest, timedelta(0)), _MAX_AGE))


def _add_shared(evictors: Sequence[Evictor], notes: Notes) -> None:
    """Add a note on each protection of a profile that also applies to other profiles which require less."""
    if len(evictors) < 2:
        return
    asked: dict[tuple[str, str], list[object]] = {
        ("minPodAge", "younger pods"): [evictor.value.min_pod_age for evictor in evictors],
        ("minReplicas", "single replicas"): [_single_replicas(each) or None for each in evictors],
        ("podProtections", "pods with volumes"): [
            evictor.value.list_switches("PodsWithPVC") for evictor in evictors
        ],
    }
    for (name, pods), of_profiles in asked.items():
        for evictor, one in zip(evictors, of_profiles, strict=True):
            if one is None or all(other is not None for other in of_profiles):
                continue
            path = evictor.at(*map(str, one)) if isinstance(one, tuple) else evictor.at(name)
            notes.add(path, KeyFate.DIFFERS, f"{pods} of the other profiles stay, too")


def _remarks(evictor: Evictor, notes: Notes) -> None:
    """Add notes on options that here apply always or never."""
    args = evictor.value
    if "node_fit" in args.model_fields_set:
        text = "every move is made for where the replacement will land"
        notes.add(evictor.at("nodeFit"), KeyFate.ALWAYS, text)
    if args.node_selector and not args.node_fit:
        notes.add(evictor.at("nodeSelector"), KeyFate.IDLE, "only nodeFit reads it")
    if args.no_eviction_policy == "Mandatory":
        text = "pods annotated prefer-no-eviction are not moved"
        notes.add(evictor.at("noEvictionPolicy"), KeyFate.ALWAYS, text)
    elif args.no_eviction_policy:
        text = "pods annotated prefer-no-eviction are never moved, not only last"
        notes.add(evictor.at("noEvictionPolicy"), KeyFate.DIFFERS, text)
    for protection, fate, text in _NEVER:
        if (keys := args.list_switches(protection)) is not None:
            notes.add(evictor.at(*keys), fate, f"{protection}: {text}")
        elif (keys := args.list_refusals(protection)) is not None:
            notes.add(evictor.at(*keys), KeyFate.ALWAYS, f"{protection}: {text}")
    if (
        args.pod_protections.config.pods_with_pvc.protected_storage_classes
        and not args.list_switches("PodsWithPVC")
    ):
        text = "read only with PodsWithPVC in extraEnabled"
        notes.add(evictor.at("podProtections", "config"), KeyFate.IDLE, text)
    threshold = args.priority_threshold
    if (threshold.name or threshold.value is not None) and args.list_switches("SystemCriticalPods"):
        text = "not read where SystemCriticalPods is lifted"
        notes.add(evictor.at("priorityThreshold"), KeyFate.IDLE, text)


_NEVER = (
    ("DaemonSetPods", KeyFate.LOST, "pods of DaemonSets are never moved"),
    ("FailedBarePods", KeyFate.LOST, "pods without a controller are never moved"),
    (
        "PodsWithResourceClaims",
        KeyFate.ALWAYS,
        "where they would land is not predicted, so they stay",
    ),
)


_SYSTEM_CRITICAL = 2_000_000_000
_LEAST_PRIORITY = -(2**31)
_SYSTEM_CLASSES = ("system-cluster-critical", "system-node-critical")


def select_of(use: Use, top: FilePart[PeerPolicy], notes: Notes) -> Plain:
    """Return the ``select`` that replaces a plug-in's restrictions, as plain data; empty if it has none."""
    evictor = use.evictor.value
    converted = {
        "namespaces": _namespaces(use, notes),
        "labels": _labels(
            [getattr(use.args.value, "label_selector", None), evictor.label_selector]
        ),
        "nodes": _nodes(top, notes),
        "priority": _priority(use.evictor, notes),
        "minReplicas": evictor.min_replicas if evictor.min_replicas > 2 else None,
        "ownerKinds": _owner_kinds(use, notes),
        "podDisruptionBudget": True if evictor.list_switches("PodsWithoutPDB") else None,
    }
    if converted["minReplicas"]:
        text = "counted are the replicas that the owner asks for"
        notes.add(use.evictor.at("minReplicas"), KeyFate.DIFFERS, text)
    return {key: value for key, value in converted.items() if value not in (None, {})}


def _given_namespaces(use: Use) -> Iterator[tuple[KeyPath, PeerNamespaces]]:
    for field in ("namespaces", "evictable_namespaces"):
        given = getattr(use.args.value, field, None)
        if isinstance(given, PeerNamespaces):
            name = type(use.args.value).model_fields[field].alias or field
            yield use.args.at(name), given


def _is_pattern(namespace: str) -> bool:
    return not namespace.replace("-", "").isalnum()


def _namespaces(use: Use, notes: Notes) -> Plain | list[str]:
    converted: Plain = {}
    for path, given in _given_namespaces(use):
        converted |= {"include": list(given.include)} if given.include else {}
        converted |= {"exclude": list(given.exclude)} if given.exclude else {}
        for pattern in filter(_is_pattern, given.exclude):
            text = f"{pattern} is no namespace there, and leaves out none; here it leaves out all that it matches"
            notes.add((*path, "exclude"), KeyFate.DIFFERS, text)
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


def _nodes(top: FilePart[PeerPolicy], notes: Notes) -> Plain:
    text = top.value.node_selector
    if not text:
        return {}
    path = top.at("nodeSelector")
    rules = _requirements(text, path, notes)
    notes.add(
        path, KeyFate.DIFFERS, "pods leave these nodes only; all nodes count, and may take them"
    )
    if all(rule["operator"] == "In" and len(rule["values"]) == 1 for rule in rules):
        labels = {rule["key"]: rule["values"][0] for rule in rules}
        if len(labels) == len(rules):
            return labels
    return {"matchExpressions": rules}


def _priority(evictor: Evictor, notes: Notes) -> Plain:
    threshold = evictor.value.priority_threshold
    if evictor.value.list_switches("SystemCriticalPods"):
        return {}  # In the descheduler, both are one protection.
    if threshold.name:
        if threshold.name in _SYSTEM_CLASSES:
            return {}
        text = (
            f"its value is read from pods with the PriorityClass {threshold.name}, and in a snapshot file from the class;"
            " while neither is there, nothing that it limits moves: write its value"
        )
        notes.add(evictor.at("priorityThreshold", "name"), KeyFate.DIFFERS, text)
        return {"below": threshold.name}
    if threshold.value is None or threshold.value >= _SYSTEM_CRITICAL:
        return {}
    return {"below": max(threshold.value, _LEAST_PRIORITY)}
