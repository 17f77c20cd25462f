"""Field types of a policy: limits (``5`` or ``10%``), durations (``1h30m``) and labels."""

from __future__ import annotations

import enum
import math
import re
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

from rebalancer.base.durations import format_duration, parse_duration
from rebalancer.base.plain_text import quote_value
from rebalancer.wire.quantity import parse as parse_quantity

_COUNT_MAX = 1_000_000
_MAX_DURATION = timedelta(days=366)
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)\s*%\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Limit:
    """An upper limit: a count, or a share of a total that is known only in the cluster."""

    count: int | None = None
    share: Fraction | None = None
    """0 to 1."""

    @classmethod
    def parse(cls, value: Any) -> Limit:
        """Parse ``5`` or ``"10%"``; raise ValueError if the value is neither, or is out of bounds."""
        if isinstance(value, Limit):
            return value
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _COUNT_MAX:
            return cls(count=value)
        match = _PERCENT.match(value.strip()) if isinstance(value, str) else None
        if match is not None and (share := Fraction(match[1]) / 100) <= 1:
            return cls(share=share)
        raise ValueError(
            f"{quote_value(value)} is no limit; write a count from 0 to {_COUNT_MAX}, or a share from 0% to 100%"
        )

    def of(self, total: int, floor: int = 1) -> int:
        """Return the limit as a count; a share is taken of ``total``.

        A share is rounded down, but not below ``floor`` or 1, so that a budget is not 0 in a small cluster. Only
        ``0`` and ``0%`` are 0. ``floor`` does not change a count.
        """
        if self.count is not None:
            return self.count
        share = self.share or Fraction(0)
        return max(int(share * total), floor, 1) if share else 0

    def __str__(self) -> str:
        if self.share is None:
            return str(self.count)
        return f"{float(self.share * 100):.9g}%"


def _write(limit: Limit) -> int | str:
    return str(limit) if limit.count is None else limit.count


LimitField = Annotated[
    Limit,
    PlainValidator(Limit.parse),
    PlainSerializer(_write, when_used="json"),
    WithJsonSchema(
        {
            "oneOf": [
                {"type": "integer", "minimum": 0, "maximum": _COUNT_MAX},
                {"type": "string", "pattern": r"^(100(\.0{1,6})?|0?\d{1,2}(\.\d{1,6})?)\s*%$"},
            ],
            "examples": [5, "10%"],
        }
    ),
]
"""A :class:`Limit` in a policy model."""

_DURATION_SCHEMA = {
    "type": "string",
    "pattern": r"^(?=.)(\d+d)?(\d+h)?(\d+m)?(\d+(\.\d+)?s)?$",
    "examples": ["90s", "5m", "1h30m"],
}

Duration = Annotated[
    timedelta,
    PlainValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str, when_used="json"),
    WithJsonSchema(_DURATION_SCHEMA),
]
"""A time span in a policy model."""


def _positive(span: timedelta) -> timedelta:
    if not timedelta(0) < span <= _MAX_DURATION:
        raise ValueError(
            f'"{format_duration(span)}" should be more than 0s and at most {format_duration(_MAX_DURATION)}'
        )
    return span


PositiveDuration = Annotated[
    Duration,
    AfterValidator(_positive),
    WithJsonSchema({**_DURATION_SCHEMA, "allOf": [{"pattern": "[1-9]"}]}),
]
"""A time span above 0 and of at most a year."""


def _grace(span: timedelta) -> timedelta:
    if span.total_seconds() < 1 or span.total_seconds() % 1:
        raise ValueError(
            f'"{format_duration(span)}" should be whole seconds, at least 1s: with 0 a pod is gone before its processes end'
        )
    return span


GracePeriod = Annotated[PositiveDuration, AfterValidator(_grace)]
"""A grace period of pods, in whole seconds."""


def _label_key(text: str) -> str:
    if not is_label_key(text):
        raise ValueError(
            f"{quote_value(text)} is no label key; write for example app or topology.kubernetes.io/zone"
        )
    return text


