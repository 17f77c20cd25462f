"""How the time until a machine goes is divided among the steps."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

LEAST = 5.0
"""Seconds that a step has in any case: a deadline that has passed is often no more than a clock that is ahead."""

StepPart = timedelta | float | None
"""A time span, a share of all the time, or None for all that the others leave."""


def seconds_of(parts: Sequence[StepPart], total: float, left: float) -> float:
    """Return the seconds that the first of the steps that are still to run has, at least ``LEAST``.

    Parameters
    ----------
    parts
        Of the steps that are still to run, the first of them first.
    total
        Seconds from the beginning of the first step of all to the end.
    left
        Seconds from now to the end.

    Where the parts are more than the time that is left, all are shortened alike. Of what the fixed parts leave, each
    step without one has the same share.
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
