"""Texts of API objects that are alike but for some values: recognised without being decoded.

Pods of one owner differ in names, uids, addresses and times, and in nothing else. A :class:`Pattern` is the
text of one object with the places where others were seen to differ. What lies between these places is
compared as a whole, which is some twenty times faster than decoding it.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import add

_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_OPENING = b"[{"
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_KEY_END = re.compile(rb"\s*:")
_MOST_PLACES = 160
_MOST_LAYOUTS = 64
# Beyond its own length, how much longer an object may be for the pattern to be tried.
_SLACK = 1024
_LOOK_AHEAD = 12

Turn = tuple[int, int, bytes]
"""The number of a literal, how much of it an object has, and what the object has then."""


_NO_SLOTS: Mapping[int, int] = {}


class Match:
    """An object that a pattern recognised: where it is, and what stands in the pattern's places."""

    __slots__ = ("end", "siblings", "slots", "start", "values")

    def __init__(self, start: int, end: int, values: Sequence[bytes]) -> None:
        self.start, self.end, self.values = start, end, values
        self.siblings: Sequence[Match] = ()
        """Objects behind it that differ from it in few places: they hold the values of those only."""
        self.slots: Mapping[int, int] = _NO_SLOTS
        """Each of these places -> where a sibling has its value."""

    @property
    def last(self) -> Match:
        """The last of its siblings, itself if it has none."""
        return self.siblings[-1] if self.siblings else self


