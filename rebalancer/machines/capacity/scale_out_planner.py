"""Plan a scale-out: which groups to scale up for the pending pods, and by how much.

Upcoming machines are filled first. Then, round after round, pods are packed on each group separately, an expander
chooses one group, and the pods placed on it are done. Cluster Autoscaler does the same in several of its loops
("What are Expanders?" in its FAQ). Similar groups share the new nodes of one. At the end, new nodes whose pods fit
on other nodes are dropped: a group scaled up for some pods may have room for others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rebalancer.machines.capacity.codes import GroupCode, PodCode
from rebalancer.machines.capacity.decisions import Decisions
from rebalancer.machines.capacity.expander import Option, choose, priority
from rebalancer.machines.capacity.groups import Groups, GroupTemplate, ProviderTemplate
from rebalancer.machines.capacity.new_nodes import NewNodes
from rebalancer.machines.capacity.packing import NewNode, Packed, Packing
from rebalancer.machines.capacity.pending_pods import PendingPod, pending_pods
from rebalancer.machines.capacity.refusals import refusals_of
from rebalancer.machines.capacity.scale_out_plan import (
    NO_INPUTS,
    GroupRefusal,
    PodVerdict,
    ScaleOutInputs,
    ScaleOutPlan,
)
from rebalancer.machines.capacity.similar_groups import balanced, similar
from rebalancer.policy.cluster import CapacitySettings
from rebalancer.providers.contract import NodeGroup
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.model import Snapshot

_BLOCKED_CODES = frozenset(
    {
        GroupCode.FOREIGN,
        GroupCode.BACKOFF,
        GroupCode.UNHEALTHY,
        GroupCode.SUSPENDED,
        GroupCode.COOLDOWN,
    }
)


def plan_scale_out(
    snapshot: Snapshot,
    profile: SchedulerProfile,
    groups: Groups,
    provider_template: ProviderTemplate,
    settings: CapacitySettings,
    inputs: ScaleOutInputs = NO_INPUTS,
) -> ScaleOutPlan:
    """Return the groups to scale up; ``provider_template`` as for :meth:`Groups.template_of`.

    Raises:
        ProviderError: the provider cannot be asked.
    """
    pending = pending_pods(snapshot, profile, inputs.triggering)
    triggering = [one.pod for one in pending if one.code is None]
    if not triggering:
        return ScaleOutPlan((), tuple(_settled(one) for one in pending))
    templates = {
        group.name: groups.template_of(group, provider_template) for group in groups.groups
    }
    planner = _Planner(snapshot, profile, groups, templates, settings, inputs)
    decisions = planner.decisions
    decisions.pods |= {one.pod: one.node for one in pending if one.node is not None}
    left = planner.expand(planner.fill_upcoming(triggering))
    while planner.drop_redundant() and left:
        left = planner.expand(left)
    refusals = planner.refusals(left)
    return ScaleOutPlan(
        tuple(decisions.increases(snapshot)),
        tuple(
            _settled(one)
            if one.code is not None
            else _verdict(one, decisions, refusals.get(int(snapshot.pods.cls[one.pod]), ()))
            for one in pending
        ),
    )


def _settled(one: PendingPod) -> PodVerdict:
    return PodVerdict(one.pod, one.code or PodCode.NO_GROUP, one.message, one.node)


def _verdict(
    one: PendingPod, decisions: Decisions, refusals: tuple[GroupRefusal, ...]
) -> PodVerdict:
    """Return the verdict on a pod that fits on no existing node; ``refusals``: those of its class."""
    node = decisions.pods.get(one.pod)
    if node is not None:
        code = PodCode.UPCOMING if node in decisions.upcoming else PodCode.TRIGGERED
        return PodVerdict(one.pod, code, one.message, node, decisions.group_of.get(node))
    codes = {refusal.code for refusal in refusals}
    code = PodCode.NO_GROUP
    if codes & _BLOCKED_CODES:
        code = PodCode.GROUP_BLOCKED
    elif codes & {GroupCode.MAX_SIZE, GroupCode.CLUSTER_FULL}:
        code = PodCode.MAX_SIZE
    return PodVerdict(one.pod, code, one.message, refusals=refusals)


class _Planner:
    def __init__(
        self,
        snapshot: Snapshot,
        profile: SchedulerProfile,
        groups: Groups,
        templates: Mapping[str, GroupTemplate | None],
        settings: CapacitySettings,
        inputs: ScaleOutInputs,
    ) -> None:
        self._snapshot, self._profile, self._groups = snapshot, profile, groups
        self._templates, self._settings, self._inputs = templates, settings, inputs
        self.decisions = Decisions()
        self._new = NewNodes(
            snapshot, groups, templates, inputs, self.decisions, settings.max_nodes
        )

    def _packing(self, candidates: Sequence[NewNode] = ()) -> Packing:
        decisions = self.decisions
        return Packing(self._snapshot, self._profile, decisions.nodes, decisions.pods, candidates)

    def fill_upcoming(self, pods: Sequence[int]) -> list[int]:
        """Place pods on the upcoming machines; return the remaining pods."""
        upcoming = self._inputs.upcoming
        decisions = self.decisions
        decisions.add_upcoming(
            [
                node
                for group in self._groups.groups
                for node in self._new.candidates(group, upcoming.get(group.name, 0))
            ]
        )
        if not decisions.nodes:
            return list(pods)
        packing = self._packing()
        triggered, last = self._triggered(pods), dict[int, str]()
        for group, of_group in triggered.items():
            nodes = [one.node.name for one in decisions.nodes_of(group)]
            decisions.pods |= packing.pack(of_group, nodes).pods
            last |= dict.fromkeys(of_group, nodes[-1])
        # What was placed one after the other may not find these places at once: but it was counted.
        decisions.pods = last | decisions.pods
        decisions.pods |= packing.pack(pod for pod in pods if pod not in decisions.pods).pods
        return [pod for pod in pods if pod not in decisions.pods]

    def _triggered(self, pods: Sequence[int]) -> dict[str, list[int]]:
        """Return group with upcoming machines -> the pods that triggered its scale-out."""
        uids, upcoming = self._snapshot.pods.uid, {*self.decisions.group_of.values()}
        triggered: dict[str, list[int]] = {}
        for pod in pods:
            group = self._inputs.triggered.get(uids[pod])
            if group in upcoming:
                triggered.setdefault(group, []).append(pod)
        return triggered

    def expand(self, pods: Sequence[int]) -> list[int]:
        """Scale up groups until none helps any more; return the remaining pods."""
        left = list(pods)
        while left:
            options = [
                option
                for group in self._groups.groups
                if (option := self._option(group, left)) is not None
            ]
            chosen = choose(options, self._settings)
            if chosen is None:
                break
            self.decisions.add(self._balanced(*chosen, left))
            left = [pod for pod in left if pod not in self.decisions.pods]
        return left

    def _option(self, group: NodeGroup, pods: Sequence[int]) -> Option | None:
        if group.name in self._inputs.blocked:
            return None
        most = min(len(pods) * self._new.tries(group), self._new.headroom(group))
        candidates = self._new.candidates(group, most)
        if not candidates:
            return None
        packed = self._packing(candidates).pack(pods)
        return (group.name, packed) if packed.nodes and packed.pods else None

    def _balanced(self, group: str, packed: Packed, pods: Sequence[int]) -> Packed:
        """Return the chosen nodes, shared among similar groups if that places as many pods on as few nodes."""
        sharing = [one for one in self._groups.groups if self._shares(group, one)]
        if len(sharing) < 2 or len(packed.nodes) < 2:
            return packed
        open_to = {
            one.name: iter(self._new.candidates(one, min(len(packed.nodes), room)))
            for one in sharing
            if (room := self._new.headroom(one)) > 0
        }
        sizes = {one.name: self._new.size(one) for one in sharing}
        shared = self._packing(balanced(sizes, open_to, len(packed.nodes))).pack(pods)
        return shared if len(shared.pods) >= len(packed.pods) else packed

    def _shares(self, chosen: str, other: NodeGroup) -> bool:
        """Return whether nodes for ``chosen`` may also be added to ``other``: the expander rates both equal."""
        ours, theirs = self._templates[chosen], self._templates[other.name]
        if ours is None or theirs is None or other.name in self._inputs.blocked:
            return False
        ranks = {priority(name, self._settings) for name in (chosen, other.name)}
        return len(ranks) == 1 and similar(ours, theirs)

    def drop_redundant(self) -> bool:
        """Drop new nodes whose pods fit on other nodes; return whether any was dropped.

        Nodes of the groups last in ``priorities`` go first, the emptiest of them first. Of a group with several
        zones only its last node may be dropped, because the provider chooses the zones in its own order.
        """
        decisions, dropped, stays = self.decisions, set[str](), set[str]()
        new = decisions.new
        if len(new) < 2:
            return False
        packing = self._packing()
        row = packing.snapshot.nodes.index
        used = {one.node.name: packing.used(row[one.node.name]) for one in new}
        zoned = {group.name for group in self._groups.groups if len(self._groups.zones(group)) > 1}

        def order(one: NewNode) -> tuple[bool, int, float, int]:
            group, name = one.template.group, one.node.name
            in_turn = group in zoned
            rank = -priority(group, self._settings)
            return in_turn, rank, 0.0 if in_turn else used[name], -row[name]

        for one in sorted(new, key=order):
            group = one.template.group
            moved = None if group in stays else packing.drop(row[one.node.name])
            if moved is not None:
                dropped.add(one.node.name)
                decisions.pods |= moved
            elif group in zoned:
                stays.add(group)
        decisions.drop(dropped)
        return bool(dropped)

    def refusals(self, pods: Sequence[int]) -> Mapping[int, tuple[GroupRefusal, ...]]:
        """Return class of ``pods`` -> why each group does not help it, given all decisions."""
        classes = sorted({int(self._snapshot.pods.cls[pod]) for pod in pods})
        most = self._settings.max_nodes
        full = f"the cluster may have {most} nodes" if self._new.room == 0 else None
        of_groups = [
            refusals_of(group, classes, self._open(group), self._inputs, full)
            for group in (self._groups.groups if classes else ())
        ]
        return {cls: tuple(of_group[cls] for of_group in of_groups) for cls in classes}

    def _open(self, group: NodeGroup) -> Packing | None:
        """Return a packing with one more node in each zone of a group; None if its template is unknown."""
        candidates = self._new.candidates(group, self._new.tries(group))
        return self._packing(candidates) if candidates else None
