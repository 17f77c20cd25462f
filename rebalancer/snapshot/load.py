"""Read a snapshot file, our own or kubectl's, into a Snapshot.

A file may be damaged, cut off, or made to do harm. Of ours only what the manifest lists is read, each member once and
never more of it than its size in the manifest; only one piece is in memory.
"""

from __future__ import annotations

import gzip
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import msgspec
import yaml
from msgspec import Raw

from rebalancer.base.environment import collector_paused
from rebalancer.base.errors import PolicyError
from rebalancer.base.file_text import read_rest, unpack, yaml_documents
from rebalancer.snapshot.collected import Collected
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.store import (
    API_VERSIONS,
    CAPTURED_AT,
    JSON_END,
    KINDS,
    MANIFEST,
    VERSION,
    Manifest,
    StoredList,
    decode_manifest,
    json_head,
    version_numbers,
)
from rebalancer.wire.decoder import JsonDecoder, in_words
from rebalancer.wire.kinds import OWNING_KINDS
from rebalancer.wire.times import unix_seconds

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
        with as_value_errors():
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
        with as_value_errors(name):
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
def as_value_errors(name: str = "") -> Iterator[None]:
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
    kind, lines = stored.kind, split_lines(pieces)
    if next(lines, b"") != json_head(kind):
        raise ValueError(f"it is no list of {kind}, or cut off")
    line = b""
    for line in lines:
        if line != JSON_END:
            objects.add_json(kind, line.removesuffix(b","))
    if line != JSON_END:
        raise ValueError("cut off")


