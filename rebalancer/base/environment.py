"""The process environment of a run: clocks, streams, environment variables and the stop signal.

Python runs a signal's handler between two steps of the main thread. That can be never: a signal that comes just
before a system call does not interrupt it, and a signal that another thread receives does not interrupt the main
thread. So the two handlers do nothing. A thread acts instead: the interpreter writes the number of each signal into
a pipe at once, whichever thread receives it, and this thread reads the pipe.
"""

from __future__ import annotations

import atexit
import gc
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TextIO

from rebalancer.base.errors import ExitCode
from rebalancer.base.stop import Stop

_STOPPING = (signal.SIGTERM, signal.SIGINT)

_INTERRUPT = signal.SIGALRM
"""Sent to the main thread until its handler has run."""

_AGAIN = 0.05
"""Seconds after which it is sent again: one that comes just before a blocking call does not interrupt that."""

_writing: int | None = None
"""The writing end of the pipe; closed when handlers are installed again, which ends the thread that reads it."""


def handle_termination(stop: threading.Event, committed: threading.Event, patience: float) -> None:
    """Make SIGTERM and SIGINT set ``stop``. Must be called in the main thread.

    While ``committed`` is not set, the command has ``patience`` seconds to end by itself. Then, or at the second
    signal, a KeyboardInterrupt is raised in the main thread. The signal after that ends the process.
    """
    leaving = False

    def interrupt(*_: object) -> None:
        nonlocal leaving
        if leaving or committed.is_set():
            return
        leaving = True
        raise KeyboardInterrupt

    def act(numbers: int, main: int) -> None:
        try:
            if not _stopping(numbers):
                return
            stop.set()
            _stopping(numbers, patience)
            while not (leaving or committed.is_set()):
                signal.pthread_kill(main, _INTERRUPT)
                time.sleep(_AGAIN)
            while _stopping(numbers):
                if leaving:
                    # Something hangs on the way out.
                    os._exit(ExitCode.STOPPED)
        finally:
            os.close(numbers)

    numbers = _open_pipe()
    signal.signal(_INTERRUPT, interrupt)
    for number in _STOPPING:
        signal.signal(number, _do_nothing)
    # When Python ends it gives signals their default action back, and one would kill what is done and reported.
    atexit.register(ignore_termination)
    arguments = (numbers, threading.get_ident())
    threading.Thread(target=act, args=arguments, name="signals", daemon=True).start()


def ignore_termination() -> None:
    """Ignore further signals: nothing remains to be done but to return the exit code."""
    for number in (_INTERRUPT, *_STOPPING):
        signal.signal(number, signal.SIG_IGN)


def _open_pipe() -> int:
    """Let the interpreter write the numbers of signals into a new pipe; return its reading end."""
    global _writing  # noqa: PLW0603  # one per process, as the signals
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    if _writing is not None:
        os.close(_writing)
    _writing = writing
    return reading


def _do_nothing(*_: object) -> None:
    """Handle a signal by doing nothing. The interpreter writes numbers of handled signals only."""


def _stopping(numbers: int, seconds: float | None = None) -> bool:
    """Wait for one of the two signals; return whether it came within ``seconds`` (None: no time limit)."""
    until = None if seconds is None else time.monotonic() + seconds
    while True:
        left = None if until is None else max(0.0, until - time.monotonic())
        if not select.select([numbers], [], [], left)[0] or not (came := os.read(numbers, 1)):
            return False
        if came[0] in _STOPPING:
            return True


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
    """Everything that a run uses of its process."""

    clock: SystemClock
    environ: Mapping[str, str]
    out: TextIO
    err: TextIO
    stop: threading.Event = field(default_factory=threading.Event)
    """Set by SIGTERM and SIGINT: finish the call in flight, report, leave."""
    committed: threading.Event = field(default_factory=threading.Event)
    """Set once something may be changed: nothing is cut off then, a signal only sets ``stop``."""
    random: Callable[[int], bytes] = os.urandom
    """Returns the given number of random bytes."""

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
    """Pause the garbage collector while many objects are created of which none becomes garbage.

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
