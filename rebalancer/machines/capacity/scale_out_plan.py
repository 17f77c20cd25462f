"""Plan a scale-out: the increase of each group, and the result for each pending pod.

Upcoming machines are filled first. Then, round after round, pods are packed on each group separately, an expander
chooses one group, and the pods placed on it are done. Cluster Autoscaler does the same in several of its loops
("What are Expanders?" in its FAQ). Similar groups share the new nodes of one, as with its
``--balance-similar-node-groups`` (``processors/nodegroupset``: basic and AWS's comparator). At the end, new nodes whose pods fit
on other nodes are dropped: a group scaled up for some pods may have room for others.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rebalancer.machines.capacity.groups import (
    Groups,
    GroupTemplate,
    ProviderTemplate,
    zone_of,
)
from rebalancer.machines.capacity.limits import Ceiling
from rebalancer.machines.capacity.packing import (
    NewNode,
    Packed,
    Packing,
    PendingPod,
    pending_pods,
    weighed_rows,
)
from rebalancer.machines.capacity.unhelped import EarlierIncreases, NoHelps, Unhelped, drop_old
from rebalancer.machines.reasons import GroupCode, NotIncreased, PodCode
from rebalancer.policy.cluster import Balance, CapacitySettings, Expander
from rebalancer.policy.model import Prices
from rebalancer.providers.contract import NodeGroup
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.buffers import find_chunks
from rebalancer.snapshot.columns import Bools
from rebalancer.snapshot.labels import GROUP_LABELS, ZONE_KEYS
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.prices import price_of


@dataclass(frozen=True, slots=True)
class GroupIncrease:
    """The increase of one group."""

    group: str
    nodes: tuple[str, ...]
    """Placeholder names of the new nodes."""
    zones: Mapping[str, int]
    """Zone -> number of new nodes."""
    pods: int
    waste: float
    """Mean share of cpu and memory of these nodes that no pod requests."""


@dataclass(frozen=True, slots=True)
class GroupRefusal:
    """Why a group does not help a pod."""

    group: str
    code: GroupCode
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleOutInputs:
    """Inputs about groups other than their sizes, and about pending pods other than their objects."""

    upcoming: Mapping[str, int] = field(default_factory=dict)
    """Group -> machines that were requested, and that are no ready nodes yet."""
    blocked: Mapping[str, GroupRefusal] = field(default_factory=dict)
    """Groups that may not be scaled out now -> why not."""
    triggering: Bools | None = None
    """(P,) pods that may trigger a scale-out; None: all."""
    triggered: Mapping[str, str] = field(default_factory=dict)
    """uid of a pending pod -> the group that was scaled out for it: while its machines are upcoming, no other one is."""
    seed: str = ""
    """The seed of the expander ``random``."""
    zones: Mapping[str, str] = field(default_factory=dict)
    """uid of a pending pod in ``triggered`` -> the zone in which a machine was wanted for it."""
    scaled_out_at: Mapping[str, float] = field(default_factory=dict)
    """Group -> Unix seconds of its last increase."""
    no_help: NoHelps = field(default_factory=dict)
    """The increases that brought machines which were of no use."""
    notes: tuple[str, ...] = ()
    """What could not be asked of the groups."""

    @property
    def earlier(self) -> EarlierIncreases:
        """The earlier increases of groups, with their pods."""
        return EarlierIncreases(self.triggered, self.zones, self.scaled_out_at, self.no_help)


NO_INPUTS = ScaleOutInputs()


@dataclass(frozen=True, slots=True)
class PodVerdict:
    """The result of a scale-out for a pending pod."""

    pod: int
    code: PodCode
    message: str
    node: str | None = None
    """The node that would take it."""
    group: str | None = None
    """The group of that node, where it is a new or an upcoming one."""
    zone: str = ""
    """The zone of that node, where it is a new one and has one."""
    refusals: tuple[GroupRefusal, ...] = ()
    """The reason of each group, if no group helps the pod."""


@dataclass(frozen=True, slots=True)
class ScaleOutPlan:
    """The increases of groups for the pending pods."""

    increases: tuple[GroupIncrease, ...]
    """In the order in which they were chosen; a group may be in several."""
    pods: tuple[PodVerdict, ...]
    """The verdicts on pending pods, in the scheduler's order."""
    no_help: NoHelps = field(default_factory=dict)
    """The increases that brought machines which were of no use, as far as they count still."""

    @property
    def needed(self) -> dict[str, int]:
        """Name of each existing node that has room for a pending pod -> one such pod."""
        return {one.node: one.pod for one in self.pods if one.node and one.group is None}

    def chunks(self, snapshot: Snapshot) -> dict[int, int]:
        """Return each chunk of a buffer that an existing node has room for -> the node."""
        chunks, rows = find_chunks(snapshot), snapshot.nodes.index
        return {
            one.pod: rows[one.node]
            for one in self.pods
            if one.node and one.group is None and chunks[one.pod]
        }

    def increase_of(self, group: str) -> int:
        """Return the number of nodes to add to a group."""
        return sum(len(one.nodes) for one in self.increases if one.group == group)


