"""Functions in daemon threads that may be left behind: what cannot be ended must not keep a run waiting.

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
    """What was waited for was ended from our side; says why."""


class Abandonable(Generic[T]):
    """A function that runs in a daemon thread from now on. ``done`` is set when it has ended."""

    def __init__(
        self,
        function: Callable[[], T],
        drop: Callable[[T], None] = lambda _: None,
        name: str = "abandonable",
    ) -> None:
        """``drop`` takes what ``function`` returns after :meth:`abandon`."""
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
        """Leave the thread to itself; what it returns is dropped."""
        with self._lock:
            self._abandoned = True
            for result in self._results:
                self._drop(result)

    def result(self) -> T:
        """Return what the function returned, or raise what it raised; only once it is ``done``."""
        if self._failures:
            raise self._failures[0]
        return self._results[0]


def run_abandonable(
    function: Callable[[], T],
    over: Callable[[], str | None],
    drop: Callable[[T], None] = lambda _: None,
) -> T:
    """Return what ``function`` returns, or abandon it as soon as ``over`` says why.

    ``drop`` takes what it returns too late.

    Raises:
        CutOffError: it was abandoned; what else ``function`` raises is raised here.
    """
    if (why := over()) is not None:
        raise CutOffError(why)
    task = Abandonable(function, drop)
    while not task.done.wait(_POLL_INTERVAL):
        if (why := over()) is not None:
            task.abandon()
            raise CutOffError(why)
    return task.result()
