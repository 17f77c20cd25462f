"""When a process that lives long plans: every so often, or by a cron expression."""

from __future__ import annotations

from collections.abc import Callable

from rebalancer.base.durations import at_least_a_second

Schedule = Callable[[float], float]
"""Unix seconds at which a run has begun -> the seconds from then until the next one is due."""


def parse_schedule(text: str, time_zone: str = "UTC") -> Schedule:
    """Return the schedule that is written as a duration (``2m``, ``90``), or in the five fields of cron.

    ``time_zone`` (IANA) is that of the cron expression; when clocks change, it means what it does in a policy's windows.

    Raises:
        ValueError: it is neither, or the time zone is none.
    """
    if len(text.split()) == 5:
        return _cron(text, time_zone)
    if time_zone != "UTC":
        raise ValueError(
            f"a time zone ({time_zone}) says nothing of {text!r}: it is no cron expression"
        )
    seconds = at_least_a_second(text)
    return lambda _: seconds


def _cron(text: str, time_zone: str) -> Schedule:
    # Imported here, as the policy's model imports many modules.
    from pydantic import ValidationError  # noqa: PLC0415

    from rebalancer.policy.windows import Window  # noqa: PLC0415

    try:
        window = Window.model_validate({"allow": text, "for": "1m", "timeZone": time_zone})
    except ValidationError as error:
        raise ValueError(error.errors()[0]["msg"].removeprefix("Value error, ")) from None

    def left(begun: float) -> float:
        at = window.next_opening(begun)
        # The calendar of cron ends in the year 9999.
        return float("inf") if at is None else at - begun

    return left
