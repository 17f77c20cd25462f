"""The decisions of a scale-out so far: upcoming and new nodes, and the pending pods placed on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from rebalancer.machines.capacity.packing import NewNode, Packed, weighed_rows
from rebalancer.machines.capacity.scale_out_plan import GroupIncrease
from rebalancer.snapshot.model import Snapshot


@dataclass(slots=True)
class Decisions:
    """Nodes that do not exist yet, and the pending pods placed on them."""

    nodes: list[NewNode] = field(default_factory=list)
    """The upcoming ones, then the new ones."""
    pods: dict[int, str] = field(default_factory=dict)
    """Pod -> name of its node."""
    upcoming: frozenset[str] = frozenset()
    """Names that stand for the upcoming machines."""
    group_of: dict[str, str] = field(default_factory=dict)
    """Name of a node -> its group."""
    numbers: Counter[str] = field(default_factory=Counter)
    """Group -> the highest number in a name of its nodes."""
    _steps: list[tuple[NewNode, ...]] = field(default_factory=list)
    """The new nodes of one group each, in the order in which they were chosen; some may have been dropped since."""

    def add_upcoming(self, nodes: Sequence[NewNode]) -> None:
        """Add upcoming machines, before any decision."""
        self.nodes += nodes
        self._name(nodes)
        self.upcoming = frozenset(self.group_of)

    def add(self, packed: Packed) -> None:
        """Add the new nodes and placements in ``packed``."""
        self.nodes += packed.nodes
        self.pods |= packed.pods
        self._name(packed.nodes)
        groups = sorted({one.template.group for one in packed.nodes})
        for group in groups:
            of_group = tuple(one for one in packed.nodes if one.template.group == group)
            self._steps.append(of_group)

    def _name(self, nodes: Sequence[NewNode]) -> None:
        self.group_of |= {one.node.name: one.template.group for one in nodes}
        self.numbers.update(one.template.group for one in nodes)

    def drop(self, names: Collection[str]) -> None:
        """Remove some of the new nodes."""
        self.nodes = [one for one in self.nodes if one.node.name not in names]

    @property
    def new(self) -> list[NewNode]:
        """The new nodes."""
        return [one for one in self.nodes if one.node.name not in self.upcoming]

    def nodes_of(self, group: str) -> list[NewNode]:
        """Return the nodes of a group."""
        return [one for one in self.nodes if one.template.group == group]

    def increases(self, snapshot: Snapshot) -> Iterator[GroupIncrease]:
        """Yield the increase of each group."""
        kept = {one.node.name for one in self.nodes}
        rows = weighed_rows(snapshot)
        for step in self._steps:
            nodes = [one for one in step if one.node.name in kept]
            if not nodes:
                continue
            names = tuple(one.node.name for one in nodes)
            pods = [pod for pod, name in self.pods.items() if name in names]
            room = sum(one.node.allocatable[rows] for one in nodes)
            requested = snapshot.requests[rows][:, snapshot.pods.cls[pods]].sum(axis=1)
            waste = float((1.0 - requested / np.maximum(1, room)).mean())
            zones = dict(sorted(Counter(filter(None, (one.zone for one in nodes))).items()))
            yield GroupIncrease(nodes[0].template.group, names, zones, len(pods), waste)
