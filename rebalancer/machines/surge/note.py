"""The note of a replacement on a group: all that it takes to go on after a kill, or to take everything back.

It is written before what it announces is done. On AWS it is the value of one tag, at most 256 characters of those that
every service takes (letters, numbers, spaces and ``+-=._:/@``): ``desired=4 size=5 at=... zones=eu-west-1/a:2/b:2 ...``.

A note decides which machines end, and whoever may tag a group could write one; groups are copied with their tags, too.
So it carries a seal, a digest of what it says, of its group and of the cluster. It needs a read of the cluster: with the right
to tags alone, a note that was once on this group can be written again, and no other.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from os.path import commonprefix

from rebalancer.base.errors import ClusterReadError

_MAX = 256
_MAX_AUTHOR = 24
_WORD = re.compile(r"[^A-Za-z0-9.:@-]+")
_NONE = "-"
_SEAL = 6
"""Bytes of a seal, a multiple of three: text is scarce, and each try to guess it takes a tag and a run."""
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


def author(instance: str) -> str:
    """Return the name of a process as it stands in notes: the end of it, which differs from pod to pod."""
    return _WORD.sub("-", instance)[-_MAX_AUTHOR:]


@dataclass(frozen=True, slots=True)
class GroupNotes:
    """Notes as texts, in one cluster."""

    cluster: str
    """See ``rebalancer.kube.access``."""

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
