"""Find the replacements of evicted pods, and where they landed."""

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
    """The current pods of some controllers."""

    def begin_wave(self) -> None:
        """Treat the existing pods as old."""

    def controller_of(self, uid: str) -> str | None:
        """Return the controller uid of a followed pod."""

    def newcomers(self) -> Iterable[Replacement]:
        """Return the living pods of the victims' controllers that appeared in this wave."""

    def ending(self) -> Collection[str]:
        """Return the uids of terminating pods, which still use their resources."""

    def is_gone(self, uid: str) -> bool:
        """Return whether a followed pod no longer exists."""

    def still_waits(self, uid: str) -> str | None:
        """Return ``namespace/name`` of a pod for which room is made, as long as it has no node; None once it has, or is gone."""

    def unready_sibling(self, uid: str) -> str | None:
        """Return the name of an unready pod with the controller of pod ``uid``; None if none is known.

        Replacements of this wave do not count: they will become Ready.
        """

    def wait(self, seconds: float) -> None:
        """Wait for a possible change, ``seconds`` at most; raises ClusterReadError."""

    def list_again(self) -> None:
        """List all pods again, in case a watch is silent; raises ClusterReadError."""


class Arrivals:
    """Pairs the victims of a wave with their replacements."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._taken: dict[str, str] = {}
        self._placed: set[str] = set()

    def begin_wave(self) -> None:
        """Start looking for the replacements of pods that will be evicted now."""
        self._feed.begin_wave()

    def ending(self, moves: Sequence[Move]) -> int:
        """Return the number of victims that are not gone yet."""
        ending = self._feed.ending()
        return sum(1 for move in moves if move.uid in ending)

    def is_gone(self, uid: str) -> bool:
        """Return whether a followed pod no longer exists."""
        return self._feed.is_gone(uid)

    def still_waits(self, uid: str) -> str | None:
        """See Feed."""
        return self._feed.still_waits(uid)

    def unready_sibling(self, uid: str) -> str | None:
        """Return the name of another unready pod of the same controller; None if none is known."""
        return self._feed.unready_sibling(uid)

    def wait(self, seconds: float) -> None:
        """Wait for changes; raises ClusterReadError."""
        self._feed.wait(seconds)

    def list_again(self) -> None:
        """List all pods again, in case a watch is silent."""
        self._feed.list_again()

    def replacements(self, moves: Sequence[Move]) -> dict[str, Replacement]:
        """Return victim uid -> replacement, for those seen so far.

        Replacements of one controller are interchangeable; they are assigned to its victims in order of creation,
        and stay assigned unless they disappear.
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
        """Return whether a victim's replacement had a node, is gone, and was not replaced.

        A rollout or a scale-down deletes the newest pods first: there is nothing left to wait for.
        """
        return uid in self._placed and uid not in replacements