@dataclass(slots=True)
class Decisions:
    """Nodes that do not exist yet, and the pending pods placed on them."""

    nodes: list[NewNode] = field(default_factory=list)
    """The upcoming ones, then the new ones."""
    pods: dict[int, str] = field(default_factory=dict)
    """Pod -> name of its node."""
    upcoming: frozenset[str] = frozenset()
    """Placeholder names of the upcoming machines."""
    group_of: dict[str, str] = field(default_factory=dict)
    """Name of a node -> its group."""
    zone_of: dict[str, str] = field(default_factory=dict)
    """Name of a node -> its zone, where it has one."""
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
        self.zone_of |= {one.node.name: one.zone for one in nodes if one.zone is not None}
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


class NewNodes:
    """The nodes that each group may still add, given the decisions so far."""

    def __init__(
        self,
        snapshot: Snapshot,
        groups: Groups,
        templates: Mapping[str, GroupTemplate | None],
        inputs: ScaleOutInputs,
        decisions: Decisions,
        settings: CapacitySettings,
        unhelped: Unhelped,
    ) -> None:
        self._pods, self._unhelped = len(snapshot.pods), unhelped
        self._groups, self._templates = groups, templates
        self._upcoming, self._decisions = inputs.upcoming, decisions
        self._ceiling = Ceiling(snapshot, groups, templates, settings)

    def headroom(self, group: NodeGroup) -> int:
        """Return how many nodes a group may still add; without a limit if its sizes are unknown."""
        own = self._pods * self.tries(group)
        if group.maximum is not None and group.desired is not None:
            own = group.maximum - self.size(group)
        room = self._ceiling.room(self._templates[group.name], self._new)
        return own if room is None else min(own, room)

    def allows(self, nodes: Iterable[NewNode]) -> bool:
        """Return whether the cluster may add all of these nodes, of whichever groups, to those decided on."""
        return self._ceiling.allows(self._new + Counter(one.template.group for one in nodes))

    def limit(self, group: NodeGroup) -> GroupRefusal | None:
        """Return the limit of the cluster that forbids one more node of a group; None if none does."""
        template = self._templates[group.name]
        held = None if template is None else self._ceiling.why_not(template, self._new)
        return None if held is None else GroupRefusal(group.name, *held)

    @property
    def _new(self) -> Counter[str]:
        return Counter(one.template.group for one in self._decisions.new)

    def size(self, group: NodeGroup) -> int:
        """Return the size of a group including the decisions; upcoming machines are part of its desired size."""
        new = len(self._decisions.nodes_of(group.name)) - self._upcoming.get(group.name, 0)
        return (group.desired or 0) + new

    def tries(self, group: NodeGroup) -> int:
        """Return how many nodes to try for one pod until one fits, see :class:`Packing`."""
        return 1 + 2 * max(0, len(self._groups.zones(group)) - 1)

    def candidates(self, group: NodeGroup, most: int, *, everywhere: bool = False) -> list[NewNode]:
        """Return the next nodes of a group, each in the zone with the fewest nodes of the group.

        ``everywhere``: also in zones in which its last machines did not come.
        """
        template = self._templates[group.name]
        if template is None:
            return []
        zones = self._groups.zones(group)
        for one in self._decisions.nodes_of(group.name):
            if one.zone is not None:
                zones[one.zone] = zones.get(one.zone, 0) + 1
        limits = {} if everywhere else self._limit_zones(group, zones)
        first = self._decisions.numbers[group.name] + 1
        nodes: list[NewNode] = []
        for number in range(first, first + most):
            if not zones:
                nodes.append(NewNode(template, template.node(number, None)))
                continue
            open_to = [name for name in zones if limits.get(name) != 0]
            if not open_to:
                break
            zone = min(open_to, key=lambda name: (zones[name], name))
            zones[zone] += 1
            if zone in limits:
                limits[zone] -= 1
            nodes.append(NewNode(template, template.node(number, zone)))
        return nodes

    def _limit_zones(self, group: NodeGroup, zones: Iterable[str]) -> dict[str, int]:
        """Return zone -> how many nodes of a group may still be added there, for zones with a limit."""
        new = Counter(one.zone for one in self._decisions.new if one.template.group == group.name)
        return {
            zone: max(0, most - new[zone])
            for zone in zones
            if (most := self._unhelped.limit_zone(group.name, zone)) is not None
        }


