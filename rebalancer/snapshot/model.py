"""The snapshot: the state of the cluster as read-only columns."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from rebalancer.base.durations import format_duration
from rebalancer.plan.plan import Method
from rebalancer.policy.select import LabelSelect
from rebalancer.snapshot.columns import Bools, Floats, Int32s, Ints, StringColumn, freeze
from rebalancer.snapshot.jobs import JobState
from rebalancer.snapshot.karpenter import NodeClaim
from rebalancer.snapshot.labels import ClassIndex, NodeLabels, matches, with_label_keys
from rebalancer.snapshot.leaving import Announcement
from rebalancer.snapshot.membership import NO_GANG, Membership
from rebalancer.snapshot.native_nodes import ARCH_LABEL, OS_LABEL, NativeNodes, required_keys
from rebalancer.snapshot.requests import EvictionRequest
from rebalancer.wire import objects as o
from rebalancer.wire.opt_outs import OptOut
from rebalancer.wire.pods import FINISHED, RUNNING, PodState
from rebalancer.wire.quantity import parse as parse_quantity
from rebalancer.wire.times import rfc3339

T = TypeVar("T")

GangKey = tuple[str, str]
"""Namespace and name of a gang."""

PodGroupKey = tuple[str, str, str]
"""Namespace, API group and name of a PodGroup."""

MEASURED = ("cpu", "memory")
"""Axis M of all columns, in the base units of the snapshot's resources."""


NAME_OF_NAMESPACE = "kubernetes.io/metadata.name"
"""Label that the API server gives each namespace: its name."""


@dataclass(frozen=True, slots=True)
class PodGroup:
    """The content of a PodGroup of Kubernetes (``scheduling.k8s.io``), coscheduling, Volcano or KAI."""

    least: int | None
    """Number of its pods that must run for it to be of use (``schedulingPolicy.gang.minCount``, ``minMember``); 0 if it is no gang.

    None if a single number cannot express it.
    """
    alone: bool
    """Its pods may be disrupted one by one: ``disruptionMode: single`` (1.36: ``Pod``), or the policy ``basic``."""
    constrained: bool
    """The scheduler also places it by a constraint on topology, or with claims of the group, which are not modelled."""
    together: bool = False
    """Whether its pods may only be disrupted all at once (``disruptionMode: all``, 1.36: ``PodGroup``), regardless of how many have to run."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Measured usage as read-only columns over the nodes and classes of a snapshot."""

    nodes: Ints
    """(M, N) usage of each node, by all processes there; 0 if it is not known.

    As measured, or as estimated once pods have moved (``rebalancer.snapshot.measured``).
    """
    known: Bools
    """(N,) nodes whose measurement is fresh enough to use, and not of an earlier node of that name."""
    classes: Ints
    """(M, C) mean over the measured pods of each class; if there is none, of the class that it replaces, or else its requests.

    Replicas share their work: the present usage of one of them does not predict that of its replacement.
    """
    at: float
    """Unix seconds at which the newest measurement of a node was made, or began; 0 if there is none."""
    measured: tuple[bool, ...] = (True,) * len(MEASURED)
    """(M,) the resources that were measured; for all others ``classes`` has requests instead."""
    why_unknown: Mapping[str, str] = field(default_factory=dict)
    """Node -> why its answer is not a valid measurement, if known."""
    others: tuple[str, ...] = ()
    """Names of a few measured nodes, where the cluster has none of all that were measured."""

    def has(self, resource: str) -> bool:
        """Return whether there are measurements of ``resource``, which is one of ``MEASURED``."""
        return self.measured[MEASURED.index(resource)]


POD_INDEX, POD_NAME = "apps.kubernetes.io/pod-index", "statefulset.kubernetes.io/pod-name"
_OF_ONE_REPLICA = (POD_INDEX, POD_NAME)
"""Labels whose value a StatefulSet sets differently for each of its pods (pkg/controller/statefulset/stateful_set_utils.go)."""
_STATEFUL_SET = "StatefulSet.apps"


PER_NODE_KINDS = ("DaemonSet", "Node")
"""Controllers of pods that are bound to their node."""


