"""SIGINT and SIGTERM during start-up: the process prints one line and exits.

These handlers are in force until a command installs its own (``rebalancer.base.environment``); nothing has been changed by
then. This module imports nothing slow: before it is loaded, the interpreter's own handlers answer a signal.
"""

import os
import signal

STOPPED = "stopped by a signal; nothing was moved"
STOPPED_CODE = 130
"""The exit code that shells return for a command that SIGINT has ended."""
COMPLETE_VARIABLE = "_REBALANCER_COMPLETE"
"""click's environment variable for requests of a shell's completion. Then nothing is printed, since the user is typing a line."""


def leave_at_signals() -> None:
    """Install handlers for both signals that end the process at once."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)


def _leave(*_: object) -> None:
    # Whatever the main thread is at: it may be importing, or hold the lock of a stream.
    try:
        if COMPLETE_VARIABLE not in os.environ:
            os.write(2, f"rebalancer: {STOPPED}\n".encode())
    finally:
        os._exit(STOPPED_CODE)