_NO_PRICES = Prices()
Option = tuple[str, Packed]
"""A group, and the nodes that it would add."""


def choose(
    options: Sequence[Option], settings: CapacitySettings, hourly: Mapping[str, float], seed: str
) -> Option | None:
    """Return the option that the expanders prefer; None if there is no option.

    Each expander narrows the options that the one before it has left, as in Cluster Autoscaler
    (``expander/factory/chain.go``). Cluster Autoscaler chooses randomly among the rest; here the least waste counts, then
    the most pods, then the name.

    ``hourly``: group -> price of a new node of it for an hour, infinite where it is not known. ``seed``: what the expander
    ``random`` draws from.
    """

    def rate(expander: Expander, name: str, packed: Packed) -> float | bytes:
        match expander:
            case Expander.LEAST_WASTE:
                return round(packed.waste, 9)
            case Expander.MOST_PODS:
                return -len(packed.pods)
            case Expander.LEAST_NODES:
                return len(packed.nodes)
            case Expander.PRIORITY:
                return priority(name, settings)
            case Expander.PRICE:
                return round(hourly[name] * len(packed.nodes) / len(packed.pods), 9)
            case Expander.RANDOM:
                return hashlib.sha256(f"{seed}\0{name}".encode()).digest()

    named = Expander.PRIORITY in settings.expander
    allowed = [one for one in options if not named or priority(one[0], settings) >= 0]
    order = (*settings.expander, Expander.LEAST_WASTE, Expander.MOST_PODS)
    # The least by the first, then by the second: what narrowing leaves in the end.
    return min(allowed, key=lambda one: (*(rate(by, *one) for by in order), one[0]), default=None)


def priority(group: str, settings: CapacitySettings) -> int:
    """Return the index of the first pattern that matches a group's name; -1 if none does."""
    matching = (i for i, pattern in enumerate(settings.priorities) if re.search(pattern, group))
    return next(matching, -1)


_CLOSE = 0.05
_IGNORED_LABELS = frozenset(
    {
        *ZONE_KEYS,
        *GROUP_LABELS,
        "topology.ebs.csi.aws.com/zone",
        "topology.k8s.aws/zone-id",
        "alpha.eksctl.io/instance-id",
        "eks.amazonaws.com/sourceLaunchTemplateId",
        "eks.amazonaws.com/sourceLaunchTemplateVersion",
        "k8s.amazonaws.com/eniConfig",
    }
)
"""Labels in which similar groups differ."""
_BALANCE = Balance()


def similar(one: GroupTemplate, other: GroupTemplate, balance: Balance = _BALANCE) -> bool:
    """Return whether new nodes of two groups are interchangeable, except for their place.

    Their allocatable differs by 5 % at most; labels are equal except those of the place, of the group and of its
    launch template, and ``balance.ignoreLabels``; taints are equal. With ``balance.labels`` only these labels are compared,
    and a group without one of them is similar to none (``processors/nodegroupset/label_nodegroups.go``).
    """
    if balance.labels:
        pairs = ((one.labels.get(key), other.labels.get(key)) for key in balance.labels)
        return all(ours is not None and ours == theirs for ours, theirs in pairs)
    if one.max_pods != other.max_pods or set(one.taints) != set(other.taints):
        return False
    least, most = (
        np.minimum(one.allocatable, other.allocatable),
        np.maximum(one.allocatable, other.allocatable),
    )
    close = bool((most - least <= _CLOSE * most).all())
    ignored = _IGNORED_LABELS.union(balance.ignore_labels)
    ours, theirs = ({k: v for k, v in of.labels.items() if k not in ignored} for of in (one, other))
    return close and ours == theirs


