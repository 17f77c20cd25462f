"""Output of a command: standard output and standard error, which may be closed, full, or a pipe without a reader; files."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, TextIO

from rebalancer.base.environment import Environment
from rebalancer.base.errors import ExitCode, RebalancerError
from rebalancer.base.plain_text import WIDTH, printable

if TYPE_CHECKING:
    from pathlib import Path

_OF_STREAMS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EPIPE, errno.EIO, errno.EBADF})
"""Errors of writing to a stream that was opened before."""


class OutputError(RebalancerError):
    """The output of a command could not be written."""

    exit_code = ExitCode.USAGE

    def __init__(self, error: OSError | ValueError) -> None:
        super().__init__(
            f"the output could not be written: {getattr(error, 'strerror', None) or error}"
        )
        self.reader_has_left = isinstance(error, BrokenPipeError)
        """The other end of a pipe is closed, as by ``head``: nothing to complain of."""


def write(stream: TextIO, pieces: Iterable[str]) -> None:
    """Write ``pieces`` and flush.

    Raises:
        OutputError: not everything could be written. From then on, writes to the stream are discarded.
    """
    # Only what the stream raises counts: a piece may be made here and now, and that may fail for other reasons.
    for piece in pieces:
        try:
            stream.write(piece)
        except (OSError, ValueError) as error:
            _discard(stream)
            raise OutputError(error) from None
    try:
        stream.flush()
    except (OSError, ValueError) as error:
        _discard(stream)
        raise OutputError(error) from None


def stream_error(stream: TextIO, error: OSError) -> OutputError | None:
    """Return an OutputError if ``error`` comes from writing to ``stream``, else None.

    After such an error, writes to the stream are discarded.
    """
    if error.errno not in _OF_STREAMS or error.filename is not None:
        return None
    _discard(stream)
    return OutputError(error)


PARTIAL = ".partial"
"""Ends the name of a file that is being written."""


@contextlib.contextmanager
def create_file(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Yield a stream whose bytes become the file ``path`` at the end, so that nobody reads half a file.

    The file is always a new one with ``mode`` (less the umask): no link at its name is followed, and a file of
    another owner is replaced, never written to. Only a device or a pipe is written to as it is.

    Raises:
        OSError: the file could not be written.
    """
    if _is_stream(path):
        with path.open("wb") as stream:
            yield stream
        return
    # A random name: another account that may write here could have put a link at a known one.
    partial = path.with_name(f".{path.name}.{os.urandom(8).hex()}{PARTIAL}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    number = os.open(partial, flags, mode)
    try:
        with open(number, "wb", buffering=1 << 20) as stream:  # noqa: PTH123  (a descriptor)
            yield stream
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def _is_stream(path: Path) -> bool:
    """Return whether a path names a device, a pipe or an open file such as ``/dev/stdout``."""
    if str(path.parent) in ("/dev", "/dev/fd", "/proc/self/fd"):
        return True
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)


def replace_file(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path``, for readers that run as another user; the file is on the disk when this returns.

    Raises:
        OSError: the file could not be written.
    """
    with create_file(path) as stream:
        stream.write(data)
        stream.flush()
        # Collectors of metrics and other pods run as another user than we do.
        os.fchmod(stream.fileno(), 0o644)
        os.fsync(stream.fileno())


def say(stream: TextIO, *lines: str) -> None:
    """Write each text as one line, with unprintable characters escaped. Never raises: a failed write is ignored."""
    with contextlib.suppress(OutputError):
        write(stream, [f"{printable(line)}\n" for line in lines])


def say_error(stream: TextIO, error: RebalancerError) -> None:
    """Write each line of an error, as :func:`say` does."""
    first, *others = error.lines
    say(stream, f"rebalancer: {first}", *others)


def open_closed_streams() -> None:
    """Open standard input, output and error if they were closed before the process started.

    Otherwise the next socket would get the number of such a stream, and error messages would be written to the
    socket. Writing to a standard output that was closed still fails, so that a lost report is noticed.
    """
    flags = {0: os.O_RDONLY, 1: os.O_RDONLY, 2: os.O_WRONLY}
    for number, flag in flags.items():
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flag)  # the lowest free number, which is this one
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _discard(stream: TextIO) -> None:
    """Redirect the stream to nowhere; the interpreter would otherwise flush its buffer again at exit."""
    with contextlib.suppress(OSError, ValueError):
        number = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)


_NARROWEST, _HEIGHT = 40, 24


@dataclass(frozen=True, slots=True)
class Look:
    """The size and colours for which a table is laid out."""

    width: int
    height: int
    color: bool


def terminal_look(environment: Environment, color: str) -> Look:
    """Return the size of the terminal (80 columns without one), and whether to use colours.

    ``color`` is ``always``, ``never`` or ``auto``: on a terminal, unless the environment forbids it (``NO_COLOR``,
    see no-color.org, or ``TERM=dumb``), or requires it without a terminal, too (``FORCE_COLOR``). Without a terminal,
    ``COLUMNS`` is the width.
    """
    environ = environment.environ
    terminal = environment.out.isatty()
    columns, height = (
        _size(environment.out) if terminal else (_whole(environ.get("COLUMNS")) or WIDTH, _HEIGHT)
    )
    forced = environ.get("FORCE_COLOR", "0") != "0"
    wanted = not environ.get("NO_COLOR") and (
        forced or (terminal and environ.get("TERM") != "dumb")
    )
    return Look(max(_NARROWEST, columns), height, wanted if color == "auto" else color == "always")


def _whole(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdecimal() else 0


def _size(terminal: TextIO) -> tuple[int, int]:
    """Return (columns, lines) from the environment, else of standard output, else of ``terminal``."""
    try:
        own = tuple(os.get_terminal_size(terminal.fileno()))
    except (OSError, ValueError):
        own = (WIDTH, _HEIGHT)
    return shutil.get_terminal_size((own[0] or WIDTH, own[1] or _HEIGHT))
