"""One group under replacement: its machines with their nodes, and which of them are useful, new, or may be ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from rebalancer.base.durations import format_duration
from rebalancer.machines.capacity.groups import Groups, zone_of
from rebalancer.machines.surge.note import GroupNote
from rebalancer.providers.contract import NodeGroup
from rebalancer.snapshot.model import Snapshot

CORDONED = "its node is cordoned"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineView:
    """One machine of a group."""

    instance: str
    node: str = ""
    """Name of its node; empty where it has none yet."""
    uid: str = ""
    zone: str = ""
    """The zone of its node; empty without a node."""
    created: float = 0.0
    """Creation time of its node, in Unix seconds."""
    launched: float | None = None
    """Launch time in Unix seconds by the provider's clock; None if the provider does not give it, or not yet."""
    lacks: str = ""
    """Why it is not useful for pods, in words; empty if it is useful."""

    @property
    def useful(self) -> bool:
        """Whether pods can run on it: its node is Ready, open and without start-up taints, and its daemons run."""
        return not self.lacks


@dataclass(frozen=True, slots=True)
class GroupView:
    """The machines of one group at one moment."""

    group: NodeGroup
    machines: Sequence[MachineView]

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        groups: Groups,
        group: NodeGroup,
        launches: Mapping[str, float],
        began: float = np.inf,
    ) -> GroupView:
        """Return the view of a group.

        ``launches``: see ``ReplacingMachines.find_launches``. ``began``: machines launched later are new; only of new
        ones the daemons must run: what an old node lacks it lacked before.
        """
        nodes = snapshot.nodes
        rows = {nodes.provider_id[row] or nodes.names[row]: row for row in groups.nodes_of(group)}

        def look_at(instance: str) -> MachineView:
            launched, row = launches.get(instance), rows.get(instance)
            if row is None:
                return MachineView(instance=instance, launched=launched, lacks="it is no node yet")
            is_new = launched is not None and launched > began
            return MachineView(
                instance=instance,
                node=nodes.names[row],
                uid=nodes.uid[row],
                zone=zone_of(nodes.labels.of(row)) or "",
                created=float(nodes.created[row]),
                launched=launched,
                lacks=_lacks(snapshot, groups, row, daemons=is_new),
            )

        return cls(group, list(map(look_at, group.instances)))

    def zones(self) -> Counter[str]:
        """Return zone -> useful nodes."""
        return Counter(one.zone for one in self.machines if one.useful)

    def machine_of(self, node: str) -> MachineView | None:
        """Return the machine of a node; None if the group has none for it."""
        return next((one for one in self.machines if one.node == node), None)

    def new(self, note: GroupNote, before: Collection[str]) -> list[MachineView]:
        """Return the machines that were launched after the replacement began.

        Their nodes do not say that: a node may be away, or be registered again under its name. ``before``: instances
        that are known not to be new.
        """
        return [
            one
            for one in self.machines
            if one.instance not in before and one.launched is not None and one.launched > note.at
        ]

    def unknown(self, before: Collection[str]) -> list[MachineView]:
        """Return the machines whose launch time the provider does not say yet; ``before``: see :meth:`new`."""
        return [one for one in self.machines if one.instance not in before and one.launched is None]

    def why_not(self, node: str, note: GroupNote, closed: Collection[str]) -> str | None:
        """Return why an old node must not be closed yet; None if it may be. ``closed``: nodes closed since this look."""
        machine = self.machine_of(node)
        if machine is None:
            return None
        if (why := self.group.held.get(machine.instance)) is not None:
            return f"{self.group.name}: {why}"
        if not machine.useful:
            return None  # it is no useful one that would be lost
        have = sum(
            one.useful and one.zone == machine.zone and one.node not in closed
            for one in self.machines
        )
        need = note.zones.get(machine.zone, 0)
        if have > need:
            return None
        zone = machine.zone or "its zone"
        return f"a machine of {self.group.name} in {zone}: {have} of the {need} useful nodes that it had are left"

    def surplus(
        self,
        note: GroupNote,
        before: Collection[str],
        stays: Collection[str],
        outdated: Collection[str],
    ) -> list[MachineView]:
        """Return new machines in the order in which they may be ended, so that no zone has fewer than before.

        ``before``: see :meth:`new`; ``stays``: new nodes that must be kept; ``outdated``: instances to be preferred.
        """
        spare = self.zones()
        spare.subtract(note.zones)
        held = self.group.held
        mine = [
            one
            for one in self.new(note, before)
            if one.node not in stays and one.instance not in held
        ]
        mine.sort(
            key=lambda one: (
                bool(one.node),
                one.useful,
                one.instance not in outdated,
                -spare[one.zone],
                -(one.launched or 0.0),
                one.instance,
            )
        )
        may_go = []
        for one in mine:
            if one.useful and spare[one.zone] <= 0:
                continue
            spare[one.zone] -= one.useful
            may_go.append(one)
        return may_go


