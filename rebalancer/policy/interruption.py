"""Policy sections about machine interruptions: the signal sources, and the steps to run."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Annotated, Any, ClassVar

from pydantic import (
    Field,
    PlainSerializer,
    PlainValidator,
    SerializeAsAny,
    WithJsonSchema,
)

from rebalancer.base.durations import format_duration, parse_duration
from rebalancer.policy.values import (
    Duration,
    Limit,
    LimitField,
    Params,
    PositiveDuration,
    Section,
    format_percent,
    parse_percent,
)


class StepParams(Params):
    """Base class of a step's options. Every field has a description, a unit and bounds.

    The names ``step`` and ``within`` are reserved: in the file, the options stand beside these keys.
    """

    needs_node: ClassVar[bool] = True
    """Whether the step is skipped where the machine is no Node."""
    strategy: ClassVar[str | None] = None
    """The strategy that the policy has to enforce for the step to have an effect."""
    waits: ClassVar[bool] = False
    """Whether its part is the last of the time: where the steps before it end sooner, it waits until then."""
    keeps: ClassVar[bool] = False
    """Whether what it keeps decides over something outside the cluster: it is kept under the machine's name at its provider."""
    changes_node: ClassVar[bool] = False
    """Whether it changes the node by ``StepContext.change``: the text that it keeps by that is written on the node, and read there."""

    def part(self) -> timedelta | float | None:
        """Return the step's default part of the available time: a time span or a fraction.

        None: the time that the other steps leave.
        """
        return timedelta(seconds=10)


def parse_part(value: Any) -> timedelta | float:
    """Parse ``20s`` as a time span and ``20%`` as a fraction.

    Raises ValueError if the text is neither, or is 0.
    """
    if isinstance(value, timedelta | float):
        return value
    part: timedelta | float
    if isinstance(value, str) and value.rstrip().endswith("%"):
        part = parse_percent(value)
    else:
        part = parse_duration(value)
    if not part:
        raise ValueError(f"{value} is no time; write for example 20s, or 20% of all the time")
    return part


def _write(part: timedelta | float) -> str:
    return format_duration(part) if isinstance(part, timedelta) else format_percent(part)


Part = Annotated[
    timedelta | float,
    PlainValidator(parse_part),
    PlainSerializer(_write, return_type=str, when_used="json"),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^(?=.)(\d+d)?(\d+h)?(\d+m)?(\d+(\.\d+)?s)?$|^\d+(\.\d+)?\s*%$",
            "examples": ["20s", "50%"],
        }
    ),
]
"""A part of the time until a machine goes: seconds, or a share of all of it."""


class StepPolicy(Section):
    """One step: the keys that all steps have, and its own options beside them."""

    step: str = Field(description="Which step it is.")
    within: Part | None = Field(
        default=None,
        description="Its part of the time: a duration, or a share of all the time there is; absent: the step's own.",
    )
    params: SerializeAsAny[StepParams] = Field(
        default=StepParams(), description="The step's own options."
    )

    @property
    def part(self) -> timedelta | float | None:
        """The part of the time that this step gets; None: what the other steps leave of it."""
        return self.params.part() if self.within is None else self.within


IGNORED_KINDS = ("rebalance",)
"""Recommendations: most of such machines run on for hours, and some for ever."""
IgnoredKinds = Annotated[
    tuple[str, ...],
    Field(
        description="Kinds of interruptions of this source that nothing is done about. Absent: rebalance; [] attends to"
        " rebalance recommendations, too."
    ),
]
"""An option of signal sources."""

STEP_ENVELOPE = ("step", "within")
"""The keys that all steps have."""
DEFAULT_STEPS = ("cordon", "exclude", "leave")
"""The steps of a policy that has signals, and names none."""
WARM_POOL = "warm-pool"
"""The kind of machines that are put by, to come back as the same machine and Node."""
TURNED_OFF = frozenset({WARM_POOL, "shutdown"})
"""Kinds after which a machine is off: where it runs again, it is back."""
_WITHDRAW_AFTER = dict.fromkeys(("rebalance", "spot", *TURNED_OFF), timedelta(hours=1))
"""Kinds that are never cancelled: a recommendation has no end, and a queue does not report that an instance is started again."""


class InterruptionPolicy(Section):
    """What to do when a machine will be interrupted."""

    steps: tuple[StepPolicy, ...] = Field(
        default=(),
        description="What is done, in this order; each step has its part of the time. Absent: cordon, exclude, leave.",
    )
    lead_time: PositiveDuration = Field(
        default=timedelta(hours=1),
        description="How long before the time at which a machine goes the steps begin.",
    )
    lead_times: dict[str, PositiveDuration] = Field(
        default_factory=dict,
        description="The same for single kinds of interruptions, such as maintenance: 15m.",
    )
    without_deadline: PositiveDuration = Field(
        default=timedelta(minutes=10),
        description="Longest time for all steps where a signal has no deadline.",
    )
    hold_up_to: PositiveDuration = Field(
        default=timedelta(hours=48),
        description="Longest time for which a machine that a source can hold (a lifecycle hook) is held while pods are"
        " left on its node.",
    )
    at_once: int = Field(
        default=10,
        ge=1,
        le=100,
        description="So many machines with a deadline are attended to at once, and as many without one; of more, those"
        " that go first.",
    )
    closed_without_deadline: LimitField = Field(
        default=Limit.parse("20%"),
        description="Nodes that may be closed at once because of announcements without a deadline, of all nodes; a share"
        " is at least 1.",
    )
    withdraw_after: dict[str, Duration] = Field(
        default_factory=dict,
        description="For kinds of interruptions: how long after the time at which the machine was to go, or without such"
        " a time after the begin of the steps, these are undone if it is still there; 0s: never. Absent: 1h for"
        " rebalance, spot, shutdown and warm-pool, and never for other kinds, which are cancelled by what announced them.",
    )

    def lead(self, kind: str) -> float:
        """Return how many seconds before the deadline the steps start, for this kind of interruption."""
        return self.lead_times.get(kind, self.lead_time).total_seconds()

    def withdrawn_after(self, kind: str) -> float:
        """Return the seconds after which an overdue interruption of ``kind`` is withdrawn.

        Infinite: it is never withdrawn.
        """
        after = self.withdraw_after.get(kind, _WITHDRAW_AFTER.get(kind, timedelta(0)))
        return after.total_seconds() or math.inf
