"""The note of the group that this process works on: written before each step, and kept fresh so that all see that it lives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from rebalancer.base.errors import ClusterReadError, ProviderError
from rebalancer.machines.surge.note import GroupNote, GroupNotes
from rebalancer.providers.contract import NodeGroup, ReplacingMachines

BEAT = 30.0
"""Seconds between two signs of life in a note."""
STALE = 180.0
"""Seconds without one after which another process takes over."""
_LATE = 30.0
"""Seconds after a write for which an answer without it is taken for a late one."""
_MAX_SILENCE = 90.0
"""Seconds since its last sign of life after which a process ends no machine: another may be about to take over."""


class HeldNote:
    """Writes notes; one group at most is held at a time."""

    def __init__(
        self,
        machines: ReplacingMachines,
        notes: GroupNotes,
        by: str,
        now: Callable[[], float],
        elapsed: Callable[[], float],
    ) -> None:
        """``by``: this process; ``now``: Unix seconds by the API server's clock; ``elapsed``: seconds that never go back."""
        self._machines, self._notes, self._by = machines, notes, by
        self._now, self._elapsed = now, elapsed
        self._lived = elapsed()
        self._writing = threading.Lock()
        self._texts: dict[str, list[str]] = {}
        """Group -> the note that was written last, and those after it whose answers were lost."""
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

    def is_late(self, group: NodeGroup) -> bool:
        """Return whether an answer is from before what this process has written on the group."""
        texts = self._texts.get(group.name)
        if not texts or group.note in texts or self._elapsed() - self._lived > _LATE:
            return False
        note = self._notes.parse(group.name, group.note)
        return note is None or note.by == self._by

    def was_removed(self, group: NodeGroup) -> bool:
        """Return whether another client has removed what this process has written on the group."""
        texts = self._texts.get(group.name)
        return bool(texts) and not group.note and "" not in (texts or ())

    def leave(self, name: str) -> None:
        """Let go of a group that another process is at work on."""
        self.group = None
        self._texts.pop(name, None)

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
            self._texts.setdefault(group.name, []).append("")
            self._machines.write_note(group, "")
            del self._texts[group.name]

    def _show_life(self) -> None:
        """Write a sign of life in the note, if it is still ours."""
        with self._writing:
            if self.group is None:
                return
            group = self._machines.group_named(self.group, ())
            note = None if group is None else self._notes.parse(self.group, group.note)
            if group is None or note is None or note.by != self._by:
                self.group = None
                return
            if self.is_late(group):
                return
            self._write(group, replace(note, seen=int(self._now())))

    def _write(self, group: NodeGroup, note: GroupNote) -> None:
        text = self._notes.text(group.name, note)
        self._texts.setdefault(group.name, []).append(text)
        self._machines.write_note(group, text)
        self._texts[group.name] = [text]
        self._lived = self._elapsed()
