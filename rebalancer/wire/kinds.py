"""The single table of kinds: the name of each kind, how it is decoded, when a run reads it, and the right to do so.

A kind is declared once, here. What is read, followed, stored in files, and needed as a right follows from the table; only what
its objects become is elsewhere (``rebalancer.snapshot.build``).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from rebalancer.wire import devices, metrics
from rebalancer.wire import objects as o


class Read(enum.Enum):
    """When runs read a kind of objects; snapshot files contain all kinds but those that are never read."""

    ALWAYS = "always"
    """Beside the pods, in any order; and followed."""
    AFTER_PODS = "after-pods"
    """As soon as the pods are known, since most of these objects own none any more; and followed."""
    ASKED_FOR = "asked-for"
    """As ``ALWAYS``, but only if the policy needs it."""
    USAGE = "usage"
    """Beside the others if usage is needed; not followed."""
    SELDOM = "seldom"
    """Read in a request of its own, if pods, nodes or the policy need it; not followed."""
    FILES = "files"
    """From files only: a cluster has other objects with the same data."""
    NEVER = "never"
    """Not by runs as a list: commands read or write single objects."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One API resource, in the version that is read."""

    kind: str
    group: str
    """API group, empty for the core one."""
    version: str
    plural: str
    namespaced: bool = True
    decoded: type[Any] | None = None
    """The struct of its objects; pods have a decoder of their own (``rebalancer.wire.pods``)."""
    read: Read = Read.NEVER
    empty_counts: bool = False
    """Whether an empty list in a file means something else than a missing one."""
    in_protobuf: bool = False
    """Whether it is requested in protobuf: there may be many of its objects."""
    chart_value: str = ""
    """The value of the chart that grants its rights; empty: the chart always grants them, or by the verb."""

    @property
    def api_version(self) -> str:
        """``v1``, ``apps/v1`` and so on."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of a collection (of all namespaces if none is given) or of an object."""
        parts = ["/apis" if self.group else "/api", self.api_version]
        if namespace and self.namespaced:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        parts += [quote(part, safe="") for part in (name, subresource) if part]
        return "/".join(parts)


_How = dict[str, Any]
_KINDS: list[Resource] = []
"""All that are declared, in the order in which reports name what is missing."""


def _declare(kind: str, api_version: str, plural: str, **how: Any) -> Resource:
    group, _, version = api_version.rpartition("/")
    _KINDS.append(Resource(kind, group, version, plural, **how))
    return _KINDS[-1]


def _list(kind: str, api_version: str, plural: str, decoded: type[Any], **how: Any) -> Resource:
    return _declare(kind, api_version, plural, decoded=decoded, **{"read": Read.ALWAYS, **how})


def _list_workload(kind: str, api_version: str, plural: str, **how: Any) -> Resource:
    return _list(kind, api_version, plural, o.Workload, **how)


def _list_seldom(
    kind: str, api_version: str, plural: str, decoded: type[Any], **how: Any
) -> Resource:
    how = {"read": Read.SELDOM, "empty_counts": True, **how}
    return _list(kind, api_version, plural, decoded, **how)


