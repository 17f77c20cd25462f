"""The note of a replacement on a group: all that it takes to go on after a kill, or to take everything back.

It is written before what it announces is done. On AWS it is the value of one tag, at most 256 characters of those that
every service takes (letters, numbers, spaces and ``+-=._:/@``): ``desired=4 size=5 at=... zones=eu-west-1/a:2/b:2 ...``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from os.path import commonprefix

from rebalancer.base.errors import ClusterReadError

_MAX = 256
_MAX_AUTHOR = 24
_WORD = re.compile(r"[^A-Za-z0-9.:@-]+")
_NONE = "-"
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
    """The process that is at work, see :func:`author`."""
    seen: int = 0
    """Unix seconds of its last sign of life."""
    back: str = ""
    """Why everything is taken back, in words; empty where nothing is."""

    def text(self) -> str:
        """Return the note as text."""
        # What all names begin with is written once.
        start = commonprefix([*self.zones])  # noqa: RUF071  # of characters, indeed
        names = (f"{name.removeprefix(start)}:{of}" for name, of in sorted(self.zones.items()))
        zones = "/".join((start, *names)) if self.zones else ""
        fields = {
            "desired": self.desired,
            "size": self.size,
            "at": self.at,
            "since": self.since,
            "zones": zones or _NONE,
            "suspended": "+".join(self.suspended) or _NONE,
            "by": self.by or _NONE,
            "seen": self.seen,
            "back": _NONE,
        }
        text = " ".join(f"{name}={value}" for name, value in fields.items())
        if not self.back:
            return text
        text = text.removesuffix(_NONE)
        return text + _WORD.sub("_", self.back)[: _MAX - len(text)]


def author(instance: str) -> str:
    """Return the name of a process as it stands in notes: the end of it, which differs from pod to pod."""
    return _WORD.sub("-", instance)[-_MAX_AUTHOR:]


def parse_note(group: str, text: str) -> GroupNote | None:
    """Return the note on a group; None if the text is empty.

    Raises:
        ClusterReadError: the text is no such note; a newer version may have written it.
    """
    if not text:
        return None
    try:
        of = dict(part.split("=", 1) for part in text.split(" "))
        start, *counts = _parts(of["zones"], "/") or ("",)
        zones = [part.rpartition(":") for part in counts]
        note = GroupNote(
            desired=int(of["desired"]),
            size=int(of["size"]),
            at=int(of["at"]),
            since=int(of["since"]),
            zones={start + name: int(count) for name, _, count in zones},
            suspended=_parts(of["suspended"], "+"),
            by="" if of["by"] == _NONE else of["by"],
            seen=int(of["seen"]),
            back=of["back"].strip(_NONE).replace("_", " "),
        )
        _check(note)
    except (KeyError, ValueError):
        raise ClusterReadError(
            f"{group}: what a replacement noted on it cannot be read, so that nothing is done to it: {text!r}; set its size"
            " and its suspended processes as they are to be, and remove the note"
        ) from None
    else:
        return note


def _check(note: GroupNote) -> None:
    """Raise ValueError for numbers that no replacement writes: everybody with the right to tags can forge a note."""
    if min(note.size, note.at, note.since, note.seen, 0, *note.zones.values()) < 0:
        raise ValueError("a negative number")
    if note.desired < 1 or note.size > 2 * note.desired + _MAX_ZONES:
        raise ValueError("more surplus machines than a group is increased by")


def _parts(text: str, mark: str) -> tuple[str, ...]:
    return () if text == _NONE else tuple(text.split(mark))
