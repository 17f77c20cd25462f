"""Reads the memory before a plan and writes it after.

What cannot be read or written is said, and the caller decides: without the evictions of the last hour a
run must not add to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.cost.streaks import Streaks
from rebalancer.kube.config_map import ConfigMapStore, StoredMap
from rebalancer.plan.outcome import Outcome, Pace
from rebalancer.plan.totals import Totals, with_moves, with_run
from rebalancer.run.memory.cooling import cooling
from rebalancer.run.memory.document import KEY, Document, decode, encode
from rebalancer.run.memory.expectations import after_run
from rebalancer.run.memory.hour import counted, moved_last_hour
from rebalancer.run.memory.pace import pace_of, with_pace, with_pace_of_cut
from rebalancer.run.memory.remember import refreshed
from rebalancer.run.memory.streaks import remembered
from rebalancer.snapshot.model import Snapshot

_ATTEMPTS = 3
"""To write: others may write at the same moment, and replies may be lost."""


class _Ours(NamedTuple):
    """What a run has written of its own."""

    uids: frozenset[str] = frozenset()
    """Of the pods whose outcomes are in it."""
    reserved: int = 0
    """Evictions that are counted before they are made."""
    at: float = 0.0
    """When these were counted, Unix seconds."""
    ended: bool = False
    """Whether the run itself is counted."""


def missing(name: str) -> ClusterReadError:
    """Return what is raised where the ConfigMap of this name does not exist."""
    return ClusterReadError(
        f"there is no ConfigMap {name}: create it (the chart does), or run without --memory"
    )


class Keeper:
    """The memory of one run. Without a store nothing is known and nothing is kept."""

    def __init__(
        self, store: ConfigMapStore | None, name: str, warn: Callable[[str], None]
    ) -> None:
        self._store, self._name, self._warn = store, name, warn
        self._known: StoredMap | None = None
        """The ConfigMap as the server has it."""
        self._base: Mapping[str, str] = {}
        """Its data as earlier runs, or another client meanwhile, have left it: what this run did is added to that."""
        self._written = self._in_base = _Ours()
        """What this run has written, and what of it stands in the base."""
        self._snapshot: Snapshot | None = None
        self._sent: tuple[Mapping[str, str], _Ours] | None = None
        """The data that was sent last, and what is ours in it: the reply may be lost."""
        self._seen: Mapping[str, Streaks] = {}
        self._timed: tuple[tuple[Outcome, ...], float] = ((), 0.0)
        """What was carried out when the last wave had ended, and the seconds that it took."""
        self._cut: tuple[tuple[Outcome, ...], float] = ((), 0.0)
        """The same where the first wave was cut off."""
        self._exit_code: int | None = None
        """None until the run is counted."""
        self.document = Document()
        self.hour_unknown: str | None = None
        """Why the evictions of the last hour are not known, None if they are."""

    def load(self, snapshot: Snapshot) -> None:
        """Read what is remembered, and forget what no longer holds on ``snapshot``.

        Raises:
            ClusterReadError: there is no such ConfigMap.
        """
        self._snapshot = snapshot
        if self._store is None:
            return
        try:
            known = self._store.read()
        except ClusterReadError as error:
            self.hour_unknown = f"the memory could not be read: {error}"
            return
        if known is None:
            raise missing(self._name)
        document, flaw = decode(known.data)
        if flaw is not None and flaw.hour_unknown:
            self.hour_unknown = (
                f"{flaw.message}; to start afresh remove {KEY} from ConfigMap {self._name}"
            )
            return
        self._known, self._base = known, known.data
        self.document = refreshed(document, snapshot)
        if flaw is not None:
            self._warn(f"{flaw.message}; they are forgotten")

    def cooling(self) -> dict[str, str]:
        """Return owner -> why it cools down, see :func:`rebalancer.run.memory.cooling.cooling`."""
        return cooling(self.document, self._snapshot.captured_at) if self._snapshot else {}

    def moved_last_hour(self) -> int:
        """Return what earlier runs have used of the rolling hour."""
        return moved_last_hour(self.document, self._snapshot.captured_at) if self._snapshot else 0

    def streaks(self) -> dict[str, Streaks] | None:
        """Return strategy -> what it has seen in earlier runs; None if nothing can be kept for later ones."""
        return None if self._known is None else remembered(self.document)

    def pace(self) -> Pace:
        """Return how fast the last run was, the usual pace if nothing is known of it."""
        return pace_of(self.document.pace)

    def totals(self) -> Totals | None:
        """Return what runs have done by the ConfigMap; None if it is not known."""
        return None if self._known is None else decode(self._known.data)[0].totals

    def count_run(self, outcomes: Iterable[Outcome], exit_code: int, now: float) -> str | None:
        """Count this run, which is over. Return why that could not be written, or None."""
        self._exit_code = exit_code
        return self.record(outcomes, now)

    def saw(self, streaks: Mapping[str, Streaks]) -> None:
        """Take what the strategies have seen in this run; the next :meth:`record` remembers it."""
        self._seen = streaks

    def record(
        self,
        outcomes: Iterable[Outcome],
        now: float,
        seconds: float = 0.0,
        *,
        cut: bool = False,
        reserved: int = 0,
    ) -> str | None:
        """Remember what was seen and the outcome of all of the run's moves so far; write it if that changes anything.

        ``seconds`` are what carrying them out took. If the last wave was ``cut`` off, those before it say how fast
        the run was; if there is none, that it was no faster.

        ``reserved`` evictions are about to be made: they count for the hour as if they were, until the next call. So a
        run that writes no more leaves too much rather than too little.

        It may be called again and again: a run that is killed later is remembered up to the last call. If
        another client has written meanwhile, what they wrote is read and added to. Return why it could not be
        written, or None.
        """
        if self._store is None or self._known is None:
            return None
        done = tuple(outcomes)
        if not cut and seconds > 0:
            self._timed = done, seconds
        elif cut and not self._timed[0]:
            self._cut = done, seconds
        what = "what was done" if done else "what this run is about to evict"
        why = ""
        for _ in range(_ATTEMPTS):
            try:
                self._write(self._store, self._known, done, now, reserved)
            except ClusterReadError as error:
                why = f"{what} could not be remembered: {error}"
            else:
                return None
            try:
                self._read_again(self._store)
            except ClusterReadError as error:
                why = f"{what} could not be remembered: {error}"
        self._warn(why)
        return why

    def _read_again(self, store: ConfigMapStore) -> None:
        """Learn what the server has after a write that failed: another's data, or ours, the reply being lost."""
        known = store.read()
        if known is None:
            raise ClusterReadError(f"ConfigMap {self._name} is gone")
        self._known = known
        if self._sent is not None and known.data == self._sent[0]:
            self._written = self._sent[1]
        elif known.data != self._base:
            # What this run had written until then is part of what others have left.
            self._base, self._in_base = known.data, self._written

    def _write(
        self,
        store: ConfigMapStore,
        known: StoredMap,
        outcomes: Sequence[Outcome],
        now: float,
        reserved: int,
    ) -> None:
        snapshot = self._snapshot
        if snapshot is None:
            return
        before, flaw = decode(self._base)
        if flaw is not None and flaw.hour_unknown:
            raise ClusterReadError(flaw.message)
        mine = self._in_base
        if mine.reserved:
            before = counted(before, -mine.reserved, mine.at)
        fresh = [outcome for outcome in outcomes if outcome.move.uid not in mine.uids]
        after = after_run(refreshed(before, snapshot), snapshot, self._seen, fresh, now)
        after = with_pace(with_pace_of_cut(after, *self._cut), *self._timed)
        after = self._with_totals(after, fresh, counted_before=mine.ended)
        self.document = after
        # That an hour went by is no reason to write: an idle cluster is left alone.
        changed = (after.owners, after.streaks, after.totals.runs) != (
            before.owners,
            before.streaks,
            before.totals.runs,
        )
        data = encode(counted(after, reserved, now))
        held = reserved or self._written.reserved
        if (fresh or flaw or changed or held) and data != known.data:
            uids = frozenset(outcome.move.uid for outcome in outcomes)
            self._sent = data, _Ours(uids, reserved, now, self._exit_code is not None)
            self._known = store.write(known, data)
            self._written = self._sent[1]

    def _with_totals(
        self, document: Document, fresh: Iterable[Outcome], *, counted_before: bool
    ) -> Document:
        totals = with_moves(document.totals, fresh)
        if self._exit_code is not None and not counted_before:
            totals = with_run(totals, self._exit_code)
        return msgspec.structs.replace(document, totals=totals)