PODS = _declare("Pod", "v1", "pods", read=Read.ALWAYS, in_protobuf=True)
NODES = _list("Node", "v1", "nodes", o.Node, namespaced=False, in_protobuf=True)
NAMESPACES = _list("Namespace", "v1", "namespaces", o.Namespace, namespaced=False)
SERVICES = _list("Service", "v1", "services", o.Service)
QUOTAS = _list("ResourceQuota", "v1", "resourcequotas", o.ResourceQuota)
VOLUME_CLAIMS = _list(
    "PersistentVolumeClaim", "v1", "persistentvolumeclaims", o.PersistentVolumeClaim
)
VOLUMES = _list("PersistentVolume", "v1", "persistentvolumes", o.PersistentVolume, namespaced=False)
_list_workload("ReplicationController", "v1", "replicationcontrollers")
REPLICA_SETS = _list_workload(
    "ReplicaSet", "apps/v1", "replicasets", read=Read.AFTER_PODS, in_protobuf=True
)
DEPLOYMENTS = _list_workload("Deployment", "apps/v1", "deployments", in_protobuf=True)
STATEFUL_SETS = _list_workload("StatefulSet", "apps/v1", "statefulsets")
JOBS = _list_workload("Job", "batch/v1", "jobs", read=Read.AFTER_PODS)
BUDGETS = _list("PodDisruptionBudget", "policy/v1", "poddisruptionbudgets", o.PodDisruptionBudget)
AUTOSCALERS = _list(
    "HorizontalPodAutoscaler",
    "autoscaling/v2",
    "horizontalpodautoscalers",
    o.HorizontalPodAutoscaler,
    read=Read.ASKED_FOR,
    empty_counts=True,
    chart_value="rbac.autoscalers: true",
)
EVENTS = _list_seldom("Event", "events.k8s.io/v1", "events", o.PodEvent)
_PODGROUPS: _How = {"decoded": o.PodGroupObject, "chart_value": "rbac.podGroups: true"}
POD_GROUPS = _list_seldom("PodGroup", "scheduling.k8s.io/v1beta1", "podgroups", **_PODGROUPS)
"""PodGroups of Kubernetes: from 1.37 on; 1.36 serves ``v1alpha2``, both behind the gate GenericWorkload."""
COSCHEDULING_GROUPS = _list_seldom(
    "PodGroup", "scheduling.x-k8s.io/v1alpha1", "podgroups", **_PODGROUPS
)
OLDER_COSCHEDULING_GROUPS = _list_seldom(
    "PodGroup", "scheduling.sigs.k8s.io/v1alpha1", "podgroups", **_PODGROUPS
)
"""PodGroups of coscheduling before, and of Koordinator."""
VOLCANO_GROUPS = _list_seldom(
    "PodGroup", "scheduling.volcano.sh/v1beta1", "podgroups", **_PODGROUPS
)
KAI_GROUPS = _list_seldom("PodGroup", "scheduling.run.ai/v2alpha2", "podgroups", **_PODGROUPS)
_BUFFERS: _How = {"chart_value": "rbac.capacityBuffers: true"}
CAPACITY_BUFFERS = _list_seldom(
    "CapacityBuffer",
    "autoscaling.x-k8s.io/v1beta1",
    "capacitybuffers",
    o.CapacityBuffer,
    **_BUFFERS,
)
"""Cluster Autoscaler's; it and Karpenter also serve ``v1alpha1``."""
POD_TEMPLATES = _list_seldom(
    "PodTemplate", "v1", "podtemplates", o.PodTemplateObject, empty_counts=False, **_BUFFERS
)
_KARPENTER: _How = {"namespaced": False, "chart_value": "rbac.karpenter: true"}
NODE_CLAIMS = _list_seldom(
    "NodeClaim", "karpenter.sh/v1", "nodeclaims", o.NodeClaimObject, **_KARPENTER
)
NODE_POOLS = _list_seldom(
    "NodePool", "karpenter.sh/v1", "nodepools", o.NodePool, empty_counts=False, **_KARPENTER
)
STORAGE_CLASSES = _list(
    "StorageClass", "storage.k8s.io/v1", "storageclasses", o.StorageClass, namespaced=False
)
CSI_NODES = _list("CSINode", "storage.k8s.io/v1", "csinodes", o.CSINode, namespaced=False)
PRIORITY_CLASSES = _list(
    "PriorityClass",
    "scheduling.k8s.io/v1",
    "priorityclasses",
    o.PriorityClass,
    namespaced=False,
    read=Read.FILES,
)
"""Read from files only: a cluster's pods have the value of their class."""
_DEVICES: _How = {"chart_value": "rbac.devices: true"}
_list_seldom(
    "ResourceClaim", "resource.k8s.io/v1", "resourceclaims", devices.ResourceClaim, **_DEVICES
)
_list_seldom(
    "ResourceClaimTemplate",
    "resource.k8s.io/v1",
    "resourceclaimtemplates",
    devices.ResourceClaimTemplate,
    **_DEVICES,
)
_DEVICES |= {"namespaced": False}
_list_seldom(
    "ResourceSlice", "resource.k8s.io/v1", "resourceslices", devices.ResourceSlice, **_DEVICES
)
DEVICE_CLASSES = _list_seldom(
    "DeviceClass", "resource.k8s.io/v1", "deviceclasses", devices.DeviceClass, **_DEVICES
)
DEVICE_TAINT_RULES = _list_seldom(
    "DeviceTaintRule", "resource.k8s.io/v1", "devicetaintrules", devices.DeviceTaintRule, **_DEVICES
)
"""DeviceTaintRules: from 1.37 on; 1.36 serves ``v1beta2`` if it is enabled."""
_USAGE: _How = {"read": Read.USAGE, "chart_value": "rbac.usage: true"}
NODE_METRICS = _list(
    "NodeMetrics",
    "metrics.k8s.io/v1beta1",
    "nodes",
    metrics.NodeMetrics,
    namespaced=False,
    **_USAGE,
)
POD_METRICS = _list("PodMetrics", "metrics.k8s.io/v1beta1", "pods", metrics.PodMetrics, **_USAGE)
CRON_JOBS = _declare("CronJob", "batch/v1", "cronjobs")
VOLUME_ATTACHMENTS = _declare(
    "VolumeAttachment",
    "storage.k8s.io/v1",
    "volumeattachments",
    namespaced=False,
    chart_value="rbac.volumeAttachments: true",
)
LEADER_WORKER_SETS = _declare(
    "LeaderWorkerSet",
    "leaderworkerset.x-k8s.io/v1",
    "leaderworkersets",
    chart_value="rbac.podGroups: true",
)
EVICTION_REQUESTS = _declare(
    "EvictionRequest",
    "lifecycle.k8s.io/v1alpha1",
    "evictionrequests",
    chart_value="rbac.evictionRequests: true",
)
"""From 1.37 on, behind the gate EvictionRequestAPI; controllers that act on them come with 1.38."""
LEASES = _declare("Lease", "coordination.k8s.io/v1", "leases")
CONFIG_MAPS = _declare("ConfigMap", "v1", "configmaps")

