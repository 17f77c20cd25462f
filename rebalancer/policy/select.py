"""Select pods: the models behind ``select``, ``protect`` and ``--select``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    WithJsonSchema,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from rebalancer.base.errors import PolicyError
from rebalancer.base.plain_text import quote_value
from rebalancer.policy.values import LabelKey, Section
from rebalancer.policy.values import Labels as LabelValues
from rebalancer.wire import objects as o

_PATTERN = re.compile(r"(?:[a-z0-9*?-]|\[!?[a-z0-9-]+\])+\Z")


_KEY = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_VALUE = r"[-A-Za-z0-9_.]*"
_FORMS = (
    (re.compile(rf"({_KEY})\s*(?:==|=)\s*({_VALUE})\Z"), "In"),
    (re.compile(rf"({_KEY})\s*!=\s*({_VALUE})\Z"), "NotIn"),
    (re.compile(rf"({_KEY})\s+in\s*\(([^()]*)\)\Z"), "In"),
    (re.compile(rf"({_KEY})\s+notin\s*\(([^()]*)\)\Z"), "NotIn"),
    (re.compile(rf"!\s*({_KEY})\Z"), "DoesNotExist"),
    (re.compile(rf"({_KEY})\Z"), "Exists"),
)


def _namespace_pattern(text: str) -> str:
    if not _PATTERN.match(text):
        raise ValueError(f"{quote_value(text)} is no namespace, nor a pattern of some, like kube-*")
    return text


NamespacePattern = Annotated[
    str,
    AfterValidator(_namespace_pattern),
    WithJsonSchema({"type": "string", "pattern": _PATTERN.pattern.replace(r"\Z", "$")}),
]
"""A namespace, or a pattern of some: ``*``, ``?``, ``[ab]`` and ``[!ab]`` as a shell reads them (fnmatch)."""


class Requirement(Section):
    """One expression of a label selector, as in Kubernetes."""

    key: LabelKey = Field(description="Key of the label.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(
        description="In, NotIn, Exists or DoesNotExist."
    )
    values: tuple[str, ...] = Field(
        default=(), description="For In and NotIn; a label without this key is NotIn."
    )

    @model_validator(mode="after")
    def _values_fit(self) -> Requirement:
        if (self.operator in ("In", "NotIn")) != bool(self.values):
            what = "needs values" if not self.values else "takes no values"
            raise ValueError(f"{self.operator} {what}")
        return self


class LabelSelect(Section):
    """A label selector as in Kubernetes; all of its parts must match."""

    match_labels: LabelValues = Field(default_factory=dict, description="Labels with these values.")
    match_expressions: tuple[Requirement, ...] = Field(
        default=(), description="Expressions over labels."
    )

    def __bool__(self) -> bool:
        return bool(self.match_labels or self.match_expressions)

    def wire(self) -> o.LabelSelector:
        """Return the selector as a Kubernetes LabelSelector."""
        expressions = tuple(
            o.LabelSelectorRequirement(key=each.key, operator=each.operator, values=each.values)
            for each in self.match_expressions
        )
        return o.LabelSelector(match_labels=self.match_labels, match_expressions=expressions)

    def list_keys(self) -> set[str]:
        """Return the label keys that the selector refers to."""
        return {*self.match_labels, *(each.key for each in self.match_expressions)}


def _as_selector(value: Any) -> Any:
    if isinstance(value, dict) and not any(
        isinstance(v, dict | list | tuple) for v in value.values()
    ):
        return {"matchLabels": value}
    return _with_tuples(value)


def _with_tuples(value: Any) -> Any:
    """Replace lists by tuples in plain data; strict models require tuples outside JSON."""
    if isinstance(value, dict):
        return {key: _with_tuples(item) for key, item in value.items()}
    return tuple(_with_tuples(item) for item in value) if isinstance(value, list) else value


LabelsField = Annotated[
    LabelSelect,
    BeforeValidator(_as_selector, json_schema_input_type=LabelValues | LabelSelect),
]
"""``{app: web}``, or ``{matchLabels: ..., matchExpressions: ...}``."""


def _as_filter(value: Any) -> Any:
    value = _with_tuples(value)
    if value == ():
        # A template that renders an empty list must not widen what may be moved to all.
        raise ValueError("names none; leave the key out to select all")
    return {"include": value} if isinstance(value, tuple) else value


class NameFilter(Section):
    """Names to include, and names to exclude."""

    include: tuple[str, ...] = Field(default=(), description="Only these; none means all.")
    exclude: tuple[str, ...] = Field(default=(), description="Not these; stronger than include.")

    def __bool__(self) -> bool:
        return bool(self.include or self.exclude)

    def admits(self, *names: str) -> bool:
        """Return whether at least one of ``names`` is included and none is excluded."""
        if any(name in self.exclude for name in names):
            return False
        return not self.include or any(name in self.include for name in names)


class NamespaceSelect(Section):
    """Namespaces by name and by label; both must match."""

    include: tuple[NamespacePattern, ...] = Field(
        default=(), description="Only these, names or patterns like shop-*; none means all."
    )
    exclude: tuple[NamespacePattern, ...] = Field(
        default=(), description="Not these, names or patterns like kube-*; stronger than include."
    )
    labels: LabelsField | None = Field(default=None, description="Labels of the namespace itself.")

    def __bool__(self) -> bool:
        return bool(self.include or self.exclude or self.labels)

    def admits_name(self, namespace: str) -> bool:
        """Return whether the name of a namespace is selected."""
        if _any_matches(self.exclude, namespace):
            return False
        return not self.include or _any_matches(self.include, namespace)


def _any_matches(patterns: Iterable[str], namespace: str) -> bool:
    return any(fnmatchcase(namespace, pattern) for pattern in patterns)


NamesField = Annotated[
    NameFilter, BeforeValidator(_as_filter, json_schema_input_type=tuple[str, ...] | NameFilter)
]
"""A list of included names, or ``{include: ..., exclude: ...}``."""

NamespacesField = Annotated[
    NamespaceSelect,
    BeforeValidator(
        _as_filter, json_schema_input_type=tuple[NamespacePattern, ...] | NamespaceSelect
    ),
]
"""A list of names and patterns, or ``{include: ..., exclude: ..., labels: ...}``."""


class PrioritySelect(Section):
    """Pods by priority."""

    below: (
        Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] | Annotated[str, Field(min_length=1)]
    ) = Field(description="A priority, or the name of a PriorityClass: pods below it are selected.")


def _values(select: LabelSelect | None) -> dict[str, set[str]]:
    """Return label -> allowed values, for the labels to which a selector gives a set of values."""
    values = {key: {value} for key, value in select.match_labels.items()} if select else {}
    for each in select.match_expressions if select else ():
        if each.operator == "In":
            values[each.key] = values.get(each.key, set(each.values)) & set(each.values)
    return values


def _labels_meet(one: LabelSelect | None, other: LabelSelect | None) -> bool:
    these, those = _values(one), _values(other)
    return all(these[key] & those[key] for key in these.keys() & those.keys())


def _patterns_meet(one: str, other: str) -> bool:
    plain = [re.split(r"[*?\[]", pattern)[0] for pattern in (one, other)]
    if plain == [one, other]:
        return one == other
    if plain[0] == one or plain[1] == other:
        return fnmatchcase(one, other) or fnmatchcase(other, one)
    return plain[0].startswith(plain[1]) or plain[1].startswith(plain[0])


def _namespaces_meet(one: NamespaceSelect | None, other: NamespaceSelect | None) -> bool:
    if one is None or other is None:
        return True
    some = one.include or ("*",), other.include or ("*",)
    return any(
        _patterns_meet(this, that)
        for this in some[0]
        for that in some[1]
        if this not in other.exclude and that not in one.exclude
    ) and _labels_meet(one.labels, other.labels)


class Select(Section):
    """Select pods by node, namespace, labels, owner and similar; all given keys must match.

    An absent key excludes no pod.
    """

    namespaces: NamespacesField | None = Field(
        default=None, description="A list of names and patterns, or include, exclude and labels."
    )
    labels: LabelsField | None = Field(
        default=None, description="Labels of the pod, or matchLabels and matchExpressions."
    )
    nodes: LabelsField | None = Field(
        default=None, description="Labels of the node that the pod is on, in the same two forms."
    )
    priority: PrioritySelect | None = Field(default=None, description="Pods of lower priority.")
    min_replicas: int | None = Field(
        default=None, ge=1, description="Pods whose owner asks for at least so many replicas."
    )
    owner_kinds: NamesField | None = Field(
        default=None,
        description="Kinds of the pod's owner or controller, like Deployment or ReplicaSet.",
    )
    storage_classes: NamesField | None = Field(
        default=None,
        description="StorageClasses of the pod's claims: each of them must match. Pods without claims do.",
    )
    pod_disruption_budget: bool | None = Field(
        default=None,
        description="true: pods that a PodDisruptionBudget selects; false: the others.",
    )

    def __bool__(self) -> bool:
        given = (getattr(self, name) for name in Select.model_fields)
        return any(one is False or bool(one) for one in given)

    def may_meet(self, other: Select) -> bool:
        """Return False if no pod can match both selections, judged by namespaces and labels; else True."""
        return (
            _namespaces_meet(self.namespaces, other.namespaces)
            and _labels_meet(self.labels, other.labels)
            and _labels_meet(self.nodes, other.nodes)
        )


def parse_selector(text: str) -> LabelSelect:
    """Parse a label selector as kubectl does (``k8s.io/apimachinery/pkg/labels.Parse``).

    Raises:
        PolicyError: the text is not a selector.
    """
    parts = re.split(r",(?![^()]*\))", text)
    return LabelSelect(match_expressions=tuple(_requirement(part.strip()) for part in parts))


def _requirement(part: str) -> Requirement:
    for form, operator in _FORMS:
        if (match := form.match(part)) is None:
            continue
        key, *values = match.groups()
        given = {"values": tuple(v.strip() for v in values[0].split(","))} if values else {}
        try:
            return Requirement.model_validate({"key": key, "operator": operator, **given})
        except ValidationError:
            break
    raise PolicyError([f"{part!r} is no label selector; write for example app=web,tier!=db"])


class SelectorText(LabelSelect):
    """A label selector in a policy model, written as for kubectl. Empty text: no requirement."""

    @model_validator(mode="before")
    @classmethod
    def _parse(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return dict(parse_selector(value)) if value else {}
        except PolicyError as error:
            raise ValueError(str(error)) from None

    @model_serializer
    def __str__(self) -> str:
        """Return text that :func:`parse_selector` parses to this selector."""
        labels = [f"{key}={value}" for key, value in self.match_labels.items()]
        return ",".join([*labels, *map(_text, self.match_expressions)])

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": "string"}


def _text(requirement: Requirement) -> str:
    key, values = requirement.key, requirement.values
    match requirement.operator:
        case "In":
            return f"{key}={values[0]}" if len(values) == 1 else f"{key} in ({','.join(values)})"
        case "NotIn":
            return (
                f"{key}!={values[0]}" if len(values) == 1 else f"{key} notin ({','.join(values)})"
            )
        case "Exists":
            return key
        case "DoesNotExist":
            return f"!{key}"
