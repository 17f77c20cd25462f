"""Pods as they are read by the hundred thousand: scalars per pod, one key per kind of pod.

A pod is decoded in two steps. Every pod yields a :class:`PodRecord`: the few scalars that differ from
pod to pod, and a hashable ``key`` made of the undecoded bytes of everything else that matters. Only the
first pod of a key is decoded further, by ``PodRecord.spec``. The fold (``rebalancer.snapshot.build``)
knows records only, so another decoder (the server's protobuf) is another producer of records.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from rebalancer.wire import objects as o
from rebalancer.wire.lists import JsonDecoder
from rebalancer.wire.objects import Int32, Int64, ResourceRequirements
from rebalancer.wire.quantity import parse_resource
from rebalancer.wire.times import unix_seconds

Amounts = Mapping[str, str | int | float]


def is_infeasible(kind: str, reason: str) -> bool:
    """Return whether a condition of a pod reports that its node can never grant the resize."""
    return kind == "PodResizePending" and reason == "Infeasible"


def count_resized(
    asked: ResourceRequirements | None,
    actual: ResourceRequirements | None,
    allocated: Amounts | None,
    *,
    infeasible: bool,
) -> ResourceRequirements | None:
    """Return the resources of a spec with the requests that count; None if they count as they are.

    The largest of the desired (``asked``), effective and allocated requests counts, by resource. A desired request does
    not count if it is ``infeasible``: else a user with the right to resize a pod could make a node look full.
    """
    if actual is None:
        return None
    spec = asked or ResourceRequirements()
    wanted, parts = spec.requests or {}, [actual.requests or {}, allocated or {}]
    try:
        counted = _largest(parts if infeasible else [wanted, *parts])
    except ValueError:
        return None
    return None if counted == wanted else replace(spec, requests=counted)


def _largest(parts: list[Mapping[str, str | int | float]]) -> dict[str, str | int | float]:
    counted: dict[str, str | int | float] = {}
    for amounts in parts:
        for name, amount in amounts.items():
            known = counted.get(name)
            if known is None or parse_resource(name, amount) > parse_resource(name, known):
                counted[name] = amount
    return dict(sorted(counted.items()))


class ContainerKind(enum.IntEnum):
    """The status list of a pod to which a container belongs."""

    REGULAR = 0
    INIT = 1
    EPHEMERAL = 2


class ContainerState(NamedTuple):
    """A container that is not ready, or has restarted."""

    kind: ContainerKind
    restarts: int
    waiting: str
    """Reason of its state waiting, empty if it has none."""
    terminated: str
    """Reason of its state terminated, empty if it has none."""
    exit_code: int | None
    """The exit code; None unless the container is terminated."""


class PodCondition(NamedTuple):
    """A condition of a pod; conditions of healthy pods are dropped."""

    type: str
    status: str
    reason: str
    since: float
    """Unix seconds of its last transition, 0 if unknown."""


class PodState(NamedTuple):
    """The deviations of a pod from a healthy one. Most pods share one object."""

    phase: str
    reason: str
    """``status.reason``, empty for most."""
    containers: tuple[ContainerState, ...] = ()
    conditions: tuple[PodCondition, ...] = ()
    nominated: str = ""
    """The node that the scheduler has chosen for a pod without one, after it has preempted others there."""
    gone_by: float = 0.0
    """Of a pod that is being deleted: Unix seconds at which its grace period ends (``deletionTimestamp``), else 0."""

    def unschedulable_since(self) -> float | None:
        """Return since when (Unix seconds) the scheduler reports the pod as unschedulable; None if it does not."""
        for each in self.conditions:
            if each.type == "PodScheduled" and each.status == "False":
                return each.since if each.reason == "Unschedulable" else None
        return None

    def restarts(self, *, init: bool) -> int:
        """Return the number of container restarts; with ``init``, those of init containers count."""
        return sum(each.restarts for each in self._containers(init=init, ephemeral=False))

    def reasons(self, *, init: bool, ephemeral: bool = False) -> Iterator[str]:
        """Yield the reasons why containers are waiting or have terminated."""
        for each in self._containers(init=init, ephemeral=ephemeral):
            yield from filter(None, (each.waiting, each.terminated))

    def exit_codes(self, *, init: bool) -> Iterator[int]:
        """Yield the exit codes of terminated containers."""
        for each in self._containers(init=init, ephemeral=False):
            if each.exit_code is not None:
                yield each.exit_code

    def _containers(self, *, init: bool, ephemeral: bool) -> Iterator[ContainerState]:
        kinds = {ContainerKind.REGULAR}
        kinds |= {ContainerKind.INIT} if init else set()
        kinds |= {ContainerKind.EPHEMERAL} if ephemeral else set()
        yield from (each for each in self.containers if each.kind in kinds)


RUNNING = PodState("Running", "")
"""The state of a pod that runs without anything noteworthy."""

_OF_EVERY_POD = frozenset(
    {"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"}
)


def says_something(kind: str, status: str, reason: str) -> bool:
    """Return whether a condition differs from those that every healthy pod has."""
    return status != "True" or bool(reason) or kind not in _OF_EVERY_POD


def state_of(
    phase: str,
    reason: str,
    containers: tuple[ContainerState, ...],
    conditions: tuple[PodCondition, ...],
    nominated: str = "",
    gone_by: float = 0.0,
) -> PodState:
    """Return the state of a pod; the shared object if it is healthy."""
    if phase == RUNNING.phase and not (reason or containers or conditions or nominated or gone_by):
        return RUNNING
    return PodState(phase, reason, containers, conditions, nominated, gone_by)


SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
OUR_DELETION_COST = "rebalancer/deletion-cost"
"""The deletion cost that we wrote: where the two differ, somebody else wrote the other."""
FINISHED = frozenset({"Succeeded", "Failed"})
"""The phases of pods that have ended: they occupy nothing on their node."""
_NULL = Raw(b"null")
T = TypeVar("T")


ANNOTATION_NAMES = {
    "evict": "rebalancer/evict",
    "peer_evict": "descheduler.alpha.kubernetes.io/evict",
    "peer_prefer_no_eviction": "descheduler.alpha.kubernetes.io/prefer-no-eviction",
    "safe_to_evict": SAFE_TO_EVICT,
    "do_not_disrupt": "karpenter.sh/do-not-disrupt",
    "evicting": "descheduler.alpha.kubernetes.io/eviction-in-progress",
    "deletion_cost": DELETION_COST,
    "our_deletion_cost": OUR_DELETION_COST,
    "mirror": "kubernetes.io/config.mirror",
    "config_source": "kubernetes.io/config.source",
    "koordinator_gang": "gang.scheduling.koordinator.sh/name",
    "koordinator_least": "gang.scheduling.koordinator.sh/min-available",
    "koordinator_match": "gang.scheduling.koordinator.sh/match-policy",
    "koordinator_match_alias": "pod-group.scheduling.sigs.k8s.io/match-policy",
    "volcano_group": "scheduling.k8s.io/group-name",
    "volcano_own_group": "scheduling.volcano.sh/group-name",
    "kai_group": "pod-group-name",
    "lws_size": "leaderworkerset.sigs.k8s.io/size",
    "lws_topology": "leaderworkerset.sigs.k8s.io/exclusive-topology",
    "jobset_topology": "alpha.jobset.sigs.k8s.io/exclusive-topology",
}
"""Field of PodAnnotations -> the annotation's name."""


