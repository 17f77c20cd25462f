"""What a snapshot file says of itself: the kinds in it, and the manifest of a file of ours.

A file of ours is a zip archive with one member per list and ``manifest.json``, which is written last. A list
is what the API server sent, without what may be secret (``rebalancer.snapshot.store``): in protobuf (``.pb``,
a ``PodList`` and so on of ``k8s.io/api`` without its envelope), or as JSON, an object on each line. What the manifest
does not list is no part of the snapshot. One JSON list is a snapshot file, too, and may say the same in annotations.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from rebalancer import API_VERSION
from rebalancer.wire import kinds
from rebalancer.wire.decoder import JsonDecoder
from rebalancer.wire.times import rfc3339, unix_seconds

API_VERSIONS = {one.kind: one.api_version for one in kinds.IN_SNAPSHOTS}
"""The kinds of a snapshot file."""

METRICS = frozenset(one.kind for one in kinds.METRICS)
AUTOSCALERS = kinds.AUTOSCALERS.kind
ASKED_FOR = METRICS | {AUTOSCALERS}
"""Kinds that are there only if they were asked for."""

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
    """Of the list of pods."""
    kinds: tuple[str, ...]
    """What was read: of these kinds there is no more than the file holds."""
    source: str = ""
    """The API server's URL."""


class StoredList(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """One list of a file."""

    kind: str
    file: str
    """The member that holds it."""
    objects: int
    bytes: int
    """Of the list, not compressed."""

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
