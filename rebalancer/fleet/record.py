"""Record snapshots of one cluster at intervals: some as whole files, the others as deltas.

``20261124T100528Z.full.zip`` is a snapshot file as any other; ``20261124T101528Z.delta.zip`` is what is new beside the newest
whole one before it (``rebalancer.fleet.delta``). A file gets its name when it is complete: whatever has such a name may be read.

The order is that in which they were taken. Where the cluster's clock is not later than in the newest one, names begin with
``clock2-`` from then on, the next time with ``clock3-``: within one such count times only grow.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rebalancer.base.errors import PolicyError
from rebalancer.base.output import create_file
from rebalancer.fleet.delta import SUFFIX, write_delta
from rebalancer.fleet.stores import SnapshotStore
from rebalancer.kube.capture import Captured, write_cluster_snapshot
from rebalancer.kube.client import Client
from rebalancer.snapshot.load import SnapshotArchive
from rebalancer.snapshot.redact import Redactor
from rebalancer.wire.times import rfc3339, unix_seconds

FULL = ".full.zip"
_NAME = re.compile(r"(?:clock([1-9]\d*)-)?(\d{8}T\d{6}Z)(?:\.full|\.delta)\.zip", re.ASCII)
_CAPTURE, _DELTA = ".capture.zip", ".capture.delta"


@dataclass(frozen=True, slots=True)
class Retention:
    """How long, and up to which total size, snapshots are kept."""

    age: float | None = None
    """Seconds; None: for ever."""
    size: int | None = None
    """Bytes of the store; None: any."""
    deltas: int = 23
    """Snapshots after a whole one that are kept as what has changed."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One snapshot that was added."""

    name: str
    url: str
    bytes: int
    captured: Captured
    removed: int
    """Files that the retention has removed."""
    note: str
    """What was wrong with the cluster's clock or the newest whole snapshot, or empty."""


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    clock: int
    """How often the cluster's clock had gone back, from 1."""
    at: float
    """By that clock."""
    bytes: int
    written: float
    """By the store's clock."""

    @property
    def order(self) -> tuple[int, float]:
        return self.clock, self.at

    @property
    def is_full(self) -> bool:
        return self.name.endswith(FULL)


def record(
    client: Client,
    store: SnapshotStore,
    work: Path,
    retention: Retention,
    *,
    clock: Callable[[], float],
    redactor: Redactor | None = None,
) -> Recorded:
    """Add a snapshot of the cluster to a held store, and remove the snapshots beyond the retention.

    ``work`` is the folder that the held store yields. With ``redactor`` no name is ever written, not even there.

    Raises:
        ClusterReadError: the cluster could not be read; the store stays as it is.
        PolicyError: the store cannot be read or written.
    """
    capture = work / _CAPTURE
    try:
        captured = write_cluster_snapshot(client, capture, clock=clock, redactor=redactor)
        name, note = _add(store, work, retention)
        removed = prune(store, retention)
        return Recorded(name, store.url(name), store.files()[name].bytes, captured, removed, note)
    except OSError as error:
        raise PolicyError([f"{store.where}: {error.strerror or error}"]) from None
    finally:
        for left in (capture, work / _DELTA):
            with contextlib.suppress(OSError):
                left.unlink(missing_ok=True)


def _add(store: SnapshotStore, work: Path, retention: Retention) -> tuple[str, str]:
    """Add the captured snapshot, complete or as a difference to the last one; return its name, and a note."""
    capture, changes = work / _CAPTURE, work / _DELTA
    with capture.open("rb") as stream:
        at = unix_seconds(SnapshotArchive(stream).manifest.captured_at)
    files = list_files(store)
    name, note = _name(files, at)
    base = next((file for file in reversed(files) if file.is_full), None)
    following = [file for file in files if base is not None and file.order > base.order]
    if base is not None and len(following) < retention.deltas:
        try:
            with create_file(changes, 0o600) as stream:
                write_delta(store.fetch(base.name, work), capture, stream)
        except (ValueError, OSError) as error:
            why = getattr(error, "strerror", None) or error
            damaged = f"{store.url(base.name)}: {why}: this snapshot is kept whole beside it"
            note = "; ".join(filter(None, (note, damaged)))
        else:
            # Where nearly all has changed, the next ones are better kept beside this one.
            if changes.stat().st_size < capture.stat().st_size / 2:
                store.add(changes, f"{name}{SUFFIX}")
                return f"{name}{SUFFIX}", note
    store.add(capture, f"{name}{FULL}")
    return f"{name}{FULL}", note


def prune(store: SnapshotStore, retention: Retention) -> int:
    """Remove the oldest snapshots until age and total size are within the retention; return the number removed.

    The newest snapshot is always kept. A whole snapshot is removed only after its deltas. By age at most half of all are
    removed in one go: where both clocks jump ahead together, what is not older than it seems outlives that.
    """
    files = list_files(store)
    ages = _least_ages(files)
    size, most = sum(file.bytes for file in files), len(files) // 2
    removed: set[str] = set()
    for group in _groups(files):
        full, *deltas = group
        for file in (*deltas, full):
            too_old = (
                retention.age is not None
                and ages[file.name] > retention.age
                and len(removed) < most
            )
            too_much = retention.size is not None and size > retention.size
            needed = file is full and any(other.name not in removed for other in deltas)
            if file is files[-1] or needed or not (too_old or too_much):
                break
            store.remove(file.name)
            size -= file.bytes
            removed.add(file.name)
    return len(removed)


def list_files(store: SnapshotStore) -> list[_File]:
    """Return the snapshots of a store, oldest first."""
    files = [
        _File(name, int(match[1] or 1), _seconds(match[2]), of.bytes, of.written)
        for name, of in store.files().items()
        if (match := _NAME.fullmatch(name))
    ]
    return sorted(files, key=lambda file: (file.order, file.name))


def _least_ages(files: Sequence[_File]) -> Mapping[str, float]:
    """Return for each snapshot a lower bound of its age in seconds, relative to the newest snapshot.

    The time between two neighbours is the shorter one of two clocks, the cluster's and the store's: one of them alone
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


def _groups(files: Sequence[_File]) -> list[list[_File]]:
    """Return the whole snapshots, each with those that are kept beside it."""
    groups: list[list[_File]] = []
    for file in files:
        if file.is_full or not groups:
            groups.append([])
        groups[-1].append(file)
    return groups


def _name(files: Sequence[_File], at: float) -> tuple[str, str]:
    """Return the name of the file that follows ``files``, without its extension, and a note.

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
    return (time if clock == 1 else f"clock{clock}-{time}"), note


def _seconds(name: str) -> float:
    return unix_seconds(
        f"{name[:4]}-{name[4:6]}-{name[6:8]}T{name[9:11]}:{name[11:13]}:{name[13:15]}Z"
    )
