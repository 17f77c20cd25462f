"""A mark: the soft taint by which a run keeps pods off a node for a while.

The two reasons have separate keys, since a node has at most one taint per key and effect. The value is
``REASON.EXPIRY.RUN``, with the expiry in UTC as ``20261122T091500Z``. Values of taints follow the rules of label
values: at most 63 characters of ``[A-Za-z0-9._-]``, with an alphanumeric character first and last.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from rebalancer.wire.objects import Taint

EFFECT = "PreferNoSchedule"
STEER = "steer"
"""Reason of marks that stand while one replacement is on its way."""
EMPTY = "empty"
"""Reason of marks on nodes that are being emptied, or are to stay empty."""
KEYS = {STEER: "rebalancer/mark", EMPTY: "rebalancer/empty"}
"""Reason -> key of the taint."""
KEY = KEYS[STEER]

_FORM = "%Y%m%dT%H%M%SZ"
_VALUE = re.compile(r"([a-z]{1,20})\.(\d{8}T\d{6}Z)\.([0-9a-z]{1,20})\Z", re.ASCII)

ANY_MARK = Taint(key=KEY, value=STEER, effect=EFFECT)
"""Stands for every mark where tolerations are asked: none but an ``Exists`` tolerates a value that changes."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The parsed value of a mark."""

    reason: str
    """Lower-case letters."""
    expires: float
    """Unix seconds, to the second: from then on any run removes it."""
    run: str
    """Which run set it, or which Lease that run has taken; lower-case letters and digits."""

    @property
    def key(self) -> str:
        """The key of the taint."""
        return KEYS.get(self.reason, KEY)

    @property
    def value(self) -> str:
        """The value of the taint."""
        expires = datetime.fromtimestamp(int(self.expires), UTC)
        return f"{self.reason}.{expires.strftime(_FORM)}.{self.run}"


def parse_mark(value: str) -> Mark | None:
    """Parse the value of a mark; None if it is malformed."""
    match = _VALUE.match(value)
    if match is None:
        return None
    try:
        expires = datetime.strptime(match[2], _FORM).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
    return Mark(match[1], expires, match[3])


def is_mark(key: str, effect: str) -> bool:
    """Return whether a taint is a mark. A taint with one of our keys but another effect is not."""
    return key in KEYS.values() and effect == EFFECT
