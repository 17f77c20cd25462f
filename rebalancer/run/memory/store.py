"""The memory in a ConfigMap: one run reads it before its plan and writes it afterwards.

Errors are reported, and the caller decides: without the evictions of the last hour a run must not evict more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.cost.streaks import Streaks
from rebalancer.kube.client import Client
from rebalancer.kube.config_map import ConfigMapMissingError, ConfigMapStore
from rebalancer.plan.plan import Outcome, Pace, Status, Totals, with_moves, with_run
from rebalancer.run.memory.document import (
    MAX_PARTS,
    Document,
    NodeCountMemory,
    PaceMemory,
    RunPart,
    count_evictions,
    decode,
    encode,
)
from rebalancer.run.memory.remember import after_run, forget_stale, with_history
from rebalancer.snapshot.model import Snapshot

_Timed = tuple[tuple[Outcome, ...], float]
"""Outcomes, and the seconds that carrying them out took."""


@dataclass(frozen=True, slots=True)
class Journal:
    """The measurements and actions of a run so far. It only grows: an outcome keeps its position."""

    run: str
    """Id of the run: no other run ever has it."""
    by: str = ""
    """Name of the pod of the run."""
    outcomes: tuple[Outcome, ...] = ()
    at: float = 0.0
    """Unix seconds of the last outcome."""
    streaks: Mapping[str, Streaks] = field(default_factory=dict)
    """Strategy -> its streaks."""
    timed: _Timed = ((), 0.0)
    """The evictions with their time, up to the end of the last wave that was not cut off."""
    cut: _Timed = ((), 0.0)
    """The same for the first wave, if that was cut off."""
    reserved: int = 0
    """Evictions that are about to be made: they count for the hour as if they were."""
    nodes: NodeCountMemory | None = None
    """The record of the number of nodes to store; None: the stored one is not changed."""
    exit_code: int | None = None
    """The exit code; None until the run is to be counted."""

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

        The pace is computed from them. If the last wave was ``cut`` off, it does not count; without an earlier wave only a
        lower bound of the pace is known. ``reserved`` replaces the previous reservation.
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
    nodes = after.nodes if journal.nodes is None else journal.nodes
    after = msgspec.structs.replace(after, totals=totals, parts=parts, nodes=nodes)
    after = with_history(after, journal.run, journal.by, journal.outcomes, journal.at)
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
    """Return the wave of each moved pod. Deletions of finished pods do not count: they get no replacement."""
    return [
        outcome.move.wave
        for outcome in outcomes
        if outcome.status.is_carried_out and outcome.move.has_replacement
    ]


def pace_of(known: PaceMemory | None) -> Pace:
    """Return the stored pace; the default pace if there is none."""
    return Pace() if known is None else Pace.measure(known.evictions, known.waves, known.seconds)


def open_config_map(client: Client, where: tuple[str, str]) -> ConfigMapStore:
    """Return the ConfigMap store of a memory; ``where``: (namespace, name)."""
    return ConfigMapStore(client, *where, advice="or run without --memory")


class MemoryStore:
    """The memory for one run: the document of earlier runs, and the journal of this run."""

    def __init__(
        self,
        config_map: ConfigMapStore,
        snapshot: Snapshot,
        run: str,
        by: str = "",
    ) -> None:
        """``snapshot``: the run's input; ``run``: its id; ``by``: the name of its pod."""
        self._config_map, self._snapshot = config_map, snapshot
        self._journal = Journal(run, by)
        self._base = Document()
        """As earlier runs have left it, or another client has meanwhile: the journal is merged into that."""
        self.document = Document()
        """The document as known now, without records that no longer match the snapshot."""
        self.hour_unknown: str | None = None
        """Why the evictions of the last hour are not known, None if they are."""

    def begin(self) -> str | None:
        """Read the document of earlier runs; return a note on what is wrong with it, or None.

        Raises:
            ConfigMapMissingError: the ConfigMap does not exist.
        """
        try:
            document, flaw = decode(self._config_map.require().data)
        except ConfigMapMissingError:
            raise
        except ClusterReadError as error:
            self.hour_unknown = f"the memory could not be read: {error}"
            return None
        if flaw is not None and flaw.hour_unknown:
            self.hour_unknown = flaw.describe(self._config_map.name)
            return None
        self._base, self.document = document, forget_stale(document, self._snapshot)
        return None if flaw is None else flaw.describe(self._config_map.name)

    @property
    def totals(self) -> Totals | None:
        """The counters over all runs; None if unknown."""
        if self.hour_unknown is not None:
            return None
        try:
            known = self._config_map.require()
        except ClusterReadError:
            return None
        return decode(known.data)[0].totals

    def add_streaks(self, streaks: Mapping[str, Streaks]) -> None:
        """Add the streaks of the strategies after this run; the next :meth:`save` stores them."""
        self._journal = replace(self._journal, streaks=streaks)

    def add_nodes(self, nodes: NodeCountMemory) -> None:
        """Add the record of the number of nodes; the next :meth:`save` stores it."""
        self._journal = replace(self._journal, nodes=nodes)

    def count_run(self, outcomes: Iterable[Outcome], exit_code: int, now: float) -> str | None:
        """Count this run, which has ended; return why that could not be written, or None."""
        self._journal = replace(self._journal, exit_code=exit_code)
        return self.save(outcomes, now)

    def save(
        self,
        outcomes: Iterable[Outcome],
        now: float,
        seconds: float = 0.0,
        *,
        cut: bool = False,
        reserved: int = 0,
    ) -> str | None:
        """Store the outcomes of all moves so far, see :meth:`Journal.with_outcomes`; write only changes.

        Return why it could not be written, or None. A run that is killed later is stored up to the last call; what
        it had ``reserved`` then counts as evicted, so that too many evictions count rather than too few.
        """
        if self.hour_unknown is not None:
            return None
        self._journal = self._journal.with_outcomes(
            outcomes, now, seconds, cut=cut, reserved=reserved
        )
        try:
            self._config_map.update(self._merge)
        except ClusterReadError as error:
            done = self._journal.outcomes
            what = "what was done" if done else "what this run is about to evict"
            return f"{what} could not be remembered: {error}"
        return None

    def _merge(self, data: Mapping[str, str]) -> Mapping[str, str]:
        """Return ``data``, as on the server, with the journal merged; unchanged if nothing is added.

        Raises:
            ClusterReadError: the data must not be replaced.
        """
        stands, flaw = decode(data)
        if flaw is not None and flaw.hour_unknown:
            raise ClusterReadError(flaw.message)
        if stands != self.document:
            # Not what this run has written last. What others wrote may hold parts of the journal: merging knows.
            self._base = stands
        base, part = self._base, stands.part_of(self._journal.run)
        self.document = after = merge(base, self._journal, self._snapshot)
        # That an hour went by is no reason to write: an idle cluster is left alone.
        changed = (after.owners, after.streaks, after.nodes, after.totals.runs) != (
            base.owners,
            base.streaks,
            base.nodes,
            base.totals.runs,
        )
        fresh = len(self._journal.outcomes) > part.outcomes
        held = self._journal.reserved or part.reserved
        return encode(after) if fresh or flaw or changed or held else data
