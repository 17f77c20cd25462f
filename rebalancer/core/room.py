"""Room that should be kept spare: a number of pods of one size should fit on some nodes together."""

from __future__ import annotations

from dataclasses import dataclass

from rebalancer.core.balance import Amounts
from rebalancer.core.rules import PodMove, Rule
from rebalancer.core.views import ints


@dataclass(eq=False, repr=False)
class Capacity:
    """What the nodes offer, and what a pod of each class uses of it, beside its place."""

    allocatable: memoryview
    """(R, N) amounts that pods may request."""
    max_pods: memoryview
    """(N,) the number of pods that each node allows."""
    requests: memoryview
    """(R, C) the requests of a pod of each class."""


class RoomRule(Rule):
    """Rooms of one kind. The value is the number of missing rooms; no move of a single pod is made for it."""

    def __init__(
        self,
        amounts: Amounts,
        capacity: Capacity,
        nodes: memoryview,
        rows: memoryview,
        needs: memoryview,
        places: int,
        wanted: int,
        *,
        counted: bool,
    ) -> None:
        super().__init__(None)
        self.amounts, self.capacity = amounts, capacity
        self.nodes = nodes
        """(N,) where the rooms may be."""
        self.rows = rows
        """(Q,) the resources that one room needs."""
        self.needs = needs
        """(Q,) how much of each."""
        self.places = places
        """For how many pods one room is; 0: the number of pods does not count."""
        self.wanted = wanted
        """How many rooms there should be."""
        self.counted = counted
        """Whether what a room needs counts as taken already, so that its node has it if nothing is overdrawn."""
        self.rooms = ints(len(nodes))
        """(N,) how many there are."""
        self.total = 0
        """How many there are in all."""
        self.changes = -1
        """The number of changes when they were counted."""

    def read(self) -> None:
        """Count the rooms, if anything has changed."""
        changes = self.amounts.changes[len(self.nodes)]
        if self.changes == changes:
            return
        self.changes = changes
        self.total = 0
        for node in range(len(self.nodes)):
            self.rooms[node] = self.fit(node, -1, -1)
            self.total += self.rooms[node]
        self.value = float(self.lack(self.total))

    def lack(self, rooms: int) -> int:
        """Return how many are missing."""
        return max(0, self.wanted - rooms)

    def fit(self, node: int, leaves: int, enters: int) -> int:
        """Return how many rooms a node has, once pods of two classes (-1: none) have left and come."""
        if not self.nodes[node]:
            return 0
        most = -1
        if self.places > 0:
            free = self.capacity.max_pods[node] - self.amounts.pods[node]
            free += (leaves >= 0) - (enters >= 0)
            most = self.divide(free, self.places)
        for index in range(len(self.rows)):
            row = self.rows[index]
            free = self.capacity.allocatable[row, node] - self.amounts.requested[row, node]
            if leaves >= 0:
                free += self.capacity.requests[row, leaves]
            if enters >= 0:
                free -= self.capacity.requests[row, enters]
            rooms = self.divide(free, self.needs[index])
            most = rooms if most < 0 else min(most, rooms)
        return max(0, most)

    def divide(self, free: int, need: int) -> int:
        """Return how many rooms fit into the spare amount of one resource."""
        if self.counted:
            return 1 if free >= 0 else 0
        return free // need if free > 0 else 0

    def change(self, move: PodMove, out: memoryview[float]) -> None:
        """Write the change of the value at each landing. What lands on the node that was left finds it without the pod."""
        node = move.node
        now = self.lack(self.total)
        left = self.fit(node, move.cls, -1) - self.rooms[node]
        for place in range(len(move.nodes)):
            target = move.nodes[place]
            if target == node:
                rooms = self.total + self.fit(node, move.cls, move.replacement) - self.rooms[node]
            else:
                came = self.fit(target, -1, move.replacement) - self.rooms[target]
                rooms = self.total + left + came
            out[place] = float(self.lack(rooms) - now)
