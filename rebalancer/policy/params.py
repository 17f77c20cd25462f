"""Base classes of the models of a policy file, and percentages."""

from __future__ import annotations

import enum
import math
import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema
from pydantic.alias_generators import to_camel

from rebalancer.base.plain_text import shown

_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%\Z", re.ASCII)


class Section(BaseModel):
    """A section of the policy: frozen, no unknown keys, camelCase in the file and snake_case in Python.

    The docstring of a field is its description in the JSON schema (``rebalancer.policy.descriptions``).
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        allow_inf_nan=False,
    )


class Direction(enum.Enum):
    """What a strategy does to nodes as a whole."""

    SPREAD = "spreads"
    """It evens out how full they are."""
    PACK = "packs"
    """It empties some of them."""


class Params(Section):
    """Base of a strategy's options: every field with a default, a description, a unit and bounds.

    The names ``mode``, ``weight``, ``budgets`` and ``windows`` are reserved: in the file, the options are beside
    these keys, which all strategies have.
    """

    direction: ClassVar[Direction | None] = None
    """Of a strategy that spreads or packs, against which another, or an autoscaler, may pull."""
    scales: ClassVar[Literal["in", "out"] | None] = None
    """Of a strategy that removes machines (in) or adds some (out): it needs a provider that acts. See
    ``rebalancer.capacity.scaling``, which names the options that it must have."""


class ProviderParams(Params):
    """Base of the options of a provider of machines."""

    acts: ClassVar[bool] = False
    """Whether it adds and removes machines; one that does not is for reports only."""


def parse_percent(value: Any) -> float:
    """Return ``20%`` as the fraction 0.2; ValueError unless it is a percentage up to 100%."""
    match = _PERCENT.match(value.strip()) if isinstance(value, str) else None
    if match is None or float(match[1]) > 100:
        raise ValueError(f"{shown(value)} is no percentage from 0% to 100%; write for example 20%")
    return float(match[1]) / 100


def format_percent(fraction: float) -> str:
    """Return the fraction 0.2 as ``20%``."""
    return f"{round(fraction * 100, 10):.10g}%"


def _fraction(value: Any) -> float:
    # Python code and defaults have numbers; a file must have percentages.
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
"""A fraction from 0 to 1, written in the file as ``0%`` to ``100%``; strategies may use it, too."""
