"""Deltas: a snapshot stored as its difference from another snapshot, its base, since most objects do not change.

A delta is a zip archive beside its base in one folder: for each list the objects that the base does not have, as they are in a
snapshot file, and for all objects in order from where they come; then ``delta.json``, written last, with the manifest of the
snapshot, the base's name and checksum, and a checksum of each list. What is restored is the snapshot file itself, byte by byte.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np

from rebalancer import API_VERSION
from rebalancer.base.data_text import unpack_limit
from rebalancer.snapshot.load import SnapshotArchive, as_value_errors, split_lines
from rebalancer.snapshot.store import (
    JSON_END,
    Capture,
    Manifest,
    SnapshotWriter,
    StoredList,
    version_numbers,
)
from rebalancer.wire.protobuf.frames import ListFrames, split_items
from rebalancer.wire.times import unix_seconds

SUFFIX = ".delta.zip"
_HEAD = "delta.json"
_MAX_HEAD = 1 << 20
_NEW = -1
"""In the place of an index of the base."""
_LEVEL = 6


class _DeltaList(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    kind: str
    sha256: str
    """Of the whole list."""


class _Delta(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    api_version: str = API_VERSION
    kind: str = "SnapshotDelta"
    base: str
    """Name of the snapshot file beside this one."""
    base_sha256: str
    snapshot: Manifest
    lists: tuple[_DeltaList, ...]


def write_delta(base: Path, snapshot: Path, target: BinaryIO) -> None:
    """Write the difference of ``snapshot`` from ``base``; both are snapshot files.

    Only one list is in memory at a time; of the base, only its checksums.

    Raises:
        ValueError: one of the files is damaged.
        OSError: one cannot be read, or the target not written.
    """
    with (
        base.open("rb") as base_stream,
        snapshot.open("rb") as stream,
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive,
    ):
        old, new = SnapshotArchive(base_stream), SnapshotArchive(stream)
        known = {stored.file: stored for stored in old.manifest.lists}
        lists = [
            _write_list(archive, old, known.get(stored.file), new, stored)
            for stored in new.manifest.lists
        ]
        base_stream.seek(0)
        head = _Delta(
            base=base.name,
            base_sha256=stream_digest(base_stream),
            snapshot=new.manifest,
            lists=tuple(lists),
        )
        _write(archive, _HEAD, msgspec.json.encode(head))


def _write_list(
    archive: zipfile.ZipFile,
    old: SnapshotArchive,
    base: StoredList | None,
    new: SnapshotArchive,
    stored: StoredList,
) -> _DeltaList:
    places = {} if base is None else {_key(item): at for at, item in enumerate(_items(old, base))}
    froms: list[int] = []
    added: list[bytes] = []
    for item in _items(new, stored):
        place = places.get(_key(item), _NEW)
        froms.append(place)
        if place == _NEW:
            added.append(item)
    _write(archive, f"{stored.file}.new", msgspec.msgpack.encode(added))
    # Most objects follow the one before them in the base as well: the differences are ones then.
    _write(archive, f"{stored.file}.from", np.diff(froms, prepend=0).astype("<i4").tobytes())
    return _DeltaList(stored.kind, _list_digest(new, stored))


def restore(delta: BinaryIO, open_beside: Callable[[str], BinaryIO]) -> BytesIO:
    """Return the snapshot file that was stored as a delta; ``open_beside`` opens a file in the delta's folder by name.

    Raises:
        ValueError: the delta or its base is damaged, or the base another one.
        OSError: one cannot be read.
    """
    with as_value_errors():
        archive = zipfile.ZipFile(delta)
        head = _read_head(archive)
        target = BytesIO()
        try:
            opened = open_beside(head.base)
        except FileNotFoundError:
            raise ValueError(f"its base {head.base} is not beside it") from None
        with opened as base_stream, SnapshotWriter(target) as writer:
            if stream_digest(base_stream) != head.base_sha256:
                raise ValueError(f"its base {head.base} is another file, or damaged")
            base_stream.seek(0)
            old = SnapshotArchive(base_stream)
            known = {stored.file: stored for stored in old.manifest.lists}
            for stored in head.snapshot.lists:
                items = _restore_items(archive, old, known.get(stored.file), stored)
                if stored.in_protobuf:
                    writer.write_protobuf(stored.kind, [(b"".join(items), len(items))])
                else:
                    writer.write_json(stored.kind, items)
            writer.close(_capture(head.snapshot), head.snapshot.lists)
        _check_lists(target, head)
        target.seek(0)
        return target


def _restore_items(
    archive: zipfile.ZipFile, old: SnapshotArchive, base: StoredList | None, stored: StoredList
) -> list[bytes]:
    """Return the objects of a list, new ones and those of the base, in order."""
    most = stored.bytes + 16 * stored.objects + 16
    new = _read(archive, f"{stored.file}.new", most)
    if stored.bytes > len(new) + (0 if base is None else base.bytes) + _MAX_HEAD:
        raise ValueError(f"{stored.file}: it is larger than what its base and the delta hold")
    added = iter(msgspec.msgpack.decode(new, type=list[bytes]))
    steps = np.frombuffer(_read(archive, f"{stored.file}.from", 4 * stored.objects), "<i4")
    kept = [] if base is None else list(_items(old, base))
    froms = np.cumsum(steps, dtype=np.int64).tolist()
    if len(froms) != stored.objects or any(not _NEW <= place < len(kept) for place in froms):
        raise ValueError(f"{stored.file}: it names objects that its base does not have")
    items = [next(added, b"") if place == _NEW else kept[place] for place in froms]
    if sum(map(len, items)) > stored.bytes:
        raise ValueError(f"{stored.file}: it has more than its {stored.bytes} bytes")
    return items


def _check_lists(restored: BinaryIO, head: _Delta) -> None:
    """Compare the lists of a restored snapshot file with the checksums of those that were recorded."""
    new = SnapshotArchive(restored)
    for stored, delta in zip(head.snapshot.lists, head.lists, strict=True):
        if _list_digest(new, stored) != delta.sha256:
            raise ValueError(f"{stored.file}: damaged: its checksum is another one")


def _list_digest(archive: SnapshotArchive, stored: StoredList) -> str:
    whole = hashlib.sha256()
    for piece in archive.pieces(stored):
        whole.update(piece)
    return whole.hexdigest()


def stream_digest(stream: BinaryIO) -> str:
    """Return the sha256 of the rest of a stream in hex.

    Raises:
        OSError: it cannot be read.
    """
    whole = hashlib.sha256()
    while piece := stream.read(1 << 20):
        whole.update(piece)
    return whole.hexdigest()


def _items(archive: SnapshotArchive, stored: StoredList) -> Iterator[bytes]:
    """Yield the objects of a list as their bytes."""
    if stored.in_protobuf:
        frames = ListFrames(length=stored.bytes)
        for piece in archive.pieces(stored):
            for run in frames.feed(piece):
                yield from split_items(run)
        frames.close()
        return
    lines = split_lines(archive.pieces(stored))
    next(lines, b"")
    for line in lines:
        if line != JSON_END:
            yield line.removesuffix(b",")


def _key(item: bytes) -> bytes:
    return hashlib.blake2b(item, digest_size=16).digest()


def _read_head(archive: zipfile.ZipFile) -> _Delta:
    try:
        head = msgspec.json.decode(_read(archive, _HEAD, _MAX_HEAD), type=_Delta)
    except msgspec.DecodeError as error:
        raise ValueError(f"{_HEAD}: {error}") from None
    if (head.api_version, head.kind) != (API_VERSION, "SnapshotDelta"):
        raise ValueError(f"{_HEAD}: is {head.api_version} {head.kind}")
    # It names a file beside it, and never one elsewhere.
    if Path(head.base).name != head.base or head.base in ("", ".", ".."):
        raise ValueError(f"{_HEAD}: its base {head.base!r} is no name of a file")
    if len(head.lists) != len(head.snapshot.lists):
        raise ValueError(f"{_HEAD}: its lists are not those of its snapshot")
    return head


def _capture(manifest: Manifest) -> Capture:
    return Capture(
        captured_at=unix_seconds(manifest.captured_at),
        version=version_numbers(manifest.server_version) or (0, 0),
        resource_version=manifest.resource_version,
        kinds=manifest.kinds,
        source=manifest.source,
        finished=manifest.finished,
    )


def _read(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    # What it says of itself is checked before memory is taken for it.
    info = archive.getinfo(name)
    if min(most, info.file_size) > unpack_limit(min(info.compress_size, archive.start_dir)):
        raise ValueError(f"{name}: it unpacks to far more than objects of a cluster do")
    with archive.open(info) as member:
        data = member.read(most + 1)
    if len(data) > most:
        raise ValueError(f"{name}: it has more than {most} bytes")
    return data


def _write(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    # Opened by its name a member gets no time of its own: the same objects make the same file.
    with archive.open(name, "w", force_zip64=True) as member:
        member.write(data)
