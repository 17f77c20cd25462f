"""The machine groups of a snapshot: their nodes by state, and a template of a new node for each.

The counts are those of Cluster Autoscaler (``clusterstate.Readiness``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import numpy as np

from rebalancer.base.durations import parse_go_duration
from rebalancer.base.errors import ProviderError
from rebalancer.providers.contract import KnownNode, NodeGroup, NodeTemplate
from rebalancer.scheduler.placement import tolerates
from rebalancer.scheduler.topology import HOSTNAME
from rebalancer.snapshot.columns import Bools, Int32s, Ints
from rebalancer.snapshot.labels import ZONE_KEYS, NodeLabels
from rebalancer.snapshot.leaving import LEAVING
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.nodes import STARTUP, STATE_TAINTS, AddedNode, fold_amounts, is_startup
from rebalancer.wire import objects as o
from rebalancer.wire.marks import SCALE_IN, is_mark
from rebalancer.wire.quantity import parse_resource

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
"""The values that Go's ``strconv.ParseBool`` accepts."""


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """A group's own settings of its scaling, which replace those of the policy; None: the policy's applies.

    The names and forms of the options are Cluster Autoscaler's (``config/const.go``; ``aws_manager.go: GetAsgOptions``,
    ``clusterapi_nodegroup.go: GetOptions``): an option that cannot be parsed is ignored, with a warning.
    """

    threshold: float | None = None
    """Requested share from which on a node is not removed; with 0 no node is removed."""
    gpu_threshold: float | None = None
    """The same share for nodes with GPUs."""
    unneeded_for: timedelta | None = None
    unready_for: timedelta | None = None
    provision_time: timedelta | None = None
    ignores_daemons: bool = False
    """Whether the requests of DaemonSets' pods count neither as requested nor as allocatable."""


def _share(text: str) -> float:
    share = float(text)
    if not 0 <= share < float("inf"):
        raise ValueError(f"{text!r} is no share; write for example 0.5")
    return share


def _span(text: str) -> timedelta:
    span = parse_go_duration(text)
    if span < timedelta(0):
        raise ValueError(f"{text!r} is negative")
    return span


def _truth(text: str) -> bool:
    if text not in _TRUE | _FALSE:
        raise ValueError(f"{text!r} is neither true nor false")
    return text in _TRUE


_READ: dict[str, tuple[str, Callable[[str], Any]]] = {
    "scaledownutilizationthreshold": ("threshold", _share),
    "scaledowngpuutilizationthreshold": ("gpu_threshold", _share),
    "scaledownunneededtime": ("unneeded_for", _span),
    "scaledownunreadytime": ("unready_for", _span),
    "maxnodeprovisiontime": ("provision_time", _span),
    "ignoredaemonsetsutilization": ("ignores_daemons", _truth),
}


def read_options(group: NodeGroup) -> tuple[GroupOptions, tuple[str, ...]]:
    """Return the options of a group, and the problems of those that could not be parsed, in words."""
    read: dict[str, Any] = {}
    problems: list[str] = []
    for name, text in sorted(group.options.items()):
        if name not in _READ:
            problems.append(f"{group.name}: there is no option {name}")
            continue
        field, parse = _READ[name]
        try:
            read[field] = parse(text)
        except ValueError as error:
            problems.append(f"{group.name}: the option {name}: {error}; the policy's counts")
    return GroupOptions(**read), tuple(problems)


_STATUS_TAINTS = "status-taint.cluster-autoscaler.kubernetes.io/"
"""The same for taints that are temporarily set on ready nodes."""

ProviderTemplate = Callable[[NodeGroup], NodeTemplate | None]


