"""Takes a JSON list of objects apart while it is read: items one by one, everything else as an envelope.

A file of 450,000 pods holds 4 GB; here only one chunk of it and one item are in memory. A chunk is
searched with numpy for quotes and brackets only, so that Python does something per item, not per byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from rebalancer.wire.decoder import JsonDecoder

_QUOTE, _BACKSLASH, _OPEN, _CLOSE = 1, 2, 3, 4
_TABLE = bytearray(256)
for _char, _class in ((b'"', _QUOTE), (b"\\", _BACKSLASH), (b"{[", _OPEN), (b"}]", _CLOSE)):
    for _byte in _char:
        _TABLE[_byte] = _class
_CLASSES = bytes(_TABLE)

_ITEMS_KEY = re.compile(rb'"items"\s*:\s*\Z')
_KEY_WINDOW = 64
_MAX_ENVELOPE = _MAX_ITEM = 1 << 26
"""Bytes. Both are kept in memory; etcd takes objects of a few MiB."""


@dataclass(frozen=True, slots=True)
class Item:
    """One element of the list, undecoded, and where in the text it begins."""

    offset: int
    text: bytes


class KindOf(msgspec.Struct):
    """The ``kind`` of an object; its other fields are skipped."""

    kind: str = ""


class ItemScanner:
    """Splits ``{..., "items": [{...}, {...}], ...}``. Give it the text in chunks, in order.

    It checks no more than it needs: items and envelope are decoded elsewhere, where errors show.
    """

    def __init__(self) -> None:
        self.envelope = bytearray()
        """All of the text but the elements of ``items``."""
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._in_items = False
        self._offset = 0
        self._item_offset = 0
        self._item: list[bytes] = []

    @property
    def complete(self) -> bool:
        """Whether every bracket and quote is closed."""
        return self._depth == 0 and not self._in_string

    @property
    def kind(self) -> str:
        """The kind of the list, as its envelope names it; empty where it names none, or is none."""
        return _kind_in(bytes(self.envelope))

    @property
    def kind_so_far(self) -> str:
        """The kind of the list where it stands before the items, and these have begun; else empty."""
        return _kind_in(bytes(self.envelope) + b"]}")

    def feed(self, chunk: bytes) -> Iterator[Item]:
        """Yield the items that end in ``chunk``. Exhaust it before the next call.

        Raises:
            ValueError: an item, or what surrounds the items, is too large for that.
        """
        where, step = self._brackets(chunk)
        depth = self._depth + np.cumsum(step)
        if len(depth):
            self._depth = int(depth[-1])
        opened, closed = step > 0, step < 0
        lists = where[opened & (depth == 2)].tolist()
        ends_of_lists = where[closed & (depth == 1)]
        starts, ends = where[opened & (depth == 3)], where[closed & (depth == 2)]
        cursor = 0
        while cursor < len(chunk):
            if not self._in_items:
                cursor = self._skip_to_items(chunk, cursor, lists)
                continue
            after = ends_of_lists[np.searchsorted(ends_of_lists, cursor) :]
            until = int(after[0]) if len(after) else len(chunk)
            inside = slice(*np.searchsorted(starts, (cursor, until)))
            finished = slice(*np.searchsorted(ends, (cursor, until)))
            yield from self._cut(
                chunk, cursor, until, starts[inside].tolist(), ends[finished].tolist()
            )
            cursor = until
            if len(after):
                self._in_items = False
        self._offset += len(chunk)

    def _brackets(self, chunk: bytes) -> tuple[NDArray[np.intp], NDArray[np.int8]]:
        """Return the positions of brackets outside strings, and +1 or -1 for each."""
        classes = np.frombuffer(chunk.translate(_CLASSES), np.uint8)
        where = np.flatnonzero(classes)
        kind = classes[where]
        self._drop_escaped(where, kind, len(chunk))
        inside = np.cumsum(kind == _QUOTE, dtype=np.int64) + self._in_string & 1
        if len(inside):
            self._in_string = bool(inside[-1])
        kept = (kind >= _OPEN) & (inside == 0)
        step = np.where(kind[kept] == _OPEN, 1, -1).astype(np.int8)
        return where[kept], step

    def _drop_escaped(self, where: NDArray[np.intp], kind: NDArray[np.uint8], size: int) -> None:
        """Clear the class of quotes behind an odd number of backslashes."""
        slashes = where[kind == _BACKSLASH]
        carried, self._escaped = self._escaped, False
        if not len(slashes):
            if carried and len(where) and where[0] == 0:
                kind[0] = 0
            return
        first = np.flatnonzero(np.diff(slashes, prepend=-2) != 1)
        length = np.diff(first, append=len(slashes))
        end = slashes[first] + length
        if carried and slashes[0] == 0:
            length[0] += 1
        elif carried and where[0] == 0:
            kind[0] = 0
        odd = end[length % 2 == 1]
        if len(odd) and odd[-1] == size:
            self._escaped = True
        index = np.searchsorted(where, odd)
        index, odd = index[index < len(where)], odd[index < len(where)]
        kind[index[where[index] == odd]] = 0

    def _skip_to_items(self, chunk: bytes, cursor: int, lists: list[int]) -> int:
        """Move the text before the items into the envelope; return where it ends."""
        for opening in lists:
            if opening < cursor or chunk[opening] != ord("["):
                continue
            window = (bytes(self.envelope[-_KEY_WINDOW:]) + chunk[cursor:opening])[-_KEY_WINDOW:]
            if _ITEMS_KEY.search(window):
                self._in_items = True
                self.envelope += chunk[cursor : opening + 1]
                return opening + 1
        self.envelope += chunk[cursor:]
        if len(self.envelope) > _MAX_ENVELOPE:
            raise ValueError("it is no list: there is no array named items")
        return len(chunk)

    def _cut(
        self, chunk: bytes, cursor: int, until: int, starts: list[int], ends: list[int]
    ) -> Iterator[Item]:
        """Yield the items that end before ``until``; keep the beginning of one that does not."""
        if self._item:
            if not ends:
                self._item.append(chunk[cursor:until])
                if self._offset + until - self._item_offset > _MAX_ITEM:
                    raise ValueError("an object is too large to be one")
                return
            self._item.append(chunk[cursor : ends[0] + 1])
            yield Item(self._item_offset, b"".join(self._item))
            self._item.clear()
            ends = ends[1:]
        for start, end in zip(starts, ends, strict=False):
            yield Item(self._offset + start, chunk[start : end + 1])
        if len(starts) > len(ends):
            self._item_offset = self._offset + starts[-1]
            self._item.append(chunk[starts[-1] : until])


_kinds = JsonDecoder(KindOf)


def _kind_in(text: bytes) -> str:
    try:
        return _kinds.decode(text).kind
    except msgspec.DecodeError:
        return ""
