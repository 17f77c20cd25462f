"""Pods and other objects of a snapshot file, recognised by their likeness to earlier ones.

What a pattern's places mean is found out, not written down: a place is filled with a stand-in, the object
decoded, and whatever then changes is what the place says. So there is one description of a pod, its
decoder's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from rebalancer.snapshot.pattern import Match, Pattern, Turn
from rebalancer.snapshot.siblings import Loose, Siblings
from rebalancer.wire.pods import AlikePods, Pod, PodRecord
from rebalancer.wire.times import unix_seconds

KIND_FIRST = re.compile(rb'\{\s*(?:"apiVersion"\s*:\s*"[^"]*"\s*,\s*)?"kind"\s*:\s*"([A-Za-z]+)"')
"""How API servers and kubectl begin an object."""
_DATE = re.compile(rb"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z")
_ANOTHER_DATE = b"1999-09-09T09:09:09Z"
_ANOTHER_NAME = b"~"
_MOST_PATTERNS = 16
_MOST_KEPT = 256
_FEW = 2
_pods = msgspec.json.Decoder(Pod)


class Likeness:
    """Objects of one kind and structure: a pattern, and what its places say.

    ``fields`` decodes a text and returns what is read of such an object, by name.
    """

    def __init__(self, kind: str, text: bytes, fields: Callable[[bytes], dict[str, Any]]) -> None:
        self.kind, self.pattern, self._fields = kind, Pattern(text), fields
        self._base = fields(text)
        self.place_of: dict[str, int] = {}
        """Field -> the place that holds all of it."""
        self.class_places: list[int] = []
        """Places that say anything else that matters."""
        self.alone = False
        """Whether no other followed the last one: then none is looked for behind the next."""
        self._meanings: dict[tuple[int, int], str] = {}

    def grow(self, buffer: bytes, start: int) -> Match | None:
        """Return the object at ``start`` if it is like this but for places that were not known yet."""
        pattern = self.pattern
        before = pattern.places
        while not isinstance(found := pattern.match(buffer, start), Match):
            if not pattern.learn(buffer, start):
                pattern.restore(before)
                return None
        self._explain()
        return found

    def run(self, buffer: bytes, first: Match, gap: bytes) -> list[Match]:
        """Return ``first`` and all objects that are like this behind it, ``gap`` between them."""
        if self.alone:
            return [first]
        found = self.pattern.run(buffer, first, gap)
        self.alone = len(found) == 1
        return found

    def met_again(self) -> None:
        """Take note that the last object was like this, too."""
        self.alone = False

    def _explain(self) -> None:
        for number, place in enumerate(self.pattern.places):
            if place not in self._meanings:
                self._meanings[place] = self._meaning(number)
        meanings = [self._meanings[place] for place in self.pattern.places]
        self.place_of = {what: n for n, what in enumerate(meanings) if what not in ("", "class")}
        self.class_places = [n for n, what in enumerate(meanings) if what == "class"]

    def _meaning(self, place: int) -> str:
        """Return the field that a place holds, "class" for more than one or part of one, "" for none."""
        told = self.pattern.values[place]
        if told.isdigit():
            other = b"%d" % (int(told) + 1)
        else:
            other = _ANOTHER_DATE if _DATE.fullmatch(told) else _ANOTHER_NAME
        try:
            fields = self._fields(self.pattern.filled(place, other))
        except (msgspec.DecodeError, ValueError):
            return "class"
        changed = [name for name, value in fields.items() if value != self._base[name]]
        if not changed:
            return ""
        name = changed[0]
        whole = len(changed) == 1 and (
            (self._base[name], fields[name]) in ((_text(told), _text(other)), _times(told, other))
        )
        return name if whole else "class"


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def _times(told: bytes, other: bytes) -> tuple[float, float] | None:
    return (_seconds(told), _seconds(other)) if other == _ANOTHER_DATE else None


def _seconds(value: bytes) -> float:
    return unix_seconds(value.decode())


class PodLikeness(Likeness):
    """Pods of one structure."""

    def __init__(self, kind: str, text: bytes) -> None:
        super().__init__(kind, text, _pod_fields)
        self._known: dict[object, PodRecord] = {}
        self._class_of: Callable[[Sequence[bytes]], object] = _no_class
        self._differing: set[tuple[int, int]] = set()
        self._loose = Loose(self.pattern, ())
        self._before: tuple[Sequence[bytes], object] = (), None
        """Values and class of the last pod that was recognised as nobody's sibling."""
        self._streak, self._pays = 0, True
        self._times: dict[bytes, float] = {}

    def _explain(self) -> None:
        super()._explain()
        self._known.clear()
        # What it is made of was followed by what made it grow, perhaps of the same class.
        self._class_of = itemgetter(*self.class_places) if self.class_places else _no_class
        values = self.pattern.values
        self._before, self._streak = (values, self._class_of(values)), _FEW - 1
        self._loosen()

    def run(self, buffer: bytes, first: Match, gap: bytes) -> list[Match]:
        """Return ``first`` and all pods that are like this behind it, ``gap`` between them.

        Siblings hang on the one that they are siblings of.
        """
        found: list[Match] = []
        match: Match | int = first
        while isinstance(match, Match):
            self._compare(match)
            if self._pays:
                match.siblings = self._siblings(buffer, match, gap)
                match.slots = self._loose.slots
                self._pays = len(match.siblings) >= _FEW
            found.append(match)
            end = match.last.end
            if self.alone or not buffer.startswith(gap, end):
                break
            match = self.pattern.match(buffer, end + len(gap))
        if not self.alone:
            self.alone = len(found) == 1
        return found

    def _siblings(self, buffer: bytes, first: Match, gap: bytes) -> list[Match]:
        siblings = Siblings(self._loose, buffer, first)
        found: list[Match] = []
        end = first.end
        while buffer.startswith(gap, end):
            following = siblings.match(buffer, end + len(gap))
            if following is None:
                break
            found.append(following)
            end = following.end
        return found

    def _compare(self, match: Match) -> None:
        """Learn where pods of one class differ, if the pod before was of the same."""
        values, (before, cls) = match.values, self._before
        self._before = values, self._class_of(values)
        if self._before[1] != cls:
            self._streak = 0
            return
        self._streak += 1
        if self._streak < _FEW:
            return
        # Siblings are prepared only where there were some: it takes as long as recognising one or two.
        self._pays = True
        places = self.pattern.places
        pairs = enumerate(zip(values, before, strict=True))
        self._differing.update(places[n] for n, (one, other) in pairs if one != other)
        self._loosen()

    def _loosen(self) -> None:
        """Let siblings differ where pods of one class did, but not in what makes their class."""
        of_class = set(self.class_places)
        differing = [n for n, place in enumerate(self.pattern.places) if place in self._differing]
        self._loose = Loose(self.pattern, [n for n in differing if n not in of_class])

    def alike(self, run: Run) -> Iterator[AlikePods]:
        """Yield the pods of a run, those of one class together.

        Only the first pod of a class is decoded; of the others the places are read. To be exhausted before
        anything else is recognised.

        Raises:
            msgspec.DecodeError: it is not a pod.
        """
        for cls, group in groupby(run.matches, lambda match: self._class_of(match.values)):
            matches = list(group)
            like = self._known.get(cls)
            if like is None:
                if len(self._known) >= _MOST_KEPT:
                    self._known.clear()
                text = run.buffer[matches[0].start : matches[0].end]
                like = self._known[cls] = _pods.decode(text).record()
            yield AlikePods(
                like,
                self._column("name", like.name.encode(), matches),
                self._column("uid", like.uid.encode(), matches),
                self._column("node", like.node.encode(), matches),
                self._column("created", like.created, matches, self._time),
                self._column("ready_since", like.ready_since, matches, self._time),
            )

    def _column(
        self,
        field: str,
        same: Any,
        matches: Sequence[Match],
        read: Callable[[bytes], Any] | None = None,
    ) -> list[Any]:
        """Return what pods and their siblings say in a field; ``same`` where no place holds it."""
        place = self.place_of.get(field)
        if place is None:
            return [same] * (len(matches) + sum([len(match.siblings) for match in matches]))
        found: list[Any] = []
        for match in matches:
            slot = match.slots.get(place)
            value = match.values[place] if read is None else read(match.values[place])
            if slot is None:
                found += [value] * (1 + len(match.siblings))
                continue
            found.append(value)
            if match.siblings:
                values = [sibling.values[slot] for sibling in match.siblings]
                found += values if read is None else map(read, values)
        return found

    def _time(self, text: bytes) -> float:
        found = self._times.get(text)
        if found is None:
            if len(self._times) >= _MOST_KEPT:
                self._times.clear()
            found = self._times[text] = _seconds(text)
        return found


