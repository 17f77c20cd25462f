"""Play every policy on every snapshot, several times, and compare the results.

An interrupted comparison goes on from its journal, a file of JSON lines: first what is compared, then a line per result,
in the order in which they came. A line that was cut off by the end of the process is removed. Failures are not written:
they are tried again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import BinaryIO

import msgspec

from rebalancer import API_VERSION, __version__
from rebalancer.base.errors import PolicyError
from rebalancer.fleet.comparison import Comparison, compare_rows
from rebalancer.fleet.engines import TaskEngine
from rebalancer.fleet.stores import absolute, digest
from rebalancer.fleet.task import Failure, Row, Rules, Task, TaskSetting

Reached = Callable[[int, int], None]
"""Called with the number of tasks that have ended, and of all."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is compared."""

    policies: tuple[Rules, ...]
    snapshots: tuple[str, ...]
    """Paths or URLs, each once."""
    draws: int
    seed: int
    setting: TaskSetting


def list_tasks(inputs: Inputs) -> tuple[list[Task], str]:
    """Return the tasks, and a digest of everything that affects their results.

    Tasks are in the order of snapshots, so that a worker reads each snapshot only once. The seed of the random
    landings comes from the content of the snapshot, not from its name or place; all policies have the same seed.

    Raises:
        PolicyError: two policies have one name, or a snapshot cannot be read.
    """
    names = [policy.name for policy in inputs.policies]
    if len(set(names)) < len(names):
        raise PolicyError([f"--policies: {_twice(names)} is there twice"])
    tasks: list[Task] = []
    every = hashlib.sha256(__version__.encode())
    for snapshot in inputs.snapshots:
        content = digest(snapshot)
        every.update(f"{content}\n".encode())
        source = absolute(snapshot)
        for policy in inputs.policies:
            for draw in range(inputs.draws):
                seed = (inputs.seed, int(content[:16], 16), draw)
                task = Task(len(tasks), policy, snapshot, "", draw, seed, inputs.setting)
                # The content counts, not the folder.
                every.update(msgspec.json.encode(task))
                tasks.append(msgspec.structs.replace(task, source=source))
    return tasks, every.hexdigest()


def compare(
    inputs: Inputs, engine: TaskEngine, *, journal_path: str | None, reached: Reached
) -> Comparison:
    """Play all tasks and compare the policies by their results.

    ``journal_path``: a file with earlier results, from which an interrupted comparison continues. ``reached`` is called
    with each result. The comparison is the same whatever the engine, and wherever it was interrupted.

    Raises:
        PolicyError: see :func:`list_tasks`, and :func:`rebalancer.fleet.compare.open_journal`.
    """
    tasks, content = list_tasks(inputs)
    context = nullcontext(None) if journal_path is None else open_journal(journal_path, content)
    with context as journal:
        rows, failures = play_tasks(tasks, engine, journal, reached)
    return compare_rows([policy.name for policy in inputs.policies], list(rows.values()), failures)


def play_tasks(
    tasks: Sequence[Task], engine: TaskEngine, journal: TaskJournal | None, reached: Reached
) -> tuple[dict[int, Row], list[Failure]]:
    """Play the tasks that have no row in the journal, and append their rows; return task number -> row, and the failures."""
    known = {} if journal is None else journal.rows
    rows = {task.number: known[task.number] for task in tasks if task.number in known}
    failures: list[Failure] = []
    left = (task for task in tasks if task.number not in known)
    reached(len(rows), len(tasks))
    for result in engine.run(left):
        if isinstance(result, Failure):
            failures.append(result)
        else:
            if journal is not None:
                journal.add(result)
            rows[result.number] = result
        reached(len(rows) + len(failures), len(tasks))
    return rows, failures


def _twice(names: Sequence[str]) -> str:
    return next(name for index, name in enumerate(names) if name in names[:index])


_KIND = "ComparisonJournal"


class _Head(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    api_version: str
    kind: str
    inputs: str
    """A digest of all tasks and snapshots."""


class TaskJournal:
    """An open journal, to which results are appended."""

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
    """Open or create the journal of the comparison that has this digest of inputs.

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
