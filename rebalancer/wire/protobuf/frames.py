"""Split a list that arrives in pieces into runs of whole items; each run is a valid list itself.

In protobuf a list is a sequence of items with length prefixes, so any run of whole items decodes as a list: only one
run is in memory, and only the lengths are parsed here.

Each change is four bytes of length and a ``WatchEvent``, whose object has the same envelope as a list
(``k8s.io/apimachinery/pkg/util/framer`` and ``pkg/runtime/serializer/protobuf``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from rebalancer.wire.objects import ListMeta
from rebalancer.wire.protobuf import BrokenListError
from rebalancer.wire.protobuf.schema import as_broken_list, message, text

MAGIC = b"k8s\x00"
_LENGTH_DELIMITED = 2
_RAW = 2
"""Field of ``runtime.Unknown`` with the list."""
_METADATA = 1
"""Field of every list; the other one, 2, is its items."""
_ITEM = 2 << 3 | _LENGTH_DELIMITED
_MAX_BYTES = 64 << 20
"""Bytes; no real item is so large: etcd accepts objects of a few MiB. Longer ones would fill the memory."""


class ListFrames:
    """Splits one list. Feed it all pieces in order, then :meth:`close` it."""

    def __init__(self, run_bytes: int = 1 << 17, *, length: int | None = None) -> None:
        """``run_bytes``: the approximate size of a run.

        With ``length``, the input is the bare list of that many bytes, without its envelope.
        """
        self._run_bytes = run_bytes
        self._buffer = bytearray()
        self._left = length
        """Bytes of the list still to come, what is in ``_rest`` included; None before its beginning."""
        self._metadata = b""
        self.received = 0
        self.items = 0
        """Items in the runs so far."""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the runs of whole items that end in ``piece``.

        Raises:
            BrokenListError: the bytes are not a protobuf list.
        """
        self.received += len(piece)
        self._buffer += piece
        if self._left is None and not self._begin():
            return
        if self._left and len(self._buffer) >= min(self._run_bytes, self._left):
            yield from self._cut()

    def close(self) -> ListMeta:
        """End the list and return its metadata.

        Raises:
            BrokenListError: the list is incomplete.
        """
        if self._left is None or self._left > 0:
            raise BrokenListError(f"it ends after {self.received} bytes, inside the list")
        with as_broken_list("its metadata are none"):
            meta = message("ListMeta").FromString(self._metadata)
            return ListMeta(
                resource_version=text(meta.resourceVersion), continue_=text(meta.continueToken)
            )

    def _begin(self) -> bool:
        """Skip the envelope before the list; return whether the list has begun."""
        data = self._buffer
        if not MAGIC.startswith(data[: len(MAGIC)]):
            raise BrokenListError("it does not begin as Kubernetes' protobuf does")
        position = len(MAGIC)
        while True:
            prefix = _prefix(data, position)
            if prefix is None:
                return False
            field, length, position = prefix
            if field == _RAW:
                self._left = length
                del data[:position]
                return True
            position += length

    def _cut(self) -> Iterator[bytes]:
        """Yield the complete items as one run; keep the metadata and the incomplete rest."""
        data = self._buffer
        end = min(len(data), self._left or 0)
        whole = items = 0
        while whole < end:
            if (
                data[whole] == _ITEM
                and whole + 4 < end
                and data[whole + 2] < 0x80 <= data[whole + 1]
            ):
                # Nearly all items: of 128 bytes to 16 KiB. Only a shortcut of what follows.
                after = whole + 3 + (data[whole + 1] & 0x7F | data[whole + 2] << 7)
                if after > end:
                    break
                whole = after
                items += 1
                continue
            prefix = _prefix(data, whole)
            if prefix is None:
                break
            field, length, position = prefix
            if length > _MAX_BYTES:
                raise BrokenListError(f"an item is {length} bytes long")
            if position + length > end:
                break
            if field == _METADATA:
                self._metadata = bytes(data[position : position + length])
            items += field == _ITEM >> 3
            whole = position + length
        if whole:
            run = bytes(memoryview(data)[:whole])
            del data[:whole]
            self._left = (self._left or 0) - whole
            self.items += items
            yield run
        elif end == self._left:
            raise BrokenListError("an item is longer than its list")


def _prefix(data: bytes | bytearray, position: int) -> tuple[int, int, int] | None:
    """Return the field number, the length and the position of a value; None if the data are incomplete."""
    tag, position = _varint(data, position)
    if position < 0:
        return None
    if tag & 7 != _LENGTH_DELIMITED:
        raise BrokenListError(f"there is a field of wire type {tag & 7} among the items")
    length, position = _varint(data, position)
    return None if position < 0 else (tag >> 3, length, position)


def _varint(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """Return a number and the position after it; the position is -1 if the data are incomplete."""
    value = shift = 0
    while position < len(data):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise BrokenListError("a length is no number")
    return 0, -1


_LENGTH = 4
"""No object is so long: etcd accepts a few MiB at most."""
_OBJECT = b"\x12"
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
        return _OBJECT + bytes(length) + own


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
