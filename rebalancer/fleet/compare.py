"""Play every policy on every snapshot, several times, and compare the results.

An interrupted comparison goes on from its journal, a file of JSON lines: first what it is, then a line per result, in the
order in which they came, with a digest of the task and a checksum. So one journal serves comparisons that have tasks in
common, as of a directory that grows. A line that was cut off by the end of the process is removed. Failures are not
written: they are tried again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from rebalancer import API_VERSION, __version__
from rebalancer.base.errors import PolicyError
from rebalancer.fleet.comparison import Comparison, compare_rows
from rebalancer.fleet.measures import BY_KEY
from rebalancer.fleet.task import Failure, Result, Row, Rules, Task, TaskSetting
from rebalancer.snapshot.load import load_judgeable

Play = Callable[[Sequence[Task]], Iterator[Result]]
"""Yields the result of each task, in any order."""

Reached = Callable[[int, int], None]
"""Called with two numbers: the tasks that have ended, and all tasks."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is compared."""

    policies: tuple[Rules, ...]
    snapshots: tuple[str, ...]
    """Paths, each once."""
    draws: int
    seed: int
    setting: TaskSetting


def list_tasks(inputs: Inputs) -> list[Task]:
    """Return the tasks.

    Tasks are in the order of snapshots, so that a worker reads each snapshot only once. The seed of the random
    landings comes from the content of the snapshot, not from its name or place; all policies have the same seed.

    Raises:
        PolicyError: two policies have one name, or a snapshot cannot be read.
    """
    names = [policy.name for policy in inputs.policies]
    if len(set(names)) < len(names):
        raise PolicyError([f"--policies: {_twice(names)} is there twice"])
    tasks: list[Task] = []
    for snapshot in inputs.snapshots:
        content, source = _digest(snapshot), str(Path(snapshot).absolute())
        for policy in inputs.policies:
            for draw in range(inputs.draws):
                seed = (inputs.seed, int(content[:16], 16), draw)
                setting = inputs.setting
                tasks.append(
                    Task(len(tasks), policy, snapshot, source, draw, seed, setting, content)
                )
    return tasks


def compare(
    inputs: Inputs, play: Play, *, journal_path: str | None, reached: Reached
) -> Comparison:
    """Play all tasks and compare the policies by their results.

    ``journal_path``: a file with earlier results, from which an interrupted comparison continues. ``reached`` is called
    with each result. The comparison is the same in whatever order the results come, and wherever it was interrupted.

    Raises:
        PolicyError: see :func:`list_tasks`, and :func:`rebalancer.fleet.compare.open_journal`.
    """
    tasks = list_tasks(inputs)
    context = nullcontext(None) if journal_path is None else open_journal(journal_path)
    with context as journal:
        rows, failures = play_tasks(tasks, play, journal, reached)
    return compare_rows([policy.name for policy in inputs.policies], list(rows.values()), failures)


def play_tasks(
    tasks: Sequence[Task], play: Play, journal: TaskJournal | None, reached: Reached
) -> tuple[dict[int, Row], list[Failure]]:
    """Play the tasks that have no row in the journal, and append their rows; return task number -> row, and the failures."""
    by_number = {task.number: task for task in tasks}
    known = {} if journal is None else {task.number: journal.row_of(task) for task in tasks}
    rows = {number: row for number, row in known.items() if row is not None}
    failures: list[Failure] = []
    left = [task for task in tasks if task.number not in rows]
    reached(len(rows), len(tasks))
    for result in play(left):
        if isinstance(result, Failure):
            failures.append(result)
        else:
            if journal is not None:
                journal.add(by_number[result.number], result)
            rows[result.number] = result
        reached(len(rows) + len(failures), len(tasks))
    return rows, failures


def _twice(names: Sequence[str]) -> str:
    return next(name for index, name in enumerate(names) if name in names[:index])


_SUFFIXES = (".zip", ".json", ".json.gz")


def list_snapshots(named: Sequence[str]) -> list[str]:
    """Return the snapshots in the ``named`` files and directories, each once, in order.

    A file that is named in several ways counts once, by its first name; hidden files and folders do not count. A file
    that is named itself is read once, so that a wrong one is reported before anything is played. Those of a directory
    are not: one torn file is no reason to stop.

    Raises:
        PolicyError: something does not exist, a directory holds no snapshot, or a named file is none.
    """
    every: dict[str, str] = {}
    for name in named:
        path = Path(name)
        if path.is_file():
            load_judgeable(name)
            snapshots = [name]
        elif path.is_dir():
            snapshots = _list_directory(path)
        else:
            raise PolicyError([f"{name}: there is no such file or directory"])
        for one in snapshots:
            every.setdefault(os.path.realpath(one), one)
    return list(every.values())


def _list_directory(directory: Path) -> list[str]:
    snapshots = sorted(
        str(file)
        for file in directory.rglob("*")
        if file.name.endswith(_SUFFIXES)
        and not any(part.startswith(".") for part in file.relative_to(directory).parts)
        and file.is_file()
    )
    if not snapshots:
        raise PolicyError([f"{directory}: holds no snapshot (*{', *'.join(_SUFFIXES)})"])
    return snapshots