def _no_class(values: Sequence[bytes]) -> object:  # noqa: ARG001  # as itemgetter
    return None


def _pod_fields(text: bytes) -> dict[str, Any]:
    fields = _pods.decode(text).record()._asdict()
    del fields["spec"]
    return fields


class Run(NamedTuple):
    """Objects that follow each other and are all like the same."""

    like: Likeness
    buffer: bytes
    matches: list[Match]
    """One for each object of ``buffer``, but for those that are siblings of one."""

    def get(self, match: Match, field: str) -> str | None:
        """Return what an object says in a field that is the same in none of its likes, else None."""
        place = self.like.place_of.get(field)
        return None if place is None else match.values[place].decode()


class _OfKind:
    """The structures of one kind, the last recognised first."""

    def __init__(self, beginning: bytes) -> None:
        """``beginning`` is how objects of this kind begin."""
        self.beginning = beginning
        self._all: list[Likeness] = []
        self._hits = self._misses = 0
        self._last: tuple[Likeness | None, Likeness | None] = None, None
        self._followed: dict[tuple[Likeness | None, Likeness | None], Likeness] = {}
        """What two runs were like -> what the next one was: objects come owner by owner, and owners are of a
        few sorts."""
        self._after: dict[tuple[Likeness, Turn | None], Likeness] = {}
        """What an object was not like, and where it went another way -> what it was like in the end."""

    def recognise(self, buffer: bytes, start: int, gap: bytes) -> Run | None:
        """Return the objects at ``start``, if they are like any."""
        tried: list[Likeness] = []
        turns: list[tuple[Likeness, Turn | None]] = []
        like = self._followed.get(self._last) or self._next(tried)
        while like is not None:
            tried.append(like)
            likely = None
            if like.pattern.fits_into(len(buffer) - start):
                found = like.pattern.match(buffer, start)
                if isinstance(found, Match):
                    self._after.update(dict.fromkeys(turns, like))
                    return self._run(like, buffer, found, gap)
                turns.append((like, like.pattern.turn(buffer, found)))
                likely = self._after.get(turns[-1])
            like = likely if likely is not None and likely not in tried else self._next(tried)
        return self._grown(buffer, start, gap)

    def _next(self, tried: Container[Likeness]) -> Likeness | None:
        return next((like for like in self._all if like not in tried), None)

    def _grown(self, buffer: bytes, start: int, gap: bytes) -> Run | None:
        """Return the objects at ``start`` if they are like any but for places that were not known yet."""
        for like in self._all:
            if like.pattern.fits_into(len(buffer) - start):
                grown = like.grow(buffer, start)
                if grown is not None:
                    return self._run(like, buffer, grown, gap)
        return None

    def _run(self, like: Likeness, buffer: bytes, first: Match, gap: bytes) -> Run:
        if like is self._last[1]:
            like.met_again()
        found = like.run(buffer, first, gap)
        self._hits += len(found)
        if self._all[0] is not like:
            if like in self._all:
                self._all.remove(like)
            self._all.insert(0, like)
        for kept in (self._followed, self._after):
            if len(kept) >= _MOST_KEPT:
                kept.clear()
        self._followed[self._last] = like
        self._last = self._last[1], like
        return Run(like, buffer, found)

    def remember(self, kind: str, text: bytes) -> None:
        self._misses += 1
        if self._misses > 64 + self._hits // 8:
            return
        like = PodLikeness(kind, text) if kind == "Pod" else Likeness(kind, text, _object_fields)
        self._all.insert(0, like)
        del self._all[_MOST_PATTERNS:]


