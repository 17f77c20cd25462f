"""The nodes that a process follows, for each source of signals and for the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rebalancer.signals.nodes import FollowedNodes
from rebalancer.wire.objects import Node


class ClusterNodes:
    """Gives each listener nodes of its own; passes the changes of all on."""

    def __init__(self) -> None:
        self._nodes: Callable[[], Sequence[Node]] = tuple
        self._followed: list[FollowedNodes] = []

    def __call__(self) -> Sequence[Node]:
        """Return all nodes as they are known now."""
        return self._nodes()

    def read_from(self, nodes: Callable[[], Sequence[Node]]) -> None:
        """Take the nodes from ``nodes`` from now on."""
        self._nodes = nodes

    def followed(self) -> FollowedNodes:
        """Return the nodes for one more listener."""
        self._followed.append(FollowedNodes(self))
        return self._followed[-1]

    def end_following(self) -> None:
        """Pass no more changes on."""
        self._followed = []

    def named(self, name: str) -> Node | None:
        """Return the node of this name, None if there is none."""
        return next((node for node in self() if node.metadata.name == name), None)

    def changed(self, before: Any | None, after: Any | None) -> None:
        """See ``FollowedNodes.changed``."""
        for followed in self._followed:
            followed.changed(before, after)
