"""The base of everything that a user writes in a policy file."""

from __future__ import annotations

import json
import math
import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema
from pydantic.alias_generators import to_camel

_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%\Z", re.ASCII)


class Section(BaseModel):
    """A part of the policy: frozen, no unknown keys, camelCase in the file and snake_case in Python.

    A text below a field is its description in the JSON schema (``rebalancer.policy.descriptions``).
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        allow_inf_nan=False,
    )


class Params(Section):
    """Base of a strategy's options: every field with a default, a description, a unit and bounds.

    The keys of the envelope (``mode``, ``weight``, ``budgets``, ``windows``) are taken: in the file, the
    options stand beside them.
    """


def shown(value: Any) -> str:
    """Return ``value`` as it stood in the file, cut to a readable length."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def parse_percent(value: Any) -> float:
    """Return ``20%`` as the fraction 0.2; ValueError if ``value`` is none up to 100%."""
    match = _PERCENT.match(value.strip()) if isinstance(value, str) else None
    if match is None or float(match[1]) > 100:
        raise ValueError(f"{shown(value)} is no percentage from 0% to 100%; write for example 20%")
    return float(match[1]) / 100


def format_percent(fraction: float) -> str:
    """Return the fraction 0.2 as ``20%``."""
    return f"{round(fraction * 100, 10):.10g}%"


def _fraction(value: Any) -> float:
    # A number is what Python code and defaults hold; a file has to say percent.
    if isinstance(value, float) and math.isfinite(value):
        return value
    return parse_percent(value)


Percent = Annotated[
    float,
    BeforeValidator(_fraction),
    Field(ge=0, le=1),
    PlainSerializer(format_percent, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": r"^\d+(\.\d+)?\s*%$", "examples": ["20%"]}),
]
"""A fraction from 0 to 1 that a file writes as ``0%`` to ``100%``; for options of strategies, too."""