class PodAnnotations(Struct, frozen=True, rename=ANNOTATION_NAMES):
    """The annotations that protect a pod, set its eviction cost or tell its gang; others are skipped."""

    evict: str | None = None
    peer_evict: str | None = None
    peer_prefer_no_eviction: str | None = None
    safe_to_evict: str | None = None
    do_not_disrupt: str | None = None
    evicting: str | None = None
    deletion_cost: str | None = None
    our_deletion_cost: str | None = None
    mirror: str | None = None
    config_source: str | None = None
    koordinator_gang: str | None = None
    koordinator_least: str | None = None
    koordinator_match: str | None = None
    koordinator_match_alias: str | None = None
    volcano_group: str | None = None
    volcano_own_group: str | None = None
    kai_group: str | None = None
    lws_size: str | None = None
    lws_topology: str | None = None
    jobset_topology: str | None = None


_PLACEMENT_PREFIX = b'"topology.kubernetes.io/'
_PLACEMENT = re.compile(rb'"topology\.kubernetes\.io/(?:zone|region)"\s*:\s*"[^"]*"\s*,?\s*')
_DANGLING = re.compile(rb",\s*}\Z")
NO_ANNOTATIONS = PodAnnotations()


class PodRecord(NamedTuple):
    """One decoded pod. It is discarded after its values are in the snapshot's arrays."""

    namespace: str
    name: str
    uid: str
    node: str
    created: float
    ready_since: float
    """Unix seconds of the newest change of the Ready condition, in either direction; 0 if none."""
    deleting: bool
    phase: str
    ready: bool
    controller_kind: str
    controller_group: str
    """API group, empty for the core group."""
    controller_name: str
    controller_uid: str
    owned: bool
    annotations: PodAnnotations
    key: Hashable
    spec: Callable[[], tuple[o.Labels, o.SchedulingSpec]]
    state: PodState = RUNNING
    as_created: bool = False
    """Whether its spec is known to be unchanged since admission: never resized in place, for example."""


