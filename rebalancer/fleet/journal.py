"""A file of results, in which an interrupted comparison goes on where it stood.

JSON lines: first what is compared, then a line per result, in the order in which they came. A line that was cut off by the
end of the process is removed. Failures are not written: they are tried again.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import msgspec

from rebalancer import API_VERSION
from rebalancer.base.errors import PolicyError
from rebalancer.fleet.task import Row

_KIND = "ComparisonJournal"


class _Head(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    api_version: str
    kind: str
    inputs: str
    """A digest of all tasks and snapshots."""


class TaskJournal:
    """An open journal."""

    def __init__(self, path: str, stream: BinaryIO, rows: dict[int, Row]) -> None:
        self._path, self._stream = path, stream
        self.rows = rows
        """Task number -> its result, from earlier calls."""

    def add(self, row: Row) -> None:
        """Append a result.

        Raises:
            PolicyError: the file cannot be written.
        """
        try:
            self._stream.write(msgspec.json.encode(row) + b"\n")
            self._stream.flush()
        except OSError as error:
            raise PolicyError(
                [f"{self._path}: cannot be written: {error.strerror or error}"]
            ) from None


@contextmanager
def open_journal(path: str, inputs: str) -> Iterator[TaskJournal]:
    """Yield the journal of a comparison with this digest of inputs; it is created if it does not exist.

    Raises:
        PolicyError: it belongs to another comparison, another process writes it, or it is no journal.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise PolicyError([f"{path}: cannot be opened: {error.strerror or error}"]) from None
    with open(descriptor, "r+b") as stream:  # noqa: PTH123  (a descriptor)
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise PolicyError([f"{path}: another comparison is writing it"]) from None
        yield TaskJournal(path, stream, _read(path, stream, inputs))


def _read(path: str, stream: BinaryIO, inputs: str) -> dict[int, Row]:
    """Return the rows in a journal and go to its end; write its first line if it is empty."""
    text = stream.read()
    head = msgspec.json.encode(_Head(API_VERSION, _KIND, inputs)) + b"\n"
    whole = text.rfind(b"\n") + 1
    rows: dict[int, Row] = {}
    if whole:
        first, *lines = text[:whole].splitlines()
        _check_head(path, first, inputs)
        rows = _decode_rows(path, lines)
    elif not head.startswith(text):
        raise PolicyError([f"{path}: is no journal of a comparison"])
    # Only now: a file that is none of ours is left as it is.
    stream.truncate(whole)
    stream.seek(whole)
    if not whole:
        stream.write(head)
        stream.flush()
    return rows


def _check_head(path: str, line: bytes, inputs: str) -> None:
    try:
        head = msgspec.json.decode(line, type=_Head)
    except msgspec.DecodeError as error:
        raise PolicyError([f"{path}: is no journal of a comparison: {error}"]) from None
    if (head.api_version, head.kind) != (API_VERSION, _KIND):
        raise PolicyError([f"{path}: is no journal of a comparison, but {head.kind}"])
    if head.inputs != inputs:
        differs = "its policies, snapshots, draws, cycles or version differ"
        raise PolicyError([f"{path}: holds another comparison: {differs}; name another file"])


def _decode_rows(path: str, lines: list[bytes]) -> dict[int, Row]:
    rows: dict[int, Row] = {}
    for number, line in enumerate(lines, 2):
        try:
            row = msgspec.json.decode(line, type=Row)
        except msgspec.DecodeError as error:
            raise PolicyError([f"{path}:{number}: is no result: {error}"]) from None
        rows[row.number] = row
    return rows
