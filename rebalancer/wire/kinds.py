"""The single table of kinds: the API path of a resource, and its use in snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Resource:
    """One API resource, in the version that is read."""

    kind: str
    group: str
    """API group, empty for the core one."""
    version: str
    plural: str
    namespaced: bool = True

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


PODS = Resource("Pod", "", "v1", "pods")
NODES = Resource("Node", "", "v1", "nodes", namespaced=False)
NAMESPACES = Resource("Namespace", "", "v1", "namespaces", namespaced=False)
SERVICES = Resource("Service", "", "v1", "services")
QUOTAS = Resource("ResourceQuota", "", "v1", "resourcequotas")
CLAIMS = Resource("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims")
VOLUMES = Resource("PersistentVolume", "", "v1", "persistentvolumes", namespaced=False)
REPLICATION_CONTROLLERS = Resource("ReplicationController", "", "v1", "replicationcontrollers")
REPLICA_SETS = Resource("ReplicaSet", "apps", "v1", "replicasets")
DEPLOYMENTS = Resource("Deployment", "apps", "v1", "deployments")
STATEFUL_SETS = Resource("StatefulSet", "apps", "v1", "statefulsets")
JOBS = Resource("Job", "batch", "v1", "jobs")
CRON_JOBS = Resource("CronJob", "batch", "v1", "cronjobs")
BUDGETS = Resource("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets")
AUTOSCALERS = Resource(
    "HorizontalPodAutoscaler",
    "autoscaling",
    "v2",
    "horizontalpodautoscalers",
)
STORAGE_CLASSES = Resource(
    "StorageClass", "storage.k8s.io", "v1", "storageclasses", namespaced=False
)
PRIORITY_CLASSES = Resource(
    "PriorityClass", "scheduling.k8s.io", "v1", "priorityclasses", namespaced=False
)
"""Read from files only: a cluster's pods say the value of their class."""
CSI_NODES = Resource("CSINode", "storage.k8s.io", "v1", "csinodes", namespaced=False)
VOLUME_ATTACHMENTS = Resource(
    "VolumeAttachment", "storage.k8s.io", "v1", "volumeattachments", namespaced=False
)
NODE_METRICS = Resource("NodeMetrics", "metrics.k8s.io", "v1beta1", "nodes", namespaced=False)
POD_METRICS = Resource("PodMetrics", "metrics.k8s.io", "v1beta1", "pods")
EVENTS = Resource("Event", "events.k8s.io", "v1", "events")
POD_GROUPS = Resource("PodGroup", "scheduling.k8s.io", "v1beta1", "podgroups")
"""From 1.37 on; 1.36 serves ``v1alpha2``, both behind the gate GenericWorkload."""
COSCHEDULING_GROUPS = Resource("PodGroup", "scheduling.x-k8s.io", "v1alpha1", "podgroups")
OLDER_COSCHEDULING_GROUPS = Resource("PodGroup", "scheduling.sigs.k8s.io", "v1alpha1", "podgroups")
"""Koordinator's, too."""
VOLCANO_GROUPS = Resource("PodGroup", "scheduling.volcano.sh", "v1beta1", "podgroups")
KAI_GROUPS = Resource("PodGroup", "scheduling.run.ai", "v2alpha2", "podgroups")
ALL_POD_GROUPS = (
    POD_GROUPS,
    COSCHEDULING_GROUPS,
    OLDER_COSCHEDULING_GROUPS,
    VOLCANO_GROUPS,
    KAI_GROUPS,
)
"""The kinds of this name; each object says of which it is, and snapshot files hold them in one list."""
LEADER_WORKER_SETS = Resource(
    "LeaderWorkerSet", "leaderworkerset.x-k8s.io", "v1", "leaderworkersets"
)
CAPACITY_BUFFERS = Resource("CapacityBuffer", "autoscaling.x-k8s.io", "v1beta1", "capacitybuffers")
"""Cluster Autoscaler's; it and Karpenter also serve ``v1alpha1``."""
NODE_CLAIMS = Resource("NodeClaim", "karpenter.sh", "v1", "nodeclaims", namespaced=False)
NODE_POOLS = Resource("NodePool", "karpenter.sh", "v1", "nodepools", namespaced=False)
KARPENTER = (NODE_CLAIMS, NODE_POOLS)
"""Read only where nodes are Karpenter's."""
POD_TEMPLATES = Resource("PodTemplate", "", "v1", "podtemplates")
EVICTION_REQUESTS = Resource("EvictionRequest", "lifecycle.k8s.io", "v1alpha1", "evictionrequests")
"""From 1.37 on, behind the gate EvictionRequestAPI; what acts on them comes with 1.38."""
RESOURCE_CLAIMS = Resource("ResourceClaim", "resource.k8s.io", "v1", "resourceclaims")
CLAIM_TEMPLATES = Resource(
    "ResourceClaimTemplate", "resource.k8s.io", "v1", "resourceclaimtemplates"
)
RESOURCE_SLICES = Resource(
    "ResourceSlice", "resource.k8s.io", "v1", "resourceslices", namespaced=False
)
DEVICE_CLASSES = Resource("DeviceClass", "resource.k8s.io", "v1", "deviceclasses", namespaced=False)
DEVICE_TAINT_RULES = Resource(
    "DeviceTaintRule", "resource.k8s.io", "v1", "devicetaintrules", namespaced=False
)
"""From 1.37 on; 1.36 serves ``v1beta2`` where it is switched on."""
OF_DEVICES = (
    RESOURCE_CLAIMS,
    CLAIM_TEMPLATES,
    RESOURCE_SLICES,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
)
"""Dynamic resource allocation; read only where pods have claims, or ask for what a DeviceClass may provide."""
LEASES = Resource("Lease", "coordination.k8s.io", "v1", "leases")
CONFIG_MAPS = Resource("ConfigMap", "", "v1", "configmaps")

