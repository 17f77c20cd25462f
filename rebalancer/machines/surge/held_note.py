"""The note of the group that this process works on: written before each step, and kept fresh so that all see that it lives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from rebalancer.base.errors import ClusterReadError, ProviderError
from rebalancer.machines.surge.note import GroupNote, parse_note
from rebalancer.providers.contract import NodeGroup, ReplacingMachines

BEAT = 30.0
"""Seconds between two signs of life in a note."""
STALE = 180.0
"""Seconds without one after which another process takes over."""
_MAX_SILENCE = 90.0
"""Seconds since its last sign of life after which a process ends no machine: another may be about to take over."""


class HeldNote:
    """Writes notes; one group at most is held at a time."""

    def __init__(
        self,
        machines: ReplacingMachines,
        by: str,
        now: Callable[[], float],
        elapsed: Callable[[], float],
    ) -> None:
        """``by``: this process; ``now``: Unix seconds by the API server's clock; ``elapsed``: seconds that never go back."""
        self._machines, self._by = machines, by
        self._now, self._elapsed = now, elapsed
        self._lived = elapsed()
        self._writing = threading.Lock()
        self.group: str | None = None
        """The group whose note is ours."""

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Show in the note that this process lives, as long as the ``with`` block runs."""
        end = threading.Event()

        def beat() -> None:
            while not end.wait(BEAT):
                try:
                    self._show_life()
                except (ProviderError, ClusterReadError):
                    continue  # the next one may succeed; :meth:`why_lost` asks how old the last one is

        thread = threading.Thread(target=beat, name="surge", daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()

    def why_lost(self) -> str | None:
        """Return why another process may be at work on the group; None if it is ours."""
        since = self._elapsed() - self._lived
        if self.group is None or since > _MAX_SILENCE:
            return f"that this process lives could not be noted for {since:.0f} s: another may be at work"
        return None

    def write(self, group: NodeGroup, note: GroupNote, **changes: Any) -> GroupNote:
        """Write a note with ``changes``; return it. Raises ProviderError."""
        note = replace(note, **changes, seen=int(self._now()))
        with self._writing:
            self._write(group, note)
        return note

    def remove(self, group: NodeGroup) -> None:
        """Remove the note of the group that is held. Raises ProviderError."""
        with self._writing:
            self.group = None
            self._machines.write_note(group, "")

    def _show_life(self) -> None:
        """Write a sign of life in the note, if it is still ours."""
        with self._writing:
            if self.group is None:
                return
            group = self._machines.group_named(self.group, ())
            note = None if group is None else parse_note(self.group, group.note)
            if group is None or note is None or note.by != self._by:
                self.group = None
                return
            self._write(group, replace(note, seen=int(self._now())))

    def _write(self, group: NodeGroup, note: GroupNote) -> None:
        self._machines.write_note(group, note.text())
        self._lived = self._elapsed()
