"""The memory in a ConfigMap: one run reads it before its plan and writes it afterwards.

Errors are reported, and the caller decides: without the evictions of the last hour a run must not evict more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from rebalancer.base.errors import ClusterReadError
from rebalancer.cost.streaks import Streaks
from rebalancer.kube.client import Client
from rebalancer.kube.config_map import ConfigMapMissingError, ConfigMapStore
from rebalancer.plan.outcome import Outcome
from rebalancer.plan.totals import Totals
from rebalancer.run.memory.document import KEY, Document, decode, encode
from rebalancer.run.memory.journal import Journal, merge
from rebalancer.run.memory.remember import forget_stale
from rebalancer.snapshot.model import Snapshot


def open_config_map(client: Client, where: tuple[str, str]) -> ConfigMapStore:
    """Return the ConfigMap store of a memory; ``where``: (namespace, name)."""
    return ConfigMapStore(client, *where, advice="or run without --memory")


class MemoryStore:
    """The memory for one run: the document of earlier runs, and the journal of this run."""

    def __init__(
        self, config_map: ConfigMapStore, snapshot: Snapshot, run: str, warn: Callable[[str], None]
    ) -> None:
        """``snapshot``: the run's input; ``run``: its id."""
        self._config_map, self._snapshot, self._warn = config_map, snapshot, warn
        self._journal = Journal(run)
        self._base = Document()
        """As earlier runs have left it, or another client has meanwhile: the journal is merged into that."""
        self.document = Document()
        """As it is known now. What no longer holds on the snapshot is forgotten."""
        self.hour_unknown: str | None = None
        """Why the evictions of the last hour are not known, None if they are."""

    def begin(self) -> None:
        """Read the document of earlier runs.

        Raises:
            ConfigMapMissingError: the ConfigMap does not exist.
        """
        try:
            document, flaw = decode(self._config_map.require().data)
        except ConfigMapMissingError:
            raise
        except ClusterReadError as error:
            self.hour_unknown = f"the memory could not be read: {error}"
            return
        if flaw is not None and flaw.hour_unknown:
            self.hour_unknown = f"{flaw.message}; to start afresh remove {KEY} from ConfigMap {self._config_map.name}"
            return
        self._base, self.document = document, forget_stale(document, self._snapshot)
        if flaw is not None:
            self._warn(f"{flaw.message}; they are forgotten")

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
            why = f"{what} could not be remembered: {error}"
            self._warn(why)
            return why
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
        changed = (after.owners, after.streaks, after.totals.runs) != (
            base.owners,
            base.streaks,
            base.totals.runs,
        )
        fresh = len(self._journal.outcomes) > part.outcomes
        held = self._journal.reserved or part.reserved
        return encode(after) if fresh or flaw or changed or held else data