class Likenesses:
    """All structures seen so far."""

    def __init__(self) -> None:
        self._of_kind: dict[bytes, _OfKind] = {}
        self._last: _OfKind | None = None

    def recognise(self, buffer: bytes, start: int, gap: bytes) -> tuple[int, Run] | None:
        """Return what the object at ``start`` is like, if like any, and all there, and where that run ends.

        The run goes on as long as objects are like the first, with ``gap`` between them.
        """
        of_kind = self._last
        if of_kind is None or not buffer.startswith(of_kind.beginning, start):
            of_kind = self._of_kind.get(_beginning(buffer, start))
            if of_kind is None:
                return None
            # One whose objects begin otherwise says nothing of what comes next.
            self._last = of_kind if of_kind.beginning else None
        found = of_kind.recognise(buffer, start, gap)
        return None if found is None else (found.matches[-1].last.end, found)

    def remember(self, kind: str, text: bytes) -> None:
        """Take an object that was like none, and could be decoded, as the pattern of others.

        Where objects of a kind are hardly ever alike, that is given up.
        """
        beginning = _beginning(text, 0)
        self._of_kind.setdefault(beginning, _OfKind(beginning)).remember(kind, text)


def _beginning(text: bytes, start: int) -> bytes:
    """Return the beginning of an object with its kind, empty if it begins with something else."""
    found = KIND_FIRST.match(text, start)
    return found[0] if found else b""


class _Meta(msgspec.Struct, rename="camel"):
    uid: str = ""
    creation_timestamp: str | None = None


class _Object(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


_objects = msgspec.json.Decoder(_Object)


def _object_fields(text: bytes) -> dict[str, Any]:
    meta = _objects.decode(text).metadata
    return {"uid": meta.uid, "created": unix_seconds(meta.creation_timestamp)}
