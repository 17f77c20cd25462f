"""Which groups have to grow, and by how much, for the pods that wait.

Machines that are on their way are filled first. Then, round after round, each group is packed by itself, an expander
chooses one, and the pods that it takes are done with, as Cluster Autoscaler does over several of its loops ("What are
Expanders?" in its FAQ). Groups that are alike share what one of them would get.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rebalancer.capacity.codes import GroupCode, PodCode
from rebalancer.capacity.groups import Blueprint, Groups, Template, alike
from rebalancer.capacity.packing import NewNode, Packed, Packing
from rebalancer.capacity.waiting import Waiting, waiting_pods
from rebalancer.policy.capacity import CapacitySettings, Expander
from rebalancer.providers.contract import NodeGroup
from rebalancer.scheduler.messages import reasons
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.columns import Bools
from rebalancer.snapshot.model import Snapshot


@dataclass(frozen=True, slots=True)
class Increase:
    """One group that grows."""

    group: str
    nodes: tuple[str, ...]
    """Names that stand for the new nodes."""
    zones: Mapping[str, int]
    """Zone -> how many of them."""
    pods: int
    waste: float
    """See Packed."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a group does not help a pod."""

    group: str
    code: GroupCode
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What is known of the groups beside their sizes, and of the pods beside their objects."""

    coming: Mapping[str, int] = field(default_factory=dict)
    """Group -> machines that it was asked for, and that are no ready nodes yet."""
    barred: Mapping[str, Refusal] = field(default_factory=dict)
    """Groups that may not grow now -> why not."""
    asking: Bools | None = None
    """(P,) pods for which a group may have to grow; None: all."""
    promised: Mapping[str, str] = field(default_factory=dict)
    """uid of a pod that waits -> the group that has grown for it: while its machines come, nothing else does."""


NO_OUTLOOK = Outlook()


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod that waits, and what helps it."""

    pod: int
    code: PodCode
    message: str
    node: str | None = None
    """The node that would take it."""
    group: str | None = None
    """The group of that node, where it is a new one, or on its way."""
    refusals: tuple[Refusal, ...] = ()
    """Where no group grows for it: why not, by group."""


@dataclass(frozen=True, slots=True)
class Growth:
    """What the pods that wait take."""

    increases: tuple[Increase, ...]
    """In the order in which they were chosen; a group may stand in several."""
    pods: tuple[PendingPod, ...]
    """In the scheduler's order."""

    @property
    def needed(self) -> dict[str, int]:
        """Name of each node that is there and has room for a pod that waits -> such a pod."""
        return {one.node: one.pod for one in self.pods if one.node and one.group is None}

    def by(self, group: str) -> int:
        """Return by how many nodes a group grows."""
        return sum(len(one.nodes) for one in self.increases if one.group == group)


@dataclass(slots=True)
class _Decided:
    """What earlier rounds have decided."""

    nodes: list[NewNode] = field(default_factory=list)
    """Those that are on their way, then the new ones."""
    pods: dict[int, str] = field(default_factory=dict)
    """Pod -> name of its node."""
    increases: list[Increase] = field(default_factory=list)


def growth_of(
    snapshot: Snapshot,
    profile: SchedulerProfile,
    groups: Groups,
    template: Template,
    settings: CapacitySettings,
    outlook: Outlook = NO_OUTLOOK,
) -> Growth:
    """Return which groups have to grow; ``template`` as for :meth:`Groups.blueprint`.

    Raises:
        ProviderError: the provider cannot be asked.
    """
    waiting = waiting_pods(snapshot, profile, outlook.asking)
    asking = [one.pod for one in waiting if one.code is None]
    if not asking:
        return Growth((), tuple(_pending(one) for one in waiting))
    blueprints = {group.name: groups.blueprint(group, template) for group in groups.groups}
    grower = _Grower(snapshot, profile, groups, blueprints, settings, outlook)
    grower.decided.pods |= {one.pod: one.node for one in waiting if one.node is not None}
    left = grower.grow(grower.await_coming(asking))
    refusals = grower.refusals(left)
    return Growth(
        tuple(grower.decided.increases),
        tuple(
            _pending(one) if one.code is not None else grower.answer(one, refusals)
            for one in waiting
        ),
    )


def _pending(one: Waiting) -> PendingPod:
    return PendingPod(one.pod, one.code or PodCode.NO_GROUP, one.message, one.node)


