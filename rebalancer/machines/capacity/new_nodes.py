"""The nodes that groups may still add: their number, zones and names."""

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
    """The nodes that each group may still add, given the decisions so far."""

    def __init__(
        self,
        snapshot: Snapshot,
        groups: Groups,
        templates: Mapping[str, GroupTemplate | None],
        inputs: ScaleOutInputs,
        decisions: Decisions,
        max_nodes: int | None = None,
    ) -> None:
        """``max_nodes``: the limit for the cluster."""
        self._pods = len(snapshot.pods)
        self._groups, self._templates = groups, templates
        self._upcoming, self._decisions = inputs.upcoming, decisions
        whole = size_of_cluster(snapshot, groups)
        self._room = (
            None if max_nodes is None else max_nodes - whole.registered - whole.unregistered
        )

    @property
    def room(self) -> int | None:
        """The number of nodes that the cluster may still add; None: no limit."""
        return None if self._room is None else max(0, self._room - len(self._decisions.new))

    def headroom(self, group: NodeGroup) -> int:
        """Return how many nodes a group may still add; without a limit if its sizes are unknown."""
        own = self._pods * self.tries(group)
        if group.maximum is not None and group.desired is not None:
            own = group.maximum - self.size(group)
        return own if self.room is None else min(own, self.room)

    def size(self, group: NodeGroup) -> int:
        """Return the size of a group including the decisions; upcoming machines are part of its desired size."""
        new = len(self._decisions.nodes_of(group.name)) - self._upcoming.get(group.name, 0)
        return (group.desired or 0) + new

    def tries(self, group: NodeGroup) -> int:
        """Return how many nodes to try for one pod until one fits, see :class:`Packing`."""
        return 1 + 2 * max(0, len(self._groups.zones(group)) - 1)

    def candidates(self, group: NodeGroup, most: int) -> list[NewNode]:
        """Return the next nodes of a group, each in the zone with the fewest nodes of the group."""
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
