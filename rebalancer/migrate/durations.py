"""Go's durations, as the descheduler reads them (time.ParseDuration)."""

from __future__ import annotations

import re
from datetime import timedelta

from rebalancer.policy.params import shown

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
# time.Duration counts nanoseconds in 63 bits.
_LONGEST = 2**63 / 1e9


def parse_go_duration(text: str) -> timedelta:
    """Return ``1h30m``, ``5m0s`` or ``1.5h`` as a time span, to the microsecond; ValueError for anything else."""
    body = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    parts = list(_PART.finditer(body))
    whole = "".join(part[0] for part in parts)
    if body != "0" and (not parts or whole != body):
        raise ValueError(f"{shown(text)} is no duration; write for example 90s, 5m or 1h30m")
    seconds = sum(float(part[1]) * _UNITS[part[2]] for part in parts)
    if seconds > _LONGEST:
        raise ValueError(f"{shown(text)} is longer than a duration can be")
    return timedelta(seconds=-seconds if text.startswith("-") else seconds)