def is_as_created(generation: int, *, deleting: bool) -> bool:
    """Return whether nothing has changed a pod's spec since it was created.

    The API server sets ``metadata.generation`` to 1, and adds 1 for each change of the spec (KEP-5067; a binding is
    none) and for the deletion. 0: not known, as for pods from before Kubernetes 1.33.
    """
    return generation - deleting == 1


class _Meta(Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: Int64 | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Raw = _NULL
    annotations: PodAnnotations | None = None
    owner_references: tuple[o.OwnerReference, ...] | None = None


class _Container(Struct, rename="camel", gc=False):
    name: str = ""
    image: str = ""
    resources: Raw = _NULL
    ports: Raw = _NULL
    restart_policy: str | None = None
    restart_policy_rules: Raw = _NULL

    def key(self) -> Hashable:
        return (
            self.name,
            self.image,
            bytes(self.resources),
            bytes(self.ports),
            self.restart_policy,
            bytes(self.restart_policy_rules),
        )

    def decode(self) -> o.Container:
        return o.Container(
            name=self.name,
            image=self.image,
            resources=_decode(self.resources, o.ResourceRequirements),
            ports=_decode(self.ports, tuple[o.ContainerPort, ...]),
            restart_policy=self.restart_policy,
            restart_policy_rules=_decode(self.restart_policy_rules, tuple[o.RestartRule, ...]),
        )


class _Volume(o.Volume, frozen=True):
    """A volume; fields without effect on scheduling are not decoded."""

    ephemeral: dict[str, Raw] | None = None
    host_path: dict[str, Raw] | None = None

    def key(self) -> Hashable:
        """Return a key for equal volumes; None for kinds without effect (configMap, secret, projected)."""
        if self.persistent_volume_claim is not None:
            claim = self.persistent_volume_claim
            return ("claim", claim.claim_name, claim.read_only)
        if self.ephemeral is not None:
            return ("ephemeral", self.name)
        if self.image is not None:
            return ("image", self.image.reference)
        if (disk := self.disk) is not None:
            return disk
        if self.empty_dir is not None:
            return self.empty_dir
        return None if self.host_path is None else "hostPath"

    def decode(self) -> o.Volume:
        return o.Volume(
            name=self.name,
            persistent_volume_claim=self.persistent_volume_claim,
            ephemeral={} if self.ephemeral is not None else None,
            empty_dir=self.empty_dir,
            host_path={} if self.host_path is not None else None,
            image=self.image,
            gce_persistent_disk=self.gce_persistent_disk,
            aws_elastic_block_store=self.aws_elastic_block_store,
            iscsi=self.iscsi,
            rbd=self.rbd,
            azure_disk=self.azure_disk,
            cinder=self.cinder,
            vsphere_volume=self.vsphere_volume,
            portworx_volume=self.portworx_volume,
        )


class _Spec(Struct, rename="camel", gc=False):
    node_name: str = ""
    node_selector: Raw = _NULL
    affinity: Raw = _NULL
    tolerations: Raw = _NULL
    topology_spread_constraints: Raw = _NULL
    containers: tuple[_Container, ...] | None = None
    init_containers: tuple[_Container, ...] | None = None
    overhead: Raw = _NULL
    resources: Raw = _NULL
    priority: Int32 | None = None
    priority_class_name: str | None = None
    scheduler_name: str = o.DEFAULT_SCHEDULER
    host_network: bool = False
    host_users: bool | None = None
    scheduling_gates: Raw = _NULL
    resource_claims: Raw = _NULL
    scheduling_group: o.SchedulingGroup | None = None
    workload_ref: o.WorkloadReference | None = None
    volumes: tuple[_Volume, ...] | None = None
    termination_grace_period_seconds: Int64 | None = None
    restart_policy: str = "Always"
    os: o.PodOS | None = None
    eviction_responders: tuple[o.EvictionResponder, ...] | None = None

    def key(self) -> Hashable:
        return (
            bytes(self.node_selector),
            bytes(self.affinity),
            bytes(self.tolerations),
            bytes(self.topology_spread_constraints),
            tuple([c.key() for c in self.containers or ()]),
            tuple([c.key() for c in self.init_containers or ()]),
            bytes(self.overhead),
            bytes(self.resources),
            self.priority,
            self.scheduler_name,
            self.host_network,
            self.host_users,
            bytes(self.scheduling_gates),
            bytes(self.resource_claims),
            self.scheduling_group,
            self.workload_ref,
            tuple([k for v in self.volumes or () if (k := v.key()) is not None]),
            self.termination_grace_period_seconds,
            self.restart_policy,
            self.os,
            self.eviction_responders,
        )

    def count_resized(self, status: _Status) -> None:
        """Replace the requests by those that count on the node of a pod that was resized in place."""
        infeasible = any(is_infeasible(c.type, c.reason) for c in status.conditions or ())
        sidecars = [one for one in self.init_containers or () if one.restart_policy == "Always"]
        every = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
        by_name = {of.name: of for of in every}
        for container in (*(self.containers or ()), *sidecars):
            if (of := by_name.get(container.name)) is not None:
                container.resources = _count(container.resources, of, infeasible=infeasible)
        if self.resources != _NULL:
            self.resources = _count(self.resources, status, infeasible=infeasible)

    def forget_pinned_node(self) -> None:
        """Drop the node affinity that pins a DaemonSet pod to its node, once the pod is bound.

        With it, each such pod would be a class of its own. Bound DaemonSet pods are never moved; a pending one needs
        its affinity, since it can run on no other node.
        """
        if self.node_name and b"podA" not in bytes(self.affinity):
            self.affinity = _NULL

    def decode(self) -> o.SchedulingSpec:
        return o.SchedulingSpec(
            node_selector=_decode(self.node_selector, o.Labels),
            affinity=_decode(self.affinity, o.Affinity),
            tolerations=_decode(self.tolerations, tuple[o.Toleration, ...]),
            topology_spread_constraints=_decode(
                self.topology_spread_constraints, tuple[o.TopologySpreadConstraint, ...]
            ),
            containers=tuple(c.decode() for c in self.containers or ()),
            init_containers=tuple(c.decode() for c in self.init_containers or ()),
            overhead=_decode(self.overhead, dict[str, str | int | float]),
            resources=_decode(self.resources, o.ResourceRequirements),
            priority=self.priority,
            priority_class_name=self.priority_class_name,
            scheduler_name=self.scheduler_name,
            host_network=self.host_network,
            host_users=self.host_users,
            scheduling_gates=_decode(self.scheduling_gates, tuple[dict[str, object], ...]),
            resource_claims=_decode(self.resource_claims, tuple[o.PodResourceClaim, ...]),
            scheduling_group=self.scheduling_group,
            workload_ref=self.workload_ref,
            volumes=tuple(v.decode() for v in self.volumes or () if v.key() is not None),
            termination_grace_period_seconds=self.termination_grace_period_seconds,
            restart_policy=self.restart_policy,
            os=self.os,
            eviction_responders=self.eviction_responders,
        )


class _Ended(Struct, rename="camel", gc=False):
    exit_code: Int32 = 0
    reason: str = ""


class _Waits(Struct, gc=False):
    reason: str = ""


class _StateOfContainer(Struct, gc=False):
    waiting: _Waits | None = None
    terminated: _Ended | None = None


_NO_STATE = _StateOfContainer()


class _ContainerStatus(Struct, rename="camel", gc=False):
    name: str = ""
    ready: bool = False
    restart_count: Int32 = 0
    state: _StateOfContainer | None = None
    resources: Raw = _NULL
    allocated_resources: Raw = _NULL

    def decode(self, kind: ContainerKind) -> ContainerState:
        state = self.state or _NO_STATE
        ended = state.terminated
        return ContainerState(
            kind,
            self.restart_count,
            state.waiting.reason if state.waiting is not None else "",
            ended.reason if ended is not None else "",
            ended.exit_code if ended is not None else None,
        )


_Statuses = tuple[_ContainerStatus, ...] | None


class _Status(Struct, rename="camel", gc=False):
    phase: str = ""
    reason: str = ""
    nominated_node_name: str = ""
    conditions: tuple[o.Condition, ...] | None = None
    container_statuses: _Statuses = None
    init_container_statuses: _Statuses = None
    ephemeral_container_statuses: _Statuses = None
    resources: Raw = _NULL
    allocated_resources: Raw = _NULL

    def decode(self, gone_by: float) -> PodState:
        by_kind = (
            (ContainerKind.REGULAR, self.container_statuses),
            (ContainerKind.INIT, self.init_container_statuses),
            (ContainerKind.EPHEMERAL, self.ephemeral_container_statuses),
        )
        return state_of(
            self.phase,
            self.reason,
            tuple(
                [
                    status.decode(kind)
                    for kind, statuses in by_kind
                    for status in statuses or ()
                    if status.restart_count or not status.ready
                ]
            ),
            tuple(
                [
                    PodCondition(c.type, c.status, c.reason, unix_seconds(c.last_transition_time))
                    for c in self.conditions or ()
                    if says_something(c.type, c.status, c.reason)
                ]
            ),
            self.nominated_node_name,
            gone_by,
        )


def _count(asked: Raw, of: _ContainerStatus | _Status, *, infeasible: bool) -> Raw:
    if of.resources in (_NULL, asked):
        return asked
    counted = count_resized(
        _decode(asked, o.ResourceRequirements),
        _decode(of.resources, o.ResourceRequirements),
        _decode(of.allocated_resources, dict[str, str | int | float]),
        infeasible=infeasible,
    )
    return asked if counted is None else Raw(msgspec.json.encode(counted))


class Pod(Struct, gc=False):
    """A pod in JSON, decoded only as far as its record needs."""

    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)

    def record(self) -> PodRecord:
        """Return the pod's scalars and the key of its class."""
        meta, spec, status = self.metadata, self.spec, self.status
        controller = None
        for reference in meta.owner_references or ():
            if reference.controller:
                controller = reference
        ready = ready_since = ""
        for condition in status.conditions or ():
            if condition.type == "Ready":
                ready, ready_since = condition.status, condition.last_transition_time or ""
        uid = controller.uid if controller else ""
        if controller and controller.kind == "DaemonSet":
            spec.forget_pinned_node()
        labels = self._labels()
        deleting = meta.deletion_timestamp is not None
        as_created = is_as_created(meta.generation or 0, deleting=deleting)
        if not as_created:
            spec.count_resized(status)
        return PodRecord(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            node=spec.node_name,
            created=unix_seconds(meta.creation_timestamp),
            ready_since=unix_seconds(ready_since),
            deleting=deleting,
            phase=status.phase,
            ready=ready == "True",
            controller_kind=controller.kind if controller else "",
            controller_group=controller.group if controller else "",
            controller_name=controller.name if controller else "",
            controller_uid=uid,
            owned=bool(meta.owner_references),
            annotations=meta.annotations or NO_ANNOTATIONS,
            key=(meta.namespace, uid, labels, spec.key(), as_created),
            spec=partial(_decode_spec, labels, spec),
            state=status.decode(unix_seconds(meta.deletion_timestamp)),
            as_created=as_created,
        )

    def _labels(self) -> bytes:
        """Return the labels as JSON, without those that binding copied from the node.

        Since 1.35 (PodTopologyLabelsAdmission) a pod carries its node's zone and region. They say where
        it is, not what it is: with them one workload would be a class per zone.
        """
        labels = bytes(self.metadata.labels)
        if _PLACEMENT_PREFIX not in labels:
            return labels
        return _DANGLING.sub(b"}", _PLACEMENT.sub(b"", labels))


