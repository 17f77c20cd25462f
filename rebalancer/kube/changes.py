"""What turns the stream of a watch into changes, by the content type in which its list came.

The same type, because a class is known by the bytes of its pods (``rebalancer.wire.pods``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Raw

from rebalancer.kube.failures import ApiStatus, status_of
from rebalancer.wire.lists import item_decoder
from rebalancer.wire.pods import Pod, PodRecord
from rebalancer.wire.protobuf import PROTOBUF

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

BOOKMARK, ERROR = "BOOKMARK", "ERROR"


class WatchMessage(NamedTuple, Generic[T_co]):
    """One message of a watch."""

    type: str
    version: str
    """resourceVersion from which to go on; empty for an error."""
    object: T_co | None
    """None for a bookmark and for an error."""
    status: ApiStatus | None = None
    """Of an error."""


class ChangeDecoder(Protocol[T_co]):
    """Decodes one watch that arrives in pieces."""

    def feed(self, piece: bytes) -> Iterator[WatchMessage[T_co]]:
        """Yield what is whole with this piece.

        Raises:
            ValueError: this is no watch, or no object of its kind (msgspec's DecodeError is one).
        """


def pod_changes(content_type: str) -> ChangeDecoder[PodRecord]:
    """Return a new decoder of a watch of pods."""
    if content_type == PROTOBUF:
        from rebalancer.wire.protobuf.pods import pod_records  # noqa: PLC0415

        return _Protobuf(lambda run: next(pod_records(run)))
    return _Json(lambda item: _pods.decode(item).record())


def object_changes(kind: str, content_type: str) -> ChangeDecoder[Any]:
    """Return a new decoder of a watch of any other kind."""
    if content_type == PROTOBUF:
        from rebalancer.wire.protobuf.lists import decode_run  # noqa: PLC0415

        return _Protobuf(lambda run: decode_run(kind, run)[0])
    return _Json(item_decoder(kind).decode)


class _Line(msgspec.Struct):
    type: str
    object: Raw


class _Versioned(msgspec.Struct):
    class Meta(msgspec.Struct, rename="camel"):
        resource_version: str = ""

    metadata: Meta


# Made at import, in one thread: see ``rebalancer.wire.lists``.
_pods = msgspec.json.Decoder(Pod)
_lines = msgspec.json.Decoder(_Line)
_versions = msgspec.json.Decoder(_Versioned)


class _Json(ChangeDecoder[T]):
    def __init__(self, decode: Callable[[Raw], T]) -> None:
        self._decode, self._buffer = decode, b""

    def feed(self, piece: bytes) -> Iterator[WatchMessage[T]]:
        *lines, self._buffer = (self._buffer + piece).split(b"\n")
        for line in lines:
            if line.strip():
                yield self._message(_lines.decode(line))

    def _message(self, line: _Line) -> WatchMessage[T]:
        if line.type == ERROR:
            return WatchMessage(ERROR, "", None, status_of(bytes(line.object)))
        version = _versions.decode(line.object).metadata.resource_version
        if line.type == BOOKMARK:
            return WatchMessage(BOOKMARK, version, None)
        return WatchMessage(line.type, version, self._decode(line.object))


class _Protobuf(ChangeDecoder[T]):
    def __init__(self, decode: Callable[[bytes], T]) -> None:
        from rebalancer.wire.protobuf.changes import ChangeFrames  # noqa: PLC0415

        self._frames, self._decode = ChangeFrames(), decode

    def feed(self, piece: bytes) -> Iterator[WatchMessage[T]]:
        for change in self._frames.feed(piece):
            if change.type == ERROR:
                yield WatchMessage(ERROR, "", None, status_of(change.enveloped))
            elif change.type == BOOKMARK:
                yield WatchMessage(BOOKMARK, change.version, None)
            else:
                yield WatchMessage(change.type, change.version, self._decode(change.run))
