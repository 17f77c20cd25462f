"""How long a run took for its waves: what the next one goes by when it plans no more than it can carry out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from rebalancer.plan.outcome import Outcome, Pace, Status
from rebalancer.run.memory.document import Document, PaceMemory


def with_pace(document: Document, outcomes: Iterable[Outcome], seconds: float) -> Document:
    """Return the document with the pace of a run; that of the last one if this one moved nothing."""
    waves = _waves_of_moved(outcomes)
    if not waves or seconds <= 0:
        return document
    pace = PaceMemory(len(waves), len(set(waves)), round(seconds, 1))
    return msgspec.structs.replace(document, pace=pace)


def with_pace_of_cut(document: Document, outcomes: Sequence[Outcome], seconds: float) -> Document:
    """Return the document with the pace of a run whose first wave was cut off after so many seconds.

    It would have taken longer still: it counts where the pace that is known, or the usual one, promised an end by then.
    """
    waves = _waves_of_moved(outcomes)
    if not waves or seconds <= 0:
        return document
    evicting = any(
        outcome.status is Status.NOT_ATTEMPTED and outcome.move.wave == waves[0]
        for outcome in outcomes
    )
    cut = PaceMemory(len(waves), 0 if evicting else 1, round(seconds, 1))
    promised = pace_of(document.pace)
    if len(waves) * promised.eviction + cut.waves * promised.wave >= seconds:
        return document
    return msgspec.structs.replace(document, pace=cut)


def _waves_of_moved(outcomes: Iterable[Outcome]) -> list[int]:
    """Return the wave of each pod that was moved. What has ended is removed, and nothing is waited for."""
    return [
        outcome.move.wave
        for outcome in outcomes
        if outcome.status.is_carried_out and outcome.move.has_replacement
    ]


def pace_of(known: PaceMemory | None) -> Pace:
    """Return the pace that is remembered, the usual one if none is."""
    return Pace() if known is None else Pace.measure(known.evictions, known.waves, known.seconds)