class PodFlag(enum.IntFlag):
    """Properties of one pod beyond its class."""

    TERMINATING = 1
    READY = 2
    MIRROR = 4
    OWNED = 8
    """Has an owner reference (not necessarily a controller)."""
    LOST_NODE = 16
    """Names a node that is not in the snapshot."""
    COST_OURS = 32
    """Has a deletion cost that the strategy deletion-cost wrote."""
    COST_OF_OTHERS = 64
    """Has a deletion cost that somebody else wrote."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """Columns over N nodes, ordered by name."""

    names: tuple[str, ...]
    uid: tuple[str, ...]
    """(N,) of the Node: another one of the same name is another node. Empty where the object names none."""
    labels: NodeLabels
    allocatable: Ints
    """(R, N) base units."""
    capacity: Ints
    """(R, N) capacity of the machine in base units, the system's part included; allocatable if the node does not report it."""
    max_pods: Int32s
    taint_set: Int32s
    """(N,) index into ``taint_sets``: nodes with equal taints share one."""
    taint_sets: tuple[tuple[o.Taint, ...], ...]
    unschedulable: Bools
    ready: Bools
    leaving: Bools
    """Whether its removal is announced, or it is being deleted: no replacement should land there."""
    notices: Mapping[int, tuple[Announcement, ...]]
    """Node -> its announcements, other than taints."""
    kubelet: tuple[str, ...]
    """(N,) version of the kubelet, empty where it is not known."""
    provider_id: tuple[str, ...]
    """(N,) name of the machine at its provider (``spec.providerID``), empty where it is not known."""
    created: Floats
    """Creation time in Unix seconds."""
    ready_since: Floats
    """Unix seconds of the last change of the condition Ready, 0 if unknown."""
    heartbeat: Floats
    """Unix seconds of the newest condition heartbeat, 0 if unknown."""
    images: Mapping[str, tuple[int, Int32s]]
    """Image name -> (size in bytes, ids of nodes that have it)."""
    attach_limits: Mapping[str, Ints]
    """CSI driver -> (N,) volumes a node may attach (CSINode), -1 unlimited."""
    attached: Mapping[str, tuple[tuple[str, int], ...]]
    """CSI driver with a limit -> (handle, node) of the volumes that are attached, as the nodes say."""
    index: Mapping[str, int]
    declared_features: Mapping[str, Bools]
    """Feature -> (N,) nodes whose kubelet declares it (KEP-5328)."""
    unreadable: Mapping[int, str]
    """Nodes whose object could not be understood, with the reason."""
    avoided: Bools | None = None
    """(N,) nodes on which the policy wants no replacement; None: there are none."""

    def __len__(self) -> int:
        return len(self.names)

    def labels_of(self, name: str) -> dict[str, str]:
        """Return the labels of a node; empty if there is no such node."""
        node = self.index.get(name)
        return {} if node is None else self.labels.of(node)


@dataclass(frozen=True, slots=True)
class Pods:
    """Columns over P running or pending pods (finished ones are dropped), ordered by namespace and name."""

    name: StringColumn
    uid: StringColumn
    cls: Int32s
    """(P,) index of the pod's class in ``Snapshot.classes``."""
    node: Int32s
    """(P,) index of the pod's node, -1 while unscheduled or on an unknown node."""
    created: Floats
    ready_since: Floats
    """(P,) Unix seconds, 0 if never."""
    deletion_cost: Int32s
    flags: Int32s
    """(P,) bits of PodFlag."""
    state: Int32s
    """(P,) index into ``states``: most pods share one."""
    states: tuple[PodState, ...]
    lost_nodes: tuple[str, ...] = ()
    """Names of nodes that are not in the snapshot although pods are bound to them that would be recreated elsewhere."""

    def __len__(self) -> int:
        return len(self.cls)

    @property
    def living(self) -> Bools:
        """(P,) whether each pod is on a node and not terminating."""
        living: Bools = (self.node >= 0) & ((self.flags & PodFlag.TERMINATING) == 0)
        return living

    @property
    def ready(self) -> Bools:
        """(P,) whether each pod is Ready."""
        ready: Bools = (self.flags & PodFlag.READY) != 0
        return ready

    def is_ready(self, pod: int) -> bool:
        """Return whether one pod is Ready."""
        return bool(int(self.flags[pod]) & PodFlag.READY.value)

    def without(self, gone: Bools) -> Pods:
        """Return the columns without the pods in the mask ``gone`` (P,)."""
        rows = np.flatnonzero(~gone)
        return replace(
            self,
            name=self.name.take(rows),
            uid=self.uid.take(rows),
            cls=freeze(self.cls[rows]),
            node=freeze(self.node[rows]),
            created=freeze(self.created[rows]),
            ready_since=freeze(self.ready_since[rows]),
            deletion_cost=freeze(self.deletion_cost[rows]),
            flags=freeze(self.flags[rows]),
            state=freeze(self.state[rows]),
        )

    def where(self, test: Callable[[PodState], bool]) -> Bools:
        """Return a mask of the pods (P,) whose state passes ``test``; each distinct state is tested once."""
        true = np.array([test(state) for state in self.states] or [False], bool)
        matching: Bools = true[self.state]
        return matching