INDEPENDENT = (
    NODES,
    BUDGETS,
    NAMESPACES,
    DEPLOYMENTS,
    STATEFUL_SETS,
    REPLICATION_CONTROLLERS,
    SERVICES,
    QUOTAS,
    VOLUMES,
    CLAIMS,
    STORAGE_CLASSES,
    CSI_NODES,
)
"""Read beside the pods, in any order."""

AFTER_PODS = (REPLICA_SETS, JOBS)
"""Read when the pods are known: most ReplicaSets and Jobs own none any more, and are dropped at once."""

LISTED = (PODS, *INDEPENDENT, *AFTER_PODS)
"""All that every snapshot is made of."""

ASKED_FOR = (AUTOSCALERS,)
"""Read beside the pods, and followed, only where the policy asks for it."""

ESSENTIAL = (PODS, NODES)
"""Without these there is no snapshot; a server that does not serve another of them has none of it."""

METRICS = (NODE_METRICS, POD_METRICS)
"""Read beside the others where usage is asked for; never watched."""

IN_SNAPSHOTS = (
    PODS,
    NODES,
    NAMESPACES,
    SERVICES,
    QUOTAS,
    CLAIMS,
    VOLUMES,
    REPLICATION_CONTROLLERS,
    REPLICA_SETS,
    DEPLOYMENTS,
    STATEFUL_SETS,
    JOBS,
    BUDGETS,
    AUTOSCALERS,
    EVENTS,
    POD_GROUPS,
    CAPACITY_BUFFERS,
    POD_TEMPLATES,
    *KARPENTER,
    STORAGE_CLASSES,
    CSI_NODES,
    PRIORITY_CLASSES,
    *OF_DEVICES,
    NODE_METRICS,
    POD_METRICS,
)
"""All that a snapshot may hold, in the order in which reports name what is missing."""

KUBECTL_GET = f"kubectl get {','.join(one.plural for one in (*LISTED, AUTOSCALERS, PRIORITY_CLASSES))} -A -o json"
"""Prints all that a plan needs, as far as every cluster serves it."""

WORKLOADS = tuple(
    one.kind for one in (REPLICA_SETS, DEPLOYMENTS, STATEFUL_SETS, REPLICATION_CONTROLLERS, JOBS)
)
"""Kinds with a template of pods."""

OWNING_KINDS = tuple(one.kind for one in AFTER_PODS)
"""The kinds of ``AFTER_PODS``."""
