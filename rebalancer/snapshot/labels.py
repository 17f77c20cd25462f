"""Label selectors over nodes and over classes, evaluated as arrays.

Semantics: ``k8s.io/apimachinery/pkg/labels`` and ``k8s.io/component-helpers/scheduling/corev1/nodeaffinity``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from rebalancer.snapshot.columns import Bools, Int32s, Interner
from rebalancer.wire.objects import (
    Labels,
    LabelSelector,
    LabelSelectorRequirement,
    NodeSelector,
    NodeSelectorTerm,
)

MISSING = -1
ZONE_KEYS = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
"""Labels that name a node's zone; the second is deprecated, and used by old clusters."""
GROUP_LABELS = (
    "karpenter.sh/nodepool",
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "kops.k8s.io/instancegroup",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "agentpool",
)
"""Labels whose value is a node group; the first one that a node carries counts.

Sources: EKS ("managed node groups" in its user guide), eksctl, Karpenter (``v1.NodePoolLabelKey``), GKE and AKS (labels of node
pools), kOps.
"""
_DECIMAL = re.compile(r"[+-]?[0-9]{1,63}")
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_MAX_VALUE = 63


class NodeLabels:
    """Labels of all nodes: one int32 column (N,) per key, holding a value's id or MISSING."""

    def __init__(self, names: Sequence[str], labels: Iterable[Mapping[str, str]]) -> None:
        self._names = names
        self._size = len(names)
        self._columns: dict[str, Int32s] = {}
        self._values: dict[str, Interner] = {}
        for node, of_node in enumerate(labels):
            for key, value in of_node.items():
                column = self._columns.get(key)
                if column is None:
                    column = self._columns[key] = np.full(self._size, MISSING, np.int32)
                    self._values[key] = Interner()
                column[node] = self._values[key](value)
        self._absent = np.full(self._size, MISSING, np.int32)
        self._hold_zones: dict[str, bool] = {}

    def of(self, node: int) -> dict[str, str]:
        """Return the labels of one node."""
        return {
            key: self._values[key].values[value]
            for key, column in self._columns.items()
            if (value := int(column[node])) != MISSING
        }

    @property
    def keys(self) -> Collection[str]:
        """The label keys of all nodes."""
        return self._columns.keys()

    def column(self, key: str) -> Int32s:
        """Return the value ids of ``key`` (N,); MISSING if a node lacks the key."""
        return self._columns.get(key, self._absent)

    def values(self, key: str) -> list[str]:
        """Return the distinct values of ``key``; a value's id is its position."""
        column = self._values.get(key)
        return column.values if column is not None else []

    def zones(self) -> tuple[Int32s, list[str]]:
        """Return the zone of each node (N,), -1 for none, and the names of the zones."""
        return self._first_of(ZONE_KEYS)

    def holds_zone(self, key: str) -> bool:
        """Return whether the value of a label is the node's zone.

        Drivers have labels of their own (the topology keys of a CSINode), some with the zone as value. This is decided by the
        values on existing nodes; if none has the label, by its name.
        """
        if key not in self._hold_zones:
            (zone_of, names), column, values = self.zones(), self.column(key), self.values(key)
            has = (column != MISSING) & (zone_of >= 0)
            pairs = Counter(zip(column[has].tolist(), zone_of[has].tolist(), strict=True))
            # A driver may know no zone of a machine that the cloud has placed in none.
            known = {pair: nodes for pair, nodes in pairs.items() if values[pair[0]]}
            agree = sum(n for (value, zone), n in known.items() if values[value] == names[zone])
            most = 2 * agree > sum(known.values())
            self._hold_zones[key] = most if known else key.endswith("/zone")
        return self._hold_zones[key]

    def groups(self) -> Int32s:
        """Return the node group of each node (N,) by its labels, -1 for none."""
        return self._first_of(GROUP_LABELS)[0]

    def _first_of(self, keys: Sequence[str]) -> tuple[Int32s, list[str]]:
        """Return the value of the first of ``keys`` that each node has (N,), -1 for none, and the values."""
        value_of = np.full(self._size, -1, np.int32)
        names: dict[str, int] = {}
        for key in reversed(keys):
            column = self.column(key)
            for value, name in enumerate(self.values(key)):
                value_of[column == value] = names.setdefault(name, len(names))
        return value_of, list(names)

    def requirement(self, requirement: LabelSelectorRequirement) -> Bools:
        """Return which nodes (N,) satisfy one expression; no node if it cannot be parsed."""
        if unparsable(requirement) is not None:
            return np.zeros(self._size, bool)
        column, values = self.column(requirement.key), self.values(requirement.key)
        wanted = requirement.values or ()
        if requirement.operator == "Exists":
            return column != MISSING
        if requirement.operator == "DoesNotExist":
            return column == MISSING
        if requirement.operator in ("In", "NotIn"):
            ids = [index for index, value in enumerate(values) if value in set(wanted)]
            inside = np.isin(column, ids)
            return inside if requirement.operator == "In" else ~inside
        if requirement.operator in ("Gt", "Lt") and len(wanted) == 1:
            return self._compare(column, values, requirement.operator, wanted[0])
        return np.zeros(self._size, bool)

    def _compare(self, column: Int32s, values: list[str], operator: str, bound: str) -> Bools:
        limit = _integer(bound)
        if limit is None:
            return np.zeros(self._size, bool)
        numbers = [_integer(value) for value in values]
        ids = [
            index
            for index, number in enumerate(numbers)
            if number is not None and (number > limit if operator == "Gt" else number < limit)
        ]
        return np.isin(column, ids)

    def term(self, term: NodeSelectorTerm) -> Bools:
        """Return which nodes (N,) satisfy all expressions of a term; an empty term matches none."""
        if not term.match_expressions and not term.match_fields:
            return np.zeros(self._size, bool)
        mask = np.ones(self._size, bool)
        for requirement in term.match_expressions or ():
            mask &= self.requirement(requirement)
        for field in term.match_fields or ():
            mask &= self._field(field)
        return mask

    def _field(self, field: LabelSelectorRequirement) -> Bools:
        # metadata.name is the only field that the API allows here, and one value the only number.
        wanted = set(field.values or ())
        if (
            field.key != "metadata.name"
            or field.operator not in ("In", "NotIn")
            or len(wanted) != 1
        ):
            return np.zeros(self._size, bool)
        inside = np.fromiter((name in wanted for name in self._names), bool, self._size)
        return inside if field.operator == "In" else ~inside

    def selector(self, selector: NodeSelector) -> Bools:
        """Return which nodes (N,) satisfy at least one term."""
        mask = np.zeros(self._size, bool)
        for term in selector.node_selector_terms:
            mask |= self.term(term)
        return mask

    def matching(self, selector: LabelSelector) -> Bools:
        """Return which nodes (N,) a label selector matches, with the semantics of :func:`matches`."""
        mask = self.equal(selector.match_labels or {})
        for requirement in selector.match_expressions or ():
            key = requirement.key
            of_values = [_satisfies(requirement, {key: value}) for value in self.values(key)]
            # A node without the label has the value id -1: the last entry.
            mask &= np.array([*of_values, _satisfies(requirement, {})])[self.column(key)]
        return mask

    def equal(self, labels: Mapping[str, str]) -> Bools:
        """Return which nodes (N,) carry all given labels (a pod's nodeSelector)."""
        mask = np.ones(self._size, bool)
        for key, value in labels.items():
            ids = self._values.get(key)
            wanted = ids.get(value) if ids is not None else MISSING
            mask &= (self.column(key) == wanted) & (wanted != MISSING)
        return mask


