"""What the metadata of an instance says of its end: four paths, each with a form of its own.

The forms are those of the user guides of EC2 ("Spot Instance interruption notices", "EC2 instance rebalance
recommendations", "View scheduled events for your instances") and of EC2 Auto Scaling ("Retrieve the target lifecycle
state through instance metadata").
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from rebalancer.aws.imds import Imds, ImdsError
from rebalancer.aws.notice import Notice
from rebalancer.wire.times import rfc3339, unix_seconds

INSTANCE_ID = "meta-data/instance-id"
SPOT = "meta-data/spot/instance-action"
REBALANCE = "meta-data/events/recommendations/rebalance"
MAINTENANCE = "meta-data/events/maintenance/scheduled"
LIFECYCLE = "meta-data/autoscaling/target-lifecycle-state"

_OVER = ("completed", "canceled")
"""States of a scheduled event that calls for nothing any more; EC2 also writes them before its description."""


class _SpotAction(msgspec.Struct):
    action: str
    time: str


class _Recommendation(msgspec.Struct):
    notice_time: str = msgspec.field(default="", name="noticeTime")


class _Scheduled(msgspec.Struct, rename="pascal"):
    event_id: str = ""
    code: str = ""
    state: str = ""
    description: str = ""
    not_before: str = ""
    """``21 Jan 2019 09:00:43 GMT``. NotAfter is often missing, and nothing here needs it."""


def read_notices(imds: Imds, instance: str) -> tuple[Notice, ...]:
    """Return all notices that stand for this ``instance``, the most urgent first.

    Raises:
        ImdsError: one of the paths could not be read: what is not known is not taken for a withdrawal.
    """
    return tuple(
        notice
        for path, parse in _PATHS
        if (text := imds.read(path)) is not None
        for notice in _parsed(path, text, instance, parse)
    )


def _parsed(
    path: str, text: str, instance: str, parse: Callable[[str, str], tuple[Notice, ...]]
) -> tuple[Notice, ...]:
    try:
        return parse(text, instance)
    except (ValueError, RecursionError) as error:
        raise ImdsError(f"the instance metadata {path} cannot be understood: {error}") from None


def _spot(text: str, instance: str) -> tuple[Notice, ...]:
    said = msgspec.json.decode(text, type=_SpotAction)
    if not unix_seconds(said.time):
        raise ValueError(f"its time is {said.time!r}")
    # Hibernation begins at once: its time is that of the notice.
    return (
        Notice(
            f"{instance}/spot/{said.time}", "spot", deadline=said.time, reason=said.action
        ),
    )


def _rebalance(text: str, instance: str) -> tuple[Notice, ...]:
    said = msgspec.json.decode(text, type=_Recommendation)
    return (Notice(f"{instance}/rebalance/{said.notice_time}", "rebalance"),)


def _maintenance(text: str, instance: str) -> tuple[Notice, ...]:
    events = msgspec.json.decode(text, type=tuple[_Scheduled, ...])
    notices = (
        Notice(
            f"{instance}/{event.event_id}",
            "maintenance",
            deadline=rfc3339(_seconds(event.not_before)) if event.not_before else "",
            reason=event.code,
        )
        for event in events
        if event.state.lower() not in _OVER
        and not event.description.lower().startswith(tuple(f"[{state}]" for state in _OVER))
    )
    return tuple(sorted(notices, key=lambda notice: (notice.deadline, notice.id)))


def _lifecycle(text: str, instance: str) -> tuple[Notice, ...]:
    if text.strip() != "Terminated":
        return ()
    # No time is in it, so that its id is the same at each look.
    return (Notice(f"{instance}/terminated", "scale-in", reason="terminate"),)


def _seconds(text: str) -> float:
    """Return ``21 Jan 2019 09:00:43 GMT`` as Unix seconds, whatever the locale."""
    day, month, year, clock, zone = text.split()
    if zone != "GMT" or month not in _MONTHS:
        raise ValueError(f"{text!r} is no time such as 21 Jan 2019 09:00:43 GMT")
    number = _MONTHS.index(month) + 1
    at = datetime.fromisoformat(f"{year}-{number:02}-{int(day):02}T{clock}").replace(tzinfo=UTC)
    return at.timestamp()


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_PATHS = ((SPOT, _spot), (LIFECYCLE, _lifecycle), (MAINTENANCE, _maintenance), (REBALANCE, _rebalance))
"""The most urgent first."""
