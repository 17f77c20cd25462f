"""The new nodes that groups may still get: how many, in which zones, and by which names they go."""

from __future__ import annotations

from collections.abc import Mapping

from rebalancer.machines.capacity.decisions import Decisions
from rebalancer.machines.capacity.groups import Groups, GroupTemplate
from rebalancer.machines.capacity.packing import NewNode
from rebalancer.machines.capacity.scale_out_plan import ScaleOutInputs
from rebalancer.machines.capacity.sizes import size_of_cluster
from rebalancer.providers.contract import NodeGroup
from rebalancer.snapshot.model import Snapshot


class NewNodes:
    """What each group may still get, after what was decided."""

    def __init__(
        self,
        snapshot: Snapshot,
        groups: Groups,
        templates: Mapping[str, GroupTemplate | None],
        inputs: ScaleOutInputs,
        decisions: Decisions,
        max_nodes: int | None = None,
    ) -> None:
        """``max_nodes``: of the cluster."""
        self._pods = len(snapshot.pods)
        self._groups, self._templates = groups, templates
        self._upcoming, self._decisions = inputs.upcoming, decisions
        whole = size_of_cluster(snapshot, groups)
        self._room = (
            None if max_nodes is None else max_nodes - whole.registered - whole.unregistered
        )

    @property
    def room(self) -> int | None:
        """How many nodes the cluster may still get, None: any number."""
        return None if self._room is None else max(0, self._room - len(self._decisions.new))

    def headroom(self, group: NodeGroup) -> int:
        """Return how many nodes a group may still get; where its sizes are not known, as many as are asked for."""
        own = self._pods * self.tries(group)
        if group.maximum is not None and group.desired is not None:
            own = group.maximum - self.size(group)
        return own if self.room is None else min(own, self.room)

    def size(self, group: NodeGroup) -> int:
        """Return the size of a group with what was decided; upcoming machines stand in its desired size."""
        new = len(self._decisions.nodes_of(group.name)) - self._upcoming.get(group.name, 0)
        return (group.desired or 0) + new

    def tries(self, group: NodeGroup) -> int:
        """Return how many nodes one pod may take to get one that it fits on: see Packing."""
        return 1 + 2 * max(0, len(self._groups.zones(group)) - 1)

    def candidates(self, group: NodeGroup, most: int) -> list[NewNode]:
        """Return the next nodes of a group: each in the zone that has the fewest of its nodes by then."""
        template = self._templates[group.name]
        if template is None:
            return []
        zones = self._groups.zones(group)
        for one in self._decisions.nodes_of(group.name):
            if one.zone is not None:
                zones[one.zone] = zones.get(one.zone, 0) + 1
        first = self._decisions.numbers[group.name] + 1
        nodes: list[NewNode] = []
        for number in range(first, first + most):
            zone = min(zones, key=lambda name: (zones[name], name), default=None)
            if zone is not None:
                zones[zone] += 1
            nodes.append(NewNode(template, template.node(number, zone)))
        return nodes
