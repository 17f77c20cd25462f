"""Go's durations, as the descheduler reads them (time.ParseDuration)."""

from __future__ import annotations

from datetime import timedelta

from rebalancer.policy.params import shown
from rebalancer.wire.times import go_duration

# time.Duration counts nanoseconds in 63 bits.
_LONGEST = 2**63 / 1e9


def parse_go_duration(text: str) -> timedelta:
    """Return ``1h30m``, ``5m0s`` or ``1.5h`` as a time span, to the microsecond; ValueError for anything else."""
    seconds = go_duration(text)
    if seconds is None:
        raise ValueError(f"{shown(text)} is no duration; write for example 90s, 5m or 1h30m")
    if abs(seconds) > _LONGEST:
        raise ValueError(f"{shown(text)} is longer than a duration can be")
    return timedelta(seconds=seconds)