@dataclass(frozen=True, slots=True)
class GroupTemplate:
    """The template of a new node of a group."""

    group: str
    source: str
    """Source of the template: the name of a live node, or empty for the provider."""
    labels: Mapping[str, str]
    """The labels without the host name; the zone is a live node's own."""
    zone: str | None
    taints: tuple[o.Taint, ...]
    allocatable: Ints
    """(R,) the allocatable amounts of a new node."""
    max_pods: int
    like: int | None
    daemons: Int32s
    """The classes of the pods that each such node gets: of DaemonSets, and static ones."""
    capacity: Mapping[str, int]
    """Resource -> amount of the machine, in base units; allocatable if the amount is unknown."""

    def node(self, number: int, zone: str | None) -> AddedNode:
        """Return the new node with this number, in ``zone`` (None: the template's zone)."""
        name, zone = f"{self.group}/new-{number}", zone or self.zone
        labels = dict(self.labels)
        if zone is not None:
            # Drivers of storage name the zone under keys of their own.
            labels = {k: zone if v == self.zone else v for k, v in labels.items()}
            keys = [key for key in ZONE_KEYS if key in labels] or [ZONE_KEYS[0]]
            labels |= dict.fromkeys(keys, zone)
        labels[HOSTNAME] = name
        return AddedNode(name, labels, self.taints, self.allocatable, self.max_pods, self.like)


