"""SIGTERM and SIGINT: first they ask a command to end, then they make it.

Python runs a signal's handler between two steps of the main thread. That can be never: a signal that comes just before
a call of the system does not interrupt it, and one that another thread of the process receives interrupts nothing in
the main one. So the handlers of the two do nothing. What acts is a thread: the interpreter writes each signal's number
into a pipe the moment it comes, whichever thread receives it.
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
    """Turn SIGTERM and SIGINT into ``stop`` from now on. To be called in the main thread.

    What is not ``committed`` has ``patience`` seconds to come to an end by itself. Then, or at the second signal,
    the main thread leaves it by a KeyboardInterrupt. The signal after that ends the process.
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
    """Let no signal end the process any more: all that is left is the exit code."""
    for number in (_INTERRUPT, *_STOPPING):
        signal.signal(number, signal.SIG_IGN)


def _open_pipe() -> int:
    """Have the interpreter write signals' numbers into a new pipe; return its reading end."""
    global _writing  # noqa: PLW0603  # one per process, as the signals
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    if _writing is not None:
        os.close(_writing)
    _writing = writing
    return reading


def _do_nothing(*_: object) -> None:
    """Handle a signal. Without a handler of Python's its number would not be written."""


def _stopping(numbers: int, seconds: float | None = None) -> bool:
    """Return whether one of the two signals has come within so many seconds; without them it waits."""
    until = None if seconds is None else time.monotonic() + seconds
    while True:
        left = None if until is None else max(0.0, until - time.monotonic())
        if not select.select([numbers], [], [], left)[0] or not (came := os.read(numbers, 1)):
            return False
        if came[0] in _STOPPING:
            return True
