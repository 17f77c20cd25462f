"""When a serving process runs next, and why: the schedule, changes of the cluster, interrupted machines."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from rebalancer.base.durations import at_least_a_second
from rebalancer.base.environment import SystemClock
from rebalancer.base.stop import Stop
from rebalancer.snapshot.leaving import LEAVE, NoticeKind, notices_of
from rebalancer.wire.marks import KEYS
from rebalancer.wire.objects import Node
from rebalancer.wire.pods import PodRecord

QUIET = 0.2
"""Seconds without another change after which a plan is made: changes come in bursts."""
_MAX_BURST = 1.0
GAP = 10.0
"""Seconds after a run in which changes do not call for another; and until the next one, while pods have to leave a machine."""
GAP_AFTER_NOTICE = 1.0
"""Seconds between runs if the end of a node is announced: it may have two minutes in all."""
SOON = 0.05
"""As ``QUIET``, without any gap, if a node must be emptied: pods of an interrupted machine wait for the plan."""
_POLL_INTERVAL = 0.25
"""Seconds between two looks whether pods have to leave a machine, and whether the process leads."""
_OURS = frozenset(KEYS.values())
"""Keys of the taints by which runs mark nodes themselves."""

Schedule = Callable[[float], float]
"""Unix seconds at which a run has begun -> the seconds from then until the next one is due."""


@dataclass(frozen=True, slots=True)
class _Changes:
    """Changes that no run has seen yet, combined into one trigger."""

    why: str
    """The first of them, in words."""
    first: float
    last: float
    """Times of the clock."""
    gap: float
    """Seconds after the run before."""
    quiet: float
    """Seconds without another one."""

    def due(self, ended: float) -> float:
        """Return when a run for these changes is due. ``ended``: when the previous run ended."""
        quiet = min(self.last + self.quiet, self.first + _MAX_BURST)
        return max(quiet, ended + self.gap)


class Triggers:
    """All triggers of runs. Initially a run is due. Thread-safe."""

    def __init__(self, clock: SystemClock, schedule: Schedule) -> None:
        self._clock, self._schedule = clock, schedule
        self._changed, self._lock = threading.Event(), threading.Lock()
        self._changes: _Changes | None = None
        self._ended_at = self._scheduled = -math.inf
        self.room_after = math.inf
        """Seconds after which a pod that fits on no node triggers a run: room is made for it then."""
        self._waiting: dict[str, float] = {}
        """uid of each pod that fits on no node -> since when, until a run begins after that time."""
        self._calls = 0
        """How often a run under way was called to its end."""

    # -- what triggers -----------------------------------------------------------------------------

    def add(self, why: str, gap: float, quiet: float) -> None:
        """Trigger a run ``gap`` seconds after the previous one, once no call came for ``quiet`` seconds."""
        now = self._clock.now()
        with self._lock:
            known = self._changes or _Changes(why, now, now, gap, quiet)
            self._changes = replace(
                known, last=now, gap=min(known.gap, gap), quiet=min(known.quiet, quiet)
            )
            self._changed.set()

    def wait_for_room(self, uid: str) -> None:
        """Trigger a run after the pod has been pending for ``room_after`` seconds; its waiting begins now if it is new."""
        with self._lock:
            self._waiting.setdefault(uid, self._clock.now())

    def wait_no_more(self, uid: str) -> None:
        """Cancel the trigger for a pod that was bound or is gone."""
        with self._lock:
            self._waiting.pop(uid, None)

    def end_run_early(self) -> None:
        """End the current run early, because pods must leave a machine that the run did not consider."""
        self._calls += 1

    # -- runs --------------------------------------------------------------------------------------

    def begin_term(self) -> None:
        """Trigger a run at once: this process leads now."""
        self._scheduled = -math.inf

    def begin_run(self) -> Callable[[], str | None]:
        """Start a run; return a function that returns why it must end early.

        As with a CronJob, the next scheduled run is counted from the start of this one.
        """
        self._scheduled = self._clock.now() + self._schedule(self._clock.unix())
        calls = self._calls

        def find_call() -> str | None:
            return "pods have to leave a machine that goes" if self._calls > calls else None

        return find_call

    def seconds_left(self) -> float:
        """Return the seconds until the schedule has the next run begin."""
        return self._scheduled - self._clock.now()

    def take(self) -> str:
        """Return the first change as text (empty without changes), and clear all changes: the run that starts now sees them."""
        with self._lock:
            changes, self._changes = self._changes, None
            self._changed.clear()
            before = self._clock.now() - self.room_after
            self._waiting = {uid: at for uid, at in self._waiting.items() if at > before}
        return "" if changes is None else changes.why

    def end_run(self) -> None:
        """Record that the run has ended."""
        self._ended_at = self._clock.now()

    # -- the next one ------------------------------------------------------------------------------

    def await_next(self, stop: Stop, *, pods_must_leave: bool = False) -> str | None:
        """Wait briefly; return why a run is due (empty: the schedule), or None if none is.

        ``pods_must_leave``: pods must leave a machine now; while they must, runs follow each other without a pause.
        """
        now = self._clock.now()
        if pods_must_leave:
            self._scheduled = min(self._scheduled, self._ended_at + GAP)
        with self._lock:
            waited = min(self._waiting.values(), default=math.inf) + self.room_after
        if now >= max(waited, self._ended_at + GAP_AFTER_NOTICE):
            return "a pod has waited for room"
        changes = self._changes
        if changes is None:
            if now >= self._scheduled:
                return ""
            self._changed.wait(min(self._scheduled, now + _POLL_INTERVAL) - now)
            return None
        due = changes.due(self._ended_at)
        if now >= min(self._scheduled, due):
            return changes.why if due < self._scheduled else ""
        # Another change may call for a plan sooner.
        stop.wait(min(self._scheduled, due, now + SOON) - now)
        return None


class ClusterTriggers:
    """Triggers runs for changes of the cluster: nodes added, removed or changed, pending pods; an Observer."""

    def __init__(self, triggers: Triggers) -> None:
        self._triggers = triggers
        self._unschedulable_since = -math.inf
        """Server's time, in whole seconds, since which the newest of the pods that fit on no node waits."""
        self._unschedulable: set[str] = set()
        """uids of the pods that wait since then."""

    def pod_changed(self, pod: PodRecord) -> None:
        """Trigger a run for a pod that the scheduler could not place; each pod counts once."""
        if pod.node or pod.deleting:
            self._triggers.wait_no_more(pod.uid)
            return
        if pod.state.unschedulable_since() is not None:
            self._triggers.wait_for_room(pod.uid)
        for condition in pod.state.conditions:
            waits = condition.type == "PodScheduled" and condition.reason == "Unschedulable"
            if not waits or condition.since < self._unschedulable_since:
                continue
            if condition.since > self._unschedulable_since:
                self._unschedulable_since = condition.since
                self._unschedulable.clear()
            if pod.uid not in self._unschedulable:
                self._unschedulable.add(pod.uid)
                self._triggers.add("pods wait that no node takes", GAP, QUIET)

    def object_changed(self, kind: str, before: Any | None, after: Any | None) -> None:
        """Trigger a run for a relevant change of a node."""
        if kind != "Node":
            return
        if after is None:
            gone = "nodes were listed again" if before is None else "a node was removed"
            self._triggers.add(gone, GAP, QUIET)
        elif before is None:
            self._triggers.add(f"node {after.metadata.name} was added", GAP, QUIET)
        elif _leave(before) != _leave(after):
            self._triggers.add(f"node {after.metadata.name} is to be left", 0.0, SOON)
        elif notices(before) != notices(after):
            what = describe_notices(before, after)
            self._triggers.add(f"node {after.metadata.name} {what}", GAP_AFTER_NOTICE, QUIET)
        elif _offers(before) != _offers(after):
            self._triggers.add(f"node {after.metadata.name} has changed", GAP, QUIET)

    def watch_failed(self, plural: str, why: str) -> None:
        """Trigger a run, which reads the list: its changes are not received."""
        self._triggers.add(f"changes of {plural} are not received ({why})", GAP, QUIET)


