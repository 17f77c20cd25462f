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
    """Says when to stop, and why; what it has said once it says for ever. Thread-safe."""

    def __init__(
        self,
        clock: Clock,
        deadline: float = math.inf,
        signalled: threading.Event | None = None,
    ) -> None:
        """``deadline``: time of the clock; ``signalled``: set by SIGTERM and SIGINT."""
        self._clock = clock
        self._deadline = deadline
        self._signalled = signalled or threading.Event()
        self._conditions: list[Callable[[], str | None]] = []
        self._lock = threading.Lock()
        self._came: tuple[float, str] | None = None
        self._noticed = math.inf

    @property
    def deadline(self) -> float:
        """Time of the clock by which the run ends, whatever else happens."""
        return self._deadline

    @property
    def since(self) -> float | None:
        """Time of the clock at which the stop came, as far as :meth:`reason` was asked; None before."""
        return None if self._came is None else self._came[0]

    @property
    def noticed(self) -> float:
        """Time of the clock at which :meth:`reason` first saw the stop, infinite before.

        Later than :attr:`since` by as long as nothing asked: the process was stopped, or its machine.
        """
        return self._noticed

    def now(self) -> float:
        """Return the time of the clock."""
        return self._clock.now()

    def add(self, condition: Callable[[], str | None]) -> None:
        """Add a condition that returns why the run must end, or None; a lost Lease, for example."""
        self._conditions.append(condition)

    def reason(self) -> str | None:
        """Return why the run must end now, or None."""
        if self._came is None and (why := self._why()) is not None:
            with self._lock:
                self._noticed = min(self._noticed, self.now())
                self._came = self._came or (min(self._noticed, self.deadline), why)
        return None if self._came is None else self._came[1]

    def left(self) -> float:
        """Return the seconds until the deadline, at least 0; 0 once the run must end for another reason."""
        if self.reason() is not None:
            return 0.0
        return max(0.0, self.deadline - self.now())

    def wait(self, seconds: float) -> str | None:
        """Wait, at most until the run must end; return why it must, or None."""
        until = self.now() + seconds
        while (why := self.reason()) is None:
            left = min(until, self.deadline) - self.now()
            if left <= 0:
                return self.reason()
            self._signalled.wait(min(left, _SLICE))
        return why

    def sooner(self, seconds: float, signalled: threading.Event) -> Stop:
        """Return a Stop that comes with this one, after so many seconds, or when ``signalled`` is set."""
        stop = Stop(self, min(self.deadline, self.now() + seconds), signalled)
        stop.add(self.reason)
        return stop

    def later(self, seconds: float) -> Stop:
        """Return a Stop that comes so many seconds after this one: for what is said and kept at a run's end.

        A process that stood still beyond that time has half of the seconds once it goes on.
        """
        return _Later(self, seconds)

    def _why(self) -> str | None:
        if self._signalled.is_set():
            return "stopped by a signal"
        for condition in self._conditions:
            if (why := condition()) is not None:
                return why
        return "the run's deadline has passed" if self.now() >= self.deadline else None


class _Later(Stop):
    """Comes some seconds after another."""

    def __init__(self, first: Stop, seconds: float) -> None:
        super().__init__(first)
        self._first, self._seconds = first, seconds

    @property
    def deadline(self) -> float:
        first = self._first
        if first.since is None:
            return first.deadline + self._seconds
        return max(first.since + self._seconds, first.noticed + self._seconds / 2)

    def _why(self) -> str | None:
        why = self._first.reason()
        return None if why is None or self.now() < self.deadline else why
