"""Read our own snapshot files: the manifest, then each list piece by piece.

A file may be damaged, truncated, or malicious. Only members that the manifest lists are read, each once and up to
its size in the manifest; only one piece is in memory.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import msgspec

from rebalancer.snapshot.collected import Collected
from rebalancer.snapshot.file_format import (
    API_VERSIONS,
    MANIFEST,
    Manifest,
    StoredList,
    decode_manifest,
)
from rebalancer.snapshot.store import JSON_END, json_head
from rebalancer.wire.kinds import OWNING_KINDS

MAGIC = b"PK"
_PIECE = 1 << 20
_MAX_MANIFEST = 1 << 20
_MAX_OBJECT = 1 << 25
"""Bytes kept in memory; etcd takes objects of a few MiB."""
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


_ORDER = (
    "Pod",
    *(kind for kind in API_VERSIONS if kind not in ("Pod", *OWNING_KINDS)),
    *OWNING_KINDS,
)


class SnapshotArchive:
    """An open snapshot file."""

    def __init__(self, stream: BinaryIO) -> None:
        """Read the manifest from a seekable stream.

        Raises:
            ValueError: the stream is not a complete snapshot file.
        """
        with _as_value_errors():
            self._zip = zipfile.ZipFile(stream)
        text = b"".join(self._pieces(MANIFEST, _MAX_MANIFEST))
        self.manifest: Manifest = decode_manifest(text)

    def pieces(self, stored: StoredList) -> Iterator[bytes]:
        """Yield the bytes of a list in pieces.

        Raises:
            ValueError: the list is damaged or truncated.
        """
        size = 0
        for piece in self._pieces(stored.file, stored.bytes):
            size += len(piece)
            yield piece
        if size < stored.bytes:
            raise ValueError(
                f"{stored.file}: it has {size} bytes, not the {stored.bytes} of the manifest"
            )

    def _pieces(self, name: str, most: int) -> Iterator[bytes]:
        with _as_value_errors(name):
            info = self._zip.getinfo(name)
            if info.compress_type not in _METHODS:
                raise ValueError("it is compressed in a way that snapshots are not")
            with self._zip.open(info) as member:
                left = most
                # One byte more than there should be: the end is seen, and the checksum compared.
                while piece := member.read(min(_PIECE, left + 1)):
                    left -= len(piece)
                    if left < 0:
                        raise ValueError(f"it has more than {most} bytes")
                    yield piece


@contextmanager
def _as_value_errors(name: str = "") -> Iterator[None]:
    """Convert zipfile's errors on damaged files into a ValueError that names the member."""
    where = f"{name}: " if name else ""
    try:
        yield
    except KeyError:
        raise ValueError(f"{where}it is not in the file, which is cut off or no snapshot") from None
    except EOFError:
        raise ValueError(f"{where}cut off") from None
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"{where}damaged or cut off: {error}") from None
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{where}{error}") from None


def read_archive(archive: SnapshotArchive, objects: Collected) -> None:
    """Add all lists of a file to ``objects``, pods first.

    Raises:
        ValueError: a list is damaged or truncated, differs from the manifest, or contains other objects; names the list.
    """
    for stored in sorted(archive.manifest.lists, key=lambda one: _ORDER.index(one.kind)):
        before = objects.seen[stored.kind]
        read = _read_protobuf if stored.in_protobuf else _read_json
        try:
            read(stored, archive.pieces(stored), objects)
        except (ValueError, msgspec.DecodeError) as error:
            number = objects.seen[stored.kind] - before
            where = f"after object {number}: " if number else ""
            # What is wrong with the file itself names it already.
            what = str(error).removeprefix(f"{stored.file}: ")
            raise ValueError(f"{stored.file}: {where}{what}") from None
        count = objects.seen[stored.kind] - before
        if count != stored.objects:
            raise ValueError(
                f"{stored.file}: it has {count} objects, not the {stored.objects} of the manifest"
            )


def _read_protobuf(stored: StoredList, pieces: Iterator[bytes], objects: Collected) -> None:
    # Imported where they are used: most files are read without protobuf.
    from rebalancer.wire.protobuf.frames import ListFrames  # noqa: PLC0415
    from rebalancer.wire.protobuf.lists import KINDS, decode_run  # noqa: PLC0415
    from rebalancer.wire.protobuf.pods import pod_records  # noqa: PLC0415

    kind = stored.kind
    if kind != "Pod" and kind not in KINDS:
        raise ValueError("lists of this kind are not kept in protobuf")
    wanted = objects.controllers if kind in OWNING_KINDS else None
    frames = ListFrames(length=stored.bytes)
    before = objects.seen[kind]
    for piece in pieces:
        for run in frames.feed(piece):
            if kind == "Pod":
                objects.add_pods(pod_records(run))
            else:
                objects.add_objects(kind, decode_run(kind, run, wanted))
            objects.seen[kind] = before + frames.items
    frames.close()


def _read_json(stored: StoredList, pieces: Iterator[bytes], objects: Collected) -> None:
    kind, lines = stored.kind, _split_lines(pieces)
    if next(lines, b"") != json_head(kind):
        raise ValueError(f"it is no list of {kind}, or cut off")
    line = b""
    for line in lines:
        if line != JSON_END:
            objects.add_json(kind, line.removesuffix(b","))
    if line != JSON_END:
        raise ValueError("cut off")


def _split_lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
        if len(rest) > _MAX_OBJECT:
            raise ValueError("an object is too large to be one")
    if rest:
        yield rest