def notices(node: Node) -> tuple[object, ...]:
    """Return the fields of a node that can announce its removal, for comparison.

    Excluded are fields that runs set themselves, fields that change with each heartbeat, annotations without such a
    meaning, which some controllers rewrite every few seconds, and signals: their steps trigger a plan themselves.
    """
    return (
        node.spec.unschedulable,
        _taints(node),
        _readiness(node),
        node.metadata.deletion_timestamp,
        tuple(
            one for one in notices_of(node) if one.kind not in (NoticeKind.NOTED, NoticeKind.SAID)
        ),
    )


def _taints(node: Node) -> list[tuple[str, str, str]]:
    return sorted(
        (taint.key, taint.value or "", taint.effect)
        for taint in node.spec.taints or ()
        if taint.key not in _OURS
    )


def _readiness(node: Node) -> list[str]:
    return [each.status for each in node.status.conditions or () if each.type == "Ready"]


def describe_notices(before: Node, after: Node) -> str:
    """Return in words the change of a node's notices; the gravest one if there are several."""
    if before.metadata.deletion_timestamp != after.metadata.deletion_timestamp:
        return "is being deleted"
    if _readiness(before) != _readiness(after):
        return "is Ready" if _readiness(after) == ["True"] else "is not Ready"
    if before.spec.unschedulable != after.spec.unschedulable:
        return "was cordoned" if after.spec.unschedulable else "was uncordoned"
    was, now = _taints(before), _taints(after)
    if new := [f"{key}:{effect}" for key, value, effect in now if (key, value, effect) not in was]:
        return f"has a new taint {', '.join(new)}"
    if was != now:
        return "lost a taint"
    return "was announced to go or to stay"