def _decode_spec(labels: bytes, spec: _Spec) -> tuple[o.Labels, o.SchedulingSpec]:
    return _decode(labels, o.Labels) or {}, spec.decode()


# Made at import, in one thread: see ``rebalancer.wire.lists``.
_DECODERS: dict[Any, JsonDecoder[Any]] = {
    kind: JsonDecoder(kind)
    for kind in (
        o.Labels,
        o.Affinity,
        o.ResourceRequirements,
        tuple[o.ContainerPort, ...],
        tuple[o.RestartRule, ...],
        tuple[o.Toleration, ...],
        tuple[o.TopologySpreadConstraint, ...],
        tuple[dict[str, object], ...],
        tuple[o.PodResourceClaim, ...],
        dict[str, str | int | float],
    )
}


def _decode(raw: Raw | bytes, kind: type[T]) -> T | None:
    if bytes(raw) == b"null":
        return None
    decoded: T = _DECODERS[kind].decode(raw)
    return decoded


class PodPage(Struct):
    """One page of a pod list."""

    items: tuple[Pod, ...] | None
    metadata: o.ListMeta = o.ListMeta()


_page_decoder = JsonDecoder(PodPage)


def decode_page(body: bytes) -> tuple[Iterator[PodRecord], o.ListMeta]:
    """Return the records of one JSON page, and its list metadata.

    Raises:
        msgspec.DecodeError: the body is not a pod list.
    """
    page = _page_decoder.decode(body)
    return (pod.record() for pod in page.items or ()), page.metadata
