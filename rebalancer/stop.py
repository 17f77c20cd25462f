"""When a run must end: at its deadline, after a signal, when its Lease is lost.

One object for a whole run. All that waits does so through it, so that nothing outlasts what ends the run.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Protocol

_SLICE = 0.25
"""Seconds after which a wait asks the conditions again; a signal ends it at once."""


class Clock(Protocol):
    """Seconds of a clock that never jumps; only differences matter."""

    def now(self) -> float:
        """Return the time."""


class Stop:
    """Says when to stop, and why. Thread-safe."""

    def __init__(
        self,
        clock: Clock,
        deadline: float = math.inf,
        signalled: threading.Event | None = None,
    ) -> None:
        """``deadline``: time of the clock; ``signalled``: set by SIGTERM and SIGINT."""
        self.deadline = deadline
        self._clock = clock
        self._signalled = signalled or threading.Event()
        self._conditions: list[Callable[[], str | None]] = []

    def add(self, condition: Callable[[], str | None]) -> None:
        """Add a condition that returns why the run must end, or None; a lost Lease, for example."""
        self._conditions.append(condition)

    def reason(self) -> str | None:
        """Return why the run must end now, or None."""
        if self._signalled.is_set():
            return "stopped by a signal"
        for condition in self._conditions:
            if (why := condition()) is not None:
                return why
        if self._clock.now() >= self.deadline:
            return "the run's deadline has passed"
        return None

    def left(self) -> float:
        """Return the seconds until the deadline, at least 0; 0 once the run must end for another reason."""
        if self.reason() is not None:
            return 0.0
        return max(0.0, self.deadline - self._clock.now())

    def wait(self, seconds: float) -> str | None:
        """Wait, at most until the run must end; return why it must, or None."""
        until = self._clock.now() + seconds
        while (why := self.reason()) is None:
            left = min(until, self.deadline) - self._clock.now()
            if left <= 0:
                return self.reason()
            self._signalled.wait(min(left, _SLICE))
        return why
