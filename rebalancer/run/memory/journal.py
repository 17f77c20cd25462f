"""The journal of one run, and its merge into the memory, which is idempotent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from rebalancer.cost.streaks import Streaks
from rebalancer.plan.outcome import Outcome, Pace, Status
from rebalancer.plan.totals import with_moves, with_run
from rebalancer.run.memory.document import MAX_PARTS, Document, PaceMemory, RunPart, count_evictions
from rebalancer.run.memory.remember import after_run, forget_stale
from rebalancer.snapshot.model import Snapshot

_Timed = tuple[tuple[Outcome, ...], float]
"""Outcomes, and the seconds that carrying them out took."""


@dataclass(frozen=True, slots=True)
class Journal:
    """What a run has measured and done so far. It only grows: an outcome keeps its position."""

    run: str
    """Id of the run: no other run ever has it."""
    outcomes: tuple[Outcome, ...] = ()
    at: float = 0.0
    """When the last of them was known, Unix seconds."""
    streaks: Mapping[str, Streaks] = field(default_factory=dict)
    """Strategy -> what it has seen."""
    timed: _Timed = ((), 0.0)
    """Up to the end of the last wave that was not cut off."""
    cut: _Timed = ((), 0.0)
    """Of the first wave, if that was cut off."""
    reserved: int = 0
    """Evictions that are about to be made: they count for the hour as if they were."""
    exit_code: int | None = None
    """None until the run is to be counted."""

    def with_outcomes(
        self,
        outcomes: Iterable[Outcome],
        at: float,
        seconds: float = 0.0,
        *,
        cut: bool = False,
        reserved: int = 0,
    ) -> Journal:
        """Return the journal with the ``outcomes`` of all moves so far, executed in ``seconds``.

        If the last wave was ``cut`` off, the waves before it give the pace; if there is none, only a lower bound of
        it is known. ``reserved`` replaces the previous reservation.
        """
        done = tuple(outcomes)
        by_uid = {one.move.uid: one for one in self.outcomes} | {one.move.uid: one for one in done}
        timed = (done, seconds) if not cut and seconds > 0 else self.timed
        first_is_cut = cut and not self.timed[0]
        return replace(
            self,
            outcomes=tuple(by_uid.values()),
            at=at,
            timed=timed,
            cut=(done, seconds) if first_is_cut else self.cut,
            reserved=reserved,
        )


def merge(document: Document, journal: Journal, snapshot: Snapshot) -> Document:
    """Return the document with the whole journal added; ``snapshot``: the run's input.

    The parts of this journal that the document already contains are not added again: merging twice equals merging
    once. All outcomes added at once for one owner and term count as one try, so a run merges into the document from
    before it.
    """
    part = document.part_of(journal.run)
    before = count_evictions(document, -part.reserved, part.at) if part.reserved else document
    fresh = journal.outcomes[part.outcomes :]
    after = after_run(forget_stale(before, snapshot), snapshot, journal.streaks, fresh, journal.at)
    after = with_pace(with_pace_of_cut(after, *journal.cut), *journal.timed)
    totals = with_moves(after.totals, fresh)
    ends = journal.exit_code is not None and not part.ended
    if ends and journal.exit_code is not None:
        totals = with_run(totals, journal.exit_code)
    mine = RunPart(
        run=journal.run,
        outcomes=len(journal.outcomes),
        reserved=journal.reserved,
        at=journal.at if journal.reserved else 0.0,
        ended=part.ended or ends,
    )
    others = tuple(one for one in after.parts if one.run != journal.run)
    parts = (*others, mine)[-MAX_PARTS:]
    after = msgspec.structs.replace(after, totals=totals, parts=parts)
    return count_evictions(after, journal.reserved, journal.at)


# -- pace --------------------------------------------------------------------------------------------


def with_pace(document: Document, outcomes: Iterable[Outcome], seconds: float) -> Document:
    """Return the document with the pace of this run; unchanged if the run moved nothing."""
    waves = _waves_of_moved(outcomes)
    if not waves or seconds <= 0:
        return document
    pace = PaceMemory(len(waves), len(set(waves)), round(seconds, 1))
    return msgspec.structs.replace(document, pace=pace)


def with_pace_of_cut(document: Document, outcomes: Sequence[Outcome], seconds: float) -> Document:
    """Return the document with the pace of a run whose first wave was cut off after ``seconds``.

    That is a lower bound: it is stored only if the known or default pace would have let the wave end by then.
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
    """Return the wave of each moved pod. Deletions of finished pods do not count: nothing is awaited for them."""
    return [
        outcome.move.wave
        for outcome in outcomes
        if outcome.status.is_carried_out and outcome.move.has_replacement
    ]


def pace_of(known: PaceMemory | None) -> Pace:
    """Return the stored pace; the default pace if there is none."""
    return Pace() if known is None else Pace.measure(known.evictions, known.waves, known.seconds)
