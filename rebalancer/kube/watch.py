"""Watch the changes of a list's objects.

Objects have the same content type as in the list, because a class is identified by the bytes of its pods
(``rebalancer.wire.pods``).
"""

from __future__ import annotations

import enum
import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Raw

from rebalancer.base.errors import RebalancerError
from rebalancer.base.stop import Backoff
from rebalancer.kube.client import Client
from rebalancer.kube.failures import ApiStatus, TransportError, refusal, status_of
from rebalancer.kube.resources import AccessRule
from rebalancer.kube.transport import Stream
from rebalancer.wire.kinds import Resource
from rebalancer.wire.lists import item_decoder
from rebalancer.wire.pods import Pod, PodRecord
from rebalancer.wire.protobuf import PROTOBUF

T = TypeVar("T")

SILENCE = 75.0
"""The server sends a bookmark about once a minute; a stream silent for longer is dead."""
CATCHING_UP = 0.5
"""Seconds for the server to send the changes since a stream broke; it sends them at once."""


T_co = TypeVar("T_co", covariant=True)

BOOKMARK, ERROR = "BOOKMARK", "ERROR"


class WatchMessage(NamedTuple, Generic[T_co]):
    """One message of a watch."""

    type: str
    version: str
    """resourceVersion from which to continue; empty for an error."""
    object: T_co | None
    """The decoded object; None for a bookmark and for an error."""
    status: ApiStatus | None = None
    """The Status of an error."""


class ChangeDecoder(Protocol[T_co]):
    """Decodes one watch, which arrives in pieces."""

    def feed(self, piece: bytes) -> Iterator[WatchMessage[T_co]]:
        """Yield the messages completed by ``piece``.

        Raises:
            ValueError: the bytes are not a watch, or not an object of its kind (msgspec's DecodeError is a ValueError).
        """


def pod_changes(content_type: str) -> ChangeDecoder[PodRecord]:
    """Return a new decoder for a watch of pods."""
    if content_type == PROTOBUF:
        from rebalancer.wire.protobuf.pods import pod_records  # noqa: PLC0415

        return _Protobuf(lambda run: next(pod_records(run)))
    return _Json(lambda item: _pods.decode(item).record())


def object_changes(kind: str, content_type: str) -> ChangeDecoder[Any]:
    """Return a new decoder for a watch of any other kind."""
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
        from rebalancer.wire.protobuf.frames import ChangeFrames  # noqa: PLC0415

        self._frames, self._decode = ChangeFrames(), decode

    def feed(self, piece: bytes) -> Iterator[WatchMessage[T]]:
        for change in self._frames.feed(piece):
            if change.type == ERROR:
                yield WatchMessage(ERROR, "", None, status_of(change.enveloped))
            elif change.type == BOOKMARK:
                yield WatchMessage(BOOKMARK, change.version, None)
            else:
                yield WatchMessage(change.type, change.version, self._decode(change.run))