def balance_nodes(
    sizes: Mapping[str, int], open_to: Mapping[str, Iterator[NewNode]], count: int
) -> list[NewNode]:
    """Return ``count`` new nodes, each added to the smallest group; fewer if ``open_to`` has no more.

    ``sizes``: group -> number of nodes. ``open_to``: group -> its next nodes.
    """
    sizes, open_to = dict(sizes), dict(open_to)
    nodes: list[NewNode] = []
    while open_to and len(nodes) < count:
        smallest = min(open_to, key=lambda name: (sizes[name], name))
        if (node := next(open_to[smallest], None)) is None:
            del open_to[smallest]
            continue
        sizes[smallest] += 1
        nodes.append(node)
    return nodes


CLUSTER_LIMITS = frozenset({GroupCode.CLUSTER_FULL, GroupCode.TOTAL_REACHED})
"""The codes of groups that limits of the cluster keep from growing."""
_BLOCKED_CODES = frozenset(
    {
        GroupCode.FOREIGN,
        GroupCode.BACKOFF,
        GroupCode.UNHEALTHY,
        GroupCode.SUSPENDED,
        GroupCode.COOLDOWN,
        GroupCode.NO_HELP,
    }
)


def plan_scale_out(
    snapshot: Snapshot,
    profile: SchedulerProfile,
    groups: Groups,
    provider_template: ProviderTemplate,
    settings: CapacitySettings,
    inputs: ScaleOutInputs = NO_INPUTS,
    prices: Prices = _NO_PRICES,
) -> ScaleOutPlan:
    """Return the groups to scale up; ``provider_template`` as for :meth:`Groups.template_of`.

    ``prices``: the prices for the expander ``price``.

    Raises:
        ProviderError: the provider cannot be queried.
    """
    pending = pending_pods(snapshot, profile, inputs.triggering)
    if not any(one.code in (None, PodCode.UNPREDICTABLE) for one in pending):
        no_help = drop_old(inputs.no_help, snapshot.captured_at)
        return ScaleOutPlan((), tuple(_settle(one) for one in pending), no_help)
    templates = {
        group.name: groups.template_of(group, provider_template) for group in groups.groups
    }
    if offered := _find_offered(snapshot, templates.values()):
        profile = profile.with_offered(offered)
        pending = pending_pods(snapshot, profile, inputs.triggering)
    triggering = [one.pod for one in pending if one.code is None]
    planner = _Planner(snapshot, profile, groups, templates, settings, inputs, prices)
    decisions = planner.decisions
    decisions.pods |= {one.pod: one.node for one in pending if one.node is not None}
    left = planner.fill_upcoming(triggering)
    planner.unhelped.judge(left, inputs.upcoming)
    left = planner.expand(left)
    while planner.drop_redundant() and left:
        left = planner.expand(left)
    refusals = planner.refusals(left)
    return ScaleOutPlan(
        tuple(decisions.increases(snapshot)),
        tuple(
            _settle(one)
            if one.code is not None
            else _verdict(one, decisions, refusals.get(int(snapshot.pods.cls[one.pod]), ()))
            for one in pending
        ),
        planner.unhelped.no_help,
    )


def _find_offered(snapshot: Snapshot, templates: Iterable[GroupTemplate | None]) -> frozenset[str]:
    """Return the resources that new nodes of some group have, and no node has yet.

    The resources that a group declares come from device plug-ins, not from a DeviceClass.
    """
    lacking = ~(snapshot.nodes.allocatable > 0).any(axis=1)
    return frozenset(
        snapshot.resources[row]
        for one in templates
        if one is not None
        for row in np.flatnonzero((one.allocatable > 0) & lacking).tolist()
    )


def _settle(one: PendingPod) -> PodVerdict:
    return PodVerdict(one.pod, one.code or PodCode.NO_GROUP, one.message, one.node)


