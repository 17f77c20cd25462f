"""Finds the replacements of evicted pods, and where they landed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rebalancer.plan.plan import Move


@dataclass(frozen=True, slots=True)
class Replacement:
    """A pod that a controller created after an eviction."""

    uid: str
    name: str
    namespace: str
    controller: str
    """uid of the controller."""
    node: str
    ready: bool
    created: float


class Feed(Protocol):
    """Knows the pods of some controllers as they are now."""

    def begin_wave(self) -> None:
        """Take the pods that exist now for old ones."""

    def controller_of(self, uid: str) -> str | None:
        """Return the controller (uid) of a pod that was followed."""

    def newcomers(self) -> Iterable[Replacement]:
        """Return the living pods of the victims' controllers that appeared in this wave."""

    def ending(self) -> Collection[str]:
        """Return the uids of the pods that are on their way out, and still hold their places."""

    def is_gone(self, uid: str) -> bool:
        """Return whether a pod that was followed exists no more."""

    def unready_sibling(self, uid: str) -> str | None:
        """Return the name of a pod that has the controller of pod ``uid`` and is not Ready, None if none is known.

        Replacements of this wave do not count: they are about to be Ready.
        """

    def wait(self, seconds: float) -> None:
        """Return when something may have changed, or after so many seconds; raises ClusterReadError."""

    def list_again(self) -> None:
        """Read all pods once more, in case a watch has gone silent; raises ClusterReadError."""


class Arrivals:
    """Pairs the victims of a wave with the pods that replaced them."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._taken: dict[str, str] = {}
        self._placed: set[str] = set()

    def begin_wave(self) -> None:
        """Begin to look for replacements of pods about to be evicted."""
        self._feed.begin_wave()

    def ending(self, moves: Sequence[Move]) -> int:
        """Return how many of the victims are not gone yet."""
        ending = self._feed.ending()
        return sum(1 for move in moves if move.uid in ending)

    def is_gone(self, uid: str) -> bool:
        """See Feed."""
        return self._feed.is_gone(uid)

    def unready_sibling(self, uid: str) -> str | None:
        """See Feed."""
        return self._feed.unready_sibling(uid)

    def wait(self, seconds: float) -> None:
        """Wait for news; raises ClusterReadError."""
        self._feed.wait(seconds)

    def list_again(self) -> None:
        """See Feed."""
        self._feed.list_again()

    def replacements(self, moves: Sequence[Move]) -> dict[str, Replacement]:
        """Return victim uid -> replacement for those seen so far.

        Replacements of one controller are alike; they are given to its victims in order of creation, and
        one once given stays with its victim unless it disappears.
        """
        fresh = sorted(self._feed.newcomers(), key=lambda r: (r.created, r.uid))
        by_uid = {replacement.uid: replacement for replacement in fresh}
        result: dict[str, Replacement] = {}
        open_: list[Move] = []
        for move in moves:
            known = self._taken.get(move.uid)
            if known in by_uid:
                result[move.uid] = by_uid[known]
            else:
                open_.append(move)
        used = set(self._taken.values()) & by_uid.keys()
        for move in open_:
            controller = self._feed.controller_of(move.uid)
            for replacement in fresh:
                if replacement.uid not in used and replacement.controller == controller:
                    self._taken[move.uid] = replacement.uid
                    used.add(replacement.uid)
                    result[move.uid] = replacement
                    break
        self._placed |= {uid for uid, replacement in result.items() if replacement.node}
        return result

    def withdrawn(self, uid: str, replacements: Mapping[str, Replacement]) -> bool:
        """Return whether a victim's replacement had a node and is gone, and none came in its place.

        A rollout or a scale-down takes the newest pods first: there is nothing left to wait for.
        """
        return uid in self._placed and uid not in replacements
