"""Run functions in daemon threads that can be abandoned, so that a blocked call never blocks a run.

Name resolution, connecting, a credential plugin, a plug-in's step: none of them has a time-out that always holds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_POLL_INTERVAL = 0.1
"""Seconds between two questions whether to go on waiting."""


class CutOffError(OSError):
    """The wait for a function was ended by our side; the message says why."""


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