@dataclass(frozen=True, slots=True)
class PodClass:
    """Pods of one controller with equal scheduling requirements."""

    namespace: str
    labels: o.Labels
    spec: o.SchedulingSpec
    owner: int
    """Row of the top controller, -1 if there is none."""
    controller_kind: str
    controller_group: str
    """API group of that kind, empty for the core group."""
    controller_uid: str
    replacement: int
    """Class of the pod that the controller would create next (its current template)."""
    unreadable: str | None
    """Why the class cannot be predicted, if so."""
    assumed: tuple[str, ...] = ()
    """What is assumed about the replacement, since no object contains it."""
    opt_outs: tuple[OptOut, ...] = ()
    """The annotations of its pods that forbid moving them."""
    membership: Membership = NO_GANG
    """The gang that its pods are members of."""
    controller_name: str = ""
    """Name of the controller; a gang's may be made again under it, with another uid."""
    job: JobState | None = None
    """The state of the Job that controls its pods; None if none does, or it was not read."""
    job_ended: bool = False
    """Whether its pods belong to a Job that has ended, and that only a CronJob owns, which no longer reads them."""
    restarts: bool = False
    """Its pods are moved by a restart of their Deployment: an old pod runs until a new one is Ready."""
    cannot_surge: str = ""
    """Why its pods cannot be moved by a restart, although the policy requests it for single replicas."""
    too_late: str = ""
    """Why its pods are evicted although they could be moved by a restart: their machine ends before another pod is Ready."""
    surges_once_settled: bool = False
    """They cannot for now only: their Deployment is in a rollout, or not settled for another reason."""

    @property
    def controller(self) -> str:
        """Kind and API group of the controller as one word, ``ReplicaSet.apps``; empty if there is none."""
        return f"{self.controller_kind}.{self.controller_group}".removesuffix(".")

    @property
    def gang(self) -> str:
        """The gang that its pods are members of, in words; empty for none."""
        return self.membership.gang

    @property
    def common_labels(self) -> frozenset[tuple[str, str]]:
        """The labels without those that the controller of a StatefulSet gives each of its pods alone."""
        return frozenset(of for of in self.labels.items() if of[0] not in _OF_ONE_REPLICA)

    @property
    def priority(self) -> int:
        """The pod's priority; 0 if admission set none."""
        return self.spec.priority or 0

    @property
    def per_node(self) -> bool:
        """Whether each pod is bound to its node: pods of DaemonSets, and mirror pods of static pods."""
        return self.controller_kind in PER_NODE_KINDS

    def matches(self, select: LabelSelect) -> bool:
        """Return whether the labels of its pods match the selector."""
        return matches(select.wire(), self.labels)


def too_few_ready(ready: int, asked: int) -> str | None:
    """Return a phrase if fewer pods are Ready than requested; else None."""
    return f"{ready} of {asked} replicas ready" if ready < asked else None


