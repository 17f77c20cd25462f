"""When a run must end: at its deadline, after a signal, or when its Lease is lost; and pauses between attempts.

A run has one ``Stop``. Every wait of the run uses it, so no wait continues after the run must end.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

_SLICE = 0.25
"""Seconds after which a wait checks the conditions again; a signal ends it at once."""
_MAX_DOUBLINGS = 60
"""Beyond any maximum, and far below where a float overflows."""


class Clock(Protocol):
    """A monotonic clock in seconds; only differences are meaningful."""

    def now(self) -> float:
        """Return the current time of the clock in seconds."""


class Stop:
    """Decides when and why a run must end. The first reason never changes. Thread-safe."""

    def __init__(
        self,
        clock: Clock,
        deadline: float = math.inf,
        signalled: threading.Event | None = None,
    ) -> None:
        """Set the conditions. ``deadline``: clock time; ``signalled``: event that SIGTERM and SIGINT set."""
        self._clock = clock
        self._deadline = deadline
        self._signalled = signalled or threading.Event()
        self._conditions: list[Callable[[], str | None]] = []
        self._final: list[Callable[[], str | None]] = []
        self._lock = threading.Lock()
        self._came: tuple[float, str] | None = None
        self._noticed = math.inf

    @property
    def deadline(self) -> float:
        """The latest clock time at which the run ends."""
        return self._deadline

    @property
    def since(self) -> float | None:
        """The clock time of the stop; None until :meth:`reason` has returned one."""
        return None if self._came is None else self._came[0]

    @property
    def noticed(self) -> float:
        """The clock time at which :meth:`reason` first returned a reason; infinite before.

        It is later than :attr:`since` if :meth:`reason` was not called in between: the process or its machine was
        suspended.
        """
        return self._noticed

    def now(self) -> float:
        """Return the current time of this object's clock, in seconds."""
        return self._clock.now()

    def add(self, condition: Callable[[], str | None], *, final: bool = False) -> None:
        """Add a condition: a function that returns why the run must end, or None.

        ``final``: the condition also ends work that :meth:`finishing` lets continue. Example: a lost Lease.
        """
        self._conditions.append(condition)
        if final:
            self._final.append(condition)

    def reason(self) -> str | None:
        """Return why the run must end now, or None if it may continue."""
        if self._came is None and (why := self._why()) is not None:
            with self._lock:
                self._noticed = min(self._noticed, self.now())
                self._came = self._came or (min(self._noticed, self.deadline), why)
        return None if self._came is None else self._came[1]

    def seconds_left(self) -> float:
        """Return the seconds until the deadline, at least 0. After any other stop it is 0."""
        if self.reason() is not None:
            return 0.0
        return max(0.0, self.deadline - self.now())

    def wait(self, seconds: float) -> str | None:
        """Wait for ``seconds``, or until the run must end; return the reason if it must."""
        until = self.now() + seconds
        while (why := self.reason()) is None:
            left = min(until, self.deadline) - self.now()
            if left <= 0:
                return self.reason()
            self.pause(min(left, _SLICE))
        return why

    def pause(self, seconds: float) -> None:
        """Wait for ``seconds``; a signal ends it."""
        self._signalled.wait(seconds)

    @property
    def is_signalled(self) -> bool:
        """Whether the signal has come."""
        return self._signalled.is_set()

    def sooner(self, seconds: float, signalled: threading.Event) -> Stop:
        """Return a Stop that ends with this one, after ``seconds``, or when ``signalled`` is set."""
        stop = Stop(self, min(self.deadline, self.now() + seconds), signalled)
        stop.add(self.reason)
        stop.add(self.final_reason, final=True)
        return stop

    def later(self, seconds: float) -> Stop:
        """Return a Stop that ends ``seconds`` after this one, for the messages and records at the end of a run.

        If the process was suspended beyond that time, it still gets half of ``seconds`` when it continues.
        """
        return _Later(self, seconds)

    def finishing(self, seconds: float) -> Stop:
        """Return a Stop for work that must not end half done: it ends ``seconds`` after this one, or once a final condition is true."""
        return _Finishing(self, seconds)

    def final_reason(self) -> str | None:
        """Return the reason of a final condition, see :meth:`add`; None while none is true."""
        return next((why for one in self._final if (why := one()) is not None), None)

    def _why(self) -> str | None:
        if self._signalled.is_set():
            return "stopped by a signal"
        for condition in self._conditions:
            if (why := condition()) is not None:
                return why
        return "the run's deadline has passed" if self.now() >= self.deadline else None


