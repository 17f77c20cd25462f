"""Snapshot files: what ``rebalancer snapshot`` writes and ``--snapshot`` reads.

One ``kind: List`` of API objects as they came, one per line, pods first, with the time and version of the
capture as annotations of the list. Left out on writing: ``managedFields``, the annotation
``last-applied-configuration``, and ``env`` and ``envFrom`` of all containers, since nothing reads them
and they may hold secrets. What was measured (NodeMetrics, PodMetrics) comes last, if it was asked for. Also
read is whatever ``kubectl get nodes,pods,... -o json`` (or yaml) prints.
"""

from __future__ import annotations

import contextlib
import gzip
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import Raw

from rebalancer.errors import PolicyError
from rebalancer.snapshot.file_format import API_VERSIONS, Capture
from rebalancer.snapshot.load import load_snapshot

__all__ = ["Capture", "load_snapshot", "slim", "write_snapshot"]

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_WITH_TEMPLATE = frozenset(
    {"ReplicaSet", "Deployment", "StatefulSet", "ReplicationController", "Job"}
)
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_GZIP_LEVEL = 3  # pods compress twelvefold at once; more effort costs more time than it saves bytes
_Fields = dict[str, Raw]


def write_snapshot(
    items: Iterable[tuple[str, bytes | Raw]], target: Path | BinaryIO, capture: Capture
) -> int:
    """Write (kind, JSON object) pairs, pods first, as one list; return how many.

    A path ending in ``.gz`` is compressed. A file appears when it is complete, or not at all; what
    ``items`` raises passes through.

    Raises:
        PolicyError: the file cannot be written.
    """
    if not isinstance(target, Path):
        return _write(items, target, capture)
    partial = target.with_name(f".{target.name}.partial")
    try:
        with _opened_for_writing(partial, compressed=target.suffix == ".gz") as stream:
            count = _write(items, stream, capture)
        partial.replace(target)
    except OSError as error:
        raise PolicyError([f"{target}: cannot be written: {error.strerror or error}"]) from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
    return count


@contextlib.contextmanager
def _opened_for_writing(path: Path, *, compressed: bool) -> Iterator[BinaryIO]:
    # It may hold more than its reader is meant to see: private, whatever the umask.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb", buffering=1 << 20) as plain:  # noqa: PTH123  (a descriptor)
        if not compressed:
            yield plain
            return
        # Without name and time: the same objects make the same file.
        with gzip.GzipFile("", "wb", _GZIP_LEVEL, plain, mtime=0) as packed:
            yield packed  # type: ignore[misc]


def _write(items: Iterable[tuple[str, bytes | Raw]], stream: BinaryIO, capture: Capture) -> int:
    metadata = msgspec.json.encode(capture.metadata())
    stream.write(b'{"kind":"List","apiVersion":"v1","metadata":' + metadata + b',"items":[')
    count = 0
    for kind, item in items:
        stream.write((b",\n" if count else b"\n") + slim(kind, item))
        count += 1
    stream.write(b"\n]}\n")
    return count


def slim(kind: str, item: bytes | Raw) -> bytes:
    """Return the object with its kind and without what is left out of snapshot files."""
    fields = msgspec.json.decode(item, type=_Fields)
    fields.pop("kind", None)
    fields.pop("apiVersion", None)
    if "metadata" in fields:
        fields["metadata"] = _changed(fields["metadata"], _slim_metadata)
    if kind == "Pod" and "spec" in fields:
        fields["spec"] = _changed(fields["spec"], _slim_pod_spec)
    elif kind in _WITH_TEMPLATE and "spec" in fields:
        fields["spec"] = _changed(fields["spec"], _slim_workload_spec)
    body = msgspec.json.encode(fields)
    head = f'{{"kind":"{kind}","apiVersion":"{API_VERSIONS[kind]}"'.encode()
    return head + (b"," if fields else b"") + body[1:]


def _changed(raw: Raw, change: Any) -> Raw:
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
        fields["annotations"] = _changed(annotations, lambda found: found.pop(_LAST_APPLIED, None))


def _slim_workload_spec(fields: _Fields) -> None:
    if "template" in fields:
        fields["template"] = _changed(fields["template"], _slim_template)


def _slim_template(fields: _Fields) -> None:
    if "metadata" in fields:
        fields["metadata"] = _changed(fields["metadata"], _slim_metadata)
    if "spec" in fields:
        fields["spec"] = _changed(fields["spec"], _slim_pod_spec)


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
