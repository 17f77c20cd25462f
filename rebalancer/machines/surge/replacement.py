"""A replacement with new machines of the provider: the old nodes that it chooses, and what it does to them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from msgspec.structs import replace as replace_record

from rebalancer.base.errors import (
    ClusterReadError,
    PolicyError,
    ProviderError,
    ProviderRefusalError,
)
from rebalancer.base.plain_text import and_more, count
from rebalancer.kube.nodes import NodeView
from rebalancer.machines.capacity.groups import Groups, known_nodes, zone_of
from rebalancer.machines.drain.command import NodeCommand
from rebalancer.machines.drain.cordon import NodeChoice, enter, give_back, order_of
from rebalancer.machines.drain.draining import Drain
from rebalancer.machines.drain.remaining import describe_remaining
from rebalancer.machines.drain.replacing import (
    NodeReplacement,
    ReplacementPace,
    ReplaceOptions,
)
from rebalancer.machines.surge.note import GroupNote, GroupNotes, author
from rebalancer.machines.surge.surging import Surge, SurgeOptions
from rebalancer.node_record.records import BUSY, ReplacePhase, Stage, stage_of
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
    """What the provider is asked about machines; None: nothing."""
    all_of_notes: bool = False
    """Choose in groups with a note alone, all of their old nodes, to take it back."""
    old: dict[str, dict[str, str]] = field(default_factory=dict)
    """Group -> name of each chosen node -> its uid; it also has each group with a note, even if none of its nodes is chosen."""
    under_way: frozenset[str] = frozenset()
    """Groups that have a note."""
    notes: list[str] = field(default_factory=list)
    """What is to be said about the choice."""
    without_node: str = ""
    """Which outdated machines are left since they have no node, in words; empty if there are none."""
    _groups: Groups | None = None
    _outdated: dict[str, frozenset[str]] = field(default_factory=dict)
    """Group -> its outdated machines, of the groups that were asked about."""
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
            ProviderError: the provider cannot be asked, or a group cannot grow.
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
        """Return the snapshot with a new node for each chosen one, in its zone, as the template of its group says."""
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


_MAX_LAG = 20.0
"""Seconds after the last stage within which the request to end a machine is sent, or not at all."""


class SurgeReplacement(NodeReplacement):
    """A replacement with machines of the provider: a node is closed once there is more than enough without it."""

    def __init__(
        self, command: NodeCommand, choice: MachineChoice, options: ReplaceOptions
    ) -> None:
        super().__init__(command, choice, {}, None, options.wait_batch)
        clock = command.environment.clock
        self._surge = Surge(
            choice.machines,
            choice.group_notes,
            self,
            SurgeOptions(
                surge=options.surge or 1,
                ready_within=timedelta(seconds=options.ready_within),
                by=author(self._by),
                outdated=choice.outdated,
                startup_taints=choice.settings.startup_taints,
            ),
            command.stop,
            clock.unix,
            choice.old,
            choice.under_way,
        )
        self._taking_back = options.take_back
        if options.take_back:
            self._surge.take_back("ordered")

    def run(self, pace: ReplacementPace) -> str | None:
        """Replace the machines, and restore their groups; return None when done, else why not."""
        self._batch_until = self._command.stop.now() + self._wait_batch
        try:
            with self._surge.alive():
                why = self._replace(pace)
        except (ClusterReadError, ProviderError) as error:
            why = self._command.stop.reason() or str(error)
        if why is None:
            why = self._surge.trouble or (None if self._taking_back else self._surge.reason)
        for name in self._surge.groups_left():
            self._command.base.notes.append(
                f"{name} is not restored: call this again to go on, or with --take-back instead"
            )
        for name, nodes in self._surge.groups_not_begun().items():
            text = f"{count(nodes, 'old node')} of {name}: its replacement was not begun"
            self._command.base.notes.append(f"{text}; call this again")
        return why

    # -- of the loop -------------------------------------------------------------------------------

    def nodes(self) -> Mapping[str, str]:
        """Return name -> uid of the nodes whose machines are to be ended now."""
        return self._surge.in_work()

    def advance(self, stages: Mapping[str, Stage | None]) -> str | None:
        """Have machines added, or what was changed restored; return what is awaited, or None."""
        busy = {name for name, stage in stages.items() if stage is not None and stage.phase in BUSY}
        return self._surge.advance(busy)

    def why_not(self, name: str) -> str | None:
        """Return which machine is awaited before this node may be closed; None if it may be."""
        return self._surge.why_not(name)

    def is_old(self, node: NodeView) -> bool:
        """Return whether a node's machine is to be ended still."""
        if self._surge.is_surplus(node.name):
            return True
        return super().is_old(node) and self._surge.is_old(node.name, node.provider_id)

    def leave_out(self, name: str, why: str) -> None:
        """Give back a node that is not replaced."""
        uid = self.nodes().get(name, "")
        if self._surge.forget(name) and self.give_back(name, uid):
            self.note_left_out(name, why)

    def leave_rest(self, begun: Collection[str]) -> None:
        """Replace no more than ``begun``: the others were not closed."""
        left = self._surge.leave_rest(begun)
        if left:
            text = (
                f"{left} old nodes are left to a later call"
                if left > 1
                else "1 old node is left to a later call"
            )
            self._command.base.notes.append(text)

    def write(self, name: str, stage: Stage, may: Callable[[NodeView, Stage | None], bool]) -> bool:
        """Write a stage; the first one with the cordon, in one write."""
        if stage.phase is ReplacePhase.WAITING:
            return self.give_back(name, stage.uid)
        if stage.phase is not ReplacePhase.EMPTYING:
            return super().write(name, stage, may)
        order = replace_record(self._command.order(), uid=stage.uid)
        entered = enter(self._client, name, stage, may=may, order=order)
        if entered:
            self._surge.note_closed(name)
        return entered

    def drain_of(self, names: Sequence[str]) -> Drain:
        """Return the drain of some of the nodes; their records stay until their machines are gone."""
        nodes = self.nodes()
        uids = {name: nodes[name] for name in names if name in nodes}
        return Drain(
            self._command, self._client, uids, uncordon_on_failure=False, keeps_record=True
        )

    def empty(self, names: Sequence[str]) -> str | None:
        """Empty these nodes, and wait for what delays their end; return None, or why they are not empty."""
        for name in names:
            self._take_over(name)
        full = [name for name in names if not self._is_dead(name)]
        if full and (why := super().empty(full)) is not None:
            return why
        return self.await_delays(names)

    def _take_over(self, name: str) -> None:
        """Write a node's record and stage as ours, where another process that was killed has begun with it."""
        stage = self.stage(name)
        early = (ReplacePhase.EMPTYING, ReplacePhase.EMPTY)
        if stage is not None and stage.by != self._by and stage.phase in early:
            order = replace_record(self._command.order(), uid=stage.uid)
            ours = replace_record(stage, by=self._by)
            enter(self._client, name, ours, may=lambda _, before: before == stage, order=order)
            self._command.conditions.show(self._client, name)

    def _is_dead(self, name: str) -> bool:
        """Return whether a new node never became useful, and has no pods but those that nothing could end there."""
        if not self._surge.is_surplus(name) or self._surge.is_ready(name):
            return False
        return not describe_remaining(
            self._client,
            name,
            clock=self._command.environment.clock.unix,
            version=(0, 0),
            ready=False,
        )

    def remove(self, name: str) -> str | None:
        """Have the machine of a node ended; return why that failed, or None."""
        began = self._command.stop.now()
        return self._surge.end(name, lambda: self._why_not_end(name, began))

    def _why_not_end(self, name: str, began: float) -> str | None:
        """Return why the machine of a node must not be ended now; asked directly before the request is sent."""
        node = self._read(name)
        if node is None:
            return "its node is gone, or another one has its name"
        stage = stage_of(order_of(node))
        if stage is None or (stage.phase, stage.by) != (ReplacePhase.REMOVING, self._by):
            return "another process has taken it over"
        if not node.unschedulable:
            return "another client has uncordoned it"
        late = self._command.stop.now() - began > _MAX_LAG
        return f"it took more than {_MAX_LAG:.0f} s to ask the provider" if late else None

    # -- of the surge ------------------------------------------------------------------------------

    def look(self) -> tuple[Snapshot, float]:
        """Return the state of the cluster, and the seconds by which its clock is ahead."""
        return self._command.look()

    def give_back(self, name: str, uid: str) -> bool:
        """Open a node that the replacement has closed; False if its machine may be ending."""
        given = give_back(self._client, name, uid)
        self._command.conditions.show(self._client, name)
        return given

    def say(self, code: str, text: str) -> None:
        """Report a step."""
        self._command.progress.note(code, text)