def _lacks(snapshot: Snapshot, groups: Groups, row: int, *, daemons: bool) -> str:
    nodes = snapshot.nodes
    if row in nodes.unreadable:
        return "its node cannot be read"
    if not nodes.ready[row]:
        return "its node is not Ready"
    if groups.starting[row]:
        return "its node has a start-up taint"
    if nodes.unschedulable[row]:
        return CORDONED
    if nodes.leaving[row]:
        return "its node is announced to go"
    missing = _missing_daemons(snapshot, groups, row) if daemons else []
    return f"no Ready pod of the DaemonSet {missing[0]} is on its node" if missing else ""


def _missing_daemons(snapshot: Snapshot, groups: Groups, row: int) -> list[str]:
    """Return the DaemonSets that want a pod on a node and have no Ready one there, but are Ready elsewhere."""
    owner = np.array([cls.owner for cls in snapshot.classes] or [-1])[snapshot.pods.cls]
    ready = snapshot.pods.ready & snapshot.pods.living
    runs = set(owner[ready].tolist())
    here = set(owner[ready & (snapshot.pods.node == row)].tolist())
    nodes = snapshot.nodes
    taints = nodes.taint_sets[int(nodes.taint_set[row])]
    wanted = groups.daemons_for(nodes.labels.of(row), taints)
    missing = {snapshot.classes[cls].owner for cls in wanted.tolist()} & runs - here
    owners = (snapshot.owners[one] for one in missing)
    return sorted(f"{one.namespace}/{one.name}" for one in owners)


_BARE = 60.0
"""Seconds that a machine must be seen without a node before it is ended as one that did not join: its node may be away for a moment."""


class Newcomers:
    """Tells new machines from those that were there when a replacement began."""

    def __init__(self, ready_within: timedelta) -> None:
        """``ready_within``: within which a new machine must be useful."""
        self._within = ready_within
        self._before: set[str] = set()
        """Instances that were there before their group grew, as far as this process has seen it."""
        self._bare: dict[str, float] = {}
        """Instance without a node -> Unix seconds since when it was seen so."""
        self._useful: dict[str, float] = {}
        """Instance -> Unix seconds when it was last seen to be useful."""

    @property
    def before(self) -> frozenset[str]:
        """Instances that are known not to be new."""
        return frozenset(self._before)

    def begin(self, group: NodeGroup) -> None:
        """Note the machines of a group that has not grown yet."""
        self._before.update(group.instances)

    def look(self, view: GroupView, now: float) -> None:
        """Note since when machines have no node; ``now``: Unix seconds."""
        bare = [one.instance for one in view.machines if not one.node]
        self._bare = {instance: self._bare.get(instance, now) for instance in bare}

    def may_be_surplus(self, one: MachineView, now: float) -> bool:
        """Return whether a machine has a node, or has had none for longer than a node may be away."""
        least = min(_BARE, self._within.total_seconds() / 2)
        return bool(one.node) or now - self._bare.get(one.instance, now) >= least

    def find_missing(
        self, view: GroupView, note: GroupNote, now: float, going: frozenset[str]
    ) -> tuple[str, bool] | None:
        """Return (what the first new machine lacks, whether it lacks that for too long); None once all are useful.

        ``going``: nodes of new machines that are ended anyway.
        """
        new, within = view.new(note, self._before), self._within.total_seconds()
        self._useful |= {one.instance: now for one in new if one.useful}
        unknown = view.unknown(self._before)
        for one in [*unknown, *new]:
            known = one not in unknown
            if known and (one.useful or one.node in going):
                continue
            lacks = one.lacks if known else "the provider does not say when it was launched"
            machine = one.instance.rpartition("/")[2]
            text = f"the new machine {machine} of {view.group.name}: {lacks}"
            since = max(note.since, one.created, self._useful.get(one.instance, 0.0))
            late = now - since > within
            return f"{text}, after {format_duration(self._within)}" if late else text, late
        return None


