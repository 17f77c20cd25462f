"""One node group of Cluster API as it was read: its machines, and why they cannot be added or ended.

Which Machine a decrease ends is the choice of its MachineSet: those that are being deleted count first, then those with the
annotation ``delete-machine``, then others (``machineset_deletion_order.go``). Which MachineSet is decreased is the choice
of the MachineDeployment: while a rollout waits for deletions (OnDelete) the oldest one of an old template, else the one
with its template. So exactly this Machine is ended only if nothing else is marked, all requested
Machines exist, and its MachineSet is the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rebalancer.base.plain_text import and_more
from rebalancer.machines.cluster_api.api import (
    NO_CREATION,
    NOTE,
    TOPOLOGY,
    UPDATING,
    ApiObject,
    Machine,
    Scalable,
    newest_template,
    read_path,
)
from rebalancer.providers.contract import KnownNode, NodeGroup

PENDING = "Cluster API has not ended yet what was asked for before"
OURS = "rebalancer"
"""Prefix of the values of marks that this program sets."""


@dataclass(frozen=True, slots=True)
class ScalableGroup:
    """A node group with all that belongs to it."""

    cluster: ApiObject | None
    owner: Scalable
    """The MachineDeployment, or the MachineSet that none owns."""
    sets: Sequence[Scalable]
    """The MachineSets of the group; for a MachineSet, itself."""
    machines: Sequence[Machine]
    """All machines of the group, by name."""
    nodes: Sequence[KnownNode] = field(default=(), compare=False)

    @property
    def living(self) -> list[Machine]:
        """The machines that are not being deleted."""
        return [one for one in self.machines if not one.is_going]

    @property
    def staying(self) -> list[Machine]:
        """The machines that are neither being deleted nor ended by a decrease that was made."""
        living = self.living
        unmarked = [one for one in living if one.mark is None]
        return living if (self.owner.replicas or 0) >= len(living) else unmarked

    @property
    def has_pending_ends(self) -> bool:
        """Whether the group was made smaller for marked machines whose deletion has not begun yet."""
        return len(self.staying) < len(self.living)

    def by_instance(self) -> dict[str, Machine]:
        """Return instance -> machine, without those being deleted; see :attr:`NodeGroup.instances`.

        A machine is known by its ``providerID`` if its node has the same one, else by its own name: a kubelet chooses the
        ``providerID`` of its node.
        """
        ids = Counter(one.provider_id for one in self.machines)
        claims: dict[str, set[str]] = {}
        for node in self.nodes:
            claims.setdefault(node.provider_id, set()).add(node.name)
        named = {}
        for one in self.staying:
            known = one.node and one.provider_id and ids[one.provider_id] == 1
            known = known and claims.get(one.provider_id, set()) <= {one.node}
            own = f"machine:{read_path(one.raw, 'metadata', 'namespace')}/{one.name}"
            named[one.provider_id if known else own] = one
        return named

    def node_group(self) -> NodeGroup:
        """Return it as the contract of providers has it."""
        named, sizes = self.by_instance(), self.owner.sizes
        frozen = self.why_frozen()
        held = dict.fromkeys(named, frozen) if frozen else dict(self._hold(named))
        return NodeGroup(
            name=self.owner.group,
            instances=tuple(sorted(named)),
            minimum=sizes[0] if sizes else None,
            maximum=sizes[1] if sizes else None,
            desired=self.owner.replicas,
            suspended=frozen or self._why_not_created(),
            note=self.owner.annotations.get(NOTE, ""),
            options=self.owner.options,
            held={name: held[name] for name in sorted(held)},
        )

    # -- why nothing is done -----------------------------------------------------------------------

    def why_frozen(self) -> str:
        """Return why nothing of the group can be changed, in words; empty if something can."""
        owner, cluster = self.owner, self.cluster
        if cluster is None:
            return f"there is no Cluster {owner.cluster}"
        for one, name in (
            (cluster, f"the Cluster {cluster.name}"),
            (owner, f"{owner.kind} {owner.name}"),
        ):
            if one.is_going:
                return f"{name} is being deleted"
            if one.is_paused:
                return f"{name} is paused"
        if (in_topology := self._name_in_topology(cluster)) is not None:
            return f"the Cluster's topology sets its replicas: remove them from spec.topology.workers.machineDeployments {in_topology}"
        paused = [one.name for one in self.sets if one.is_paused]
        if paused:
            return f"the MachineSet {paused[0]} is paused"
        if self._is_rolling():
            return "a rollout is under way: Cluster API replaces its machines itself"
        return ""

    def _name_in_topology(self, cluster: ApiObject) -> str | None:
        """Return the group's name in the topology of its Cluster if that sets its replicas; else None."""
        name = self.owner.labels.get(TOPOLOGY)
        listed = read_path(cluster.raw, "spec", "topology", "workers", "machineDeployments") or ()
        sets = any(one.get("name") == name and one.get("replicas") is not None for one in listed)
        return name if name is not None and sets else None

    def _is_rolling(self) -> bool:
        owner = self.owner
        if any(UPDATING in one.annotations for one in self.living):
            return True
        if not owner.is_deployment or owner.replaces_on_delete:
            return False
        new = newest_template(owner, self.sets)
        old = {one.uid for one in self.sets if one is not new}
        with_machines = {one.owner("MachineSet") for one in self.living}
        asked = any((one.replicas or 0) > 0 for one in self.sets if one is not new)
        return asked or bool(with_machines & old)

    def _why_not_created(self) -> str:
        """Return why no machine is created now, in words; empty if one can be.

        Old MachineSets carry the annotation while a rollout waits for deletions: new machines are not theirs.
        """
        new = newest_template(self.owner, self.sets) if self.owner.is_deployment else self.owner
        if new is not None and new.annotations.get(NO_CREATION) == "true":
            return f"the MachineSet {new.name} is annotated {NO_CREATION}"
        return ""

    def _hold(self, named: Mapping[str, Machine]) -> Iterator[tuple[str, str]]:
        """Yield (instance, why this very machine cannot be ended) for those that cannot."""
        others = [one.name for one in self.staying if self._is_marked_by_others(one)]
        order, counts = self._order(), self._counts(self.staying)
        occupied = [one for one in order if counts[one.uid]]
        for instance, machine in named.items():
            if others and others != [machine.name]:
                yield (
                    instance,
                    f"the Machine {and_more(others, 2)} is marked to be deleted first, by another client",
                )
            elif machine.is_paused:
                yield instance, f"the Machine {machine.name} is paused"
            elif occupied and machine.owner("MachineSet") != occupied[0].uid:
                yield (
                    instance,
                    f"Cluster API ends machines of the older MachineSet {occupied[0].name} first",
                )

    @staticmethod
    def _is_marked_by_others(machine: Machine) -> bool:
        return machine.mark is not None and not machine.mark.startswith(OURS)

    # -- which machine a decrease ends -------------------------------------------------------------

    def why_not_end(self, machine: Machine) -> str | None:
        """Return why a decrease by one would not end just this machine if it were marked; None if it would."""
        replicas, staying = self.owner.replicas, self.staying
        if self.has_pending_ends:
            return PENDING
        if replicas != len(staying):
            return f"it has {len(staying)} machines and {replicas} are asked for: what is under way has to end first"
        left = [one for one in staying if one.uid != machine.uid]
        if len(left) != len(staying) - 1:
            return "it is not among its machines any more"
        if self.shrink(replicas) != self._counts(staying):
            return "its MachineSets are being resized: what is under way has to end first"
        if self.shrink(replicas - 1) != self._counts(left):
            return "Cluster API would end a machine of another MachineSet"
        return None

    def why_not_shrink(self, size: int) -> str | None:
        """Return why a decrease to ``size`` could end a machine; None if it only cancels missing machines."""
        targets, counts = self.shrink(size), self._counts(self.living)
        if all(targets[uid] >= count for uid, count in counts.items()):
            return None
        return f"with {size} replicas Cluster API would end a machine of its choice"

    def shrink(self, total: int) -> Counter[str]:
        """Return uid of a MachineSet -> its replicas once Cluster API has decreased them to ``total``."""
        asked = Counter({one.uid: one.replicas or 0 for one in self.sets})
        if not self.owner.is_deployment:
            return Counter({self.owner.uid: total})
        surplus = asked.total() - total
        for one in self._order():
            less = max(0, min(surplus, asked[one.uid]))
            asked[one.uid] -= less
            surplus -= less
        return asked

    def _order(self) -> list[Scalable]:
        """Return the MachineSets in the order in which they are decreased."""
        new = newest_template(self.owner, self.sets) if self.owner.is_deployment else None
        return sorted(self.sets, key=lambda one: (one is new, one.created, one.name))

    def _counts(self, machines: Collection[Machine]) -> Counter[str]:
        """Return uid of each MachineSet -> how many of these machines it has."""
        counts = Counter({one.uid: 0 for one in self.sets})
        counts.update(one.owner("MachineSet") or "" for one in machines)
        return counts
