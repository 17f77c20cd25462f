"""Write snapshot files (``rebalancer.snapshot.file_format``) while the lists arrive.

Omitted are ``managedFields``, the annotation ``last-applied-configuration``, and ``env`` and ``envFrom`` of all
containers, since they are not used and may contain secrets.
"""

from __future__ import annotations

import contextlib
import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Self

import msgspec
from msgspec import Raw

from rebalancer.base.errors import PolicyError
from rebalancer.snapshot.file_format import API_VERSIONS, MANIFEST, Capture, Manifest, StoredList
from rebalancer.wire.kinds import WORKLOADS

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_LEVEL = 3  # pods compress twelvefold at once; more effort costs more time than it saves bytes
_Fields = dict[str, Raw]


JSON_END = b"]}"
"""The last line of a list in JSON."""


def json_head(kind: str) -> bytes:
    """Return the first line of a list in JSON."""
    return f'{{"kind":"{kind}List","apiVersion":"{API_VERSIONS[kind]}","items":['.encode()


class SnapshotWriter:
    """A snapshot file being written, list after list; no list is kept in memory.

    If the context is left before :meth:`close`, the file stays incomplete, and no reader accepts it.
    """

    def __init__(self, stream: BinaryIO) -> None:
        """``stream`` is only written to, so that a pipe gets the same bytes as a file."""
        self._stream = _WriteOnly(stream)
        plain: Any = self._stream
        self._zip = zipfile.ZipFile(plain, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Without this, zipfile would end the file as if it were whole when it is collected.
        self._stream.cut()
        self._zip.close()

    def write_protobuf(self, kind: str, runs: Iterable[tuple[bytes, int]]) -> StoredList:
        """Write a list of (run, number of objects), see ``rebalancer.wire.protobuf.stored``."""
        return self._write(kind, "pb", b"", runs, b"")

    def write_json(self, kind: str, items: Iterable[bytes | Raw]) -> StoredList:
        """Write a list of objects that were read as JSON, one per line."""
        tail = b"\n" + JSON_END + b"\n"
        return self._write(kind, "json", json_head(kind), _lines(kind, items), tail)

    def _write(
        self, kind: str, suffix: str, head: bytes, parts: Iterable[tuple[bytes, int]], tail: bytes
    ) -> StoredList:
        name = f"{kind}List.{suffix}"
        objects, size = 0, len(head) + len(tail)
        # Opened by its name a member gets no time of its own: the same objects make the same file.
        with self._zip.open(name, "w", force_zip64=True) as member:
            member.write(head)
            for part, count in parts:
                member.write(part)
                objects, size = objects + count, size + len(part)
            member.write(tail)
        return StoredList(kind, name, objects, size)

    def close(self, capture: Capture, lists: Sequence[StoredList]) -> None:
        """Write the manifest, which completes the file; ``lists`` are the lists of the snapshot."""
        manifest = msgspec.json.encode(Manifest.of(capture, tuple(lists)))
        with self._zip.open(MANIFEST, "w") as member:
            member.write(msgspec.json.format(manifest, indent=2) + b"\n")
        self._zip.close()
        self._stream.flush()


class _WriteOnly:
    """A stream without seek and position, so that zipfile never goes back in it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream: BinaryIO | None = stream

    def write(self, data: bytes) -> int:
        return len(data) if self._stream is None else self._stream.write(data)

    def flush(self) -> None:
        if self._stream is not None:
            self._stream.flush()

    def cut(self) -> None:
        """Discard everything that is written from now on."""
        self._stream = None


def _lines(kind: str, items: Iterable[bytes | Raw]) -> Iterator[tuple[bytes, int]]:
    separator = b"\n"
    for item in items:
        yield separator + slim(kind, item), 1
        separator = b",\n"


@contextlib.contextmanager
def open_for_writing(target: Path | BinaryIO) -> Iterator[BinaryIO]:
    """Yield a stream for writing. A file appears only when it is complete.

    Raises:
        PolicyError: the file cannot be written.
    """
    if not isinstance(target, Path):
        try:
            yield target
        except OSError as error:
            raise PolicyError(
                [f"standard output: cannot be written: {error.strerror or error}"]
            ) from None
        return
    partial = target.with_name(f".{target.name}.partial")
    try:
        # It may hold more than its reader is meant to see: private, whatever the umask.
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb", buffering=1 << 20) as stream:  # noqa: PTH123  (a descriptor)
            yield stream
        partial.replace(target)
    except OSError as error:
        raise PolicyError([f"{target}: cannot be written: {error.strerror or error}"]) from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def slim(kind: str, item: bytes | Raw) -> bytes:
    """Return the object on one line, with its kind, without the fields that snapshot files omit."""
    fields = msgspec.json.decode(item, type=_Fields)
    fields.pop("kind", None)
    fields.pop("apiVersion", None)
    if "metadata" in fields:
        fields["metadata"] = _edit(fields["metadata"], _slim_metadata)
    if kind == "Pod" and "spec" in fields:
        fields["spec"] = _edit(fields["spec"], _slim_pod_spec)
    elif kind in WORKLOADS and "spec" in fields:
        fields["spec"] = _edit(fields["spec"], _slim_workload_spec)
    body = msgspec.json.encode(fields)
    if b"\n" in body:
        body = msgspec.json.format(body, indent=-1)
    head = f'{{"kind":"{kind}","apiVersion":"{API_VERSIONS[kind]}"'.encode()
    return head + (b"," if fields else b"") + body[1:]


def _edit(raw: Raw, change: Any) -> Raw:
    fields = msgspec.json.decode(raw, type=_Fields | None)
    if fields is None:
        return raw
    change(fields)
    return Raw(msgspec.json.encode(fields))


def _slim_metadata(fields: _Fields) -> None:
    fields.pop("managedFields", None)
    annotations = fields.get("annotations")
    # The name is searched in the bytes first: few objects have it.
    if annotations is not None and _LAST_APPLIED.encode() in bytes(annotations):
        fields["annotations"] = _edit(annotations, lambda given: given.pop(_LAST_APPLIED, None))


def _slim_workload_spec(fields: _Fields) -> None:
    if "template" in fields:
        fields["template"] = _edit(fields["template"], _slim_template)


def _slim_template(fields: _Fields) -> None:
    if "metadata" in fields:
        fields["metadata"] = _edit(fields["metadata"], _slim_metadata)
    if "spec" in fields:
        fields["spec"] = _edit(fields["spec"], _slim_pod_spec)


def _slim_pod_spec(fields: _Fields) -> None:
    for name in _CONTAINERS:
        raw = fields.get(name)
        if raw is None or b'"env' not in bytes(raw):
            continue
        containers = msgspec.json.decode(raw, type=list[_Fields] | None) or []
        for container in containers:
            container.pop("env", None)
            container.pop("envFrom", None)
        fields[name] = Raw(msgspec.json.encode(containers))
