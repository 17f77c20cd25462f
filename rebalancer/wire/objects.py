"""The fields of Kubernetes objects on which decisions depend, as msgspec structs.

Only the fields in use are declared: the decoder skips unknown fields at almost no cost. Field names are the API's,
in camelCase on the wire. Everything is optional, since a file may contain less than a server.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Struct

Labels = dict[str, str]
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Numbers as the API has them: an API server refuses larger ones, and so are they refused in a file."""
DEFAULT_SCHEDULER = "default-scheduler"
"""The value that the API server writes into an empty ``spec.schedulerName``."""


class _Wire(Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    """Base class of all wire structs.

    Decoded structs form trees without cycles, so the garbage collector need not track them.
    """


class LabelSelectorRequirement(_Wire, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class LabelSelector(_Wire, frozen=True):
    """metav1.LabelSelector. An empty selector matches everything; an absent one (None) nothing."""

    match_labels: Labels | None = None
    match_expressions: tuple[LabelSelectorRequirement, ...] | None = None


class NodeSelectorTerm(_Wire, frozen=True):
    match_expressions: tuple[LabelSelectorRequirement, ...] | None = None
    match_fields: tuple[LabelSelectorRequirement, ...] | None = None


class NodeSelector(_Wire, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(_Wire, frozen=True):
    weight: Int32 = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(_Wire, frozen=True):
    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[PreferredSchedulingTerm, ...] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(_Wire, frozen=True):
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None


class WeightedPodAffinityTerm(_Wire, frozen=True):
    weight: Int32 = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(_Wire, frozen=True):
    """PodAffinity or PodAntiAffinity, which have the same fields."""

    required: tuple[PodAffinityTerm, ...] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(_Wire, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(_Wire, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class TopologySpreadConstraint(_Wire, frozen=True):
    max_skew: Int32 = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] | None = None


class ResourceRequirements(_Wire, frozen=True):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class ContainerPort(_Wire, frozen=True):
    host_port: Int32 = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class RestartRule(_Wire, frozen=True):
    action: str = ""


class Container(_Wire, frozen=True):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements | None = None
    ports: tuple[ContainerPort, ...] | None = None
    restart_policy: str | None = None
    restart_policy_rules: tuple[RestartRule, ...] | None = None


class ClaimSource(_Wire, frozen=True):
    claim_name: str = ""
    read_only: bool = False


class ImageVolume(_Wire, frozen=True):
    reference: str = ""


class GCEDisk(_Wire, frozen=True):
    pd_name: str = ""
    read_only: bool = False


class AWSDisk(_Wire, frozen=True):
    volume_id: str = msgspec.field(default="", name="volumeID")


class ISCSIDisk(_Wire, frozen=True):
    iqn: str = ""
    read_only: bool = False


class RBDDisk(_Wire, frozen=True):
    monitors: tuple[str, ...] = ()
    image: str = ""
    pool: str = "rbd"
    read_only: bool = False


class AzureDisk(_Wire, frozen=True):
    disk_uri: str = msgspec.field(default="", name="diskURI")


class CinderDisk(_Wire, frozen=True):
    volume_id: str = msgspec.field(default="", name="volumeID")


class VsphereDisk(_Wire, frozen=True):
    volume_path: str = ""


class PortworxDisk(_Wire, frozen=True):
    volume_id: str = msgspec.field(default="", name="volumeID")


Disk = GCEDisk | AWSDisk | ISCSIDisk | RBDDisk | AzureDisk | CinderDisk | VsphereDisk | PortworxDisk
DISKS: dict[str, type[Disk]] = {
    "gcePersistentDisk": GCEDisk,
    "awsElasticBlockStore": AWSDisk,
    "iscsi": ISCSIDisk,
    "rbd": RBDDisk,
    "azureDisk": AzureDisk,
    "cinder": CinderDisk,
    "vsphereVolume": VsphereDisk,
    "portworxVolume": PortworxDisk,
}
"""Kind of volume that a pod may name without a claim -> its identifying fields."""


class EmptyDir(_Wire, frozen=True):
    """A temporary directory of a pod; its content is lost with the pod."""

    medium: str | None = None
    """``Memory``, ``HugePages`` and ``HugePages-SIZE`` are not on disk."""
    size_limit: str | int | float | None = None
    """A quantity; None: as much as the node has."""


class Volume(_Wire, frozen=True):
    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: dict[str, Any] | None = None
    empty_dir: EmptyDir | None = None
    host_path: dict[str, Any] | None = None
    image: ImageVolume | None = None
    gce_persistent_disk: GCEDisk | None = None
    aws_elastic_block_store: AWSDisk | None = None
    iscsi: ISCSIDisk | None = None
    rbd: RBDDisk | None = None
    azure_disk: AzureDisk | None = None
    cinder: CinderDisk | None = None
    vsphere_volume: VsphereDisk | None = None
    portworx_volume: PortworxDisk | None = None

    @property
    def disk(self) -> Disk | None:
        """The disk that the volume names directly, without a claim; None if it names none."""
        return (
            self.gce_persistent_disk
            or self.aws_elastic_block_store
            or self.iscsi
            or self.rbd
            or self.azure_disk
            or self.cinder
            or self.vsphere_volume
            or self.portworx_volume
        )


class SchedulingGroup(_Wire, frozen=True):
    """The PodGroup of a pod (Kubernetes 1.36 and later)."""

    pod_group_name: str = ""


class GangPolicy(_Wire, frozen=True):
    min_count: Int32 = 0


class GroupSchedulingPolicy(_Wire, frozen=True):
    gang: GangPolicy | None = None


class PodGroupSpec(_Wire, frozen=True):
    """The spec of a PodGroup: of Kubernetes; the last fields are those of coscheduling, Volcano and KAI, which lack the others."""

    scheduling_policy: GroupSchedulingPolicy = GroupSchedulingPolicy()
    scheduling_constraints: dict[str, Any] | None = None
    resource_claims: tuple[Any, ...] | None = None
    parent_composite_pod_group_name: str | None = None
    disruption_mode: str | dict[str, Any] | None = None
    """``Pod`` or ``PodGroup`` in 1.36; from 1.37 on ``single`` or ``all`` with an empty object."""
    min_member: Int32 | None = None
    min_task_member: dict[str, Int32] | None = None
    """Task of a Volcano Job -> how many of its pods have to run."""
    sub_group_policy: tuple[Any, ...] | None = None
    """Volcano's parts of a PodGroup, each with a number of its own; ``sub_groups``: KAI's."""
    sub_groups: tuple[Any, ...] | None = None


class PodGroupObject(_Wire, frozen=True):
    """A PodGroup, of Kubernetes or of another project that has a kind of this name."""

    metadata: ObjectMeta
    spec: PodGroupSpec
    api_version: str = ""
    """Empty in lists of built-in kinds: of Kubernetes."""


class WorkloadReference(_Wire, frozen=True):
    """The Workload and pod group of a pod (only in Kubernetes 1.35)."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str = ""


class PodOS(_Wire, frozen=True):
    name: str = ""


class EvictionResponder(_Wire, frozen=True):
    """A component that ends a pod on an EvictionRequest (KEP-4563); the highest priority comes first."""

    name: str = ""
    priority: Int32 | None = None


class PodResourceClaim(_Wire, frozen=True, omit_defaults=True):
    """A ResourceClaim that a pod names, or that is made for it from a template."""

    # What is not there is not written: the fingerprints of owners are as they were when these were read as they are.

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class SchedulingSpec(_Wire, frozen=True):
    """The fields of a PodSpec that affect scheduling, protections and eviction cost."""

    node_selector: Labels | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] | None = None
    overhead: dict[str, str | int | float] | None = None
    resources: ResourceRequirements | None = None
    priority: Int32 | None = None
    priority_class_name: str | None = None
    scheduler_name: str = DEFAULT_SCHEDULER
    host_network: bool = False
    host_users: bool | None = None
    scheduling_gates: tuple[dict[str, Any], ...] | None = None
    resource_claims: tuple[PodResourceClaim, ...] | None = None
    scheduling_group: SchedulingGroup | None = None
    workload_ref: WorkloadReference | None = None
    volumes: tuple[Volume, ...] | None = None
    termination_grace_period_seconds: Int64 | None = None
    restart_policy: str = "Always"
    os: PodOS | None = None
    eviction_responders: tuple[EvictionResponder, ...] | None = None

    @property
    def required_nodes(self) -> NodeSelector | None:
        """Its required node affinity."""
        nodes = self.affinity.node_affinity if self.affinity else None
        return nodes.required if nodes else None

    @property
    def preferred_nodes(self) -> tuple[PreferredSchedulingTerm, ...]:
        """Its preferred node affinity."""
        nodes = self.affinity.node_affinity if self.affinity else None
        return (nodes.preferred if nodes else None) or ()

    def pod_terms(self) -> Iterator[PodAffinityTerm]:
        """Yield the terms of its pod affinity, then those of its anti-affinity, preferred ones too."""
        affinity = self.affinity
        for part in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity else ():
            if part is not None:
                yield from part.required or ()
                yield from (weighted.pod_affinity_term for weighted in part.preferred or ())

    def topology_keys(self) -> Iterator[str]:
        """Yield the topology keys that its spread constraints and pod terms name."""
        yield from (one.topology_key for one in self.topology_spread_constraints or ())
        yield from (term.topology_key for term in self.pod_terms())


class OwnerReference(_Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None

    @property
    def group(self) -> str:
        """The API group: ``apps`` of ``apps/v1``, empty for the core group."""
        return self.api_version.rpartition("/")[0]


class ObjectMeta(_Wire, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Labels | None = None
    annotations: Labels | None = None
    owner_references: tuple[OwnerReference, ...] | None = None


class Condition(_Wire, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    last_heartbeat_time: str | None = None
    last_transition_time: str | None = None


class Taint(_Wire, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(_Wire, frozen=True):
    provider_id: str = msgspec.field(default="", name="providerID")
    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None


class ContainerImage(_Wire, frozen=True):
    names: tuple[str, ...] | None = None
    size_bytes: Int64 = 0


class NodeInfo(_Wire, frozen=True):
    kubelet_version: str = ""


class AttachedVolume(_Wire, frozen=True):
    """A volume attached to a node; for a CSI driver ``kubernetes.io/csi/<driver>^<handle>``."""

    name: str = ""


class NodeStatus(_Wire, frozen=True):
    allocatable: dict[str, str | int | float] | None = None
    capacity: dict[str, str | int | float] | None = None
    conditions: tuple[Condition, ...] | None = None
    images: tuple[ContainerImage, ...] | None = None
    declared_features: tuple[str, ...] | None = None
    volumes_attached: tuple[AttachedVolume, ...] | None = None
    node_info: NodeInfo | None = None


class Node(_Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Namespace(_Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class PodTemplate(_Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: SchedulingSpec = SchedulingSpec()


class PodTemplateObject(_Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    template: PodTemplate = PodTemplate()


class BufferReference(_Wire, frozen=True):
    """A reference of a CapacityBuffer to an object in its own namespace."""

    name: str = ""
    kind: str = ""
    api_group: str = ""


class CapacityBufferSpec(_Wire, frozen=True):
    provisioning_strategy: str | None = None
    pod_template_ref: BufferReference | None = None
    scalable_ref: BufferReference | None = None
    replicas: Int32 | None = None
    percentage: Int32 | None = None
    limits: dict[str, str | int | float] | None = None


class CapacityBuffer(_Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: CapacityBufferSpec = CapacityBufferSpec()


class ClaimRequirement(_Wire, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class NodeClaimSpec(_Wire, frozen=True):
    taints: tuple[Taint, ...] | None = None
    requirements: tuple[ClaimRequirement, ...] | None = None
    expire_after: str = ""
    termination_grace_period: str | None = None


class NodeClaimStatus(_Wire, frozen=True):
    node_name: str = ""
    provider_id: str = msgspec.field(default="", name="providerID")
    allocatable: dict[str, str | int | float] | None = None
    conditions: tuple[Condition, ...] | None = None
    last_pod_event_time: str | None = None


class NodeClaimObject(_Wire, frozen=True):
    """A machine of Karpenter's, from its order on."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeClaimSpec = NodeClaimSpec()
    status: NodeClaimStatus = NodeClaimStatus()


class NodePoolBudget(_Wire, frozen=True):
    nodes: str = ""
    reasons: tuple[str, ...] | None = None
    schedule: str | None = None
    duration: str = ""


class NodePoolDisruption(_Wire, frozen=True):
    consolidate_after: str = ""
    consolidation_policy: str = ""
    budgets: tuple[NodePoolBudget, ...] | None = None


class NodePoolSpec(_Wire, frozen=True):
    replicas: Int32 | None = None
    disruption: NodePoolDisruption = NodePoolDisruption()


class NodePoolStatus(_Wire, frozen=True):
    conditions: tuple[Condition, ...] | None = None


class NodePool(_Wire, frozen=True):
    """A NodePool of Karpenter. Of its spec only ``replicas`` and ``disruption`` are read."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodePoolSpec = NodePoolSpec()
    status: NodePoolStatus = NodePoolStatus()


class RollingUpdate(_Wire, frozen=True):
    partition: Int32 | None = None
    max_surge: Int32 | str | None = None
    max_unavailable: Int32 | str | None = None


class UpdateStrategy(_Wire, frozen=True):
    type: str = ""
    rolling_update: RollingUpdate | None = None


class WorkloadSpec(_Wire, frozen=True):
    """The fields in use of the spec of ReplicaSet, Deployment, StatefulSet, ReplicationController and Job."""

    replicas: Int32 | None = None
    parallelism: Int32 | None = None
    completions: Int32 | None = None
    selector: Any = None
    template: PodTemplate | None = None
    paused: bool = False
    pod_replacement_policy: str | None = None
    pod_failure_policy: Any = None
    backoff_limit: Int32 | None = None
    backoff_limit_per_index: Int32 | None = None
    update_strategy: UpdateStrategy | None = None
    """The strategy of a StatefulSet."""
    strategy: UpdateStrategy | None = None
    """The strategy of a Deployment."""


class WorkloadStatus(_Wire, frozen=True):
    replicas: Int32 = 0
    ready_replicas: Int32 = 0
    updated_replicas: Int32 | None = None
    available_replicas: Int32 = 0
    failed: Int32 = 0
    succeeded: Int32 = 0
    """Number of a Job's pods that have succeeded; ``failed``: of those that have failed."""
    observed_generation: Int64 = 0
    current_revision: str = ""
    update_revision: str = ""
    conditions: tuple[Condition, ...] | None = None


class Workload(_Wire, frozen=True):
    """An object that owns pods, or that owns the owners of pods."""

    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class DisruptionBudgetSpec(_Wire, frozen=True):
    selector: LabelSelector | None = None
    min_available: Int32 | str | None = None
    max_unavailable: Int32 | str | None = None
    unhealthy_pod_eviction_policy: str | None = None


class DisruptionBudgetStatus(_Wire, frozen=True):
    disruptions_allowed: Int32 = 0
    current_healthy: Int32 = 0
    desired_healthy: Int32 = 0
    expected_pods: Int32 = 0
    observed_generation: Int64 = 0


class PodDisruptionBudget(_Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DisruptionBudgetSpec = DisruptionBudgetSpec()
    status: DisruptionBudgetStatus = DisruptionBudgetStatus()


class ScaleTarget(_Wire, frozen=True):
    kind: str = ""
    name: str = ""


class AutoscalerSpec(_Wire, frozen=True):
    scale_target_ref: ScaleTarget = ScaleTarget()


class AutoscalerStatus(_Wire, frozen=True):
    last_scale_time: str | None = None
    current_replicas: Int32 = 0
    desired_replicas: Int32 = 0
    conditions: tuple[Condition, ...] | None = None


class HorizontalPodAutoscaler(_Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: AutoscalerSpec = AutoscalerSpec()
    status: AutoscalerStatus = AutoscalerStatus()


class ObjectReference(_Wire, frozen=True):
    uid: str = ""


class PodEvent(_Wire, frozen=True):
    """Of events.k8s.io/v1; in v1, as kubectl prints it, its object is ``involvedObject``."""

    metadata: ObjectMeta = ObjectMeta()
    regarding: ObjectReference = ObjectReference()
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""


class ServiceSpec(_Wire, frozen=True):
    selector: Labels | None = None
    type: str = ""
    external_traffic_policy: str = ""


class Service(_Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class ScopeRequirement(_Wire, frozen=True):
    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class ScopeSelector(_Wire, frozen=True):
    match_expressions: tuple[ScopeRequirement, ...] | None = None


class ResourceQuotaSpec(_Wire, frozen=True):
    hard: dict[str, str | int | float] | None = None
    scopes: tuple[str, ...] | None = None
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(_Wire, frozen=True):
    hard: dict[str, str | int | float] | None = None
    used: dict[str, str | int | float] | None = None


class ResourceQuota(_Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class VolumeNodeAffinity(_Wire, frozen=True):
    required: NodeSelector | None = None


class CSISource(_Wire, frozen=True):
    driver: str = ""
    volume_handle: str = ""


class ClaimReference(_Wire, frozen=True):
    namespace: str = ""
    name: str = ""


class PersistentVolumeSpec(_Wire, frozen=True):
    node_affinity: VolumeNodeAffinity | None = None
    access_modes: tuple[str, ...] | None = None
    csi: CSISource | None = None
    gce_persistent_disk: GCEDisk | None = None
    aws_elastic_block_store: AWSDisk | None = None
    azure_disk: AzureDisk | None = None
    cinder: CinderDisk | None = None
    portworx_volume: PortworxDisk | None = None
    local: dict[str, Any] | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    capacity: dict[str, str | int | float] | None = None
    claim_ref: ClaimReference | None = None


class PersistentVolumeStatus(_Wire, frozen=True):
    phase: str = ""


class PersistentVolume(_Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class PersistentVolumeClaimSpec(_Wire, frozen=True):
    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] | None = None
    volume_mode: str | None = None
    resources: ResourceRequirements | None = None
    selector: LabelSelector | None = None


class PersistentVolumeClaim(_Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()


class StorageClass(_Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[Any, ...] | None = None


class PriorityClass(_Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    value: Int32 = 0


class CSINodeDriverAllocatable(_Wire, frozen=True):
    count: Int32 | None = None


class CSINodeDriver(_Wire, frozen=True):
    name: str = ""
    allocatable: CSINodeDriverAllocatable | None = None


class CSINodeSpec(_Wire, frozen=True):
    drivers: tuple[CSINodeDriver, ...] | None = None


class CSINode(_Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()


class ListMeta(_Wire, frozen=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
