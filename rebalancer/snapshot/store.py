"""A snapshot file: its header, and how it is written while the lists arrive.

A file of ours is a zip archive with one member per list and ``manifest.json``, which is written last. A list is what
the API server sent: in protobuf (``.pb``, a ``PodList`` and so on of ``k8s.io/api`` without its envelope), or as
JSON, an object on each line. Members that are not in the manifest do not belong to the snapshot. A single JSON list
is a snapshot file, too; its annotations may contain the manifest.

Omitted, since nothing reads it and it may contain secrets: ``managedFields``; annotations but those that are read
(``rebalancer.wire.annotations``); of all containers the command, its arguments, the environment, probes and hooks; and
the messages of containers that ended (``lastState``, and ``message`` of their state), and of Events. Of StorageClasses,
PersistentVolumes and volumes of pods only what is read is kept: no parameters, mount options or attributes. For containers and their
statuses, the kept fields are listed here, as in ``stored.proto``: new fields of Kubernetes are omitted until they are read.
"""

from __future__ import annotations

import contextlib
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import msgspec
from msgspec import Raw

from rebalancer import API_VERSION
from rebalancer.base.errors import PolicyError
from rebalancer.base.output import create_file
from rebalancer.wire import kinds, objects
from rebalancer.wire.annotations import is_read
from rebalancer.wire.kinds import WORKLOADS
from rebalancer.wire.lists import JsonDecoder
from rebalancer.wire.times import rfc3339, unix_seconds

API_VERSIONS = {one.kind: one.api_version for one in kinds.IN_SNAPSHOTS}
"""The kinds of a snapshot file."""

METRICS = frozenset(one.kind for one in kinds.METRICS)
ONCE_EMPTY = frozenset(one.kind for one in kinds.IN_SNAPSHOTS if one.empty_counts)
"""Kinds for which an empty list differs from a missing one."""
ASKED_FOR = API_VERSIONS.keys() - {one.kind for one in kinds.LISTED}
"""Kinds that a file has only on request."""

CAPTURED_AT = "rebalancer/captured-at"
VERSION = "rebalancer/server-version"
KINDS = "rebalancer/kinds"

FORMAT = 2
"""Version of the format that is written and read."""
MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class Capture:
    """When and where a snapshot was captured."""

    captured_at: float
    """Unix seconds by the server's clock."""
    version: tuple[int, int]
    resource_version: str
    """The version of the list of pods."""
    kinds: tuple[str, ...]
    """The kinds that were read. An object of one of them that the file lacks was not in the cluster."""
    source: str = ""
    """The API server's URL."""
    finished: tuple[str, ...] | None = None
    """The phases of the pods that have ended which were read, too; None: not known."""