def _verdict(
    one: PendingPod, decisions: Decisions, refusals: tuple[GroupRefusal, ...]
) -> PodVerdict:
    """Return the verdict on a pod that fits on no existing node; ``refusals``: those of its class."""
    node = decisions.pods.get(one.pod)
    if node is not None:
        code = PodCode.UPCOMING if node in decisions.upcoming else PodCode.TRIGGERED
        zone = "" if code is PodCode.UPCOMING else decisions.zone_of.get(node, "")
        return PodVerdict(one.pod, code, one.message, node, decisions.group_of.get(node), zone)
    codes = {refusal.code for refusal in refusals}
    code = PodCode.NO_GROUP
    if codes & _BLOCKED_CODES:
        code = PodCode.GROUP_BLOCKED
    elif codes & {GroupCode.MAX_SIZE, *CLUSTER_LIMITS}:
        code = PodCode.MAX_SIZE
    return PodVerdict(one.pod, code, one.message, refusals=refusals)


def _hourly_of(prices: Prices, template: GroupTemplate | None) -> float:
    """Return the price of a new node for an hour, infinite where it is not known."""
    price = math.nan if template is None else price_of(prices, template.labels)
    return math.inf if math.isnan(price) else price


class _Planner:
    def __init__(
        self,
        snapshot: Snapshot,
        profile: SchedulerProfile,
        groups: Groups,
        templates: Mapping[str, GroupTemplate | None],
        settings: CapacitySettings,
        inputs: ScaleOutInputs,
        prices: Prices,
    ) -> None:
        self._snapshot, self._profile, self._groups = snapshot, profile, groups
        self._hourly = {name: _hourly_of(prices, one) for name, one in templates.items()}
        self._templates, self._settings, self._inputs = templates, settings, inputs
        self.decisions = Decisions()
        self._fitting: dict[str, frozenset[int]] = {}
        """Group -> the classes whose pods could run on an empty new node of it, as far as computed."""
        self.unhelped = Unhelped(
            snapshot,
            groups,
            inputs.earlier,
            lambda candidates: Packing(snapshot, profile, (), {}, candidates),
        )
        self._new = NewNodes(
            snapshot, groups, templates, inputs, self.decisions, settings, self.unhelped
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
                for node in self._new.candidates(
                    group, upcoming.get(group.name, 0), everywhere=True
                )
            ]
        )
        if not decisions.nodes:
            return list(pods)
        packing = self._packing()
        triggered, last = self._triggering_pods(pods), dict[int, str]()
        for group, of_group in triggered.items():
            nodes = [one.node.name for one in decisions.nodes_of(group)]
            decisions.pods |= packing.pack(of_group, nodes).pods
            last |= dict.fromkeys(of_group, nodes[-1])
        # What was placed one after the other may not find these places at once: but it was counted.
        decisions.pods = last | decisions.pods
        decisions.pods |= packing.pack(pod for pod in pods if pod not in decisions.pods).pods
        return [pod for pod in pods if pod not in decisions.pods]

    def _triggering_pods(self, pods: Sequence[int]) -> dict[str, list[int]]:
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
            chosen = choose(options, self._settings, self._hourly, self._inputs.seed)
            if chosen is None:
                break
            self.decisions.add(self._balance(*chosen, left))
            left = [pod for pod in left if pod not in self.decisions.pods]
        return left

    def _option(self, group: NodeGroup, pods: Sequence[int]) -> Option | None:
        if group.name in self._inputs.blocked:
            return None
        if group.name in self.unhelped.no_help:
            pods = self.unhelped.limit_pods(group.name, pods, self._count_taken(group.name))
        fitting = self._find_fitting(group)
        able = sum(int(self._snapshot.pods.cls[pod]) in fitting for pod in pods)
        most = min(able * self._new.tries(group), self._new.headroom(group))
        candidates = self._new.candidates(group, most)
        if not candidates:
            return None
        packed = self._packing(candidates).pack(pods)
        return (group.name, packed) if packed.nodes and packed.pods else None

    def _count_taken(self, group: str) -> Counter[int]:
        """Return class -> its pods for which the group is increased already."""
        decisions, classes = self.decisions, self._snapshot.pods.cls
        return Counter(
            int(classes[pod])
            for pod, node in decisions.pods.items()
            if node not in decisions.upcoming and decisions.group_of.get(node) == group
        )

    def _find_fitting(self, group: NodeGroup) -> frozenset[int]:
        """Return the pending classes whose pods could run on an empty new node of a group, in some zone."""
        known = self._fitting.get(group.name)
        template = self._templates[group.name]
        if known is None and template is not None:
            zones: list[str | None] = list(self._groups.zones(group)) or [None]
            nodes = [NewNode(template, template.node(n, zone)) for n, zone in enumerate(zones, 1)]
            packing = Packing(self._snapshot, self._profile, (), {}, nodes)
            waiting = np.unique(self._snapshot.pods.cls[self._snapshot.pods.node < 0])
            known = frozenset(cls for cls in waiting.tolist() if packing.could_take(cls))
            self._fitting[group.name] = known
        return known or frozenset()

    def _balance(self, group: str, packed: Packed, pods: Sequence[int]) -> Packed:
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
        shared = self._packing(balance_nodes(sizes, open_to, len(packed.nodes))).pack(pods)
        as_good = len(shared.pods) >= len(packed.pods) and self._new.allows(shared.nodes)
        return shared if as_good else packed

    def _shares(self, chosen: str, other: NodeGroup) -> bool:
        """Return whether nodes for ``chosen`` may also be added to ``other``: the expander rates both equal."""
        ours, theirs = self._templates[chosen], self._templates[other.name]
        if ours is None or theirs is None or other.name in self._inputs.blocked:
            return False
        if not {chosen, other.name}.isdisjoint(self.unhelped.no_help):
            return False
        by_price = Expander.PRICE in self._settings.expander
        ranks = {
            (priority(name, self._settings), self._hourly[name] if by_price else 0.0)
            for name in (chosen, other.name)
        }
        return len(ranks) == 1 and similar(ours, theirs, self._settings.balance)

    def drop_redundant(self) -> bool:
        """Drop new nodes whose pods fit on other nodes; return whether any was dropped.

        Nodes of the groups last in ``priorities`` are dropped first, the emptiest of them first. Of a group with several
        zones only its last node may be dropped, because the provider chooses the zones in its own order.
        """
        decisions, dropped, stays = self.decisions, set[str](), set[str]()
        new = decisions.new
        if len(new) < 2:
            return False
        packing = self._packing()
        row = packing.snapshot.nodes.index
        used = {one.node.name: packing.share_used(row[one.node.name]) for one in new}
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
        of_groups = [
            self._refuse(group, classes) for group in (self._groups.groups if classes else ())
        ]
        return {cls: tuple(of_group[cls] for of_group in of_groups) for cls in classes}

    def _refuse(self, group: NodeGroup, classes: Sequence[int]) -> dict[int, GroupRefusal]:
        """Return class -> why the group helps none of its pods, by one more node in each of its zones."""
        candidates = self._new.candidates(group, self._new.tries(group), everywhere=True)
        if not candidates:
            return dict.fromkeys(classes, GroupRefusal(group.name, *NotIncreased.NO_TEMPLATE.of()))
        packing = self._packing(candidates)
        rows, limit = packing.open_all(), self._new.limit(group)
        return {cls: self._refusal(group, cls, packing, rows, limit) for cls in classes}

    def _refusal(
        self,
        group: NodeGroup,
        cls: int,
        packing: Packing,
        rows: Sequence[int],
        limit: GroupRefusal | None,
    ) -> GroupRefusal:
        """Return why a group does not help a class; ``limit``: why the cluster may add none of its nodes."""
        evaluation = packing.model.evaluate(packing.state, cls)
        feasible = evaluation.feasible[rows]
        if (feasible & ~packing.foreign(cls)[rows]).any():
            if (blocked := self._inputs.blocked.get(group.name)) is not None:
                return blocked
            labels = packing.snapshot.nodes.labels
            zones = {zone_of(labels.of(row)) for row in rows if evaluation.feasible[row]}
            if (why := self.unhelped.why_not(group.name, cls, zones)) is not None:
                return GroupRefusal(group.name, *why)
            if limit is not None and (group.desired is None or group.desired != group.maximum):
                return limit
            full = NotIncreased.MAX_SIZE.of(have=group.desired, most=group.maximum)
            return GroupRefusal(group.name, *full)
        if feasible.any():
            return GroupRefusal(group.name, *NotIncreased.OTHER_SYSTEM.of())
        texts = dict.fromkeys(text for row in rows for text in evaluation.reasons(row))
        return GroupRefusal(group.name, GroupCode.FILTERED, ", ".join(texts))
