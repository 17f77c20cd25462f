"""Choose the old nodes of groups, leaving out machines that a replacement under way has brought itself."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from rebalancer.base.errors import PolicyError, ProviderRefusalError
from rebalancer.base.plain_text import and_more
from rebalancer.kube.nodes import NodeView
from rebalancer.machines.capacity.groups import Groups, known_nodes, zone_of
from rebalancer.machines.drain.cordon import NodeChoice
from rebalancer.machines.surge.note import GroupNote, GroupNotes
from rebalancer.policy.cluster import CapacitySettings
from rebalancer.providers.contract import NodeGroup, Outdated, ReplacingMachines
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.nodes import with_nodes


@dataclass
class MachineChoice:
    """The chosen nodes whose machines are in groups of the provider."""

    nodes: NodeChoice
    """The conditions on nodes."""
    machines: ReplacingMachines
    group_notes: GroupNotes
    settings: CapacitySettings
    outdated: Outdated | None = None
    """Queries the provider for outdated machines; None: they are not queried."""
    all_of_notes: bool = False
    """Choose all old nodes of the groups with a note, and no others, to cancel the replacement."""
    old: dict[str, dict[str, str]] = field(default_factory=dict)
    """Group -> name of each chosen node -> its uid; it also has each group with a note, even if none of its nodes is chosen."""
    under_way: frozenset[str] = frozenset()
    """Groups that have a note."""
    notes: list[str] = field(default_factory=list)
    """Notes about the choice for the report."""
    without_node: str = ""
    """Which outdated machines are left since they have no node, in words; empty if there are none."""
    _groups: Groups | None = None
    _outdated: dict[str, frozenset[str]] = field(default_factory=dict)
    """Group -> its outdated machines, for the groups that were queried."""
    _launches: dict[str, Mapping[str, float]] = field(default_factory=dict)
    """Group -> when its machines were launched, the same."""

    @property
    def names(self) -> Sequence[str]:
        """No node is named."""
        return ()

    def of(self, snapshot: Snapshot) -> list[str]:
        """Return the names of the nodes to be emptied, and keep the chosen ones by group in :attr:`old`.

        Raises:
            PolicyError: no node has the labels.
            ClusterReadError: a note cannot be read.
            ProviderError: the provider cannot be queried, or a group cannot grow.
        """
        read = self.machines.groups(known_nodes(snapshot))
        if not read:
            raise ProviderRefusalError(
                "the provider names no group: check what the policy's provider chooses groups by, and where"
            )
        groups = self._groups = Groups(snapshot, read, self.settings.startup_taints)
        noted = {one.name: self.group_notes.parse(one.name, one.note) for one in read}
        self.old = {name: {} for name, note in noted.items() if note is not None}
        self.under_way = frozenset(self.old)
        alone = []
        for name in self._match_nodes(snapshot):
            row = snapshot.nodes.index[name]
            group = groups.group_of(row)
            if group is None:
                alone.append(name)
            elif self._is_chosen(snapshot, row, group, noted[group.name]):
                self.old.setdefault(group.name, {})[name] = snapshot.nodes.uid[row]
        self.without_node = self._name_without_node(
            read, {*snapshot.nodes.provider_id, *snapshot.nodes.names}
        )
        if alone and self._has_conditions:
            text = f"in no group of the provider, and left out: {and_more(alone, 3)}"
            self.notes.append(text)
        for group in read:
            if self.old.get(group.name) and noted[group.name] is None:
                _check_room(group)
                # It is needed at the first step: a right that is missing is known before anything is changed.
                self.machines.find_launches(group)
        if self.all_of_notes:
            return []
        return [
            name for name in snapshot.nodes.names if any(name in of for of in self.old.values())
        ]

    def expect(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with a new node for each chosen one, in its zone, by the template of its group."""
        added = []
        if self._groups is None or self.all_of_notes:
            return snapshot
        for group in self._groups.groups:
            chosen = self.old.get(group.name)
            template = self._groups.template_of(group, self.machines.template) if chosen else None
            if chosen and template is None:
                self.notes.append(f"it is not known what a new machine of {group.name} is")
            for number, name in enumerate(chosen or (), 1):
                if template is not None:
                    zone = zone_of(snapshot.nodes.labels_of(name))
                    added.append(template.node(number, zone))
        return with_nodes(snapshot, added)

    def still_has(self, node: NodeView) -> bool:
        """Return whether a chosen node still meets the conditions on nodes; raises ClusterReadError."""
        return self.nodes.still_has(node)

    def _name_without_node(self, groups: Sequence[NodeGroup], nodes: Collection[str]) -> str:
        outdated = self.outdated
        if outdated is None:
            return ""
        bare = [
            f"{instance} of {group.name}"
            for group in groups
            if not self._has_conditions or group.name in self._outdated
            for instance in group.instances
            if instance not in nodes and instance in self._find_outdated(group, outdated)
        ]
        if not bare:
            return ""
        return (
            f"outdated machines without a node are left: {and_more(bare, 3)}; call this again once they have joined, or"
            " end them by hand"
        )

    @property
    def _has_conditions(self) -> bool:
        return self.nodes != NodeChoice()

    def _match_nodes(self, snapshot: Snapshot) -> Sequence[str]:
        try:
            return self.nodes.of(snapshot)
        except PolicyError:
            if not self.old:
                raise
            # What is under way may have replaced all nodes with these labels.
            return ()

    def _is_chosen(
        self, snapshot: Snapshot, row: int, group: NodeGroup, note: GroupNote | None
    ) -> bool:
        if note is None and self.all_of_notes:
            return False
        instance = snapshot.nodes.provider_id[row] or snapshot.nodes.names[row]
        if note is not None and self._launch_of(group, instance) > note.at:
            return False
        if self.outdated is None:
            return True
        return instance in self._find_outdated(group, self.outdated)

    def _find_outdated(self, group: NodeGroup, outdated: Outdated) -> frozenset[str]:
        if group.name not in self._outdated:
            self._outdated[group.name] = self.machines.find_outdated(group, outdated)
        return self._outdated[group.name]

    def _launch_of(self, group: NodeGroup, instance: str) -> float:
        """Return when a machine was launched; of one that the provider does not know yet, that it is a new one."""
        if group.name not in self._launches:
            self._launches[group.name] = self.machines.find_launches(group)
        return self._launches[group.name].get(instance, math.inf)


def _check_room(group: NodeGroup) -> None:
    """Raise ProviderRefusalError if a group cannot grow."""
    if not group.is_sized:
        raise ProviderRefusalError(
            f"{group.name}: its size is not known, or counts no machines: leave its nodes out"
        )
    if group.suspended:
        raise ProviderRefusalError(f"{group.name} gets no new machines: {group.suspended}")
    if (group.desired or 0) >= (group.maximum or 0):
        raise ProviderRefusalError(
            f"{group.name} has {group.desired} machines, and may have no more: new ones come before old ones go, so set"
            f" its maximum to {(group.desired or 0) + 1} or more (it is never changed here)"
        )
