"""Output of a command: standard output and standard error, which may be closed, full, or a pipe without a reader; files."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO

from rebalancer.base.errors import ExitCode, RebalancerError
from rebalancer.base.plain_text import printable_lines

if TYPE_CHECKING:
    from pathlib import Path

_OF_STREAMS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EPIPE, errno.EIO, errno.EBADF})
"""What writing to a stream that was opened before can end with."""


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


def replace_file(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` by way of a hidden file beside it, so that nobody reads half a file.

    Raises:
        OSError: the file could not be written.
    """
    import tempfile  # noqa: PLC0415  # not at each start

    number, written = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as stream:
            stream.write(data)
            # Collectors of metrics and other pods run as another user than we do.
            os.fchmod(number, 0o644)
            os.fsync(number)
        os.replace(written, path)  # noqa: PTH105  # pathlib is not needed at the start
    except BaseException:
        os.unlink(written)  # noqa: PTH108
        raise


def say(stream: TextIO, text: str) -> None:
    """Write ``text`` line by line with unprintable characters escaped. Never raises: a failed write is ignored."""
    with contextlib.suppress(OutputError):
        write(stream, [f"{printable_lines(text)}\n"])


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
