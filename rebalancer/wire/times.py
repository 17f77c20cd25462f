"""RFC 3339 timestamps of the API as Unix seconds, and durations as Go writes them."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from functools import lru_cache

FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799
"""0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z in Unix seconds: the times that RFC 3339 can write."""

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)


@lru_cache(maxsize=4096)
def _day(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def unix_seconds(text: str | None) -> float:
    """Return ``2026-11-20T10:00:00Z`` as Unix seconds, 0.0 for an absent or unreadable time.

    The common form is cut by position, since it is parsed once per pod.
    """
    if not text:
        return 0.0
    try:
        if len(text) == 20 and text[-1] == "Z":
            clock = int(text[11:13]) * 3600 + int(text[14:16]) * 60 + int(text[17:19])
            return _day(text[:10]) + clock
        at = datetime.fromisoformat(text)
        # A time without a zone is none of the API's; read as local time it would depend on the machine.
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def rfc3339(seconds: float) -> str:
    """Return Unix seconds as the API writes them, to the second; times beyond its calendar as the nearest in it."""
    within = 0.0 if math.isnan(seconds) else min(max(seconds, FIRST_SECOND), LAST_SECOND)
    at = datetime.fromtimestamp(int(within), UTC)
    return f"{at.year:04}-{at:%m-%dT%H:%M:%SZ}"


def go_duration(text: str) -> float | None:
    """Return ``1h30m``, ``5m0s`` or ``1.5h`` in seconds, None if it is none (time.ParseDuration)."""
    body = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    parts = list(_PART.finditer(body))
    if body != "0" and (not parts or "".join(part[0] for part in parts) != body):
        return None
    seconds = sum(float(part[1]) * _UNITS[part[2]] for part in parts)
    return -seconds if text.startswith("-") else seconds
