"""Record snapshots of one cluster into a folder, at intervals: ``20261124T100528Z.zip`` and so on.

A file gets its name when it is complete: whatever has such a name may be read. The order is that in which the snapshots
were taken. Where the cluster's clock is not later than in the newest one, names begin with ``clock2-`` from then on, the
next time with ``clock3-``: within one such count times only grow.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rebalancer.base.errors import PolicyError
from rebalancer.base.output import PARTIAL
from rebalancer.kube.capture import Captured, write_cluster_snapshot
from rebalancer.kube.client import Client
from rebalancer.snapshot.load import SnapshotArchive
from rebalancer.snapshot.redact import Redactor
from rebalancer.wire.times import rfc3339, unix_seconds

_NAME = re.compile(r"(?:clock([1-9]\d*)-)?(\d{8}T\d{6}Z)\.zip", re.ASCII)
_CAPTURE = ".capture.zip"


@dataclass(frozen=True, slots=True)
class Retention:
    """How long, and up to which total size, snapshots are kept."""

    age: float | None = None
    """Seconds; None: for ever."""
    size: int | None = None
    """Bytes of all; None: any."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One snapshot that was added."""

    path: Path
    bytes: int
    captured: Captured
    removed: int
    """Files that the retention has removed."""
    note: str
    """A problem of the cluster's clock, or empty."""


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    clock: int
    """How often the cluster's clock had gone back, from 1."""
    at: float
    """By that clock."""
    bytes: int
    written: float
    """By the clock of this machine, or of the volume's server."""

    @property
    def order(self) -> tuple[int, float]:
        return self.clock, self.at


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Lock a folder for recording; it is created if it does not exist.

    Raises:
        PolicyError: another process holds the lock, or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise PolicyError([f"{folder}: cannot be written: {error.strerror or error}"]) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise PolicyError([f"{folder}: another process records into it"]) from None
        # What a process that was killed has left.
        for left in folder.glob(f".*{PARTIAL}"):
            left.unlink()
        yield
    finally:
        os.close(descriptor)


def record(
    client: Client,
    folder: Path,
    retention: Retention,
    *,
    clock: Callable[[], float],
    redactor: Redactor | None = None,
) -> Recorded:
    """Add a snapshot of the cluster to a held folder, and remove the snapshots beyond the retention.

    With ``redactor`` no name is ever written.

    Raises:
        ClusterReadError: the cluster could not be read; the folder is not changed.
        PolicyError: the folder cannot be read or written.
    """
    capture = folder / _CAPTURE
    try:
        captured = write_cluster_snapshot(client, capture, clock=clock, redactor=redactor)
        with capture.open("rb+") as stream:
            at = unix_seconds(SnapshotArchive(stream).manifest.captured_at)
            os.fsync(stream.fileno())
        name, note = _name(list_files(folder), at)
        path = capture.replace(folder / name)
        size = path.stat().st_size
        return Recorded(path, size, captured, prune(folder, retention), note)
    except OSError as error:
        raise PolicyError([f"{folder}: {error.strerror or error}"]) from None
    finally:
        with contextlib.suppress(OSError):
            capture.unlink(missing_ok=True)


def prune(folder: Path, retention: Retention) -> int:
    """Remove the oldest snapshots until age and total size are within the retention; return the number removed.

    The newest snapshot is always kept. By age at most half of all are removed at once, so that recent snapshots survive if both clocks jump ahead
    together.
    """
    files = list_files(folder)
    ages = _least_ages(files)
    size = sum(file.bytes for file in files)
    for removed, file in enumerate(files[:-1]):
        too_old = (
            retention.age is not None
            and ages[file.name] > retention.age
            and removed < len(files) // 2
        )
        if not too_old and (retention.size is None or size <= retention.size):
            return removed
        (folder / file.name).unlink()
        size -= file.bytes
    return max(0, len(files) - 1)


def list_files(folder: Path) -> list[_File]:
    """Return the snapshots in a folder, oldest first; links do not count."""
    files = []
    for path in folder.iterdir():
        of = path.lstat()
        if (match := _NAME.fullmatch(path.name)) and stat.S_ISREG(of.st_mode):
            clock, at = int(match[1] or 1), _seconds(match[2])
            files.append(_File(path.name, clock, at, of.st_size, of.st_mtime))
    return sorted(files, key=lambda file: (file.order, file.name))


def _least_ages(files: Sequence[_File]) -> Mapping[str, float]:
    """Return for each snapshot a lower bound of its age in seconds, relative to the newest snapshot.

    The time between two neighbours is the shorter one of two clocks, the cluster's and that of the files: one of them alone
    may jump ahead. Where the cluster's clock went back, it is not known and counts as 0.
    """
    ages: dict[str, float] = {}
    age, after = 0.0, None
    for file in reversed(files):
        if after is not None and file.clock == after.clock:
            age += max(0.0, min(after.at - file.at, after.written - file.written))
        ages[file.name] = age
        after = file
    return ages


def _name(files: Sequence[_File], at: float) -> tuple[str, str]:
    """Return the name of the file that follows ``files``, and a note.

    The note is empty, unless the cluster's clock is not later than in the newest of ``files``.
    """
    newest = files[-1] if files else None
    clock = 1 if newest is None else newest.clock
    note = ""
    if newest is not None and newest.at >= at:
        clock += 1
        note = (
            f"the cluster's clock is not later than in {newest.name}: from this one on names begin with clock{clock}-,"
            " and the order stays"
        )
    time = rfc3339(at).replace("-", "").replace(":", "")
    return (f"{time}.zip" if clock == 1 else f"clock{clock}-{time}.zip"), note


def _seconds(name: str) -> float:
    return unix_seconds(
        f"{name[:4]}-{name[4:6]}-{name[6:8]}T{name[9:11]}:{name[11:13]}:{name[13:15]}Z"
    )