class EventType(enum.Enum):
    """The type of a change."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """One change of one object; ``object`` is its state after the change (for DELETED, the last state)."""

    type: EventType
    object: T


@dataclass(frozen=True, slots=True)
class Where(Generic[T]):
    """The list that is watched, and the version to start from."""

    resource: Resource
    version: str
    """resourceVersion of the list."""
    content_type: str
    """The content type in which the list was received."""
    decoder: Callable[[], ChangeDecoder[T]]
    """Makes a new decoder for each stream."""
    selector: str = ""
    """Field selector of the list."""
    namespace: str = ""


class _ExpiredError(Exception):
    """The server no longer knows the resource version from which the watch should continue (HTTP 410)."""


class Watch(Generic[T]):
    """The changes of a list since it was read, for ``seconds`` at most.

    Iterate over it once. A stream that breaks is opened again from the last version seen, with back-off; no change
    is lost or repeated by that. If the server has dropped that version, iteration ends with ``expired`` set: list
    again, and watch from there. :meth:`close` may be called from another thread and ends a wait.

    Raises (while iterating)
        ClusterReadError: watching is refused. If a stream has been open, some attempts are made first: a server that
            has just started answers before it knows its roles, and authentication fails for a moment.
    """

    def __init__(self, client: Client, where: Where[T], *, seconds: float) -> None:
        self.resource_version = where.version
        """The last version seen."""
        self.expired = False
        self.broken = 0
        """How often the stream broke or was refused and had to be opened again."""
        self.live = False
        """Whether a stream is open: what happens is reported at once."""
        self.received = client.monotonic()
        """Time of the client's clock at which something came last; at first, of the list."""
        self._client, self._where = client, where
        self._closed = threading.Event()
        self._stop = client.stop.sooner(seconds, self._closed)
        self._stream: Stream | None = None
        self.has_opened = False
        """Whether a stream has been open."""
        self._opened = self._reopened = -math.inf
        self._refusals = 0

    def __iter__(self) -> Iterator[WatchEvent[T]]:
        limits = self._client.limits.follow
        backoff = Backoff(limits.first_wait, limits.longest_wait)
        while self._stop.reason() is None:
            before, began = self.resource_version, self._client.monotonic()
            try:
                yield from self._one_stream()
            except _ExpiredError:
                self.expired = True
                return
            except TransportError:
                self.broken += self._stop.reason() is None
            # The server ends a stream after its time, also one of a kind that never changes.
            lasted = self._client.monotonic() - began
            if self.resource_version != before or lasted > limits.longest_wait:
                backoff.reset()
            backoff.wait(self._stop)

    def is_current(self) -> bool:
        """Return whether a stream is open and not silent for too long, as after the machine was suspended.

        A reopened stream is current once it has sent something, or had the time to.
        """
        now = self._client.monotonic()
        caught_up = self.received > self._reopened or now - self._reopened >= CATCHING_UP
        return self.live and caught_up and now - max(self.received, self._opened) <= SILENCE

    def close(self) -> None:
        """End the watch; an iteration that waits in another thread ends soon."""
        self._closed.set()
        stream = self._stream
        if stream is not None:
            stream.interrupt()

    def _one_stream(self) -> Iterator[WatchEvent[T]]:
        """Yield the events of one stream until it ends or the time is over."""
        left = max(self._stop.seconds_left(), 0.05)
        query: dict[str, str | int] = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.resource_version,
            "timeoutSeconds": math.ceil(min(left, self._client.limits.follow.stream)),
        }
        query |= {"fieldSelector": self._where.selector} if self._where.selector else {}
        stream = self._client.stream(
            self._where.resource.path(self._where.namespace),
            query=query,
            accept=self._where.content_type,
            silence=SILENCE,
            stop=self._stop,
        )
        self._stream = stream
        decoder = self._where.decoder()
        try:
            self._check(stream)
            self._opened = self._client.monotonic()
            if self.has_opened:
                self._reopened = self._opened
            self.live = self.has_opened = True
            self._refusals = 0
            while self._stop.reason() is None:
                piece = stream.read()
                if not piece:
                    return
                self.received = self._client.monotonic()
                for message in decoder.feed(piece):
                    event = self._event(message)
                    if event is not None:
                        yield event
        except (RebalancerError, _ExpiredError):
            raise
        except Exception as error:
            # Whatever the decoders raise over what no API server sends: a new stream may be whole.
            raise TransportError(f"watch: {type(error).__name__}: {error}", sent=True) from error
        finally:
            self.live = False
            self._stream = None
            stream.close()

    def _check(self, stream: Stream) -> None:
        """Accept a success; convert temporary errors into a TransportError."""
        if stream.status == 200:
            if stream.content_type != self._where.content_type:
                raise TransportError(f"watch: {stream.content_type} was not asked for", sent=True)
            return
        body = stream.read()
        if stream.status == 410:
            raise _ExpiredError
        if stream.status == 429 or stream.status >= 500:
            raise TransportError(f"watch: HTTP {stream.status}", sent=False)
        if self.has_opened and self._refusals < self._client.limits.follow.refusals:
            self._refusals += 1
            raise TransportError(f"watch: HTTP {stream.status}", sent=False)
        resource = self._where.resource
        rule = AccessRule.of("watch", resource)
        raise refusal(stream.status, body, rule, self._client.server)

    def _event(self, message: WatchMessage[T]) -> WatchEvent[T] | None:
        if message.type == ERROR:
            _raise_error(message.status or ApiStatus())
        self.resource_version = message.version
        if message.type == BOOKMARK or message.object is None:
            return None
        return WatchEvent(EventType(message.type), message.object)


def _raise_error(status: ApiStatus) -> None:
    """Raise the error in the Status with which the server ended a stream; a new stream may continue."""
    if status.code == 410 or status.reason in ("Expired", "Gone"):
        raise _ExpiredError
    raise TransportError(f"watch: {status.message}", sent=True)
