"""Time spans as policies, flags and annotations write them: ``90s``, ``5m``, ``1h30m``.

The format is that of Go, plus ``d`` for 24 hours, minus fractions and units below a second. So each time span has
one text only, which :func:`format_duration` writes.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from rebalancer.base.plain_text import quote_value

_OURS = re.compile(
    r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6}(?:\.\d{1,3})?)s)?\Z", re.ASCII
)

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_GO_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
# time.Duration counts nanoseconds in 63 bits.
_GO_LONGEST = 2**63 / 1e9


def parse_duration(value: Any) -> timedelta:
    """Parse ``90s``, ``5m``, ``1h30m`` or ``2d``; raise ValueError for any other text."""
    if isinstance(value, timedelta):
        return value
    match = _OURS.match(value) if isinstance(value, str) and value else None
    if match is None:
        raise ValueError(
            f"{quote_value(value)} is no duration; write for example 90s, 5m, 1h30m or 2d"
        )
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


def parse_seconds(text: str) -> float:
    """Return ``5m``, or a plain number such as ``300``, in seconds; raise ValueError for any other text."""
    if text.isascii() and text.replace(".", "", 1).isdigit():
        return float(text)
    return parse_duration(text).total_seconds()


def at_least_a_second(text: str) -> float:
    """Return a duration in seconds; ``text`` is a duration of the policy or a plain number of seconds.

    Raises:
        ValueError: ``text`` is neither, or the duration is shorter than a second.
    """
    seconds = parse_seconds(text)
    if seconds < 1:
        raise ValueError(f"{text!r} is shorter than 1s")
    return seconds


def parse_go_duration(text: str) -> timedelta:
    """Parse a duration of Go, such as ``1h30m``, ``1.5h`` or ``-10s``, to the microsecond.

    For values that other programs write (``time.ParseDuration``). Raises ValueError for any other text.
    """
    body = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    parts = list(_GO_PART.finditer(body))
    if body != "0" and (not parts or "".join(part[0] for part in parts) != body):
        raise ValueError(f"{quote_value(text)} is no duration; write for example 90s, 5m or 1h30m")
    seconds = sum(float(part[1]) * _UNITS[part[2]] for part in parts)
    if seconds > _GO_LONGEST:
        raise ValueError(f"{quote_value(text)} is longer than a duration can be")
    return timedelta(seconds=-seconds if text.startswith("-") else seconds)


def format_duration(span: timedelta) -> str:
    """Format a time span of at least 0 so that :func:`parse_duration` can read it: ``1h30m``."""
    minutes, seconds = divmod(span.total_seconds(), 60)
    hours, minutes = divmod(int(minutes), 60)
    parts = [f"{hours}h" if hours else "", f"{minutes}m" if minutes else ""]
    if seconds or not (hours or minutes):
        parts.append(f"{seconds:.3f}".rstrip("0").rstrip(".") + "s")
    return "".join(parts)
