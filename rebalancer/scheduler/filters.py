"""All filters of the default profile, in the scheduler's order.

Sources: ``apis/config/v1/default_plugins.go`` for the order; ``plugins/nodeports`` and ``plugins/volumerestrictions``
(``isVolumeConflict``) for the things that one pod uses alone. The other filters name theirs where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from rebalancer.scheduler.interpod import InterPod
from rebalancer.scheduler.placement import NodePlacement, declaring, needed_features
from rebalancer.scheduler.profile import (
    DYNAMIC_RESOURCES,
    NODE_AFFINITY,
    NODE_RESOURCES_FIT,
    SchedulerProfile,
)
from rebalancer.scheduler.resources import Resources
from rebalancer.scheduler.spread import Spread
from rebalancer.scheduler.topology import ArrayCache
from rebalancer.scheduler.volumes import AttachLimits, VolumeRulebook
from rebalancer.snapshot.columns import Bools, Int32s
from rebalancer.snapshot.labels import MISSING
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire import objects as o
from rebalancer.wire.objects import SchedulingSpec

How = TypeVar("How")
_NO_CLASSES = np.zeros(0, np.int32)


class Exclusive(Generic[How]):
    """The nodes on which the exclusive things that a class uses are free.

    ``wanted`` yields (class, thing, way of use); ``conflict`` returns whether two ways of using the same thing
    exclude each other.
    """

    def __init__(
        self,
        wanted: Iterable[tuple[int, Hashable, How]],
        conflict: Callable[[How, How], bool],
    ) -> None:
        self._conflict = conflict
        self._wanted: dict[int, list[tuple[Hashable, How]]] = {}
        self._users: dict[Hashable, list[tuple[int, How]]] = {}
        self._rivals: dict[int, Int32s] = {}
        for cls, thing, how in wanted:
            self._wanted.setdefault(cls, []).append((thing, how))
            self._users.setdefault(thing, []).append((cls, how))

    def rivals(self, cls: int) -> Int32s | None:
        """Return the classes whose pods conflict with the class on a node; None if it uses no exclusive thing."""
        if cls not in self._wanted:
            return None
        rivals = self._rivals.get(cls)
        if rivals is None:
            classes = {
                user
                for thing, how in self._wanted[cls]
                for user, also in self._users[thing]
                if self._conflict(how, also)
            }
            rivals = self._rivals[cls] = np.array(sorted(classes), np.int32)
        return rivals


_ANY = "0.0.0.0"  # noqa: S104  # compared, never bound
_Port = tuple[str, int, str]


def host_ports(spec: SchedulingSpec) -> set[_Port]:
    """Return (protocol, port, address) of the host ports of app containers and sidecars."""
    sidecars = (c for c in spec.init_containers or () if c.restart_policy == "Always")
    return {
        (port.protocol or "TCP", port.host_port, port.host_ip or _ANY)
        for container in (*sidecars, *spec.containers)
        for port in container.ports or ()
        if port.host_port > 0
    }


def ports(snapshot: Snapshot) -> Exclusive[str]:
    """Return which classes use the same host ports, each with its address."""
    return Exclusive(
        (
            (index, (protocol, port), address)
            for index, of_class in enumerate(snapshot.classes)
            for protocol, port, address in host_ports(of_class.spec)
        ),
        lambda one, other: _ANY in (one, other) or one == other,
    )


def disks(snapshot: Snapshot) -> Exclusive[bool]:
    """Return which classes use the same disks, each shared or exclusive."""
    return Exclusive(
        (
            (index, name, shared)
            for index, of_class in enumerate(snapshot.classes)
            for volume in of_class.spec.volumes or ()
            if volume.disk is not None
            for name, shared in _names(volume.disk)
        ),
        lambda one, other: not (one and other),
    )


def _names(disk: o.Disk) -> Iterator[tuple[Hashable, bool]]:
    """Yield (key that is equal for equal disks, whether pods may share the disk if all of them allow it).

    Yields nothing for types of disks without such a conflict.
    """
    match disk:
        case o.GCEDisk():
            yield ("gce", disk.pd_name), disk.read_only
        case o.AWSDisk():
            yield ("aws", disk.volume_id), False
        case o.ISCSIDisk():
            yield ("iscsi", disk.iqn), disk.read_only
        case o.RBDDisk():
            for monitor in disk.monitors:
                yield ("rbd", monitor, disk.pool, disk.image), disk.read_only


FILTERS = (
    "",
    "SchedulingGates",
    "NodeUnschedulable",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
    DYNAMIC_RESOURCES,
    "NodeDeclaredFeatures",
    "Unreadable",
)
"""Names of the filters, in the order in which they run; 0 is none.