def _leave(node: Node) -> str | None:
    return (node.metadata.annotations or {}).get(LEAVE)


def _offers(node: Node) -> object:
    """Return the fields of a node that affect which pods may be placed on it, for comparison."""
    return node.status.allocatable, node.metadata.labels or {}


# -- the schedule ----------------------------------------------------------------------------------


class TimeZoneError(ValueError):
    """The time zone of a schedule does not exist, or has no rule for the time."""


def parse_schedule(text: str, time_zone: str = "UTC") -> Schedule:
    """Parse a schedule: a duration (``2m``, ``90``), or a cron expression of five fields.

    ``time_zone`` (IANA) is that of the cron expression; changes of the clock are treated as in a policy's windows.

    Raises:
        TimeZoneError: the time zone does not exist, or the schedule is a duration.
        ValueError: it is neither.
    """
    if len(text.split()) == 5:
        return _parse_cron(text, time_zone)
    if time_zone != "UTC":
        raise TimeZoneError(
            f"a time zone ({time_zone}) says nothing of {text!r}: it is no cron expression"
        )
    if len(fields := text.split()) > 1:
        raise ValueError(
            f"{text!r} has {len(fields)} fields; cron has five, minute hour day month weekday: '0 22 * * *' is daily at 22:00"
        )
    seconds = at_least_a_second(text)
    return lambda _: seconds


def _parse_cron(text: str, time_zone: str) -> Schedule:
    # Imported here, as the policy's model imports many modules.
    from pydantic import ValidationError  # noqa: PLC0415

    from rebalancer.policy.windows import Window  # noqa: PLC0415

    try:
        window = Window.model_validate({"allow": text, "for": "1m", "timeZone": time_zone})
    except ValidationError as error:
        (first, *_) = error.errors()
        kind = TimeZoneError if first["loc"] == ("timeZone",) else ValueError
        raise kind(first["msg"].removeprefix("Value error, ")) from None

    def rest(begun: float) -> float:
        at = window.next_opening(begun)
        # The calendar of cron ends in the year 9999.
        return float("inf") if at is None else at - begun

    return rest
