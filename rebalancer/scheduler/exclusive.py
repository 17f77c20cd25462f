"""What only one pod on a node can have: host ports, disks without a claim."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

import numpy as np

from rebalancer.snapshot.columns import Bools, Int32s
from rebalancer.snapshot.state import ClusterState

How = TypeVar("How")


class Exclusive(Generic[How]):
    """Which nodes have free what a class wants.

    ``wanted`` yields (class, thing, how it is wanted); ``conflict`` says of two ways to want the same thing
    whether they exclude each other.
    """

    def __init__(
        self,
        wanted: Iterable[tuple[int, Hashable, How]],
        conflict: Callable[[How, How], bool],
    ) -> None:
        self._conflict = conflict
        self._wanted: dict[int, list[tuple[Hashable, How]]] = {}
        self._users: dict[Hashable, list[tuple[int, How]]] = {}
        self._rivals: dict[int, Int32s] = {}
        for cls, thing, how in wanted:
            self._wanted.setdefault(cls, []).append((thing, how))
            self._users.setdefault(thing, []).append((cls, how))

    def free(self, state: ClusterState, cls: int) -> Bools | None:
        """Return the nodes (N,) where no other pod is in the way; None if the class wants nothing."""
        rivals = self.rivals(cls)
        if rivals is None:
            return None
        free: Bools = state.counts(rivals, terminating=True) == 0
        return free

    def rivals(self, cls: int) -> Int32s | None:
        """Return the classes whose pods keep one of the class off their node; None if it wants nothing."""
        if cls not in self._wanted:
            return None
        rivals = self._rivals.get(cls)
        if rivals is None:
            classes = {
                user
                for thing, how in self._wanted[cls]
                for user, also in self._users[thing]
                if self._conflict(how, also)
            }
            rivals = self._rivals[cls] = np.array(sorted(classes), np.int32)
        return rivals