def _labels(labels: dict[str, str]) -> dict[str, str]:
    for key, value in labels.items():
        _label_key(key)
        if not is_label_value(value):
            raise ValueError(
                f"{quote_value(value)} is no label value: at most 63 letters, digits, -, _ and ., none of which"
                " but letters and digits may come first or last"
            )
    return labels


LabelKey = Annotated[str, AfterValidator(_label_key)]
"""The key of a label, which no object can carry unless Kubernetes admits it."""

Labels = Annotated[dict[str, str], AfterValidator(_labels)]
"""Labels that an object may carry."""


_PERCENT_OF_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*%\Z", re.ASCII)


class Section(BaseModel):
    """A section of the policy: frozen, no unknown keys, camelCase in the file and snake_case in Python.

    The docstring of a field is its description in the JSON schema (``rebalancer.policy.forms``).
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
    """How a strategy changes the load of nodes."""

    SPREAD = "spreads"
    """It evens out how full they are."""
    PACK = "packs"
    """It empties some of them."""


class Params(Section):
    """Base class of a strategy's options. Every field has a default, a description, a unit and bounds.

    The names ``mode``, ``weight``, ``budgets`` and ``windows`` are reserved: in the file, the options stand beside
    these keys, which all strategies have.
    """

    direction: ClassVar[Direction | None] = None
    """Of a strategy that spreads or packs, against which another, or an autoscaler, may pull."""
    scales: ClassVar[Literal["in", "out"] | None] = None
    """For a strategy that removes machines (in) or adds some (out): it needs a provider that acts. See
    ``rebalancer.machines.capacity.scaling``, which names the options that it must have."""
    orders_deletions: ClassVar[bool] = False
    """For a strategy that writes deletion costs on pods; see ``rebalancer.planner.deletion_costs``, which names the options
    that it must have."""


class ProviderParams(Params):
    """Base class of the options of a machine provider."""

    acts: ClassVar[bool] = False
    """Whether it adds and removes machines; one that does not is for reports only."""


def parse_percent(value: Any) -> float:
    """Parse ``20%`` as the fraction 0.2; raise ValueError unless it is a percentage of at most 100%."""
    match = _PERCENT_OF_AMOUNT.match(value.strip()) if isinstance(value, str) else None
    if match is None or float(match[1]) > 100:
        raise ValueError(
            f"{quote_value(value)} is no percentage from 0% to 100%; write for example 20%"
        )
    return float(match[1]) / 100


def format_percent(fraction: float) -> str:
    """Format the fraction 0.2 as ``20%``."""
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
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^0*(100(\.0+)?|\d{1,2}(\.\d+)?)\s*%$",
            "examples": ["20%"],
        }
    ),
]
"""A fraction from 0 to 1, written in the file as ``0%`` to ``100%``; strategies may use it, too."""


def _quantity(value: Any) -> str:
    text = str(value) if isinstance(value, str | int | float) else ""
    if parse_quantity(text) <= 0:
        raise ValueError(f"{quote_value(value)} is not more than nothing")
    return text


Quantity = Annotated[
    str,
    BeforeValidator(_quantity),
    WithJsonSchema({"type": ["string", "number"], "examples": ["32", "128Gi"]}),
]
"""An amount of a resource above 0, as in a pod's requests; ``Snapshot.amounts`` counts with it."""


_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z", re.ASCII)
_PREFIX = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*\Z", re.ASCII)
_MAX_PREFIX = 253


def is_label_key(text: str) -> bool:
    """Return whether ``text`` is a valid label key: ``name`` or ``prefix.example/name``."""
    prefix, slash, name = text.rpartition("/")
    if slash and (len(prefix) > _MAX_PREFIX or not _PREFIX.match(prefix)):
        return False
    return _NAME.match(name) is not None


def is_label_value(text: str) -> bool:
    """Return whether ``text`` is a valid label value; it may be empty."""
    return not text or _NAME.match(text) is not None
