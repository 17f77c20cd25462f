"""The back-off of node groups: for how long a failed group is excluded from scale-out.

The times are those of Cluster Autoscaler (``--max-node-provision-time``, ``--initial-node-group-backoff-duration``,
``--max-node-group-backoff-duration``, ``--node-group-backoff-reset-timeout``).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from rebalancer.machines.capacity.sizes import STARTUP, Sizes
from rebalancer.wire.times import LAST_SECOND

INITIAL, MAXIMUM = 300.0, 1800.0
"""Seconds of the first back-off, which doubles, and of the longest."""
RESET_AFTER = 3 * 3600.0
"""Seconds after which a failure is no reason for a longer back-off any more."""
TIMEOUT, REFUSED, NOT_LAUNCHED = "timeout", "cloudProviderError", "launchFailed"
"""``errorCode`` of the status. Machines did not become ready; the provider refused the request; or could not launch them."""
SUSPENDED = "launchSuspended"
"""The same of a group that launches no machines on purpose: that is no failure."""
_Moment = Annotated[float, msgspec.Meta(ge=0, le=LAST_SECOND)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class GroupState(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The state of a group that later runs need. Times are Unix seconds, 0 for never."""

    scaled_out_at: _Moment = 0
    """When its size was last increased."""
    upcoming_since: _Moment = 0
    """Since when there are upcoming machines; 0 also for the back-off in which machines were given up."""
    failures: _Count = 0
    """In a row."""
    failed_at: _Moment = 0
    """When it last failed."""
    backoff_until: _Moment = 0
    code: str = ""
    """Why it failed: :data:`TIMEOUT`, :data:`REFUSED` or :data:`NOT_LAUNCHED`."""
    why: str = ""
    """The same in words."""
    suspended: str = ""
    """Why it launches no machines on purpose, in words; empty where nothing keeps it from that."""
    unknown_since: _Moment = 0
    """Since when it has machines of which none is a node of this cluster."""

    def is_foreign(self, now: float) -> bool:
        """Return whether the machines probably belong to another cluster.

        None of them has become a node here, although they had enough time.
        """
        return 0 < self.unknown_since <= now - STARTUP

    def in_backoff(self, now: float) -> bool:
        """Return whether the group must not be scaled up yet. A back-off that is too long (wrong clock) is ignored."""
        return now < self.backoff_until <= now + MAXIMUM

    def is_paused(self, now: float) -> bool:
        """Return whether no machines can be expected now: the group is in a back-off, or its launches are suspended."""
        return bool(self.suspended) or self.in_backoff(now)


def observed(
    state: GroupState, sizes: Sizes, now: float, provision_time: float, suspended: str = ""
) -> GroupState:
    """Return the state of a group given the sizes now; ``suspended``: why its launches are suspended.

    The group has failed if machines have been upcoming for more than ``provision_time`` seconds. This time does not
    advance in a back-off, or while launches are suspended. Once no machine is upcoming and all nodes are ready,
    failures are cleared, except in a back-off in which upcoming machines were given up.
    """
    upcoming, state = sizes.upcoming, msgspec.structs.replace(state, suspended=suspended)
    if not upcoming:
        succeeded = state.upcoming_since > 0 and not sizes.unready
        is_reset = now - state.failed_at > RESET_AFTER
        if succeeded or is_reset:
            return GroupState(scaled_out_at=state.scaled_out_at, suspended=suspended)
        return msgspec.structs.replace(state, upcoming_since=0)
    if state.in_backoff(now) and not state.upcoming_since:
        return state
    if state.is_paused(now) or not 0 < state.upcoming_since <= now:
        return msgspec.structs.replace(state, upcoming_since=now)
    if now - max(state.upcoming_since, state.scaled_out_at) <= provision_time:
        return state
    machines = "1 machine" if upcoming == 1 else f"{upcoming} machines"
    minutes = f"{provision_time / 60:.0f} minutes"
    why = f"{machines} did not become ready within {minutes}"
    return failed(state, TIMEOUT, why, now)


def failed(state: GroupState, code: str, why: str, now: float) -> GroupState:
    """Return the state of a group whose scale-out has failed now."""
    counted = state.failures if now - state.failed_at <= RESET_AFTER else 0
    span = min(MAXIMUM, INITIAL * 2.0 ** min(counted, 10))
    return msgspec.structs.replace(
        state,
        failures=counted + 1,
        failed_at=now,
        backoff_until=now + span,
        code=code,
        why=why,
    )


def decreased(state: GroupState) -> GroupState:
    """Return the state of a group decreased to its existing machines: none is upcoming, but that is no success."""
    return msgspec.structs.replace(state, upcoming_since=0)


def scaled_out(state: GroupState, now: float) -> GroupState:
    """Return the state of a group whose size was increased now."""
    return msgspec.structs.replace(state, scaled_out_at=now, upcoming_since=now)
