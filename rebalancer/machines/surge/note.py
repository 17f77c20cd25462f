"""The note of a replacement on a group: everything needed to continue after a kill, or to undo the replacement; and its holder.

It is written before the change that it announces. On AWS it is the value of one tag, at most 256 characters of those that
every service accepts (letters, numbers, spaces and ``+-=._:/@``): ``desired=4 size=5 at=... zones=eu-west-1/a:2/b:2 ...``.

A note decides which machines end, and whoever may tag a group could write one; groups are copied with their tags, too.
So it carries a seal, a digest of its content, of its group and of the cluster. Making one needs a read of the cluster: with
the right to tags alone, only a note that was once on this group can be written again.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from os.path import commonprefix
from typing import Any

from rebalancer.base.errors import ClusterReadError, ProviderError
from rebalancer.providers.contract import NodeGroup, ReplacingMachines

_MAX = 256
_MAX_AUTHOR = 24
_WORD = re.compile(r"[^A-Za-z0-9.:@-]+")
_NONE = "-"
_SEAL = 6
"""Bytes of a seal, a multiple of three: text is scarce, and each attempt to guess it needs a tag and a run."""
_MAX_ZONES = 8
"""Zones of a group at most, by as many it may grow beyond twice its size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNote:
    """A replacement of the machines of one group."""

    desired: int
    """Size of the group that is to be restored."""
    size: int
    """Size that was requested last, or is about to be."""
    at: int
    """Unix seconds, by the provider's clock, when the newest machine was launched that was there: later ones are new."""
    since: int
    """Unix seconds when the size was increased last."""
    zones: Mapping[str, int] = field(default_factory=dict)
    """Zone -> useful nodes when it began, empty for those without a zone: it never falls below."""
    suspended: tuple[str, ...] = ()
    """Processes of the group that it has suspended, and resumes."""
    by: str = ""
    """The process that replaces the machines, see :func:`author`."""
    seen: int = 0
    """Unix seconds of its last sign of life."""
    back: str = ""
    """Why everything is taken back, in words; empty where nothing is."""


def author(instance: str) -> str:
    """Return the name of a process as it is written in notes: its last part, which differs from pod to pod."""
    return _WORD.sub("-", instance)[-_MAX_AUTHOR:]


@dataclass(frozen=True, slots=True)
class GroupNotes:
    """Notes as texts, in one cluster."""

    cluster: str
    """Identity of the cluster, see ``rebalancer.kube.access``."""

    def text(self, group: str, note: GroupNote) -> str:
        """Return the note on a group as text."""
        fields = {**_fields(note), "seal": self._seal(group, note), "back": _NONE}
        text = " ".join(f"{name}={value}" for name, value in fields.items())
        if not note.back:
            return text
        text = text.removesuffix(_NONE)
        return text + _WORD.sub("_", note.back)[: max(1, _MAX - len(text))]

    def parse(self, group: str, text: str) -> GroupNote | None:
        """Return the note on a group; None if the text is empty.

        Raises:
            ClusterReadError: the text is no such note, or is none of this group in this cluster; a newer version may have
                written it.
        """
        if not text:
            return None
        try:
            of = dict(part.split("=", 1) for part in text.split(" "))
            note = _read(of)
            _check(note)
            seal = of["seal"]
        except (KeyError, ValueError):
            raise ClusterReadError(_refusal(group, "cannot be read", text)) from None
        if not hmac.compare_digest(seal.encode(), self._seal(group, note).encode()):
            why = "is not from a replacement of this group in this cluster"
            raise ClusterReadError(_refusal(group, why, text))
        return note

    def _seal(self, group: str, note: GroupNote) -> str:
        """Return the digest of all; of why it is taken back, which may be cut, that there is a reason."""
        sealed = "\n".join((self.cluster, group, *_fields(note).values(), str(bool(note.back))))
        return b64encode(hashlib.sha256(sealed.encode()).digest()[:_SEAL]).decode()


def _fields(note: GroupNote) -> dict[str, str]:
    # What all names begin with is written once.
    start = commonprefix([name for name in note.zones if name])  # noqa: RUF071  # of characters, indeed
    names = (
        f"{name.removeprefix(start) if name else _NONE}:{of}"
        for name, of in sorted(note.zones.items())
    )
    zones = "/".join((start, *names)) if note.zones else ""
    return {
        "desired": str(note.desired),
        "size": str(note.size),
        "at": str(note.at),
        "since": str(note.since),
        "zones": zones or _NONE,
        "suspended": "+".join(note.suspended) or _NONE,
        "by": note.by or _NONE,
        "seen": str(note.seen),
    }


def _read(of: Mapping[str, str]) -> GroupNote:
    """Return the note of its fields; raises KeyError and ValueError."""
    start, *counts = _parts(of["zones"], "/") or ("",)
    zones = [part.rpartition(":") for part in counts]
    return GroupNote(
        desired=int(of["desired"]),
        size=int(of["size"]),
        at=int(of["at"]),
        since=int(of["since"]),
        zones={"" if name == _NONE else start + name: int(count) for name, _, count in zones},
        suspended=_parts(of["suspended"], "+"),
        by="" if of["by"] == _NONE else of["by"],
        seen=int(of["seen"]),
        back=of["back"].strip(_NONE).replace("_", " "),
    )


def _refusal(group: str, why: str, text: str) -> str:
    return (
        f"{group}: what a replacement noted on it {why}, so that nothing is done to it: {text!r}; set its size and its"
        " suspended processes as they are to be, and remove the note"
    )


def _check(note: GroupNote) -> None:
    """Raise ValueError for numbers that no replacement writes."""
    if min(note.size, note.at, note.since, note.seen, 0, *note.zones.values()) < 0:
        raise ValueError("a negative number")
    if note.desired < 1 or note.size > 2 * note.desired + _MAX_ZONES:
        raise ValueError("more surplus machines than a group is increased by")


def _parts(text: str, mark: str) -> tuple[str, ...]:
    return () if text == _NONE else tuple(text.split(mark))


BEAT = 30.0
"""Seconds between two signs of life in a note."""
STALE = 180.0
"""Seconds without a sign of life after which another process takes over."""
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
        """``by``: this process; ``now``: Unix seconds by the API server's clock; ``elapsed``: seconds of a monotonic clock."""
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
        """Return why another process may have taken the group over; None if it is still ours."""
        since = self._elapsed() - self._lived
        if self.group is None or since > _MAX_SILENCE:
            return f"that this process lives could not be noted for {since:.0f} s: another may be at work"
        return None

    def is_late(self, group: NodeGroup) -> bool:
        """Return whether an answer is older than this process's last write on the group."""
        texts = self._texts.get(group.name)
        if not texts or group.note in texts or self._elapsed() - self._lived > _LATE:
            return False
        note = self._notes.parse(group.name, group.note)
        return note is None or note.by == self._by

    def was_removed(self, group: NodeGroup) -> bool:
        """Return whether another client has removed this process's note from the group."""
        texts = self._texts.get(group.name)
        return bool(texts) and not group.note and "" not in (texts or ())

    def leave(self, name: str) -> None:
        """Stop holding a group that another process works on."""
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
