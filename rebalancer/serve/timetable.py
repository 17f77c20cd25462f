"""When a process that serves makes its next run."""

from __future__ import annotations

import math

from rebalancer.base.environment import SystemClock
from rebalancer.base.stop import Stop
from rebalancer.serve.early import SOON, Early
from rebalancer.serve.interruptions import Interruptions
from rebalancer.serve.schedule import Schedule

_LOOK = 0.25
"""Seconds between two looks at what may call for a run."""


class Timetable:
    """The schedule, and what calls for a run before it says so; at first a run is due."""

    def __init__(
        self, clock: SystemClock, schedule: Schedule, early: Early, interruptions: Interruptions
    ) -> None:
        self._clock, self._schedule = clock, schedule
        self._early, self._interruptions = early, interruptions
        self._ended_at = self._due = -math.inf

    def begin_run(self) -> None:
        """Count from now on: as a CronJob's, the next run is due by the beginning of this one."""
        self._due = self._clock.now() + self._schedule(self._clock.unix())

    def end_run(self) -> None:
        """Note that the run has ended."""
        self._ended_at = self._clock.now()

    def await_next(self, stop: Stop) -> str | None:
        """Wait a moment; return why a run is due, empty for the schedule, None if none is."""
        now = self._clock.now()
        early = self._early.due(self._ended_at)
        self._due = min(self._due, self._interruptions.due(self._ended_at))
        if now >= min(self._due, early):
            return self._early.why if early < self._due else ""
        if self._early.news.is_set():
            # Other news may call for a plan sooner.
            stop.wait(min(self._due, early, now + SOON) - now)
        else:
            self._early.news.wait(min(self._due, now + _LOOK) - now)
        return None
