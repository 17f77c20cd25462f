"""Label selectors as kubectl takes them on the command line: ``app=web,tier!=db,zone in (a,b),!old``."""

from __future__ import annotations

import re
from typing import Any

from pydantic import GetJsonSchemaHandler, ValidationError, model_serializer, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from rebalancer.base.errors import PolicyError
from rebalancer.policy.select import LabelSelect, Requirement

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


def parse_selector(text: str) -> LabelSelect:
    """Return the selector that ``text`` means (``k8s.io/apimachinery/pkg/labels.Parse``).

    Raises:
        PolicyError: it is none.
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
    """A label selector in a policy model, written as kubectl takes it; empty: nothing is asked for."""

    @model_validator(mode="before")
    @classmethod
    def _parsed(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return dict(parse_selector(value)) if value else {}
        except PolicyError as error:
            raise ValueError(str(error)) from None

    @model_serializer
    def __str__(self) -> str:
        """Return what :func:`parse_selector` reads as this selector."""
        labels = [f"{key}={value}" for key, value in self.match_labels.items()]
        return ",".join([*labels, *map(_text, self.match_expressions)])

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the schema of the text."""
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
