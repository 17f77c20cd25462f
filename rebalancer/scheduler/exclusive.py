"""Things that only one pod per node can use: host ports, and disks without a claim."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

import numpy as np

from rebalancer.snapshot.columns import Bools, Int32s
from rebalancer.snapshot.state import ClusterState

How = TypeVar("How")


class Exclusive(Generic[How]):
    """The nodes on which the exclusive things that a class uses are free.

    ``wanted`` yields (class, thing, way of use); ``conflict`` returns whether two ways of using the same thing
    exclude each other.
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
        """Return the nodes (N,) without a conflicting pod; None if the class uses no exclusive thing."""
        rivals = self.rivals(cls)
        if rivals is None:
            return None
        free: Bools = state.counts(rivals, terminating=True) == 0
        return free

    def rivals(self, cls: int) -> Int32s | None:
        """Return the classes whose pods conflict with the class on a node; None if it uses no exclusive thing."""
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