class Groups:
    """The provider's groups with the nodes of a snapshot assigned to them."""

    def __init__(
        self, snapshot: Snapshot, groups: Sequence[NodeGroup], startup_taints: Collection[str] = ()
    ) -> None:
        """``startup_taints``: see ``CapacitySettings``.

        Raises:
            ProviderError: two groups have the same name, or the same machine.
        """
        self._snapshot = snapshot
        self.groups = tuple(sorted(groups, key=lambda group: group.name))
        read = {group.name: read_options(group) for group in self.groups}
        self._options = {name: options for name, (options, _) in read.items()}
        self.unread = tuple(text for _, problems in read.values() for text in problems)
        """What of the groups' own options could not be read, in words."""
        self._startup = frozenset(startup_taints)
        nodes = snapshot.nodes
        of_sets = np.array([any(map(self._is_startup, of)) for of in nodes.taint_sets] or [False])
        self.starting: Bools = of_sets[nodes.taint_set]
        """(N,) nodes that a start-up taint, or one of the cluster's own, keeps from taking pods yet."""
        rows = _rows(snapshot)
        self.of_node: dict[int, int] = {}
        """Node -> its group; nodes without one are not in it."""
        named: set[str] = set()
        for index, group in enumerate(self.groups):
            if group.name in named:
                raise ProviderError(f"two groups are named {group.name!r}")
            named.add(group.name)
            for instance in group.instances:
                row = rows.get(instance)
                if row is not None and self.of_node.setdefault(row, index) != index:
                    other = self.groups[self.of_node[row]].name
                    raise ProviderError(f"{instance} is in the groups {other!r} and {group.name!r}")

    def group_of(self, node: int) -> NodeGroup | None:
        """Return the group of a node; None if it is in none."""
        index = self.of_node.get(node)
        return None if index is None else self.groups[index]

    def options_of(self, node: int) -> GroupOptions:
        """Return the options of a node's group."""
        group = self.group_of(node)
        return GroupOptions() if group is None else self._options[group.name]

    def options_named(self, group: str) -> GroupOptions:
        """Return the options of the group of this name."""
        return self._options[group]

    def nodes_of(self, group: NodeGroup) -> list[int]:
        """Return the nodes of a group, ascending."""
        return sorted(node for node, index in self.of_node.items() if self.groups[index] is group)

    def zones(self, group: NodeGroup) -> dict[str, int]:
        """Return zone -> number of the group's nodes, including zones without nodes."""
        counts = dict.fromkeys(group.zones, 0)
        for node in self.nodes_of(group):
            zone = zone_of(self._snapshot.nodes.labels.of(node))
            if zone is not None:
                counts[zone] = counts.get(zone, 0) + 1
        return counts

    def template_of(
        self, group: NodeGroup, provider_template: ProviderTemplate
    ) -> GroupTemplate | None:
        """Return the template of a group: from a live node, else from ``provider_template``; None if unknown.

        Raises:
            ProviderError: the provider cannot be queried, or returns invalid quantities.
        """
        live = self._live(group)
        if live is not None:
            return self.template_of_node(group, live)
        given = provider_template(group)
        return None if given is None else self._of_template(group, given)

    def _live(self, group: NodeGroup) -> int | None:
        """Return the node that represents its group: Ready, schedulable, first by name; None if there is none."""
        nodes = self._snapshot.nodes
        usable = [n for n in self.nodes_of(group) if nodes.ready[n] and n not in nodes.unreadable]
        closed = nodes.leaving | nodes.unschedulable
        return min(
            usable,
            key=lambda node: (bool(self.starting[node]), bool(closed[node]), node),
            default=None,
        )

    def _is_startup(self, taint: o.Taint) -> bool:
        return is_startup(taint, self._startup)

    def keeps(self, taint: o.Taint) -> bool:
        """Return whether a taint is one that nodes keep, and new ones have, too."""
        passing = taint.key.startswith((*STATE_TAINTS, _STATUS_TAINTS))
        passing |= taint.key in {*LEAVING.taints, SCALE_IN} or self._is_startup(taint)
        return not passing and not is_mark(taint.key, taint.effect)

    def template_of_node(self, group: NodeGroup, node: int) -> GroupTemplate:
        """Return the template of a new node of a group that is like one of its nodes."""
        snapshot, nodes = self._snapshot, self._snapshot.nodes
        labels = nodes.labels.of(node)
        capacity = snapshot.drop_devices(nodes.capacity[:, node], node)
        own = {nodes.names[node], labels.get(HOSTNAME)}
        taints = nodes.taint_sets[int(nodes.taint_set[node])]
        here = snapshot.pods.cls[(snapshot.pods.node == node) & snapshot.pods.living]
        daemons = [c for c in here.tolist() if snapshot.classes[c].per_node]
        return GroupTemplate(
            group=group.name,
            source=nodes.names[node],
            labels={key: value for key, value in labels.items() if value not in own},
            zone=zone_of(labels),
            taints=tuple(taint for taint in taints if self.keeps(taint)),
            allocatable=snapshot.drop_devices(nodes.allocatable[:, node], node),
            max_pods=int(nodes.max_pods[node]),
            like=node,
            daemons=np.array(daemons, np.int32),
            capacity=dict(zip(snapshot.resources, capacity.tolist(), strict=True)),
        )

    def _of_template(self, group: NodeGroup, given: NodeTemplate) -> GroupTemplate:
        resources = self._snapshot.resources
        column = np.zeros(len(resources), np.int64)
        try:
            max_pods = fold_amounts(given.allocatable, resources, column)
            capacity = {
                name: parse_resource(name, amount)
                for name, amount in {**given.allocatable, **given.capacity}.items()
            }
        except (ValueError, OverflowError) as error:
            raise ProviderError(f"the template of {group.name}: allocatable: {error}") from None
        taints = tuple(taint for taint in given.taints if self.keeps(taint))
        return GroupTemplate(
            group=group.name,
            source="",
            labels=dict(given.labels),
            zone=zone_of(given.labels),
            taints=taints,
            allocatable=column,
            max_pods=max_pods,
            like=None,
            daemons=self.daemons_for(given.labels, taints),
            capacity=capacity,
        )

    def daemons_for(self, labels: Mapping[str, str], taints: Sequence[o.Taint]) -> Int32s:
        """Return one class of each DaemonSet that runs a pod on a node with these labels and taints."""
        one_node = NodeLabels(("",), [labels])
        classes: dict[int, int] = {}
        for index, cls in enumerate(self._snapshot.classes):
            if cls.controller_kind != "DaemonSet" or cls.owner in classes:
                continue
            hard = [t for t in taints if t.effect in ("NoSchedule", "NoExecute")]
            if all(tolerates(cls.spec.tolerations or (), taint) for taint in hard) and (
                _selects(cls.spec, one_node)
            ):
                classes[cls.owner] = index
        return np.array(list(classes.values()), np.int32)


def _rows(snapshot: Snapshot) -> dict[str, int]:
    """Return machine -> its node row.

    A machine that two nodes claim is assigned to neither: a kubelet chooses the ``providerID`` of its own node, so
    an empty node could cause the termination of another node's machine.
    """
    known = known_nodes(snapshot)
    claims = Counter(one.instance for one in known)
    return {one.instance: row for row, one in enumerate(known) if claims[one.instance] == 1}