def unparsable(requirement: LabelSelectorRequirement) -> str | None:
    """Return why the scheduler cannot parse values that the API server may have admitted; None if it can.

    In a required node affinity the whole term then matches no node; a preferred term makes scoring fail
    (``labels.NewRequirement``, ``nodeaffinity.NewPreferredSchedulingTerms``).
    """
    for value in requirement.values or ():
        if requirement.operator in ("Gt", "Lt") and _integer(value) is None:
            return f"{requirement.operator} {value!r} is not an integer"
        if len(value) > _MAX_VALUE or not _LABEL_VALUE.fullmatch(value):
            return f"{value!r} is not a label value"
    return None


def _integer(text: str) -> int | None:
    """Parse ``text`` as Go's ``strconv.ParseInt`` does: plain 64-bit decimals, no 1_000; None if it fails."""
    if not _DECIMAL.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Return whether ``labels`` satisfy a metav1.LabelSelector (None matches nothing)."""
    if selector is None:
        return False
    for key, value in (selector.match_labels or {}).items():
        if labels.get(key) != value:
            return False
    return all(_satisfies(requirement, labels) for requirement in selector.match_expressions or ())


def object_selector(selector: Mapping[str, Any] | None) -> Callable[[Mapping[str, str]], bool]:
    """Return a function that tests labels against a metav1.LabelSelector in JSON; None matches nothing."""
    parsed = None if selector is None else msgspec.convert(selector, LabelSelector)
    return lambda labels: matches(parsed, labels)


def matches_labels(wanted: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return whether ``labels`` contain all ``wanted`` labels (a Service's or a policy's selector)."""
    return all(labels.get(key) == value for key, value in wanted.items())