@dataclass(frozen=True, slots=True)
class Owner:
    """A top controller: a Deployment, StatefulSet or Job, or any other owner of a ReplicaSet."""

    kind: str
    namespace: str
    name: str
    uid: str
    replicas: int
    """The requested number of pods; if no object was read, the number of living ones."""
    ready: int
    """Number of pods seen Ready, independent of the status."""
    unsettled: str | None
    """Why it is not settled (rollout, scaling, unready replicas); None if it is."""
    waits: bool
    """Creates a replacement only after the victim is gone (StatefulSet, some Jobs)."""
    fingerprint: str
    """A text that changes with the requests of the owner's pods: memory of earlier moves applies only while it is equal."""
    opt_outs: tuple[OptOut, ...] = ()
    """``rebalancer/evict: "false"``, also for a time, on the object itself, or on a ReplicaSet of its own."""
    rollout: bool = False
    """Its pods are of two templates: those of the older one are being replaced."""
    cannot_surge: str = "it was not read"
    """Why its replicas would not all stay Ready through a rollout (of a Deployment only); empty if they would."""
    surge: int = 0
    """How many new pods its rollout starts before it ends an old one (of a Deployment only)."""

    @property
    def lacks_ready_only(self) -> bool:
        """Whether fewer pods are Ready than requested, and this is the only reason why it is unsettled."""
        return self.unsettled is not None and self.unsettled == too_few_ready(
            self.ready, self.replicas
        )

    @property
    def ref(self) -> str:
        """``kind/namespace/name``, for messages."""
        return f"{self.kind}/{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PodAutoscaler:
    """A HorizontalPodAutoscaler and its last scaling of an owner."""

    namespace: str
    name: str
    owner: int
    scaled_at: float
    """Unix seconds, 0 if never."""
    current: int
    """Replicas that it counted last."""
    desired: int
    """Replicas that it wants; 0 also before it has wanted any."""
    is_able: bool = True
    """Whether it reads its metrics and can scale; else its desired number is the last one."""

    @property
    def ref(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_scaling(self) -> bool:
        """Whether the current number of replicas differs from the desired one."""
        return self.is_able and self.current != self.desired > 0


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """A PodDisruptionBudget and the classes it selects."""

    namespace: str
    name: str
    classes: Int32s
    allowed: int
    """``status.disruptionsAllowed``; 0 while the status is not of the current generation."""
    healthy: int
    desired: int
    always_allow_unhealthy: bool
    expected: int
    """Pods that the budget counts, whether they are Ready or not (``status.expectedPods``)."""
    stale: str = ""
    """Why its status does not describe the budget as it is now; empty if it does."""

    @property
    def ref(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def never_allows(self) -> bool:
        """Whether the budget allows no disruption even if all of its pods are Ready."""
        return not self.stale and self.desired >= self.expected > 0

    @property
    def spares_unready(self) -> bool:
        """Whether an unready pod may be evicted independently of ``allowed``, without counting as a disruption.

        ``unhealthyPodEvictionPolicy``: AlwaysAllow always, IfHealthyBudget (the default) while enough pods are
        healthy (``pkg/registry/core/pod/storage/eviction.go``).
        """
        return self.always_allow_unhealthy or self.healthy >= self.desired > 0


@dataclass(frozen=True, slots=True)
class Quota:
    """The free amount of a ResourceQuota in its namespace: resource name -> amount."""

    namespace: str
    name: str
    free: Mapping[str, int]
    spec: o.ResourceQuotaSpec


@dataclass(frozen=True, slots=True)
class Volumes:
    """The objects that tie pods to nodes: claims, volumes and storage classes, by name."""

    claims: Mapping[tuple[str, str], o.PersistentVolumeClaim]
    volumes: Mapping[str, o.PersistentVolume]
    storage_classes: Mapping[str, o.StorageClass]


DEVICE_ROW = "devices.kubernetes.io/"
"""Begins the name of a row for devices, which the scheduler's other rules take for no extended resource."""


@dataclass(frozen=True, slots=True)
class Devices:
    """The claims of pods (dynamic resource allocation). How many devices there are is in the rows of resources."""

    unmodelled: Mapping[int, tuple[str, ...]]
    """Class with claims -> why they are not modelled; nothing if they are."""
    rejected: Mapping[int, str]
    """Class -> why the scheduler looks at no node for it."""
    pinned: Mapping[int, Bools]
    """Class -> nodes (N,) where the devices already allocated for it can be used."""
    rows: frozenset[int]
    """The rows of devices among the resources."""
    stand_for: Mapping[int, int] = field(default_factory=dict)
    """Row of an extended resource that a DeviceClass provides -> the row of its devices."""
    classes: int = 0
    """The number of classes, from the first, for which all of this is known."""
    preferred: Mapping[int, Ints] = field(default_factory=dict)
    """Class with alternatives -> the score of each node (N,) for those that it has, before normalisation."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """A CapacityBuffer, or missing slots of the policy: a number of chunks of room, each for a pod of this kind."""

    namespace: str
    """The namespace of the buffer; empty for slots."""
    name: str
    uid: str
    chunks: int
    labels: o.Labels
    spec: o.SchedulingSpec
    problem: str = ""
    """Why it does not count, in words; then it has no chunks."""


@dataclass(frozen=True)
class Snapshot:
    """The state of the cluster at one time. All arrays are read-only."""

    captured_at: float
    """Unix seconds, of the cluster's own clock where one was read; 0 for a file without any time."""
    version: tuple[int, int]
    """(major, minor) of the API server, as far as it is known."""
    resources: tuple[str, ...]
    """Axis R: cpu, memory, ephemeral-storage, then the others by name."""
    nodes: Nodes
    pods: Pods
    classes: tuple[PodClass, ...]
    requests: Ints
    """(R, C) effective request of a pod of each class."""
    scored: Ints
    """(2, C) cpu and memory request with the scheduler's defaults for missing ones."""
    owners: tuple[Owner, ...]
    budgets: tuple[DisruptionBudget, ...]
    namespaces: Mapping[str, o.Labels]
    services: tuple[tuple[str, o.Labels], ...]
    """(namespace, selector) of the Services that have one."""
    quotas: tuple[Quota, ...]
    volumes: Volumes
    missing: tuple[str, ...]
    """Objects that could not be read (a kind that the file lacks), in words."""
    resource_version: str = ""
    """Version of the pod list, from which a watch may continue."""
    priority_classes: Mapping[str, int] = field(default_factory=dict)
    """Name -> value of the PriorityClasses that a file has; a cluster's are not read."""
    local_services: tuple[tuple[str, str, o.Labels | None], ...] = ()
    """(namespace, name, selector) of the Services of type LoadBalancer whose external traffic is not forwarded to other nodes."""
    version_known: bool = True
    """Whether the version is known from the server, its file or its kubelets; else the newest one is assumed."""
    selectors: Mapping[str, o.LabelSelector] = field(default_factory=dict)
    """Controller uid -> its pod selector (ReplicaSets, StatefulSets, ReplicationControllers)."""
    opt_outs: Mapping[str, OptOut] = field(default_factory=dict)
    """Namespaces annotated ``rebalancer/evict: "false"``, also for a time."""
    usage: Usage | None = None
    """Measured usage; None if it was not requested, or nothing measures it."""
    autoscalers: tuple[PodAutoscaler, ...] | None = None
    """HorizontalPodAutoscalers that scale an owner of pods, by namespace and name; None where they were not read."""
    machines_coming: Mapping[str, str] | None = None
    """Uid of a pod that waits -> why a machine is on its way for it: the reason of an Event; None where Events were not read."""
    pod_groups: Mapping[PodGroupKey, PodGroup] = field(default_factory=dict)
    """The PodGroups that pods name, as far as they were read."""
    buffers: tuple[Buffer, ...] | None = None
    """The CapacityBuffers, by namespace and name; None where they were not read."""
    node_claims: tuple[NodeClaim, ...] | None = None
    """Karpenter's NodeClaims, by name; None where they were not read."""
    finished: Snapshot | None = None
    """The same cluster with only the pods that have ended; None if they were not requested.

    They occupy nothing, count nowhere, and are not replaced.
    """
    finished_phases: frozenset[str] = FINISHED
    """The phases of finished pods that it may contain; a snapshot file may contain none."""
    server: str | None = None
    """The API server that a file names together with the time; None where it does not say when it was taken."""
    earlier_zones: tuple[str, ...] = ()
    """Zones that had nodes when earlier runs looked, or that the policy or a node group of the provider names."""
    ordered: frozenset[str] = frozenset()
    """The nodes that a command empties or replaces: that they accept no pods does not mean that their zone is closed."""
    devices: Devices | None = None
    """The requests of the claims of pods; None if no pod has claims, or they were not read."""
    same_architecture: bool = False
    """Whether the policy keeps pods on the architecture where those of their template are Ready."""
    eviction_requests: Mapping[str, EvictionRequest] | None = None
    """Uid of a pod -> the EvictionRequest that counts for it; None where runs evict all pods themselves."""

    def once(self, make: Callable[[Snapshot], T]) -> T:
        """Return ``make`` of this snapshot, computed the first time only: a snapshot never changes."""
        if make not in self._made:
            self._made[make] = make(self)
        made: T = self._made[make]
        return made

    @cached_property
    def _made(self) -> dict[Callable[[Snapshot], Any], Any]:
        return {}

    @cached_property
    def class_index(self) -> ClassIndex:
        """An index of the classes for selectors."""
        return ClassIndex([c.namespace for c in self.classes], [c.labels for c in self.classes])

    @cached_property
    def siblings(self) -> Int32s:
        """(C,) a group number per class; classes with the same controller and template share one.

        Pods of a StatefulSet have their own ordinal and name as labels, and their own claims: each is a class by
        itself. They share the StatefulSet and its revision, which is a label, too.
        """
        numbers: dict[Hashable, int] = {}
        group = np.empty(len(self.classes), np.int32)
        for index, cls in enumerate(self.classes):
            key: Hashable = index
            if cls.controller == _STATEFUL_SET:
                key = (cls.namespace, cls.controller_uid, cls.common_labels)
            group[index] = numbers.setdefault(key, len(numbers))
        return freeze(group)

    @cached_property
    def ordinals(self) -> Floats:
        """(P,) the ordinal of each StatefulSet pod; infinite for any other pod."""
        of_class = np.array([_ordinal(cls) for cls in self.classes], float)
        of_set = np.array([cls.controller == _STATEFUL_SET for cls in self.classes], bool)
        ordinals: Floats = of_class[self.pods.cls]
        # A file may lack these labels, and its pods are of one class then: their names have the ordinal, too.
        for pod in np.flatnonzero((of_set & np.isinf(of_class))[self.pods.cls]).tolist():
            ordinals[pod] = _number(self.pods.name[pod].rpartition("-")[2])
        return freeze(ordinals)

    def foreign_nodes(self, cls: int) -> Bools | None:
        """Return the nodes (N,) of another operating system than pods of ``cls`` run on; None if there are none.

        With ``same_architecture`` also those of another architecture. The scheduler may choose them nevertheless. The
        array is read-only.
        """
        systems = self._operating_systems.foreign(cls)
        machines = self.other_architectures(cls) if self.same_architecture else None
        if systems is None or machines is None:
            return machines if systems is None else systems
        return freeze(systems | machines)

    def has_other_system(self, cls: int, nodes: Int32s | int) -> bool:
        """Return whether one of ``nodes`` (K,) has another operating system than pods of ``cls`` run on."""
        systems = self._operating_systems.foreign(cls)
        return systems is not None and bool(systems[nodes].any())

    def without_foreign(self, nodes: Bools, cls: int) -> Bools:
        """Return ``nodes`` (N,) without the ``foreign_nodes`` of ``cls``."""
        foreign = self.foreign_nodes(cls)
        return nodes if foreign is None else nodes & ~foreign

    def without_other_systems(self, nodes: Bools, system: str) -> Bools:
        """Return ``nodes`` (N,) without those whose label names another operating system than ``system``."""
        others = self._operating_systems.others(frozenset({system}))
        return nodes if others is None else nodes & ~others

    def systems_of(self, cls: int) -> frozenset[str]:
        """Return the operating systems on which pods of ``cls`` run, as far as that is known."""
        return self._operating_systems.values_of(cls)

    def other_architectures(self, cls: int) -> Bools | None:
        """Return the nodes (N,) of another architecture than those where pods like ``cls`` are Ready; None if there are none."""
        return self._architectures.foreign(cls)

    @cached_property
    def _operating_systems(self) -> NativeNodes:
        asked = [of.spec.os.name if of.spec.os is not None else "" for of in self.classes]
        return self._native_nodes(OS_LABEL, asked)

    @cached_property
    def _architectures(self) -> NativeNodes:
        return self._native_nodes(ARCH_LABEL, [""] * len(self.classes))

    def _native_nodes(self, key: str, asked: Sequence[str]) -> NativeNodes:
        groups = [
            ()
            if key in required_keys(of.spec)
            else (*filter(None, (of.controller_uid,)), *(at for at in (of.owner,) if at >= 0))
            for of in self.classes
        ]
        ready = np.flatnonzero(self.pods.living & self.pods.ready)
        at = self.pods.cls[ready], self.pods.node[ready]
        return NativeNodes(self.nodes.labels, key, asked, groups, at)

    def in_namespace(self, name: str) -> Bools:
        """Return which classes (C,) are of a namespace."""
        return np.array([of.namespace == name for of in self.classes], bool)

    def amounts(self, of: Mapping[str, str]) -> Ints | None:
        """Return quantities by resource as a column (R,) in base units; None if no node or pod names one of the resources."""
        amounts = np.zeros(len(self.resources), np.int64)
        for name, text in of.items():
            if name not in self.resources:
                return None
            row, amount = self.resources.index(name), parse_quantity(text, milli=name == "cpu")
            amounts[row] = amount
            if self.devices is not None and row in self.devices.stand_for:
                amounts[self.devices.stand_for[row]] += amount
        return freeze(amounts)

    def drop_devices(self, amounts: Ints, like: int) -> Ints:
        """Return amounts of a node (R,) as far as they are known of a new node like it: devices are not."""
        if self.devices is None:
            return amounts
        known = amounts.copy()
        rows = np.array(sorted(self.devices.rows), np.intp)
        # A node with a device plug-in has no devices, and its amounts of extended resources are known.
        unknown = {int(row) for row in rows[self.nodes.capacity[rows, like] > 0]}
        known[[*unknown, *(of for of, row in self.devices.stand_for.items() if row in unknown)]] = 0
        return freeze(known)

    @cached_property
    def per_node(self) -> Bools:
        """(P,) pods that are bound to their node, see ``PodClass.per_node``."""
        of_class = np.array([cls.per_node for cls in self.classes] or [False], bool)
        bound: Bools = of_class[self.pods.cls]
        return bound

    @cached_property
    def gangs(self) -> Mapping[GangKey, Int32s]:
        """Gang -> its pods, ascending, whether on a node, pending or terminating."""
        keys = sorted({(cls.namespace, cls.gang) for cls in self.classes if cls.gang})
        number = {key: index for index, key in enumerate(keys)}
        of_class = [number.get((cls.namespace, cls.gang), -1) for cls in self.classes]
        of_pod = np.array(of_class or [-1], np.int32)[self.pods.cls]
        order = np.argsort(of_pod, kind="stable").astype(np.int32)
        bounds = np.searchsorted(of_pod[order], np.arange(len(keys) + 1))
        return {key: order[bounds[at] : bounds[at + 1]] for key, at in number.items()}

    @cached_property
    def gang_least(self) -> Mapping[GangKey, int]:
        """Gang -> how many of its pods have to run, if all of them give the same number. Other gangs need all of their pods."""
        said: dict[GangKey, set[int | None]] = {}
        for cls in self.classes:
            if cls.gang:
                said.setdefault((cls.namespace, cls.gang), set()).add(self._least_of(cls))
        return {
            gang: least
            for gang, numbers in said.items()
            if len(numbers) == 1 and (least := next(iter(numbers))) is not None
        }

    def _least_of(self, cls: PodClass) -> int | None:
        """Return the number of pods that the gang of ``cls`` needs: as given by its pods, else by its PodGroup."""
        group, said = self.group_of(cls), cls.membership.least
        return group.least if said is None and group is not None else said

    def group_of(self, cls: PodClass) -> PodGroup | None:
        """Return the PodGroup that pods of ``cls`` belong to; None if they have none, or it was not read."""
        named = cls.membership.pod_group
        return None if named is None else self.pod_groups.get((cls.namespace, *named))

    def goes_alone(self, cls: PodClass) -> bool:
        """Return whether pods of ``cls`` move one by one, even if they name a gang.

        They do if the PodGroup allows it, or if one pod of the gang is enough. Then the scheduler places single pods,
        and Volcano accepts any pod of such a gang as a victim (preemptableFn in pkg/scheduler/plugins/gang/gang.go).
        """
        group, least = self.group_of(cls), self._least_of(cls)
        if group is not None and (group.alone or group.together):
            return group.alone
        return least is not None and least <= 1

    def fellows(self, cls: PodClass) -> int:
        """Return the number of other pods in the gang of a pod of ``cls``, also of those that are still to be made; 0 if it has no gang."""
        if not cls.gang:
            return 0
        made, of_job = len(self.gangs[cls.namespace, cls.gang]), cls.job.runs if cls.job else 0
        return max(made, cls.membership.size or 0, of_job) - 1

    def surge_of(self, pods: Int32s | Sequence[int]) -> int:
        """Return how many new pods a rollout starts first that replaces ``pods``, all of a Deployment; 0 where none does."""
        return self.classes[int(self.pods.cls[pods[0]])].membership.surge

    def nodes_matching(self, select: LabelSelect) -> Bools:
        """Return which nodes (N,) the label selector matches."""
        return self.nodes.labels.matching(select.wire())

    def affinity_classes(self, cls: int, term: o.PodAffinityTerm) -> Int32s:
        """Return the classes that ``term`` of a pod of class ``cls`` matches, in its namespaces.

        Namespaces are those listed plus those whose labels match the namespaceSelector; with neither, the
        pod's own (KEP-2249). An empty namespaceSelector means all.
        """
        of_class = self.classes[cls]
        namespaces = set(term.namespaces or ())
        if term.namespace_selector is not None:
            namespaces.update(
                name
                for name, labels in self.namespaces.items()
                if matches(term.namespace_selector, labels)
            )
        elif not namespaces:
            namespaces = {of_class.namespace}
        selector = with_label_keys(
            term.label_selector, of_class.labels, term.match_label_keys, term.mismatch_label_keys
        )
        return self.class_index.match(namespaces, selector)

    def knows_namespaces_of(self, term: o.PodAffinityTerm) -> bool:
        """Return whether it is known which namespaces ``term`` selects: of one that was not read only the name is."""
        selector = term.namespace_selector
        if selector is None or not self.lacks("Namespace"):
            return True
        expressions = (each.key for each in selector.match_expressions or ())
        return {*(selector.match_labels or ()), *expressions} <= {NAME_OF_NAMESPACE}

    def spread_classes(self, cls: int, constraint: o.TopologySpreadConstraint) -> Int32s:
        """Return the classes that a spread constraint of class ``cls`` counts; only in the same namespace."""
        of_class = self.classes[cls]
        selector = with_label_keys(
            constraint.label_selector, of_class.labels, constraint.match_label_keys
        )
        return self.class_index.match([of_class.namespace], selector)

    def waits(self, cls: int) -> bool:
        """Return whether the replacement of a pod of ``cls`` is created only after the pod is gone.

        True if the owner waits (``Owner.waits``), or if the grace period is 0: the API server deletes such a pod at
        once. With a restart, the old pod terminates last.
        """
        if self.classes[cls].restarts:
            return False
        if self.classes[cls].spec.termination_grace_period_seconds == 0:
            return True
        owner = self.owner_of(cls)
        return owner is not None and owner.waits

    def method_of(self, cls: int, *, together: bool) -> Method:
        """Return how a pod of ``cls`` moves; ``together``: with others, all or none.

        The API rejects EvictionRequests for pods moved together, and for pods that name a PodGroup of Kubernetes.
        """
        of_class = self.classes[cls]
        if of_class.restarts:
            return Method.RESTART
        spec = of_class.spec
        asks = self.eviction_requests is not None and spec.eviction_responders
        alone = not together and spec.scheduling_group is None
        return Method.REQUEST if asks and alone else Method.EVICT

    def owner_of(self, cls: int) -> Owner | None:
        """Return the top controller of the pods of ``cls``; None if they have none."""
        owner = self.classes[cls].owner
        return self.owners[owner] if owner >= 0 else None

    @property
    def known_version(self) -> str | None:
        """The version as ``1.36``; None if it is not known."""
        return f"{self.version[0]}.{self.version[1]}" if self.version_known else None

    @property
    def known_time(self) -> str | None:
        """The time of the state, in RFC 3339; None if it is not known."""
        return rfc3339(self.captured_at) if self.captured_at else None

    @property
    def version_words(self) -> str:
        """The version in words: ``Kubernetes 1.36``."""
        if self.version_known:
            return f"Kubernetes {self.known_version}"
        return f"Kubernetes version unknown, judged as {self.version[0]}.{self.version[1]}"

    def time_since(self, moment: float) -> str:
        """Return the time since ``moment`` (Unix seconds), in whole seconds, as ``1h30m``."""
        return format_duration(timedelta(seconds=math.floor(self.captured_at - moment)))

    def lost_pods(self) -> Bools:
        """Return the pods (P,) on nodes that are not in the snapshot, if they would be recreated on others.

        Terminating pods and those of DaemonSets are not included: a removed node leaves these behind for a while. A pod counts
        only if a kubelet has reported it as running: a pod created with the name of a node that never existed does not.
        """
        flags = self.pods.flags
        lost: Bools = ((flags & PodFlag.LOST_NODE) != 0) & ((flags & PodFlag.TERMINATING) == 0)
        return lost & ~self.per_node & self.pods.where(lambda state: state.phase == RUNNING.phase)

    def awaiting_a_node(self) -> Bools:
        """Return the pods (P,) without a node that may still be scheduled, including those with scheduling gates."""
        lost = (self.pods.flags & (PodFlag.TERMINATING | PodFlag.LOST_NODE)) != 0
        waiting: Bools = (self.pods.node < 0) & ~lost
        return waiting

    def lacks(self, kind: str) -> bool:
        """Return whether a kind was not read, or is not in the file: then nothing is known of its objects."""
        return any(said.partition(":")[0] == kind for said in self.missing)

    def unschedulable_pods(self) -> Int32s:
        """Return the rows of the pods that the scheduler has reported as unschedulable, without pods that have a nominated node."""
        states = self.pods.states
        says = [not state.nominated and state.unschedulable_since() is not None for state in states]
        refused = np.array(says or [False], bool)[self.pods.state]
        return np.flatnonzero(refused & self.awaiting_a_node()).astype(np.int32)

    def pod_ref(self, pod: int) -> str:
        """Return ``namespace/name`` of a pod; only the name if it has no namespace."""
        namespace = self.classes[self.pods.cls[pod]].namespace
        return f"{namespace}/{self.pods.name[pod]}" if namespace else self.pods.name[pod]


def _ordinal(cls: PodClass) -> float:
    """Return the ordinal of the single StatefulSet pod of ``cls``; infinite for any other class."""
    if cls.controller != _STATEFUL_SET:
        return np.inf
    return _number(cls.labels.get(POD_INDEX) or cls.labels.get(POD_NAME, "").rpartition("-")[2])


def _number(written: str) -> float:
    return float(written) if written.isdecimal() else np.inf