class _Grower:
    def __init__(
        self,
        snapshot: Snapshot,
        profile: SchedulerProfile,
        groups: Groups,
        blueprints: Mapping[str, Blueprint | None],
        settings: CapacitySettings,
        outlook: Outlook,
    ) -> None:
        self._snapshot, self._profile, self._groups = snapshot, profile, groups
        self._blueprints, self._settings, self._outlook = blueprints, settings, outlook
        self.decided = _Decided()
        self._group_of: dict[str, str] = {}
        self._coming: frozenset[str] = frozenset()
        """Names that stand for the machines on their way."""

    def await_coming(self, pods: Sequence[int]) -> list[int]:
        """Place pods on the machines that are on their way; return those that are left."""
        for group in self._groups.groups:
            blueprint, count = self._blueprints[group.name], self._outlook.coming.get(group.name, 0)
            if blueprint is not None and count > 0:
                self.decided.nodes += self._candidates(group, blueprint, count)
        if not self.decided.nodes:
            return list(pods)
        self._group_of |= {one.node.name: one.blueprint.group for one in self.decided.nodes}
        self._coming = frozenset(self._group_of)
        decided = self.decided
        packing = Packing(self._snapshot, self._profile, decided.nodes, decided.pods)
        promised = self._promised(pods)
        decided.pods |= packing.pack(promised).pods
        # Machines were chosen group by group, and are filled as a whole: that may not find the same places.
        decided.pods |= {pod: node for pod, node in promised.items() if pod not in decided.pods}
        decided.pods |= packing.pack(pod for pod in pods if pod not in decided.pods).pods
        return [pod for pod in pods if pod not in decided.pods]

    def _promised(self, pods: Sequence[int]) -> dict[int, str]:
        """Return the pods for which a group has grown whose machines are on their way -> one of these."""
        last = {one.blueprint.group: one.node.name for one in self.decided.nodes}
        uids = self._snapshot.pods.uid
        groups = {pod: self._outlook.promised.get(uids[pod], "") for pod in pods}
        return {pod: last[group] for pod, group in groups.items() if group in last}

    def grow(self, pods: Sequence[int]) -> list[int]:
        """Decide until no group helps any more; return the pods that are left."""
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
            self._decide(self._shared(*chosen, left))
            left = [pod for pod in left if pod not in self.decided.pods]
        return left

    def _option(self, group: NodeGroup, pods: Sequence[int]) -> tuple[str, Packed] | None:
        if group.name in self._outlook.barred:
            return None
        blueprint = self._blueprints[group.name]
        most = min(len(pods) * self._tries(group), self._headroom(group))
        if blueprint is None or most <= 0:
            return None
        candidates = self._candidates(group, blueprint, most)
        decided = self.decided
        packing = Packing(self._snapshot, self._profile, decided.nodes, decided.pods, candidates)
        packed = packing.pack(pods)
        return (group.name, packed) if packed.nodes and packed.pods else None

    def _headroom(self, group: NodeGroup) -> int:
        """Return how many nodes a group may still get; where its sizes are not known, as many as are asked for."""
        if group.maximum is None or group.desired is None:
            return len(self._snapshot.pods) * self._tries(group)
        return group.maximum - group.desired - self._growth_of(group.name)

    def _tries(self, group: NodeGroup) -> int:
        """Return how many nodes one pod may take to get one that it fits on: see Packing."""
        return 1 + 2 * max(0, len(self._groups.zones(group)) - 1)

    def _new_of(self, group: str) -> int:
        return sum(one.blueprint.group == group for one in self.decided.nodes)

    def _growth_of(self, group: str) -> int:
        """Return by how many nodes a group grows so far; those on their way stand in its size."""
        return self._new_of(group) - self._outlook.coming.get(group, 0)

    def _candidates(self, group: NodeGroup, blueprint: Blueprint, most: int) -> list[NewNode]:
        """Return the next nodes of a group: each in the zone that has the fewest of its nodes by then."""
        zones = self._groups.zones(group)
        for one in self.decided.nodes:
            if one.blueprint.group == group.name and one.zone is not None:
                zones[one.zone] = zones.get(one.zone, 0) + 1
        first = self._new_of(group.name) + 1
        nodes: list[NewNode] = []
        for number in range(first, first + most):
            zone = min(zones, key=lambda name: (zones[name], name), default=None)
            if zone is not None:
                zones[zone] += 1
            nodes.append(NewNode(blueprint, blueprint.node(number, zone)))
        return nodes

    def _shared(self, group: str, packed: Packed, pods: Sequence[int]) -> Packed:
        """Return what was chosen, spread over the groups that are alike: one node after the other to the smallest.

        Where that takes fewer pods, or more nodes, it stays with the one group.
        """
        alike_to = [one for one in self._groups.groups if self._shares(group, one)]
        if len(alike_to) < 2 or len(packed.nodes) < 2:
            return packed
        open_to = {
            one.name: iter(self._candidates(one, blueprint, min(len(packed.nodes), room)))
            for one in alike_to
            if (blueprint := self._blueprints[one.name]) and (room := self._headroom(one)) > 0
        }
        sizes = {one.name: (one.desired or 0) + self._growth_of(one.name) for one in alike_to}
        candidates: list[NewNode] = []
        while open_to and len(candidates) < len(packed.nodes):
            smallest = min(open_to, key=lambda name: (sizes[name], name))
            if (node := next(open_to[smallest], None)) is None:
                del open_to[smallest]
                continue
            sizes[smallest] += 1
            candidates.append(node)
        decided = self.decided
        packing = Packing(self._snapshot, self._profile, decided.nodes, decided.pods, candidates)
        spread = packing.pack(pods)
        return spread if len(spread.pods) >= len(packed.pods) else packed

    def _shares(self, chosen: str, other: NodeGroup) -> bool:
        """Return whether what ``chosen`` would get may go to another group, too: the expander sees no difference."""
        ours, theirs = self._blueprints[chosen], self._blueprints[other.name]
        if ours is None or theirs is None or other.name in self._outlook.barred:
            return False
        return _rank(chosen, self._settings) == _rank(other.name, self._settings) and alike(
            ours, theirs
        )

    def _decide(self, packed: Packed) -> None:
        self.decided.nodes += packed.nodes
        self.decided.pods |= packed.pods
        by_group: dict[str, list[NewNode]] = {}
        for one in packed.nodes:
            by_group.setdefault(one.blueprint.group, []).append(one)
        for group, nodes in sorted(by_group.items()):
            names = tuple(one.node.name for one in nodes)
            self._group_of |= dict.fromkeys(names, group)
            zones = dict(sorted(Counter(filter(None, (one.zone for one in nodes))).items()))
            pods = sum(name in names for name in packed.pods.values())
            self.decided.increases.append(Increase(group, names, zones, pods, packed.waste))

    # -- what is said of the pods --------------------------------------------------------------------

    def answer(self, one: Waiting, refusals: Mapping[int, tuple[Refusal, ...]]) -> PendingPod:
        """Return what helps a pod that no node takes now."""
        node = self.decided.pods.get(one.pod)
        if node is not None:
            group = self._group_of.get(node)
            code = PodCode.COMING if node in self._coming else PodCode.GROWS
            return PendingPod(one.pod, code, one.message, node, group)
        of_class = refusals[int(self._snapshot.pods.cls[one.pod])]
        codes = {refusal.code for refusal in of_class}
        code = PodCode.NO_GROUP
        if codes & {GroupCode.BACKS_OFF, GroupCode.COOLS_DOWN}:
            code = PodCode.BARRED
        elif GroupCode.MAX_SIZE in codes:
            code = PodCode.MAX_SIZE
        return PendingPod(one.pod, code, one.message, refusals=of_class)

    def refusals(self, pods: Sequence[int]) -> Mapping[int, tuple[Refusal, ...]]:
        """Return class of ``pods`` -> why each group does not help it, after all that was decided."""
        classes = sorted({int(self._snapshot.pods.cls[pod]) for pod in pods})
        by_class: dict[int, list[Refusal]] = {cls: [] for cls in classes}
        for group in self._groups.groups if classes else ():
            why = self._refused_by(group)
            for cls in classes:
                by_class[cls].append(why(cls))
        return {cls: tuple(of_class) for cls, of_class in by_class.items()}

    def _refused_by(self, group: NodeGroup) -> Callable[[int], Refusal]:
        """Return what says why a group does not help a class: asked of one more node in each of its zones."""
        blueprint = self._blueprints[group.name]
        if blueprint is None:
            text = "it has no live node, and the provider does not say what a new one would be"
            return lambda _: Refusal(group.name, GroupCode.NO_TEMPLATE, text)
        candidates = self._candidates(group, blueprint, self._tries(group))
        decided = self.decided
        packing = Packing(self._snapshot, self._profile, decided.nodes, decided.pods, candidates)
        rows = packing.open_all()

        def refused(cls: int) -> Refusal:
            evaluation = packing.model.evaluate(packing.state, cls)
            if evaluation.feasible[rows].any():
                if (barred := self._outlook.barred.get(group.name)) is not None:
                    return barred
                text = f"it has {group.desired} nodes and may have {group.maximum}"
                return Refusal(group.name, GroupCode.MAX_SIZE, text)
            words = list(reasons(packing.model, packing.state, cls, evaluation))
            texts = dict.fromkeys(text for row in rows for text in words[row])
            return Refusal(group.name, GroupCode.FILTERED, ", ".join(texts))

        return refused


def choose(
    options: Sequence[tuple[str, Packed]], settings: CapacitySettings
) -> tuple[str, Packed] | None:
    """Return the option that the expander prefers; of equal ones the first by name. None without any."""

    def waste(option: tuple[str, Packed]) -> tuple[float, int, str]:
        name, packed = option
        return round(packed.waste, 9), -len(packed.pods), name

    match settings.expander:
        case Expander.LEAST_WASTE:
            return min(options, key=waste, default=None)
        case Expander.MOST_PODS:
            return min(options, key=lambda one: (-len(one[1].pods), *waste(one)), default=None)
        case Expander.PRIORITY:
            ranked = [(rank, one) for one in options if (rank := _rank(one[0], settings)) >= 0]
            best = min(ranked, key=lambda pair: (pair[0], *waste(pair[1])), default=None)
            return None if best is None else best[1]


def _rank(group: str, settings: CapacitySettings) -> int:
    """Return the place of the first pattern that a group's name matches, -1 if none does."""
    matching = (i for i, pattern in enumerate(settings.priorities) if re.search(pattern, group))
    return next(matching, -1)
