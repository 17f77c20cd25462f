"""Reads the memory before a plan and writes it after: whatever fails here is a warning, not a failure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from rebalancer.cost.signals import Signals
from rebalancer.errors import ClusterReadError
from rebalancer.kube.memory import MemoryConflictError, MemoryStore, Remembered
from rebalancer.memory.cooling import cooling
from rebalancer.memory.document import Document, decode, encode
from rebalancer.memory.hopes import after_run
from rebalancer.memory.hour import moved_last_hour
from rebalancer.memory.pace import with_pace
from rebalancer.memory.remember import refreshed
from rebalancer.memory.signals import remembered
from rebalancer.plan.outcome import Outcome
from rebalancer.planner.pace import Pace
from rebalancer.snapshot.model import Snapshot


class Keeper:
    """The memory of one run. Without a store nothing is known and nothing is kept."""

    def __init__(self, store: MemoryStore | None, name: str, warn: Callable[[str], None]) -> None:
        self._store, self._name, self._warn = store, name, warn
        self._known: Remembered | None = None
        """The ConfigMap as the server has it."""
        self._base: Mapping[str, str] = {}
        """Its data as earlier runs, or somebody else meanwhile, have left it: what this run did is added to that."""
        self._written: frozenset[str] = frozenset()
        self._in_base: frozenset[str] = frozenset()
        """Pods' uids: whose outcomes this run has written, and which of these stand in the base."""
        self._snapshot: Snapshot | None = None
        self._seen: Mapping[str, Signals] = {}
        self.document = Document()

    def load(self, snapshot: Snapshot) -> None:
        """Read what is remembered, and forget what no longer holds on ``snapshot``."""
        self._snapshot = snapshot
        if self._store is None:
            return
        try:
            self._known = self._store.read()
        except ClusterReadError as error:
            self._warn(f"the memory could not be read, nothing is remembered: {error}")
            return
        if self._known is None:
            self._warn(f"there is no ConfigMap {self._name}: nothing is remembered")
            return
        self._base = self._known.data
        self.document, warning = _refreshed(self._known, snapshot)
        if warning is not None:
            self._warn(warning)

    def cooling(self) -> dict[str, str]:
        """Return owner -> why it rests, see :func:`rebalancer.memory.cooling.cooling`."""
        return cooling(self.document, self._snapshot.captured_at) if self._snapshot else {}

    def moved_last_hour(self) -> int:
        """Return what earlier runs have used of the rolling hour."""
        return moved_last_hour(self.document, self._snapshot.captured_at) if self._snapshot else 0

    def signals(self) -> dict[str, Signals] | None:
        """Return strategy -> what it has seen in earlier runs; None if nothing can be kept for later ones."""
        return None if self._known is None else remembered(self.document)

    def pace(self) -> Pace:
        """Return how fast the last run was, the usual pace if nothing is known of it."""
        known = self.document.pace
        if known is None:
            return Pace()
        return Pace.measured(known.evictions, known.waves, known.seconds)

    def saw(self, signals: Mapping[str, Signals]) -> None:
        """Take what the strategies have seen in this run; the next :meth:`record` remembers it."""
        self._seen = signals

    def record(self, outcomes: Iterable[Outcome], now: float, seconds: float = 0.0) -> None:
        """Remember what was seen and what came of all of the run's moves so far; write it if that changes anything.

        ``seconds`` are what carrying them out took.

        It may be called again and again: a run that is killed later is remembered up to the last call. If
        somebody else has written meanwhile, what they wrote is read and added to, once.
        """
        store, known = self._store, self._known
        if store is None or known is None:
            return
        told = tuple(outcomes)
        try:
            try:
                self._write(store, known, told, now, seconds)
            except MemoryConflictError:
                known = store.read()
                if known is None:
                    raise
                # Whoever wrote has added to what this run had written until then.
                self._base, self._in_base = known.data, self._written
                self._write(store, known, told, now, seconds)
        except ClusterReadError as error:
            self._warn(f"what was done could not be remembered: {error}")

    def _write(
        self,
        store: MemoryStore,
        known: Remembered,
        outcomes: Sequence[Outcome],
        now: float,
        seconds: float,
    ) -> None:
        snapshot = self._snapshot
        if snapshot is None:
            return
        before, warning = decode(self._base)
        told = [outcome for outcome in outcomes if outcome.move.uid not in self._in_base]
        self.document = after = after_run(
            refreshed(before, snapshot), snapshot, self._seen, told, now
        )
        self.document = after = with_pace(after, outcomes, seconds)
        # That an hour went by is no reason to write: a cluster at rest is left alone.
        changed = (after.owners, after.signals) != (before.owners, before.signals)
        data = encode(self.document)
        if (told or warning or changed) and data != known.data:
            self._known = store.write(known, data)
            self._written = frozenset(outcome.move.uid for outcome in outcomes)


def _refreshed(known: Remembered, snapshot: Snapshot) -> tuple[Document, str | None]:
    document, warning = decode(known.data)
    return refreshed(document, snapshot), warning
