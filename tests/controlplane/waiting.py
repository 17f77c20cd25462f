"""Waiting with a bound: no test waits for ever, and a timeout names what was waited for."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_PATIENCE = 4.0
"""Factor of all timeouts, which are sufficient on a quiet machine, for a busy one."""
_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 0.25


def wait_until(predicate: Callable[[], T], timeout: float, what: str) -> T:
    """Call predicate until it returns something truthy, and return that.

    Raises TimeoutError naming `what` and the last value seen when `timeout` seconds, times the patience that a busy
    machine needs, have passed.
    Exceptions of the predicate are not caught; it must catch those it expects itself.
    """
    timeout *= _PATIENCE
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{what}: not within {timeout:g} s (last seen: {value!r:.200})")
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)
