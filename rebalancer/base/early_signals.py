"""What SIGINT and SIGTERM do while the program starts: it says one line, and ends.

Until a command handles them itself (``rebalancer.base.termination``), nothing is under way that could be left half done.
Nothing is imported here that takes time: a signal that comes before is answered by the interpreter.
"""

import os
import signal

STOPPED = "stopped by a signal, before anything was moved"
STOPPED_CODE = 130
"""What shells return for a command that SIGINT has ended."""
COMPLETE_VARIABLE = "_REBALANCER_COMPLETE"
"""Environment variable in which a shell's completion asks; click's. The line is the user's then, and nothing is said."""


def leave_at_signals() -> None:
    """Let both signals end the process at once from now on."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)


def _leave(*_: object) -> None:
    # Whatever the main thread is at: it may be importing, or hold the lock of a stream.
    try:
        if COMPLETE_VARIABLE not in os.environ:
            os.write(2, f"rebalancer: {STOPPED}\n".encode())
    finally:
        os._exit(STOPPED_CODE)
