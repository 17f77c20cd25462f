"""Divide the time until a machine goes among the steps."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

LEAST = 5.0
"""Seconds that a step has in any case: a deadline that has passed is often no more than a clock that is ahead."""

StepPart = timedelta | float | None
"""A time span, a share of all the time, or None for all that the others leave."""


def seconds_of(parts: Sequence[StepPart], total: float, left: float) -> float:
    """Return the seconds for the first of the remaining steps, at least ``LEAST``.

    Parameters
    ----------
    parts
        Of the remaining steps, in order.
    total
        Seconds from the start of the first step of all to the end.
    left
        Seconds from now to the end.

    If the parts exceed the remaining time, all are shortened by the same factor. Steps without a part share equally
    what the fixed parts leave.
    """
    fixed = [_fixed(part, total) for part in parts]
    asked = sum(seconds for seconds in fixed if seconds is not None)
    own = fixed[0]
    if own is None:
        spare = left - asked
        return max(LEAST, spare / fixed.count(None))
    scale = max(0.0, left) / asked if asked > left and asked > 0 else 1.0
    return max(LEAST, own * scale)


def _fixed(part: StepPart, total: float) -> float | None:
    if part is None:
        return None
    return part.total_seconds() if isinstance(part, timedelta) else part * max(0.0, total)