def _digest(snapshot: str) -> str:
    """Return the sha256 of a snapshot's file in hex."""
    try:
        with Path(snapshot).open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise PolicyError([f"{snapshot}: cannot be read: {error.strerror or error}"]) from None


_KIND = "ComparisonJournal"
_MAX_JOURNAL = 1 << 30
"""Bytes: half a million results."""


class _Head(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    inputs: str | None = None
    """Of earlier versions, whose lines have no checksums."""


class _Line(msgspec.Struct):
    task: str
    """A digest of all that the result depends on."""
    sha256: str
    """Of the row, as written in the line."""
    row: msgspec.Raw


def _task_digest(task: Task) -> str:
    """Return a digest of all that the result of a task depends on: not where the snapshot lies, nor what its policy is called."""
    names = task.policy, task.setting.judge
    unnamed = msgspec.structs.replace(
        task,
        number=0,
        policy=msgspec.structs.replace(names[0], name=""),
        snapshot="",
        source="",
        setting=msgspec.structs.replace(
            task.setting, judge=msgspec.structs.replace(names[1], name="")
        ),
    )
    return hashlib.sha256(f"{__version__}\n".encode() + msgspec.json.encode(unnamed)).hexdigest()


class TaskJournal:
    """An open journal, to which results are appended."""

    def __init__(self, path: str, stream: BinaryIO, rows: dict[str, Row]) -> None:
        self._path, self._stream = path, stream
        self._rows = rows
        """Digest of a task -> its result, from earlier calls."""

    def row_of(self, task: Task) -> Row | None:
        """Return the result that an earlier call had for a task."""
        row = self._rows.get(_task_digest(task))
        if row is None:
            return None
        return msgspec.structs.replace(
            row, number=task.number, policy=task.policy.name, snapshot=task.snapshot
        )

    def add(self, task: Task, row: Row) -> None:
        """Append a result.

        Raises:
            PolicyError: the file cannot be written.
        """
        text = msgspec.json.encode(row)
        line = _Line(_task_digest(task), hashlib.sha256(text).hexdigest(), msgspec.Raw(text))
        try:
            self._stream.write(msgspec.json.encode(line) + b"\n")
            self._stream.flush()
        except OSError as error:
            raise PolicyError(
                [f"{self._path}: cannot be written: {error.strerror or error}"]
            ) from None


@contextmanager
def open_journal(path: str) -> Iterator[TaskJournal]:
    """Open or create a journal.

    Raises:
        PolicyError: another process writes it, it is no journal, or a line of it is damaged.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise PolicyError([f"{path}: cannot be opened: {error.strerror or error}"]) from None
    with open(descriptor, "r+b") as stream:  # noqa: PTH123  (a descriptor)
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise PolicyError([f"{path}: another comparison is writing it"]) from None
        yield TaskJournal(path, stream, _read(path, stream))


def _read(path: str, stream: BinaryIO) -> dict[str, Row]:
    """Return the rows in a journal and go to its end; write its first line if it is empty."""
    text = stream.read(_MAX_JOURNAL + 1)
    if len(text) > _MAX_JOURNAL:
        raise PolicyError([f"{path}: is larger than {_MAX_JOURNAL >> 20} MiB; name another file"])
    head = msgspec.json.encode({"apiVersion": API_VERSION, "kind": _KIND}) + b"\n"
    whole = text.rfind(b"\n") + 1
    rows: dict[str, Row] = {}
    if whole:
        first, *lines = text[:whole].splitlines()
        _check_head(path, first)
        rows = dict(_decode_line(f"{path}:{number}", of) for number, of in enumerate(lines, 2))
    elif not head.startswith(text):
        raise PolicyError([f"{path}: is no journal of a comparison"])
    # Only now: a file that is none of ours is left as it is.
    stream.truncate(whole)
    stream.seek(whole)
    if not whole:
        stream.write(head)
        stream.flush()
    return rows


def _check_head(path: str, line: bytes) -> None:
    try:
        head = msgspec.json.decode(line, type=_Head)
    except msgspec.DecodeError as error:
        raise PolicyError([f"{path}: is no journal of a comparison: {error}"]) from None
    if (head.api_version, head.kind) != (API_VERSION, _KIND):
        raise PolicyError([f"{path}: is no journal of a comparison, but {head.kind or 'no kind'}"])
    if head.inputs is not None:
        raise PolicyError([f"{path}: is a journal of an earlier version; name another file"])


def _decode_line(where: str, text: bytes) -> tuple[str, Row]:
    """Return the digest of a task and its result.

    Raises:
        PolicyError: the line is damaged.
    """
    advice = "remove the line, and its task is played again"
    try:
        line = msgspec.json.decode(text, type=_Line)
        row = msgspec.json.decode(line.row, type=Row)
    except (msgspec.DecodeError, RecursionError) as error:
        raise PolicyError([f"{where}: is no result: {error}; {advice}"]) from None
    if hashlib.sha256(line.row).hexdigest() != line.sha256:
        raise PolicyError([f"{where}: damaged: its checksum is another one; {advice}"])
    if lacking := [key for key in BY_KEY if key not in row.measures]:
        raise PolicyError([f"{where}: lacks the measure {lacking[0]}; {advice}"])
    return line.task, row