def known_nodes(snapshot: Snapshot) -> list[KnownNode]:
    """Return the nodes in the form that providers receive."""
    nodes = snapshot.nodes
    return [
        KnownNode(name, nodes.provider_id[row], nodes.labels.of(row))
        for row, name in enumerate(nodes.names)
    ]


def zone_of(labels: Mapping[str, str]) -> str | None:
    """Return the zone in the labels of a node; None if there is none."""
    return next((labels[key] for key in ZONE_KEYS if key in labels), None)


def _selects(spec: o.SchedulingSpec, one_node: NodeLabels) -> bool:
    """Return whether a DaemonSet's pod may run on a node; the affinity that names the pod's node is ignored."""
    if not one_node.equal(spec.node_selector or {})[0]:
        return False
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required if affinity else None
    if required is None:
        return True
    bare = [
        msgspec.structs.replace(term, match_fields=None) for term in required.node_selector_terms
    ]
    return any(not term.match_expressions or one_node.term(term)[0] for term in bare)


_OK_UNREADY, _SHARE_UNREADY = 3, 0.45
"""Unready nodes with which all is well (``--ok-total-unready-count``, ``--max-total-unready-percentage``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Counts of a group's nodes, or of the cluster's; ``unregistered``: machines without a node."""

    ready: int = 0
    not_started: int = 0
    unready: int = 0
    being_deleted: int = 0
    unregistered: int = 0
    """Machines that there are to be, and that are no nodes."""

    @property
    def registered(self) -> int:
        """The number of nodes."""
        return self.ready + self.not_started + self.unready + self.being_deleted

    @property
    def upcoming(self) -> int:
        """The number of requested machines that are not ready nodes yet."""
        return self.unregistered + self.not_started

    @property
    def are_healthy(self) -> bool:
        """Whether few enough nodes are unready for scaling up (Cluster Autoscaler: ``IsClusterHealthy``)."""
        return self.unready <= max(_OK_UNREADY, _SHARE_UNREADY * self.registered)

    @property
    def are_lost(self) -> bool:
        """Whether several nodes of a group are unready and none is ready, as after the loss of a zone."""
        return self.unready > 1 and not self.ready and not self.not_started

    def unhealthy(self) -> str:
        """Return a phrase on how many nodes are unready, and how many may be."""
        few = f"{self.unready} of {self.registered} nodes are not Ready"
        most = max(_OK_UNREADY, int(_SHARE_UNREADY * self.registered))
        return few if self.are_healthy else f"{few}, and {most} may be"


def sizes_of(snapshot: Snapshot, groups: Groups) -> dict[str, Sizes]:
    """Return group -> counts of its machines; if a group's size is unknown, no machine counts as unregistered."""
    sizes: dict[str, Sizes] = {}
    for group in groups.groups:
        nodes = groups.nodes_of(group)
        missing = 0 if group.desired is None else max(0, group.desired - len(nodes))
        sizes[group.name] = _count_nodes(snapshot, nodes, missing, groups.starting)
    return sizes


def size_of_cluster(snapshot: Snapshot, groups: Groups) -> Sizes:
    """Return the counts of all nodes, including those without a group, and of machines without a node."""
    unregistered = sum(one.unregistered for one in sizes_of(snapshot, groups).values())
    return _count_nodes(snapshot, range(len(snapshot.nodes)), unregistered, groups.starting)


def _count_nodes(
    snapshot: Snapshot, nodes: Iterable[int], unregistered: int, starting: Bools
) -> Sizes:
    of, now = snapshot.nodes, snapshot.captured_at
    ready = not_started = unready = being_deleted = 0
    for node in nodes:
        if of.leaving[node]:
            being_deleted += 1
        elif of.ready[node] and node not in of.unreadable and not starting[node]:
            ready += 1
        elif now - of.created[node] < STARTUP:
            not_started += 1
        else:
            unready += 1
    return Sizes(
        ready=ready,
        not_started=not_started,
        unready=unready,
        being_deleted=being_deleted,
        unregistered=unregistered,
    )
