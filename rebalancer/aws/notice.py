"""The annotation by which an agent says on its own node that the node will go."""

from __future__ import annotations

import msgspec

NOTICE = "rebalancer/notice"
"""The annotation's name."""


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of the end of a node."""

    id: str
    """Of this notice: the same for as long as it stands."""
    kind: str
    deadline: str = ""
    """RFC 3339 time at which the node goes; empty: not known."""
    reason: str = ""
    """What is done to the machine, in the word of who said so: terminate, stop, hibernate, system-reboot."""
    by: str = ""
    """Who says so: what it wrote it may take away."""