def split_lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines of a list in JSON without their ends.

    Raises:
        ValueError: a line is longer than any object.
    """
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
        if len(rest) > _MAX_OBJECT:
            raise ValueError("an object is too large to be one")
    if rest:
        yield rest


_ADVICE = (
    "expected what `rebalancer snapshot -o FILE` writes, or what `kubectl get"
    " pods,nodes,... -A -o json` prints"
)
_KIND_FIRST = re.compile(rb'\{\s*(?:"apiVersion"\s*:\s*"[^"]*"\s*,\s*)?"kind"\s*:\s*"([A-Za-z]+)"')
"""How API servers and kubectl begin an object."""
_BLANK = b"\xef\xbb\xbf \t\r\n"
"""What may stand before the text: a byte order mark and white space."""


class _Envelope(msgspec.Struct, rename="camel"):
    class Meta(msgspec.Struct, rename="camel"):
        resource_version: str = ""
        annotations: dict[str, str] | None = None

    kind: str = ""
    metadata: Meta | None = None
    items: tuple[Raw, ...] | None = None


class _KindOf(msgspec.Struct):
    kind: str = ""


_kinds = JsonDecoder(_KindOf)
_envelopes = JsonDecoder(_Envelope)


def load_snapshot(
    path: str | Path, *, stdin: BinaryIO | None = None, finished: frozenset[str] = frozenset()
) -> Snapshot:
    """Return the snapshot in a file, compressed or not; ``-`` is ``stdin``.

    Our own files are read piece by piece; JSON and YAML are read into memory as a whole. ``captured_at`` is the time
    recorded in the file, else the newest timestamp in it; ``version`` is the recorded one, else that of most
    kubelets. Kinds that the file may lack are named in ``missing``. Objects of other kinds are skipped, and finished
    pods, too, except those in the phases ``finished``.

    Raises:
        PolicyError: the file does not exist, has another format, has no API objects, or is truncated; says where.
    """
    name = "standard input" if str(path) == "-" else str(path)
    try:
        with collector_paused():
            loader = _Loader(name, finished)
            _read(path, stdin, loader)
            return loader.finish()
    except (gzip.BadGzipFile, zlib.error) as error:
        raise PolicyError([f"{name}: damaged: {error}"]) from None
    except EOFError:
        raise PolicyError([f"{name}: cut off: the compressed data ends too early"]) from None
    except OSError as error:
        raise PolicyError([f"{name}: cannot be read: {error.strerror or error}"]) from None


def load_judgeable(
    path: str | Path, *, stdin: BinaryIO | None = None, finished: frozenset[str] = frozenset()
) -> Snapshot:
    """Return the snapshot in a file as :func:`load_snapshot`, for commands that need nodes and pods.

    Raises:
        PolicyError: as there; also if the file has no nodes or no pods and does not say that there were none.
    """
    snapshot = load_snapshot(path, stdin=stdin, finished=finished)
    lacking = [kind for kind in ("Node", "Pod") if f"{kind}: none in the file" in snapshot.missing]
    if lacking:
        name = "standard input" if str(path) == "-" else str(path)
        nouns = " and no ".join(f"{kind.lower()}s" for kind in lacking)
        raise PolicyError([f"{name}: has no {nouns}, so that nothing can be judged: {_ADVICE}"])
    return snapshot


def _read(path: str | Path, stdin: BinaryIO | None, loader: _Loader) -> None:
    if str(path) == "-":
        if stdin is None:
            raise PolicyError(["standard input is not connected"])
        loader.read(stdin, seekable=False)
        return
    with Path(path).open("rb") as stream:
        loader.read(stream, seekable=True)


class _Loader:
    """Reads one file: from its bytes to collected objects."""

    def __init__(self, name: str, finished: frozenset[str]) -> None:
        self._name = name
        self._objects = Collected(finished)
        self._meta = _Envelope.Meta()

    def read(self, stream: BinaryIO, *, seekable: bool) -> None:
        """Read a stream to its end; ``seekable``: whether the stream can seek."""
        plain, head = unpack(stream)
        text = head.lstrip(_BLANK)
        if text[:1] == b"\0":
            raise PolicyError([f"{self._name}: is no text, and no zip archive: {_ADVICE}"])
        if not text:
            raise PolicyError([f"{self._name}: is empty: {_ADVICE}"])
        if plain is stream and head.startswith(MAGIC):
            self._read_archive(stream if seekable else BytesIO(head + stream.read()))
        elif text[:1] == b"{":
            self._read_json(read_rest(plain, head).lstrip(_BLANK))
        else:
            self._read_yaml(read_rest(plain, head))

    # -- forms -------------------------------------------------------------------------------------

    def _read_archive(self, stream: BinaryIO) -> None:
        try:
            archive = SnapshotArchive(stream)
            read_archive(archive, self._objects)
        except (ValueError, msgspec.DecodeError) as error:
            raise PolicyError([f"{self._name}: {error}"]) from None
        self._meta = msgspec.convert(archive.manifest.as_metadata(), _Envelope.Meta)

    def _read_json(self, text: bytes) -> None:
        try:
            envelope = _envelopes.decode(text)
        except msgspec.DecodeError as error:
            cut = "cut off" if "truncated" in str(error) else "not one JSON list"
            raise PolicyError([f"{self._name}: {cut}: {error}: {_ADVICE}"]) from None
        if not envelope.kind.endswith("List"):
            self._refuse(envelope.kind)
        self._meta = envelope.metadata or _Envelope.Meta()
        self._add(envelope.items or (), envelope.kind)

    def _read_yaml(self, text: bytes) -> None:
        objects: list[bytes] = []
        documents, list_kind = 0, ""
        try:
            for document in yaml_documents(text):
                if document is None:
                    continue
                documents += 1
                list_kind = self._take_document(document, objects) or list_kind
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            where = f"{self._name}:{mark.line + 1}:{mark.column + 1}" if mark else self._name
            raise PolicyError([f"{where}: neither JSON nor YAML: {error.problem}"]) from None
        except yaml.YAMLError as error:
            what = getattr(error, "reason", None) or error
            at = f" at byte {error.position}" if isinstance(error, yaml.reader.ReaderError) else ""
            raise PolicyError([f"{self._name}: neither JSON nor YAML: {what}{at}"]) from None
        if not documents:
            raise PolicyError([f"{self._name}: is empty: {_ADVICE}"])
        self._add(objects, list_kind)

    def _take_document(self, document: Any, objects: list[bytes]) -> str:
        """Append the objects of a document to ``objects``; return its kind if it is a list, else ""."""
        if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
            self._refuse("")
        kind = document["kind"]
        if not kind.endswith("List"):
            if kind not in API_VERSIONS:
                self._refuse(kind)
            objects.append(self._as_json(document, len(objects)))
            return ""
        metadata, items = document.get("metadata") or {}, document.get("items") or []
        try:
            self._meta = msgspec.convert(metadata, _Envelope.Meta, strict=False)
        except msgspec.ValidationError as error:
            raise PolicyError([f"{self._name}: metadata: {in_words(error)}"]) from None
        if not isinstance(items, list):
            raise PolicyError([f"{self._name}: items: no list: {_ADVICE}"])
        for item in items:
            objects.append(self._as_json(item, len(objects)))
        return kind

    def _as_json(self, item: object, number: int) -> bytes:
        """Return an object of YAML as JSON for the decoders; YAML has values that JSON has not."""
        try:
            return msgspec.json.encode(item)
        except (TypeError, ValueError, RecursionError) as error:
            raise PolicyError([f"{self._name}: object {number + 1}: no JSON: {error}"]) from None

    # -- the objects -------------------------------------------------------------------------------

    def _add(self, objects: Sequence[bytes | Raw], list_kind: str) -> None:
        """Add objects, possible owners of pods last; ``list_kind``: the kind of the list that contains them."""
        late: list[tuple[int, str]] = []
        for number, text in enumerate(objects):
            kind = self._kind_of(number, text, list_kind)
            if kind in OWNING_KINDS:
                late.append((number, kind))
            else:
                self._add_object(number, kind, text)
        for number, kind in late:
            self._add_object(number, kind, objects[number])

    def _add_object(self, number: int, kind: str, text: bytes | Raw) -> None:
        try:
            self._objects.add_json(kind, text)
        except msgspec.DecodeError as error:
            raise PolicyError([f"{self._name}: object {number + 1} ({kind}): {error}"]) from None

    def _kind_of(self, number: int, text: bytes | Raw, list_kind: str) -> str:
        match = _KIND_FIRST.match(text)
        try:
            kind = match[1].decode() if match else _kinds.decode(text).kind
        except msgspec.DecodeError as error:
            raise PolicyError([f"{self._name}: object {number + 1}: {error}"]) from None
        if kind := kind or list_kind.removesuffix("List"):
            return kind
        raise PolicyError([f"{self._name}: its objects have no kind: {_ADVICE}"])

    def _refuse(self, kind: str) -> NoReturn:
        what = f"kind {kind}" if kind else "no list of API objects"
        raise PolicyError([f"{self._name}: {what}: {_ADVICE}"])

    def finish(self) -> Snapshot:
        """Return the snapshot."""
        annotations = self._meta.annotations or {}
        try:
            return self._objects.snapshot(
                captured_at=unix_seconds(annotations.get(CAPTURED_AT)),
                version=version_numbers(annotations.get(VERSION, "")),
                kinds=annotations.get(KINDS, "").split(","),
                resource_version=self._meta.resource_version,
            )
        except PolicyError as error:
            raise PolicyError([f"{self._name}: {error}"]) from None
