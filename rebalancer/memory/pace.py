"""How long a run took for its waves: what the next one goes by when it plans no more than it can carry out."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rebalancer.memory.document import Document, PaceMemory
from rebalancer.plan.outcome import Outcome


def with_pace(document: Document, outcomes: Iterable[Outcome], seconds: float) -> Document:
    """Return the document with the pace of a run; that of the last one if this one evicted nothing."""
    waves = [outcome.move.wave for outcome in outcomes if outcome.status.is_carried_out]
    if not waves or seconds <= 0:
        return document
    pace = PaceMemory(len(waves), len(set(waves)), round(seconds, 1))
    return msgspec.structs.replace(document, pace=pace)