``Unreadable`` is not a plug-in: it excludes nodes whose object could not be decoded.
"""


def needed_keys(spec: SchedulingSpec) -> tuple[tuple[str, str], ...]:
    """Return (plug-in, topology key): the pod fits on no node without the key, regardless of other pods."""
    spread = (
        ("PodTopologySpread", constraint.topology_key)
        for constraint in spec.topology_spread_constraints or ()
        if constraint.when_unsatisfiable == "DoNotSchedule"
    )
    affinity = spec.affinity.pod_affinity if spec.affinity else None
    near = (("InterPodAffinity", t.topology_key) for t in (affinity and affinity.required) or ())
    return tuple(dict.fromkeys((*spread, *near)))


UNSCHEDULABLE = "node(s) were unschedulable"


class FilterCheck(NamedTuple):
    """One condition of a filter on nodes."""

    filter: str
    """The name of the filter, one of ``FILTERS``."""
    words: str | Mapping[int, str]
    """The scheduler's message about nodes that do not pass: one for all, or one for each."""
    passes: Bools
    """(N,) the nodes that pass."""

    def say(self, node: int) -> str:
        """Return the scheduler's message about a node that does not pass."""
        return self.words if isinstance(self.words, str) else self.words[node]


class Filters:
    """Every filter as a mask (N,) of the nodes that pass it."""

    def __init__(
        self,
        snapshot: Snapshot,
        placement: NodePlacement,
        resources: Resources,
        spread: Spread,
        interpod: InterPod,
        profile: SchedulerProfile,
    ) -> None:
        self._snapshot = snapshot
        self._off = profile.off
        self._order = tuple(dict.fromkeys((*profile.filter_order, *FILTERS)))
        self._size = len(snapshot.nodes)
        self._placement = placement
        self.resources = resources
        self._spread = spread
        self._interpod = interpod
        self.ports = ports(snapshot)
        self.limits = AttachLimits(snapshot)
        self._declared_features = profile.asks_declared_features
        self.disks = disks(snapshot)
        self.volumes = VolumeRulebook(snapshot)
        self._devices = snapshot.devices
        self._static = ArrayCache(self._size)
        self._names: dict[Hashable, tuple[int]] = {}
        self._alike: dict[int, tuple[int]] = {}
        self._readable = np.ones(self._size, bool)
        self._readable[list(snapshot.nodes.unreadable)] = False

    def static(self, cls: int) -> Bools:
        """Return the nodes (N,) that pass all filters independent of other pods. Cached.

        Classes with equal specs share one array, unless they have volumes.
        """
        return self._static.get(self._name_of(cls), lambda: self._without_others(cls))

    def lasting(self, cls: int) -> Bools:
        """Return :meth:`static` once cordons, and taints that show a node's state, have passed. Cached."""
        name = "lasting", self._name_of(cls)
        return self._static.get(name, lambda: self._without_others(cls, lasting=True))

    def _without_others(self, cls: int, *, lasting: bool = False) -> Bools:
        if self.find_rejection(cls) is not None:
            return np.zeros(self._size, bool)
        mask = self._readable
        if self.checks(NODE_RESOURCES_FIT):
            mask = mask & self.resources.fits_empty(cls)
        for check in self._check_alone(cls, lasting=lasting):
            if self.checks(check.filter):
                mask = mask & check.passes
        for plug_in, key in needed_keys(self._snapshot.classes[cls].spec):
            if self.checks(plug_in):
                mask = mask & (self._snapshot.nodes.labels.column(key) != MISSING)
        return mask

    def _name_of(self, cls: int) -> Hashable:
        """Return a key that is equal for classes with one :meth:`static` array."""
        pinned = self._devices is not None and cls in self._devices.pinned
        if pinned or self.volumes.of(cls) is not None or self.find_rejection(cls):
            return cls
        alike = self._alike.get(cls)
        if alike is None:
            spec = self._snapshot.classes[cls].spec
            others = tuple(needed_features(spec)), needed_keys(spec)
            name = (self._placement.signature(cls), self.resources.alike(cls), others)
            alike = self._alike[cls] = self._names.setdefault(name, (len(self._names),))
        return alike

    def users_of_claims(self, cls: int) -> Int32s:
        """Return the classes that exclude a pod of ``cls`` on every node, since they use one of its ReadWriteOncePod claims."""
        rules = self.volumes.of(cls)
        return _NO_CLASSES if rules is None else rules.exclusive

    def checks(self, name: str) -> bool:
        """Return whether a filter is enabled."""
        return name not in self._off

    def interacting(self, cls: int) -> set[int]:
        """Return the classes whose pods, by leaving or arriving, may change which nodes accept a pod of ``cls``.

        Requests are not considered; host ports, disks, claims, spread, affinity and anti-affinity are.
        """
        relation = self._interpod.relation(cls)
        sets = [
            self.ports.rivals(cls),
            self.disks.rivals(cls),
            self.users_of_claims(cls),
            self.limits.rivals(cls),
            relation.affinity,
            *(classes for _, classes in (*relation.anti, *relation.refused_by)),
            *(constraint.classes for constraint in self._spread.hard(cls)),
        ]
        return {other for classes in sets if classes is not None for other in classes.tolist()}

    def keep_apart(self, cls: int, other: int) -> Iterator[Int32s]:
        """Yield for each rule the domain of each node (N,): pods of the two classes cannot be in one domain; MISSING: no domain.

        By host ports, disks and required anti-affinity of either.
        """
        for rivals in (self.ports.rivals(cls), self.disks.rivals(cls)):
            if rivals is not None and other in rivals:
                yield np.arange(self._size, dtype=np.int32)
        relation = self._interpod.relation(cls)
        for key, classes in (*relation.anti, *relation.refused_by):
            if other in classes:
                yield self._snapshot.nodes.labels.column(key)

    def list_checks(self, cls: int, of_core: Iterable[FilterCheck]) -> Sequence[FilterCheck]:
        """Return the checks of a class, in the scheduler's order; ``of_core``: those that depend on other pods."""
        rejected, nodes = self.find_rejection(cls), self._snapshot.nodes
        if rejected is not None:
            return [FilterCheck(*rejected, np.zeros(self._size, bool))]
        checks = [*self._check_alone(cls), *of_core]
        checks.append(FilterCheck("Unreadable", nodes.unreadable, self._readable))
        checks.sort(key=lambda check: self._order.index(check.filter))
        if (named := self._placement.listed_names(cls)) is not None:
            # The scheduler looks at no other node, so no earlier filter can refuse it first.
            words = f"node(s) didn't satisfy plugin(s) [{NODE_AFFINITY}]"
            listed = np.array([name in named for name in nodes.names], bool)
            checks.insert(0, FilterCheck(NODE_AFFINITY, words, listed))
        return [check for check in checks if self.checks(check.filter)]

    def _check_alone(self, cls: int, *, lasting: bool = False) -> Iterator[FilterCheck]:
        """Yield what depends on the pod and the node only; ``lasting``: see :meth:`lasting`."""
        placement = self._placement
        if not lasting:
            yield FilterCheck("NodeUnschedulable", UNSCHEDULABLE, placement.cordon_mask(cls))
        taints = placement.lasting_taint_mask if lasting else placement.taint_mask
        yield FilterCheck("TaintToleration", "node(s) had untolerated taint(s)", taints(cls))
        if (enforced := placement.enforced_mask()) is not None:
            words = "node(s) didn't match scheduler-enforced node affinity"
            yield FilterCheck(NODE_AFFINITY, words, enforced)
        words = "node(s) didn't match Pod's node affinity/selector"
        yield FilterCheck(NODE_AFFINITY, words, placement.affinity_mask(cls))
        if (rules := self.volumes.of(cls)) is not None:
            for plug_in, words, good in rules.list_masks():
                yield FilterCheck(plug_in, words, good)
        pinned = None if self._devices is None else self._devices.pinned.get(cls)
        if pinned is not None:
            yield FilterCheck(DYNAMIC_RESOURCES, "resourceclaim not available on the node", pinned)
        features = declaring(self._snapshot, cls) if self._declared_features else None
        if features is not None:
            words = "node(s) didn't match Pod's required features"
            yield FilterCheck("NodeDeclaredFeatures", words, features)

    def find_rejection(self, cls: int) -> tuple[str, str] | None:
        """Return the enabled filter that rejects the pod before any node is evaluated, and its words; None if none does."""
        rules, devices = self.volumes.of(cls), self._devices
        rejections = [] if rules is None else list(rules.rejections)
        if devices is not None and cls in devices.rejected:
            rejections.append((DYNAMIC_RESOURCES, devices.rejected[cls]))
        if self._snapshot.classes[cls].spec.scheduling_gates:
            rejections.insert(0, ("SchedulingGates", "waiting for scheduling gates"))
        return next((one for one in rejections if self.checks(one[0])), None)
