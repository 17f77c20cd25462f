"""What happens to pods while a run is under way."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
from msgspec import Raw

from rebalancer.kube.client import Client
from rebalancer.kube.failures import TransportError, refusal, status_of
from rebalancer.kube.podview import PodView, decode_pod
from rebalancer.kube.resources import PODS, Rule
from rebalancer.kube.transport import Stream

_SILENCE = 90.0
"""The server sends a bookmark about once a minute; a stream silent for longer is dead."""
_LONGEST_STREAM = 300.0
_FIRST_WAIT, _LONGEST_WAIT = 0.25, 8.0
_RULE = Rule("watch", "", PODS.plural)


class EventType(enum.Enum):
    """What happened to a pod."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class PodEvent:
    """One change of one pod; ``pod`` is its state after it (for DELETED, the last one)."""

    type: EventType
    pod: PodView


class _Line(msgspec.Struct):
    type: str
    object: Raw


class _Versioned(msgspec.Struct):
    class Meta(msgspec.Struct, rename="camel"):
        resource_version: str = ""

    metadata: Meta


_lines = msgspec.json.Decoder(_Line)
_versions = msgspec.json.Decoder(_Versioned)


class _ExpiredError(Exception):
    """The server has forgotten the version from which it should go on (410)."""


class PodWatch:
    """The changes of pods from ``resource_version`` on, for at most ``seconds``.

    Iterate over it once. A stream that breaks is opened again from the last version seen, with
    back-off; nothing is missed or told twice by that. When the server has forgotten that version,
    iteration ends with ``expired`` set: list again, and watch from there. :meth:`close` may be called
    from another thread and ends a wait.

    Raises (while iterating)
        ClusterReadError: watching is forbidden, or the credentials are no longer accepted.
    """

    def __init__(
        self,
        client: Client,
        resource_version: str,
        *,
        seconds: float,
        namespace: str = "",
        labels: str = "",
    ) -> None:
        self.resource_version = resource_version
        """The last version seen."""
        self.expired = False
        self.broken = 0
        """How often the stream broke or was refused and had to be opened again."""
        self._client = client
        self._deadline = client.monotonic() + seconds
        self._path = PODS.path(namespace)
        self._labels = labels
        self._stream: Stream | None = None
        self._closed = False

    def __iter__(self) -> Iterator[PodEvent]:
        wait = _FIRST_WAIT
        while not self._closed and self._left() > 0:
            before = self.resource_version
            try:
                yield from self._one_stream()
            except _ExpiredError:
                self.expired = True
                return
            except TransportError:
                if self._closed or self._left() <= 0:
                    return
                self.broken += 1
            if self.resource_version != before:
                wait = _FIRST_WAIT
            self._client.sleep(max(0.0, min(wait, self._left())))
            wait = min(wait * 2, _LONGEST_WAIT)

    def close(self) -> None:
        """End the watch; an iteration that waits in another thread ends soon."""
        self._closed = True
        stream = self._stream
        if stream is not None:
            stream.interrupt()

    def _left(self) -> float:
        return self._deadline - self._client.monotonic()

    def _one_stream(self) -> Iterator[PodEvent]:
        """Yield the events of one stream until it ends or the time is over."""
        left = max(self._left(), 0.05)
        query: dict[str, str | int] = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.resource_version,
            "timeoutSeconds": math.ceil(min(left, _LONGEST_STREAM)),
        }
        query |= {"labelSelector": self._labels} if self._labels else {}
        stream = self._client.stream(self._path, query=query, silence=min(left, _SILENCE))
        self._stream = stream
        try:
            self._check(stream)
            rest = b""
            while not self._closed and self._left() > 0:
                piece = stream.read()
                if not piece:
                    return
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    event = self._event(line)
                    if event is not None:
                        yield event
        finally:
            self._stream = None
            stream.close()

    def _check(self, stream: Stream) -> None:
        """Let a success pass; what may pass by itself becomes a TransportError."""
        if stream.status == 200:
            return
        body = stream.read()
        if stream.status == 410:
            raise _ExpiredError
        if stream.status == 429 or stream.status >= 500:
            raise TransportError(f"watch: HTTP {stream.status}", sent=False)
        raise refusal(stream.status, body, _RULE, self._client.server)

    def _event(self, line: bytes) -> PodEvent | None:
        if not line.strip():
            return None
        try:
            told = _lines.decode(line)
            if told.type == "ERROR":
                self._raise_error(bytes(told.object))
            if told.type == "BOOKMARK":
                self.resource_version = _versions.decode(told.object).metadata.resource_version
                return None
            pod = decode_pod(told.object)
            self.resource_version = pod.resource_version
            return PodEvent(EventType(told.type), pod)
        except (msgspec.DecodeError, ValueError) as error:
            raise TransportError(f"watch: not a line of a watch: {error}", sent=True) from None

    def _raise_error(self, body: bytes) -> None:
        """The server ends a stream with a Status: expired, or anything else that a new one may mend."""
        status = status_of(body)
        if status.code == 410 or status.reason in ("Expired", "Gone"):
            raise _ExpiredError
        raise TransportError(f"watch: {status.message}", sent=True)
