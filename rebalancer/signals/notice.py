"""The annotation by which a Node announces its own interruption; ``rebalancer node-agent`` writes it."""

from __future__ import annotations

import re

import msgspec

from rebalancer.wire.times import unix_seconds

NOTICE = "rebalancer/notice"
"""The annotation's name; its value is a :class:`NodeNotice` in JSON. Taken away, the notice is cancelled."""

_MAX_NOTICE = 2000
"""Characters: a user who may annotate the node can write more, and the text is written onto the node again."""
_ID = re.compile(r"[!-~]{1,200}")
_KIND = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class NodeNotice(msgspec.Struct, frozen=True, omit_defaults=True):
    """One notice; if there are several, the earliest."""

    id: str
    """Id of the event, equal for all notices of one event."""
    kind: str
    """Such as spot, rebalance, maintenance, scale-in."""
    deadline: str = ""
    """RFC 3339 time at which the machine ends; empty: not known."""
    reason: str = ""
    """One line of text."""
    until: str = ""
    """RFC 3339 time at which the window ends that begins at the deadline; empty: there is none."""

    @property
    def at(self) -> float | None:
        """The deadline in Unix seconds; None if there is none."""
        return unix_seconds(self.deadline) or None if self.deadline else None

    @property
    def latest(self) -> float | None:
        """The end of the window in Unix seconds; None if there is none."""
        return unix_seconds(self.until) or None if self.until else None


def encode_notice(notice: NodeNotice) -> str:
    """Return the notice as an annotation value."""
    return msgspec.json.encode(notice).decode()


def read(text: str) -> NodeNotice | None:
    """Parse an annotation value; return None if it is malformed, or is not a notice that we would write."""
    if len(text) > _MAX_NOTICE:
        return None
    try:
        notice = msgspec.json.decode(text, type=NodeNotice)
    except (ValueError, RecursionError):
        return None
    named = _ID.fullmatch(notice.id) and _KIND.fullmatch(notice.kind)
    timed = (not notice.deadline or notice.at is not None) and (
        not notice.until or notice.latest is not None
    )
    return notice if named and timed else None
