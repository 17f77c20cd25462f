"""RFC 3339 timestamps of the API as Unix seconds."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


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
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def rfc3339(seconds: float) -> str:
    """Return Unix seconds as the API writes them, to the second."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