ALL = tuple(_KINDS)
"""Every kind that is declared."""


def _read(*when: Read) -> tuple[Resource, ...]:
    return tuple(one for one in ALL if one.read in when)


INDEPENDENT = tuple(one for one in _read(Read.ALWAYS) if one is not PODS)
"""Read beside the pods, in any order."""
AFTER_PODS = _read(Read.AFTER_PODS)
LISTED = (PODS, *INDEPENDENT, *AFTER_PODS)
"""The kinds that are read for every snapshot."""
ASKED_FOR = _read(Read.ASKED_FOR)
METRICS = _read(Read.USAGE)
ESSENTIAL = (PODS, NODES)
"""The kinds without which there is no snapshot; if another kind is not served, it has no objects."""
ALL_POD_GROUPS = tuple(one for one in ALL if one.kind == POD_GROUPS.kind)
"""The kinds of this name; each object names its own, and snapshot files contain them in one list."""
IN_SNAPSHOTS = tuple(
    one
    for one in ALL
    if one.read is not Read.NEVER and (one is POD_GROUPS or one not in ALL_POD_GROUPS)
)
"""All kinds that a snapshot may contain."""
KUBECTL_GET = f"kubectl get {','.join(one.plural for one in (*LISTED, AUTOSCALERS, PRIORITY_CLASSES))} -A -o json"
"""Prints all that a plan needs, as far as every cluster serves it."""
KARPENTER = (NODE_CLAIMS, NODE_POOLS)
"""Read only where nodes are Karpenter's."""
OF_DEVICES = tuple(one for one in ALL if one.group == DEVICE_CLASSES.group)
"""Dynamic resource allocation; read only if pods have claims, or request a resource that a DeviceClass may provide."""
WORKLOADS = tuple(one.kind for one in ALL if one.decoded is o.Workload)
"""Kinds with a template of pods."""
OWNING_KINDS = tuple(one.kind for one in AFTER_PODS)
"""The kinds of ``AFTER_PODS``."""