class _Later(Stop):
    """A Stop that ends some seconds after another Stop."""

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


class _Finishing(_Later):
    """A Stop that ends some seconds after another Stop, and with its final conditions."""

    def _why(self) -> str | None:
        return self._first.final_reason() or super()._why()

    def pause(self, seconds: float) -> None:
        # A signal that has come would end each pause of the other Stop at once.
        if self._first.is_signalled:
            super().pause(seconds)
        else:
            self._first.pause(seconds)


def pause_after(failures: int, first: float, maximum: float) -> float:
    """Return the seconds to wait after ``failures`` (at least 1) in a row: ``first``, doubled each time, at most ``maximum``."""
    return min(first * 2.0 ** min(failures - 1, _MAX_DOUBLINGS), maximum)


@dataclass(slots=True)
class Backoff:
    """The pauses of one loop that tries something again."""

    first: float
    """Seconds after the first failure."""
    maximum: float
    """The longest pause, in seconds."""
    _failures: int = 0

    @property
    def pause(self) -> float:
        """The seconds of the next pause."""
        return pause_after(self._failures + 1, self.first, self.maximum)

    def take(self) -> float:
        """Return the seconds of the next pause, and double the one after it."""
        self._failures += 1
        return pause_after(self._failures, self.first, self.maximum)

    def wait(self, stop: Stop) -> str | None:
        """Wait for the next pause, at most until ``stop``; return why that came, or None."""
        return stop.wait(self.take())

    def reset(self) -> None:
        """Begin anew: an attempt has succeeded."""
        self._failures = 0


T = TypeVar("T")

_POLL_INTERVAL = 0.1
"""Seconds between two checks whether to continue waiting."""


class CutOffError(OSError):
    """The wait for a function was ended by our side; the message has the reason."""


class Abandonable(Generic[T]):
    """A function that runs in a daemon thread. The event ``done`` is set when the function ends."""

    def __init__(
        self,
        function: Callable[[], T],
        drop: Callable[[T], None] = lambda _: None,
        name: str = "abandonable",
    ) -> None:
        """Start ``function``; ``drop`` receives its result if it returns after :meth:`abandon`."""
        self._function, self._drop = function, drop
        self._lock, self.done = threading.Lock(), threading.Event()
        self._abandoned = False
        self._results: list[T] = []
        self._failures: list[BaseException] = []
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        try:
            result = self._function()
        except BaseException as error:  # noqa: BLE001  (handed over to the caller's thread)
            self._failures.append(error)
        else:
            with self._lock:
                self._results.append(result)
                if self._abandoned:
                    self._drop(result)
        self.done.set()

    def abandon(self) -> None:
        """Stop waiting for the thread; ``drop`` receives the result of the function."""
        with self._lock:
            self._abandoned = True
            for result in self._results:
                self._drop(result)

    def result(self) -> T:
        """Return the function's result, or raise its exception. To be called once ``done`` is set."""
        if self._failures:
            raise self._failures[0]
        return self._results[0]


def run_abandonable(
    function: Callable[[], T],
    over: Callable[[], str | None],
    drop: Callable[[T], None] = lambda _: None,
) -> T:
    """Return the result of ``function``; abandon it as soon as ``over`` returns a reason.

    ``drop`` receives a result that comes too late.

    Raises:
        CutOffError: the function was abandoned. An exception of ``function`` is raised unchanged.
    """
    if (why := over()) is not None:
        raise CutOffError(why)
    task = Abandonable(function, drop)
    while not task.done.wait(_POLL_INTERVAL):
        if (why := over()) is not None:
            task.abandon()
            raise CutOffError(why)
    return task.result()
