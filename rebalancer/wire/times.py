"""Convert RFC 3339 timestamps of the API to Unix seconds, and back."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from functools import lru_cache

FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799
"""0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z in Unix seconds: the times that RFC 3339 can write."""


@lru_cache(maxsize=4096)
def _day(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def unix_seconds(text: str | None) -> float:
    """Parse ``2026-11-20T10:00:00Z`` as Unix seconds; 0.0 for a missing or malformed time.

    The common form is cut by position, since one time per pod is parsed.
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
    """Format Unix seconds as the API does, in whole seconds; times beyond its calendar become the nearest in it."""
    within = 0.0 if math.isnan(seconds) else min(max(seconds, FIRST_SECOND), LAST_SECOND)
    at = datetime.fromtimestamp(int(within), UTC)
    return f"{at.year:04}-{at:%m-%dT%H:%M:%SZ}"
