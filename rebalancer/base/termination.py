"""SIGTERM and SIGINT: the first signal asks a command to end, the next one forces it to end.

Python runs a signal's handler between two steps of the main thread. That can be never: a signal that comes just
before a system call does not interrupt it, and a signal that another thread receives does not interrupt the main
thread. So the two handlers do nothing. A thread acts instead: the interpreter writes the number of each signal into
a pipe at once, whichever thread receives it, and this thread reads the pipe.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import threading
import time

from rebalancer.base.errors import ExitCode

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
