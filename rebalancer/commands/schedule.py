"""When a process that lives long plans: every so often, or by a cron expression."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from rebalancer.base.durations import parse_seconds

Schedule = Callable[[float], float]
"""Unix seconds -> the seconds from then until the next plan."""


def parse_schedule(text: str) -> Schedule:
    """Return the schedule that is written as a duration (``2m``, ``90``), or in the five fields of cron, in UTC.

    Raises:
        ValueError: it is neither.
    """
    if len(text.split()) == 5:
        return _cron(text)
    seconds = at_least_a_second(text)
    return lambda _: seconds


def at_least_a_second(text: str) -> float:
    """Return a duration as policies write it, or a plain number of seconds, in seconds.

    Raises:
        ValueError: it is neither, or shorter than a second.
    """
    seconds = parse_seconds(text)
    if seconds < 1:
        raise ValueError(f"{text!r} is shorter than 1s")
    return seconds


def _cron(text: str) -> Schedule:
    # Imported here, as it imports twenty modules.
    from croniter import croniter  # noqa: PLC0415

    def left(now: float) -> float:
        at: datetime = croniter(text, datetime.fromtimestamp(now, UTC)).get_next(datetime)
        return at.timestamp() - now

    try:
        left(0.0)
    except (ValueError, KeyError, AttributeError) as error:
        raise ValueError(f"{text!r} is no cron expression that ever matches: {error}") from None
    return left
