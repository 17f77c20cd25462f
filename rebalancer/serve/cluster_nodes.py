"""The nodes that a serving process follows, for each signal source and for the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rebalancer.signals.nodes import FollowedNodes
from rebalancer.wire.objects import Node


class ClusterNodes:
    """Gives each listener its own view of the nodes, and forwards changes to all of them."""

    def __init__(self) -> None:
        self._nodes: Callable[[], Sequence[Node]] = tuple
        self._followed: list[FollowedNodes] = []

    def __call__(self) -> Sequence[Node]:
        """Return all nodes as currently known."""
        return self._nodes()

    def read_from(self, nodes: Callable[[], Sequence[Node]]) -> None:
        """Read the nodes with the function ``nodes`` from now on."""
        self._nodes = nodes

    def add_listener(self) -> FollowedNodes:
        """Return the nodes for one more listener."""
        self._followed.append(FollowedNodes(self))
        return self._followed[-1]

    def end_following(self) -> None:
        """Stop forwarding changes."""
        self._followed = []

    def find(self, name: str) -> Node | None:
        """Return the node of this name; None if there is none."""
        return next((node for node in self() if node.metadata.name == name), None)

    def changed(self, before: Any | None, after: Any | None) -> None:
        """Forward a change of a node, see ``FollowedNodes.changed``."""
        for followed in self._followed:
            followed.changed(before, after)
