"""Interruption notices in the metadata of an instance: four paths, each with its own format.

The formats are those of the user guides of EC2 ("Spot Instance interruption notices", "EC2 instance rebalance
recommendations", "View scheduled events for your instances") and of EC2 Auto Scaling ("Retrieve the target lifecycle
state through instance metadata").
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from rebalancer.base.plain_text import quote_value
from rebalancer.machines.aws.imds import ImdsError
from rebalancer.signals.notice import NodeNotice
from rebalancer.wire.times import rfc3339, unix_seconds

INSTANCE_ID = "meta-data/instance-id"
SPOT = "meta-data/spot/instance-action"
REBALANCE = "meta-data/events/recommendations/rebalance"
MAINTENANCE = "meta-data/events/maintenance/scheduled"
LIFECYCLE = "meta-data/autoscaling/target-lifecycle-state"

OURS = "imds/"
"""What the ids of these notices begin with."""

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
    """``21 Jan 2019 09:00:43 GMT``."""
    not_after: str = ""
    """Often missing."""


class Metadata(Protocol):
    """Reads the metadata of an instance, see :class:`Imds`."""

    def read(self, path: str) -> str | None:
        """Return the metadata under ``path``; None if there is none."""


class InstanceNotices:
    """The notices of one instance, as last read from each path; an unreadable path keeps its notice."""

    def __init__(self, imds: Metadata) -> None:
        self._imds = imds
        self._instance = ""
        self._known: dict[str, tuple[NodeNotice, ...]] = {}

    @property
    def first(self) -> NodeNotice | None:
        """The most urgent notice; None if there is none."""
        return next((notice for path in _PATHS for notice in self._known.get(path, ())), None)

    @property
    def complete(self) -> bool:
        """Whether each path was read at least once."""
        return len(self._known) == len(_PATHS)

    def read(self) -> str:
        """Read all paths; return a message on those that could not be read, empty if all could.

        Raises:
            ImdsError: not even the instance's id can be read.
        """
        if not self._instance:
            self._instance = (self._imds.read(INSTANCE_ID) or "").strip()
            if not self._instance:
                raise ImdsError(f"the instance metadata has no {INSTANCE_ID}")
        troubles = []
        for path, parse in _PATHS.items():
            try:
                text = self._imds.read(path)
                self._known[path] = (
                    () if text is None else _parsed(path, text, self._instance, parse)
                )
            except ImdsError as error:
                troubles.append(str(error))
        return "; ".join(dict.fromkeys(troubles))


def _parsed(
    path: str, text: str, instance: str, parse: Callable[[str, str], tuple[NodeNotice, ...]]
) -> tuple[NodeNotice, ...]:
    try:
        return parse(text, instance)
    except (ValueError, RecursionError) as error:
        raise ImdsError(
            f"the instance metadata {path} cannot be understood: {quote_value(str(error))}"
        ) from None


def _spot(text: str, instance: str) -> tuple[NodeNotice, ...]:
    said = msgspec.json.decode(text, type=_SpotAction)
    if not unix_seconds(said.time):
        raise ValueError(f"its time is {said.time!r}")
    # Hibernation begins at once: its time is that of the notice.
    return (
        NodeNotice(
            f"{OURS}{instance}/spot/{said.time}", "spot", deadline=said.time, reason=said.action
        ),
    )


def _rebalance(text: str, instance: str) -> tuple[NodeNotice, ...]:
    said = msgspec.json.decode(text, type=_Recommendation)
    return (NodeNotice(f"{OURS}{instance}/rebalance/{said.notice_time}", "rebalance"),)


def _maintenance(text: str, instance: str) -> tuple[NodeNotice, ...]:
    events = msgspec.json.decode(text, type=tuple[_Scheduled, ...])
    notices = (
        NodeNotice(
            f"{OURS}{instance}/{event.event_id}",
            event.code or "maintenance",
            deadline=rfc3339(_seconds(event.not_before)) if event.not_before else "",
            reason=event.code,
            until=rfc3339(_seconds(event.not_after)) if event.not_after else "",
        )
        for event in events
        if event.state.lower() not in _OVER
        and not event.description.lower().startswith(tuple(f"[{state}]" for state in _OVER))
    )
    return tuple(sorted(notices, key=lambda notice: (notice.deadline, notice.id)))


def _lifecycle(text: str, instance: str) -> tuple[NodeNotice, ...]:
    if text.strip() != "Terminated":
        return ()
    # No time is in it, so that its id is the same at each look.
    return (NodeNotice(f"{OURS}{instance}/terminated", "scale-in", reason="terminate"),)


def _seconds(text: str) -> float:
    """Parse ``21 Jan 2019 09:00:43 GMT`` as Unix seconds, in any locale."""
    day, month, year, clock, zone = text.split()
    if zone != "GMT" or month not in _MONTHS:
        raise ValueError(f"{text!r} is no time such as 21 Jan 2019 09:00:43 GMT")
    number = _MONTHS.index(month) + 1
    at = datetime.fromisoformat(f"{year}-{number:02}-{int(day):02}T{clock}").replace(tzinfo=UTC)
    return at.timestamp()


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_PATHS: dict[str, Callable[[str, str], tuple[NodeNotice, ...]]] = {
    SPOT: _spot,
    LIFECYCLE: _lifecycle,
    MAINTENANCE: _maintenance,
    REBALANCE: _rebalance,
}
"""The most urgent first."""
