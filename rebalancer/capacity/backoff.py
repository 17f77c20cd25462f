"""When a group is tried again whose machines did not come.

Spans are those of Cluster Autoscaler (``--max-node-provision-time``, ``--initial-node-group-backoff-duration``,
``--max-node-group-backoff-duration``, ``--node-group-backoff-reset-timeout``).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from rebalancer.capacity.sizes import Sizes
from rebalancer.wire.times import LAST_SECOND

FIRST, LONGEST = 300.0, 1800.0
"""Seconds of the first back-off, which doubles, and of the longest."""
FORGOTTEN_AFTER = 3 * 3600.0
"""Seconds after which a failure is no reason for a longer back-off any more."""
TIMEOUT, REFUSED = "timeout", "cloudProviderError"
"""As Cluster Autoscaler's ``errorCode``: machines did not come, or the provider did not take the request."""
_Moment = Annotated[float, msgspec.Meta(ge=0, le=LAST_SECOND)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class GroupMemory(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is remembered of a group. Times are Unix seconds, 0 for never."""

    grown: _Moment = 0
    """When it was last asked to grow."""
    missing: _Moment = 0
    """Since when machines are awaited."""
    failures: _Count = 0
    """In a row."""
    failed: _Moment = 0
    """When it last failed."""
    until: _Moment = 0
    """End of the back-off."""
    code: str = ""
    """Why it failed: :data:`TIMEOUT` or :data:`REFUSED`."""
    why: str = ""
    """The same in words."""

    def backs_off(self, now: float) -> bool:
        """Return whether it may not grow yet. An end beyond any back-off was written by a wrong clock."""
        return now < self.until <= now + LONGEST


def awaited(memory: GroupMemory, sizes: Sizes, now: float, patience: float) -> GroupMemory:
    """Return the memory of a group after a look at its machines.

    It has failed when some have been on their way for more than ``patience`` seconds. In a back-off that time stands
    still. Once those that were awaited are ready, no failure counts any more.
    """
    coming = sizes.coming
    if not coming:
        came = memory.missing > 0 and not sizes.unready
        forgotten = now - memory.failed > FORGOTTEN_AFTER
        known = GroupMemory(grown=memory.grown) if came or forgotten else memory
        return msgspec.structs.replace(known, missing=0)
    if memory.backs_off(now) or not 0 < memory.missing <= now:
        return msgspec.structs.replace(memory, missing=now)
    if now - max(memory.missing, memory.grown) <= patience:
        return memory
    machines = "1 machine" if coming == 1 else f"{coming} machines"
    minutes = f"{patience / 60:.0f} minutes"
    why = f"{machines} did not become ready within {minutes}"
    return failed(memory, TIMEOUT, why, now)


def failed(memory: GroupMemory, code: str, why: str, now: float) -> GroupMemory:
    """Return the memory of a group that has failed to grow."""
    remembered = memory.failures if now - memory.failed <= FORGOTTEN_AFTER else 0
    span = min(LONGEST, FIRST * 2.0 ** min(remembered, 10))
    return msgspec.structs.replace(
        memory,
        failures=remembered + 1,
        failed=now,
        until=now + span,
        code=code,
        why=why,
    )


def grown(memory: GroupMemory, now: float) -> GroupMemory:
    """Return the memory of a group that was asked to grow now."""
    return msgspec.structs.replace(memory, grown=now, missing=now)
