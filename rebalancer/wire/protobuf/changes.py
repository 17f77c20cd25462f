"""Changes of a watch in protobuf, split while they arrive.

Each change is four bytes of length and a ``WatchEvent``, whose object has the same envelope as a list
(``k8s.io/apimachinery/pkg/util/framer`` and ``pkg/runtime/serializer/protobuf``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from rebalancer.wire.protobuf import BrokenListError
from rebalancer.wire.protobuf.frames import MAGIC
from rebalancer.wire.protobuf.schema import as_broken_list, message, text

_LENGTH = 4
_MAX_BYTES = 64 << 20
"""No object is so long: etcd takes none of more than a few MiB."""
_ITEM = b"\x12"
"""Tag of a list's items."""


@dataclass(frozen=True)
class ProtobufChange:
    """One change of a watch."""

    type: str
    """``ADDED``, ``MODIFIED``, ``DELETED``, ``BOOKMARK`` or ``ERROR``."""
    enveloped: bytes
    """The object as the server would send it by itself."""

    @cached_property
    def object(self) -> bytes:
        """The bytes of the object, without the envelope.

        Raises:
            BrokenListError: there is no object.
        """
        return unwrap(self.enveloped)

    @property
    def version(self) -> str:
        """The object's resourceVersion.

        Raises:
            BrokenListError: there is no object.
        """
        with as_broken_list("this is no object"):
            return text(message("Versioned").FromString(self.object).metadata.resourceVersion)

    @property
    def run(self) -> bytes:
        """The object as a list of one, for the decoders of lists."""
        own = self.object
        length, size = bytearray(), len(own)
        while size >= 0x80:
            length.append(size & 0x7F | 0x80)
            size >>= 7
        length.append(size)
        return _ITEM + bytes(length) + own


class ChangeFrames:
    """Splits the bytes of one watch. Feed it all pieces in order."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, piece: bytes) -> Iterator[ProtobufChange]:
        """Yield the changes that end in ``piece``.

        Raises:
            BrokenListError: the bytes are not changes in protobuf.
        """
        self._rest += piece
        while len(self._rest) >= _LENGTH:
            end = _LENGTH + int.from_bytes(self._rest[:_LENGTH], "big")
            if end > _MAX_BYTES:
                raise BrokenListError("a change is too long to be one")
            if end > len(self._rest):
                return
            event = bytes(memoryview(self._rest)[_LENGTH:end])
            del self._rest[:end]
            yield _change(event)


def _change(event: bytes) -> ProtobufChange:
    with as_broken_list("this is no change"):
        watch_event = message("WatchEvent").FromString(event)
        return ProtobufChange(text(watch_event.type), watch_event.object.raw)


def unwrap(body: bytes) -> bytes:
    """Return the object inside an envelope.

    Raises:
        BrokenListError: the envelope is malformed.
    """
    if not body.startswith(MAGIC):
        raise BrokenListError("it does not begin as Kubernetes' protobuf does")
    with as_broken_list("this is no envelope"):
        raw: bytes = message("Unknown").FromString(body[len(MAGIC) :]).raw
        return raw


def refusal_in(body: bytes) -> tuple[str, str, int]:
    """Return (message, reason, code) of the Status inside an envelope.

    Raises:
        BrokenListError: there is no Status.
    """
    own = unwrap(body)
    with as_broken_list("this is no status"):
        status = message("Status").FromString(own)
        return text(status.message), text(status.reason), status.code
