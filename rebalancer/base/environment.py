"""What a run is given of the world: clocks, streams, environment variables, a way to be stopped."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TextIO

from rebalancer.base.stop import Stop
from rebalancer.base.termination import handle_termination


class SystemClock:
    """The real clock."""

    def now(self) -> float:
        """Return seconds of a clock that never jumps."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def unix(self) -> float:
        """Return the time of day in Unix seconds."""
        return time.time()


@dataclass
class Timings:
    """Seconds per phase, in order."""

    clock: SystemClock
    seconds: dict[str, float] = field(default_factory=dict)
    shown: Callable[[str], AbstractContextManager[object]] = nullcontext
    """Entered with the name of each phase, while it lasts."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure what happens inside."""
        started = self.clock.now()
        try:
            with self.shown(name):
                yield
        finally:
            spent = self.clock.now() - started
            self.seconds[name] = self.seconds.get(name, 0.0) + spent


@dataclass(frozen=True)
class Environment:
    """All that a run takes from the process it lives in."""

    clock: SystemClock
    environ: Mapping[str, str]
    out: TextIO
    err: TextIO
    stop: threading.Event = field(default_factory=threading.Event)
    """Set by SIGTERM and SIGINT: finish the call in flight, report, leave."""
    committed: threading.Event = field(default_factory=threading.Event)
    """Set once something may be changed: nothing is cut off then, a signal only sets ``stop``."""
    random: Callable[[int], bytes] = os.urandom
    """Returns so many random bytes."""

    def until_signal(self) -> Stop:
        """Return what ends a command that has no deadline."""
        return Stop(self.clock, signalled=self.stop)


def system_environment(patience: float = 0.0) -> Environment:
    """Return the environment of this process, with SIGTERM and SIGINT turned into ``stop``.

    What is not committed yet is left by a KeyboardInterrupt, after ``patience`` seconds in which it may come to an end by
    itself, or at the second signal.
    """
    environment = Environment(SystemClock(), os.environ, sys.stdout, sys.stderr)
    handle_termination(environment.stop, environment.committed, patience)
    return environment


@contextmanager
def collector_paused(*, for_good: bool = False) -> Iterator[None]:
    """Hold back the garbage collector while objects are made by the hundred thousand that all stay.

    It would look at all of them again and again, for a third of the time, and find nothing. ``for_good``: they
    stay until the process ends, and are never looked at; for what is done once in a process.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if for_good:
            gc.freeze()
        if was_on:
            gc.enable()
