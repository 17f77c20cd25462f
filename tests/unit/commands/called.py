"""A command as the shell calls it, in this process: without the second that a new one takes to start."""

import io
import signal
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from rebalancer.cli import command


class Done(NamedTuple):
    """What a command came to, by the names of ``subprocess``."""

    returncode: int
    stdout: str
    stderr: str


def called(*args: str) -> Done:
    """Call the command with these arguments; the handlers of signals are afterwards as before."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)
    before = {number: signal.getsignal(number) for number in numbers}
    out, err = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = command(list(args))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return Done(int(code), out.getvalue(), err.getvalue())
