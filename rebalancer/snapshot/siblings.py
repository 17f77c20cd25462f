"""Pods of one owner, recognised by the one before them.

What differs between them is generated: names, uids, addresses, times. All else is the owner's, and much longer
than what a pattern holds fixed, which knows of owners only that they differ. So the text of one pod is taken for
its siblings, and there are a handful of places to look at instead of dozens, of whatever length their values are.
"""

from __future__ import annotations

from collections.abc import Sequence

from rebalancer.snapshot.pattern import Match, Pattern, for_the_decoder


class Loose:
    """The places of a pattern in which siblings may differ."""

    def __init__(self, pattern: Pattern, places: Sequence[int]) -> None:
        """``places`` are ascending numbers."""
        self.pattern, self.places = pattern, tuple(places)
        self.slots = {place: slot for slot, place in enumerate(self.places)}
        """Place -> where a sibling has its value."""
        self._numbers = [self.slots[place] for place in pattern.numbers if place in self.slots]
        self.choosy = bool(self._numbers)
        """Whether :meth:`hold` ever says no."""

    def hold(self, values: Sequence[bytes]) -> bool:
        """Tell whether values, one for each loose place, may stand there."""
        return all(values[slot].isdigit() for slot in self._numbers)


class Siblings:
    """One object of a pattern, and the places in which others may differ from it."""

    def __init__(self, loose: Loose, buffer: bytes, first: Match) -> None:
        self._loose = loose
        ends, values = loose.pattern.ends(first), first.values
        begin, parts = first.start, []
        for place in loose.places:
            end = ends[place]
            parts.append(buffer[begin : end - len(values[place])])
            begin = end
        parts.append(buffer[begin : first.end])
        self._head, self._size = parts[0], len(parts[0])
        self._rest = [
            (len(values[place]), part, len(part))
            for place, part in zip(loose.places, parts[1:], strict=True)
        ]

    def match(self, buffer: bytes, start: int) -> Match | None:
        """Return the object at ``start`` if it differs from the first in loose places only, with their values."""
        if not buffer.startswith(self._head, start):
            return None
        position = start + self._size
        found: list[bytes] = []
        same, find, add = buffer.startswith, buffer.find, found.append
        for length, part, size in self._rest:
            # Most values are as long as the first one's: what is generated is.
            end = position + length
            if not same(part, end):
                end = find(part[:1], position)
                if end < 0 or not same(part, end):
                    return None
            add(buffer[position:end])
            position = end + size
        plain = b"".join(found)
        loose = self._loose
        if b'"' in plain or for_the_decoder(plain) or (loose.choosy and not loose.hold(found)):
            return None
        return Match(start, position, found)