def _satisfies(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in (requirement.values or ())
        case "NotIn":
            return value is None or value not in (requirement.values or ())
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return False


def with_label_keys(
    selector: LabelSelector | None,
    labels: Labels,
    match_keys: Sequence[str] | None,
    mismatch_keys: Sequence[str] | None = None,
) -> LabelSelector | None:
    """Merge matchLabelKeys and mismatchLabelKeys into a selector (KEP-3243, KEP-3633).

    The API server does the same at creation of a pod since 1.31 (affinity) and 1.34 (spread). Doing it again changes
    nothing; a pod template needs it.
    """
    if selector is None or not (match_keys or mismatch_keys):
        return selector
    more = [
        LabelSelectorRequirement(key=key, operator=operator, values=(labels[key],))
        for keys, operator in ((match_keys, "In"), (mismatch_keys, "NotIn"))
        for key in keys or ()
        if key in labels
    ]
    known = selector.match_expressions or ()
    added = tuple(requirement for requirement in more if requirement not in known)
    return LabelSelector(match_labels=selector.match_labels, match_expressions=known + added)


_FEW_KEYS = 8


class ClassIndex:
    """Finds the classes that a namespaced label selector matches, without testing all classes."""

    def __init__(self, namespaces: Sequence[str], labels: Sequence[Labels]) -> None:
        self._labels = labels
        self._all: dict[str, list[int]] = {}
        # Key -> (namespace, value) -> classes; only of keys that a selector has asked for. Classes have five
        # or ten labels, selectors use one or two of them.
        self._complete = False
        self._postings: dict[str, dict[tuple[str, str], list[int]]] = {}
        self._memo: dict[object, Int32s] = {}
        for index, namespace in enumerate(namespaces):
            self._all.setdefault(namespace, []).append(index)

    def match(self, namespaces: Iterable[str], selector: LabelSelector | None) -> Int32s:
        """Return the ids, ascending, of the classes in ``namespaces`` that ``selector`` matches."""
        names = tuple(sorted(set(namespaces)))
        memo_key = (names, _selector_key(selector))
        matched = self._memo.get(memo_key)
        if matched is None:
            hits = [i for name in names for i in self._in_namespace(name, selector)]
            matched = self._memo[memo_key] = np.array(sorted(hits), np.int32)
            matched.setflags(write=False)
        return matched

    def _in_namespace(self, namespace: str, selector: LabelSelector | None) -> Iterable[int]:
        if selector is None:
            return ()
        shortest: Sequence[int] = self._all.get(namespace, ())
        for key, value in (selector.match_labels or {}).items():
            posting = self._posting(namespace, key, value)
            if len(posting) < len(shortest):
                shortest = posting
        for requirement in selector.match_expressions or ():
            if requirement.operator == "In" and len(requirement.values or ()) == 1:
                value = (requirement.values or ("",))[0]
                posting = self._posting(namespace, requirement.key, value)
                if len(posting) < len(shortest):
                    shortest = posting
        return (i for i in shortest if matches(selector, self._labels[i]))

    def _posting(self, namespace: str, key: str, value: str) -> Sequence[int]:
        if key not in self._postings and not self._complete:
            self._index(key)
        return self._postings.get(key, {}).get((namespace, value), ())

    def _index(self, wanted: str) -> None:
        """Index one more label key; after the first few, index all remaining keys."""
        self._complete = len(self._postings) >= _FEW_KEYS
        done = set(self._postings)
        self._postings[wanted] = {}
        for namespace, indices in self._all.items():
            for index in indices:
                labels = self._labels[index]
                for key in labels.keys() - done if self._complete else labels.keys() & {wanted}:
                    of_key = self._postings.setdefault(key, {})
                    of_key.setdefault((namespace, labels[key]), []).append(index)


def _selector_key(selector: LabelSelector | None) -> object:
    if selector is None:
        return None
    return (
        tuple(sorted((selector.match_labels or {}).items())),
        tuple(
            sorted(
                (r.key, r.operator, tuple(sorted(r.values or ())))
                for r in selector.match_expressions or ()
            )
        ),
    )