class StoredList(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """One list of a file."""

    kind: str
    file: str
    """The member of the archive that contains it."""
    objects: int
    bytes: int
    """Bytes of the list, not compressed."""

    @property
    def in_protobuf(self) -> bool:
        """Whether the list is protobuf; else it is JSON."""
        return self.file.endswith(".pb")


class Manifest(msgspec.Struct, rename="camel", kw_only=True):
    """The content of ``manifest.json``."""

    api_version: str = API_VERSION
    kind: str = "Snapshot"
    format: int = FORMAT
    captured_at: str
    source: str
    server_version: str
    resource_version: str
    kinds: tuple[str, ...]
    finished: tuple[str, ...] | None = None
    lists: tuple[StoredList, ...]

    @classmethod
    def of(cls, capture: Capture, lists: tuple[StoredList, ...]) -> Manifest:
        """Return the manifest of a capture."""
        return cls(
            captured_at=rfc3339(capture.captured_at),
            source=capture.source,
            server_version=".".join(map(str, capture.version)),
            resource_version=capture.resource_version,
            kinds=capture.kinds,
            finished=capture.finished,
            lists=lists,
        )

    def as_metadata(self) -> dict[str, Any]:
        """Return the manifest as the metadata of a single JSON list."""
        annotations = {
            CAPTURED_AT: self.captured_at,
            VERSION: self.server_version,
            KINDS: ",".join(self.kinds),
        }
        return {"resourceVersion": self.resource_version, "annotations": annotations}


class _Head(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    format: int = 0


def decode_manifest(text: bytes) -> Manifest:
    """Parse a manifest.

    Raises:
        ValueError: the text is not a manifest, or has a newer format.
    """
    try:
        head = JsonDecoder(_Head).decode(text)
        if head.kind != "Snapshot":
            raise ValueError(f"{MANIFEST}: its kind is {head.kind or 'missing'}, not Snapshot")
        if head.api_version != API_VERSION:
            raise ValueError(
                f"{MANIFEST}: apiVersion {head.api_version or 'missing'}: this version of kube-rebalancer reads {API_VERSION}"
            )
        if head.format != FORMAT:
            raise ValueError(
                f"{MANIFEST}: format {head.format}: this version of kube-rebalancer reads format {FORMAT}"
            )
        manifest = JsonDecoder(Manifest).decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"{MANIFEST}: {error}") from None
    if not unix_seconds(manifest.captured_at) or not version_numbers(manifest.server_version):
        raise ValueError(f"{MANIFEST}: capturedAt is no time, or serverVersion no version")
    for stored in manifest.lists:
        if stored.kind not in API_VERSIONS:
            raise ValueError(
                f"{MANIFEST}: there is a list of {stored.kind}, which is no kind of a snapshot"
            )
    files = [stored.file for stored in manifest.lists]
    if len(set(files)) < len(files):
        raise ValueError(f"{MANIFEST}: two lists are in one file")
    return manifest


def version_numbers(text: str) -> tuple[int, int] | None:
    """Parse ``1.36`` as (1, 36); None if the text is not a version."""
    match = re.fullmatch(r"([0-9]{1,9})\.([0-9]{1,9})", text)
    return (int(match[1]), int(match[2])) if match else None


_LEVEL = 3  # pods compress twelvefold at once; more effort costs more time than it saves bytes
_Fields = dict[str, Raw]


JSON_END = b"]}"
"""The last line of a list in JSON."""


def json_head(kind: str) -> bytes:
    """Return the first line of a list in JSON."""
    return f'{{"kind":"{kind}List","apiVersion":"{API_VERSIONS[kind]}","items":['.encode()


class SnapshotWriter:
    """A snapshot file being written, list after list; no list is kept in memory.

    If the context ends before :meth:`close`, the file is incomplete, and no reader accepts it.
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
        """Write a list of (run, number of objects), see ``rebalancer.wire.protobuf.lists``."""
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
    """A stream without seek and position, so that zipfile only appends to it."""

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
    try:
        # It may hold more than its reader is meant to see: private, whatever the umask.
        with create_file(target, 0o600) as stream:
            yield stream
    except OSError as error:
        raise PolicyError([f"{target}: cannot be written: {error.strerror or error}"]) from None


def slim(kind: str, item: bytes | Raw) -> bytes:
    """Return the object on one line, with its kind, without the fields that snapshot files omit."""
    fields = msgspec.json.decode(item, type=_Fields)
    fields.pop("kind", None)
    version = _version_of(kind, fields.pop("apiVersion", None))
    _edit_field(fields, "metadata", _slim_metadata)
    if kind == "Pod":
        _edit_field(fields, "spec", _slim_pod_spec)
        _edit_field(fields, "status", _slim_pod_status)
    elif kind == kinds.POD_TEMPLATES.kind:
        _slim_workload_spec(fields)
    elif kind in WORKLOADS:
        _edit_field(fields, "spec", _slim_workload_spec)
    elif kind == "StorageClass":
        _keep_read(fields, objects.StorageClass)
    elif kind == "PersistentVolume":
        _edit_field(fields, "spec", _slim_persistent_volume)
    elif kind == kinds.EVENTS.kind:
        for text in ("note", "message"):
            fields.pop(text, None)
    body = msgspec.json.encode(fields)
    if b"\n" in body:
        body = msgspec.json.format(body, indent=-1)
    head = f'{{"kind":"{kind}","apiVersion":'.encode() + msgspec.json.encode(version)
    return head + (b"," if fields else b"") + body[1:]


def _version_of(kind: str, given: Raw | None) -> str:
    """Return the version that an object has in the file: of PodGroups, which are of several projects, its own."""
    known = API_VERSIONS[kind]
    if kind != kinds.POD_GROUPS.kind or given is None:
        return known
    version = msgspec.json.decode(given, type=str)
    return known if version.startswith(f"{kinds.POD_GROUPS.group}/") else version


_Change = Callable[[_Fields], None]


def _edit_field(fields: _Fields, name: str, change: _Change) -> None:
    """Change the object in a field in place; an absent or null field is not changed."""
    raw = fields.get(name)
    within = None if raw is None else msgspec.json.decode(raw, type=_Fields | None)
    if within is not None:
        change(within)
        fields[name] = Raw(msgspec.json.encode(within))


def _edit_items(fields: _Fields, name: str, change: _Change) -> None:
    """Change each object of the list in a field in place."""
    raw = fields.get(name)
    items = None if raw is None else msgspec.json.decode(raw, type=list[_Fields] | None)
    if items:
        for item in items:
            change(item)
        fields[name] = Raw(msgspec.json.encode(items))


_OPTIONAL: Any = msgspec.UNSET


class _Kept(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """Base of what is kept of an object: the fields of the struct, as they are."""


class _Waiting(_Kept):
    reason: Raw = _OPTIONAL


class _Terminated(_Kept):
    exit_code: Raw = _OPTIONAL
    signal: Raw = _OPTIONAL
    reason: Raw = _OPTIONAL
    started_at: Raw = _OPTIONAL
    finished_at: Raw = _OPTIONAL
    container_id: Raw = msgspec.field(name="containerID", default=_OPTIONAL)


class _State(_Kept):
    waiting: _Waiting | None = _OPTIONAL
    running: Raw = _OPTIONAL
    terminated: _Terminated | None = _OPTIONAL


class KeptContainerStatus(_Kept):
    """The kept fields of the status of a container."""

    name: Raw = _OPTIONAL
    state: _State | None = _OPTIONAL
    ready: Raw = _OPTIONAL
    restart_count: Raw = _OPTIONAL
    image: Raw = _OPTIONAL
    image_id: Raw = msgspec.field(name="imageID", default=_OPTIONAL)
    container_id: Raw = msgspec.field(name="containerID", default=_OPTIONAL)
    started: Raw = _OPTIONAL
    allocated_resources: Raw = _OPTIONAL
    resources: Raw = _OPTIONAL
    volume_mounts: Raw = _OPTIONAL
    user: Raw = _OPTIONAL
    allocated_resources_status: Raw = _OPTIONAL
    stop_signal: Raw = _OPTIONAL


class KeptContainer(_Kept):
    """The kept fields of a container."""

    name: Raw = _OPTIONAL
    image: Raw = _OPTIONAL
    working_dir: Raw = _OPTIONAL
    ports: Raw = _OPTIONAL
    resources: Raw = _OPTIONAL
    volume_mounts: Raw = _OPTIONAL
    termination_message_path: Raw = _OPTIONAL
    image_pull_policy: Raw = _OPTIONAL
    security_context: Raw = _OPTIONAL
    stdin: Raw = _OPTIONAL
    stdin_once: Raw = _OPTIONAL
    tty: Raw = _OPTIONAL
    termination_message_policy: Raw = _OPTIONAL
    volume_devices: Raw = _OPTIONAL
    resize_policy: Raw = _OPTIONAL
    restart_policy: Raw = _OPTIONAL
    restart_policy_rules: Raw = _OPTIONAL


class KeptEphemeralContainer(KeptContainer):
    """The kept fields of an ephemeral container."""

    target_container_name: Raw = _OPTIONAL


_CONTAINERS = {
    "containers": list[KeptContainer] | None,
    "initContainers": list[KeptContainer] | None,
    "ephemeralContainers": list[KeptEphemeralContainer] | None,
}
"""Field of a pod's spec -> the type of its value."""
_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")


def _keep(fields: _Fields, name: str, of: Any) -> None:
    """Keep of the value of a field only what its type ``of`` names."""
    if name in fields:
        fields[name] = Raw(msgspec.json.encode(msgspec.json.decode(fields[name], type=of)))


def _slim_metadata(fields: _Fields) -> None:
    fields.pop("managedFields", None)
    _edit_field(fields, "annotations", _slim_annotations)


def _slim_annotations(given: _Fields) -> None:
    for name in [name for name in given if not is_read(name)]:
        del given[name]


def _slim_template(fields: _Fields) -> None:
    _edit_field(fields, "metadata", _slim_metadata)
    _edit_field(fields, "spec", _slim_pod_spec)


def _slim_claim(fields: _Fields) -> None:
    _edit_field(fields, "metadata", _slim_metadata)


def _slim_workload_spec(fields: _Fields) -> None:
    _edit_field(fields, "template", _slim_template)
    _edit_items(fields, "volumeClaimTemplates", _slim_claim)


def _slim_pod_spec(fields: _Fields) -> None:
    for name, of in _CONTAINERS.items():
        _keep(fields, name, of)
    _edit_items(fields, "volumes", _slim_volume)


def _keep_read(fields: _Fields, of: type[msgspec.Struct]) -> None:
    """Keep only the fields that are read of an object, or of a part of it."""
    for name in fields.keys() - {field.encode_name for field in msgspec.structs.fields(of)}:
        del fields[name]


def _slim_persistent_volume(fields: _Fields) -> None:
    _keep_read(fields, objects.PersistentVolumeSpec)
    _edit_field(fields, "csi", lambda source: _keep_read(source, objects.CSISource))


def _slim_volume(fields: _Fields) -> None:
    _keep_read(fields, objects.Volume)
    _edit_field(fields, "ephemeral", lambda of: _edit_field(of, "volumeClaimTemplate", _slim_claim))


def _slim_pod_status(fields: _Fields) -> None:
    for name in _STATUSES:
        _keep(fields, name, list[KeptContainerStatus] | None)
