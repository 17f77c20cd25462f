"""The process environment of a run: clocks, streams, environment variables and the stop signal."""

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
    """The clocks of the operating system."""

    def now(self) -> float:
        """Return the monotonic time in seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleep for the given number of seconds."""
        time.sleep(seconds)

    def unix(self) -> float:
        """Return the time of day in Unix seconds."""
        return time.time()


@dataclass
class Timings:
    """Elapsed seconds per phase, in the order of the phases."""

    clock: SystemClock
    seconds: dict[str, float] = field(default_factory=dict)
    shown: Callable[[str], AbstractContextManager[object]] = nullcontext
    """Entered with the name of each phase, while it lasts."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure the time spent in the ``with`` block and add it to the phase ``name``."""
        started = self.clock.now()
        try:
            with self.shown(name):
                yield
        finally:
            spent = self.clock.now() - started
            self.seconds[name] = self.seconds.get(name, 0.0) + spent


@dataclass(frozen=True)
class Environment:
    """Everything that a run takes from its process."""

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
        """Return a stop condition without a deadline: only a signal sets it."""
        return Stop(self.clock, signalled=self.stop)


def system_environment(patience: float = 0.0) -> Environment:
    """Return the environment of this process; SIGTERM and SIGINT set its ``stop``.

    Before anything is committed, a signal ends the command by a KeyboardInterrupt: ``patience`` seconds after the
    first signal, or at the second signal.
    """
    environment = Environment(SystemClock(), os.environ, sys.stdout, sys.stderr)
    handle_termination(environment.stop, environment.committed, patience)
    return environment


@contextmanager
def collector_paused(*, for_good: bool = False) -> Iterator[None]:
    """Pause the garbage collector while many objects are created that all stay alive.

    The collector would examine all of them repeatedly, which took a third of the time, and free none. With
    ``for_good`` it ignores these objects until the process ends; use that for data that a process creates once.
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
