"""Clocks and events for tests in which a time must pass, or a signal come, at one moment and no other."""

import threading
from collections.abc import Callable

from rebalancer.base.environment import SystemClock

NOON = 1_795_000_000.0
"""Unix seconds at which a clock of tests begins."""


class Once(threading.Event):
    """Set as soon as something is so, and from then on."""

    def __init__(self, happened: Callable[[], bool]) -> None:
        super().__init__()
        self._happened = happened

    def is_set(self) -> bool:
        if not super().is_set() and self._happened():
            self.set()
        return super().is_set()


class HandClock(SystemClock):
    """Stands still until a test moves ``seconds``; ``unix`` is so much after ``NOON``."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def now(self) -> float:
        return self.seconds

    def unix(self) -> float:
        return NOON + self.seconds


class FastClock(SystemClock):
    """Runs ``speed`` times as fast as the system's, so that pauses and deadlines of the program pass sooner."""

    def __init__(self, speed: float) -> None:
        self._speed = speed

    def now(self) -> float:
        return super().now() * self._speed

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds / self._speed)


class LeapingClock(SystemClock):
    """Leaps over every deadline when ``come`` is set."""

    def __init__(self, come: threading.Event) -> None:
        self._come = come

    def now(self) -> float:
        return super().now() + (1e6 if self._come.is_set() else 0.0)