class Pattern:
    """The text of one JSON object, and the places in it that may differ.

    A place is a string without escapes (or the part of one between two escaped quotes), or a whole number;
    never a key, but in ``managedFields``, which nobody reads. So what matches has the structure of the
    pattern's own text.
    """

    def __init__(self, text: bytes) -> None:
        """``text`` is one complete object."""
        self.text = text
        self.places: list[tuple[int, int]] = []
        """(start, end) in ``text``, ascending; grows by :meth:`learn`."""
        self._strings: list[tuple[int, int]] = []
        self._fixed: set[int] = set()
        self._ignored = 0, 0
        self._failed_at = -1
        self._survey()
        self._starts = [start for start, _ in self._strings]
        self._cut()

    def _survey(self) -> None:
        """Find the strings, those that may not differ (keys, the object's own kind), and managedFields."""
        depth, managed = 0, -1
        for token in _TOKEN.finditer(self.text):
            start, end = token.span()
            first = self.text[start]
            if first == _QUOTE:
                self._strings.append((start, end))
                is_key = _KEY_END.match(self.text, end) is not None
                if depth == 1 or (is_key and managed < 0):
                    self._fixed.add(start)
                if is_key and depth == 2 and token[0] == b'"managedFields"':
                    managed = end
            elif first in _OPENING:
                depth += 1
            else:
                depth -= 1
                if managed >= 0 and depth == 2:
                    self._ignored, managed = (managed, end), -1

    def _cut(self) -> None:
        edges = [0, *(edge for place in self.places for edge in place), len(self.text)]
        literals = [self.text[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)]
        self._head = literals[0]
        self._literals = tuple(literals)
        self._layouts: dict[tuple[int, ...], struct.Struct | None] = {}
        """Lengths of values -> where everything stands; None if they were seen only once."""
        self._recent: list[struct.Struct] = []
        """The last two layouts, which two sorts of owners have by turns."""
        self._rest = [(literal[:1], literal, len(literal)) for literal in literals[1:]]
        self.numbers = [i for i, (a, b) in enumerate(self.places) if self.text[a:b].isdigit()]
        self.quoted = [i for i, (_, end) in enumerate(self.places) if self.text[end] == _BACKSLASH]
        self.values = [self.text[a:b] for a, b in self.places]
        self._sizes = [len(literal) for literal in literals[:-1]]

    def fits_into(self, size: int) -> bool:
        """Tell whether ``size`` bytes surely hold the whole of an object like this one."""
        return size > len(self.text) + _SLACK

    def match(self, buffer: bytes, start: int) -> Match | int:
        """Return the object at ``start``, or the number of the literal that it does not have."""
        if not buffer.startswith(self._head, start):
            self._failed_at = start
            return 0
        for layout in self._recent:
            if start + layout.size <= len(buffer):
                parts = layout.unpack_from(buffer, start)
                values = parts[1::2]
                if parts[::2] == self._literals and b'"' not in b"".join(values):
                    if layout is not self._recent[0]:
                        self._recent.reverse()
                    return self._checked(start, start + layout.size, values)
        found = self._search(buffer, start)
        if isinstance(found, Match):
            self._note_lengths(found.values)
        return found

    def turn(self, buffer: bytes, failed: int) -> Turn | None:
        """Return where and how an object goes another way, given the number of the literal it does not have.

        To be asked right after :meth:`match`.
        """
        at = self._failed_at
        if failed < 0 or at < 0:
            return None
        literal = self._literals[failed]
        at += (same := _common(literal, buffer[at : at + len(literal)]))
        return failed, same, buffer[at : at + _LOOK_AHEAD]

    def run(self, buffer: bytes, first: Match, gap: bytes) -> list[Match]:
        """Return ``first`` and all objects that this pattern recognises behind it, ``gap`` between them."""
        found = [first]
        last = first
        while buffer.startswith(gap, last.end):
            following = self.match(buffer, last.end + len(gap))
            if not isinstance(following, Match):
                break
            found.append(following)
            last = following
        return found

    def _search(self, buffer: bytes, start: int) -> Match | int:
        """Do as :meth:`match`, whatever lengths the values have."""
        position = start + len(self._head)
        values: list[bytes] = []
        find, same = buffer.find, buffer.startswith
        for first, literal, length in self._rest:
            end = find(first, position)
            if end < 0 or not same(literal, end):
                self._failed_at = end
                return len(values) + 1
            values.append(buffer[position:end])
            position = end + length
        return self._checked(start, position, values)

    def _checked(self, start: int, end: int, values: Sequence[bytes]) -> Match | int:
        """Return what was found if all values may stand in their places."""
        if for_the_decoder(b"".join(values)):
            return -1
        for index in self.quoted:
            if b'"' in values[index]:
                return -1
        for index in self.numbers:
            if not values[index].isdigit():
                return -1
        return Match(start, end, values)

    def ends(self, match: Match) -> list[int]:
        """Return where each place ends in the text that a match was found in."""
        sizes = map(add, self._sizes, map(len, match.values))
        return list(accumulate(sizes, initial=match.start))[1:]

    def _note_lengths(self, values: Sequence[bytes]) -> None:
        """Learn where everything stands, once a second object has values of the same lengths.

        Pods of one owner mostly do. All parts are then taken out and compared at once, in a third of the time
        of going from place to place.
        """
        lengths = tuple(map(len, values))
        if len(self._layouts) >= _MOST_LAYOUTS:
            self._layouts.clear()
        if lengths not in self._layouts:
            self._layouts[lengths] = None
            del self._recent[-1:]
            return
        layout = self._layouts[lengths]
        if layout is None:
            sizes = [len(self._head)]
            for length, literal in zip(lengths, self._literals[1:], strict=True):
                sizes += length, len(literal)
            layout = struct.Struct("".join(f"{size}s" for size in sizes))
            self._layouts[lengths] = layout
        self._recent = [layout, *self._recent[:1]]

    def learn(self, buffer: bytes, start: int) -> bool:
        """Make a place of what differs first in the object at ``start``; tell whether that was possible.

        Not if the object has another structure, or if there are too many places already.
        """
        failed = self.match(buffer, start)
        if isinstance(failed, Match) or failed < 0 or len(self.places) >= _MOST_PLACES:
            return False
        at = self._differs(buffer, start, failed)
        place = None if at is None else self._place(at, failed)
        if place is None:
            return False
        self.restore(sorted([*self.places, place]))
        return True

    def restore(self, places: list[tuple[int, int]]) -> None:
        """Go back to the places of an earlier time."""
        self.places = places
        self._cut()

    def _differs(self, buffer: bytes, start: int, failed: int) -> int | None:
        """Return where in the pattern's text the object begins to differ, given the literal."""
        position = start
        for index in range(failed + 1):
            begin = self.places[index - 1][1] if index else 0
            end = self.places[index][0] if index < len(self.places) else len(self.text)
            literal = self.text[begin:end]
            if index:
                position = buffer.find(literal[:1], position)
                if position < 0:
                    return None
            if index == failed:
                return begin + _common(literal, buffer[position : position + len(literal)])
            position += len(literal)
        return None

    def _place(self, at: int, literal: int) -> tuple[int, int] | None:
        low = self.places[literal - 1][1] if literal else 0
        high = self.places[literal][0] if literal < len(self.places) else len(self.text)
        index = bisect_right(self._starts, at) - 1
        begin, end = self._strings[index] if index >= 0 else (0, 0)
        if not begin < at < end:
            return self._number(at, low, high)
        if begin in self._fixed:
            return None
        start, stop = at, at
        while start > max(begin + 1, low) and self.text[start - 1] not in (_QUOTE, _BACKSLASH):
            start -= 1
        while stop < end - 1 and self.text[stop] not in (_QUOTE, _BACKSLASH):
            stop += 1
        # An escape other than a quote's begins with a letter that belongs to it.
        if self.text[start - 1] != _QUOTE or start < low or stop > high:
            return None
        return start, stop

    def _number(self, at: int, low: int, high: int) -> tuple[int, int] | None:
        start, stop = at, at
        while start > low and self.text[start - 1 : start].isdigit():
            start -= 1
        while stop < high and self.text[stop : stop + 1].isdigit():
            stop += 1
        whole = (
            self.text[start - 1 : start] in (b":", b" ") and self.text[stop : stop + 1] in b",}\n"
        )
        return (start, stop) if stop > start and whole else None

    def filled(self, place: int, value: bytes) -> bytes:
        """Return the text with another value in one place."""
        start, end = self.places[place]
        return self.text[:start] + value + self.text[end:]


def for_the_decoder(plain: bytes) -> bool:
    """Tell whether there are escapes in a text's values, or what rebalancer.wire.pods looks for in the text."""
    return b"\\" in plain or b"podA" in plain


def _common(one: bytes, other: bytes) -> int:
    """Return how many bytes two texts begin with alike."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
