"""The tally of evictions of the last hour, minute by minute."""

from __future__ import annotations

import msgspec

from rebalancer.run.memory.document import Document

_MINUTES = 60
# A clock that was set back must not keep a budget used up for ever.
_AHEAD = 5


def counted(document: Document, evictions: int, now: float) -> Document:
    """Return the document with so many more evictions at ``now``, and without those over an hour old."""
    minute = int(now // 60)
    tally = dict(_recent(document, minute))
    if evictions:
        tally[minute] = tally.get(minute, 0) + evictions
    return msgspec.structs.replace(document, evictions=tuple(sorted(tally.items())))


def moved_last_hour(document: Document, now: float) -> int:
    """Return the evictions of the hour that ends at ``now``, rounded up to whole minutes."""
    return sum(count for _, count in _recent(document, int(now // 60)))


def _recent(document: Document, minute: int) -> tuple[tuple[int, int], ...]:
    return tuple(
        (at, count)
        for at, count in document.evictions
        if minute - _MINUTES <= at <= minute + _AHEAD and count > 0
    )
