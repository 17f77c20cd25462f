"""On which nodes the living pods of each owner run in the snapshot, computed for all owners at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rebalancer.snapshot.columns import Int32s
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.state import Runs


@dataclass(frozen=True, slots=True)
class Crowding:
    """The number of living pods of each owner, and the nodes where they run."""

    pods: list[int]
    """Per owner how many."""
    fullest: list[int]
    """Per owner the most on one node."""
    _nodes: Runs
    """Per owner its nodes, ascending and once each."""

    @staticmethod
    def of(snapshot: Snapshot) -> Crowding:
        """Return the crowding of the snapshot."""
        pods, owners = snapshot.pods, len(snapshot.owners)
        owner_of = np.array([cls.owner for cls in snapshot.classes] or [-1], np.int64)
        living = pods.living
        owner = owner_of[pods.cls[living]]
        size = max(1, len(snapshot.nodes))
        places = (owner * size + pods.node[living])[owner >= 0]
        place, count = np.unique(places, return_counts=True)
        owner = place // size
        fullest = np.zeros(owners, np.int64)
        np.maximum.at(fullest, owner, count)
        return Crowding(
            np.bincount(owner, count, owners).astype(np.int64).tolist(),
            fullest.tolist(),
            Runs((place % size).astype(np.int32), owner.astype(np.int32), owners),
        )

    def crowded(self) -> list[int]:
        """Return the owners, ascending, that have two or more pods on the same node."""
        return [owner for owner, most in enumerate(self.fullest) if most > 1]

    def nodes(self, owner: int) -> Int32s:
        """Return the distinct nodes, ascending, with pods of an owner. Read-only array."""
        return self._nodes[owner]