class OldGroups:
    """The groups that are still to be replaced, with their old nodes; the first group is being replaced now."""

    def __init__(
        self, old: Mapping[str, Mapping[str, str]], under_way: Collection[str] = ()
    ) -> None:
        """``old``: group -> name of each of its old nodes -> its uid; ``under_way``: those that have a note already."""
        # What is half done is ended first.
        self._queue = sorted(old, key=lambda name: (name not in under_way, name))
        self._old = {name: dict(nodes) for name, nodes in old.items()}
        self._instances: dict[str, dict[str, str]] = {}
        """Group -> instance of each of its old nodes -> name of the node, as they were first seen."""
        self._skipped: set[str] = set()
        """Groups that were left out since everything is taken back."""
        self.noted = set(under_way)
        """Groups with a note that are not restored, as far as is known."""

    @property
    def first(self) -> str | None:
        """The group whose turn it is; None if none is left."""
        return self._queue[0] if self._queue else None

    def nodes(self, group: str) -> Mapping[str, str]:
        """Return name -> uid of the old nodes of a group."""
        return self._old.get(group, {})

    def end(self, group: str) -> None:
        """Let the next group have its turn."""
        self._queue.remove(group)

    def skip(self, group: str) -> None:
        """Note that a group without a note is left out since everything is taken back."""
        self._skipped.add(group)

    def forget(self, node: str) -> bool:
        """Leave an old node out; return whether it was one."""
        return any(nodes.pop(node, None) is not None for nodes in self._old.values())

    def leave_rest(self, begun: Collection[str]) -> int:
        """Leave all nodes out but ``begun``; return how many."""
        rest = {name for nodes in self._old.values() for name in nodes} - set(begun)
        return sum([self.forget(name) for name in rest])

    def not_begun(self) -> dict[str, int]:
        """Return group -> old nodes, of the groups that were to be replaced and are untouched."""
        waiting = {*self._queue, *self._skipped} - self.noted
        return {name: len(self.nodes(name)) for name in sorted(waiting) if self.nodes(name)}

    def note_instances(self, view: GroupView) -> None:
        """Remember the machines of the old nodes: a node may be away later, or be registered again with another uid."""
        old = self.nodes(view.group.name)
        known = self._instances.setdefault(view.group.name, {})
        known |= {
            one.instance: one.node
            for one in view.machines
            if one.uid and old.get(one.node) == one.uid
        }

    def find_left(
        self, group: str, instances: Collection[str], ended: Collection[str]
    ) -> list[str]:
        """Return the old machines that are still in the group, as ``node (instance)``; ``ended``: machines whose end was requested."""
        old = self.nodes(group)
        return [
            f"{node} ({instance})"
            for instance, node in sorted(self._instances.get(group, {}).items())
            if node in old and instance in instances and instance not in ended
        ]
