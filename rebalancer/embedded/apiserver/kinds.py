"""The resources of the embedded API server, and how paths name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

Json = dict[str, Any]
"""An object of the API, or a part of one, as plain data."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One resource type."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    counts_generations: bool = False
    """Whether ``metadata.generation`` grows with the spec (Nodes, Namespaces and many others have none)."""
    subresources: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """``v1``, ``apps/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """``pods``, ``deployments.apps``: its name in the server's messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def root(self) -> str:
        """``/api/v1``, ``/apis/apps/v1``."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"


POD = Kind("", "v1", "Pod", "pods", True, True, ("status", "eviction"))
NODE = Kind("", "v1", "Node", "nodes", False, False, ("status",))
NAMESPACE = Kind("", "v1", "Namespace", "namespaces", False, False, ("status",))
SERVICE = Kind("", "v1", "Service", "services", subresources=("status",))
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts")
QUOTA = Kind("", "v1", "ResourceQuota", "resourcequotas", subresources=("status",))
VOLUME = Kind("", "v1", "PersistentVolume", "persistentvolumes", False, subresources=("status",))
CLAIM = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", subresources=("status",))
CONTROLLER = Kind(
    "", "v1", "ReplicationController", "replicationcontrollers", True, True, ("status",)
)
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments", True, True, ("status",))
REPLICA_SET = Kind("apps", "v1", "ReplicaSet", "replicasets", True, True, ("status",))
STATEFUL_SET = Kind("apps", "v1", "StatefulSet", "statefulsets", True, True, ("status",))
DAEMON_SET = Kind("apps", "v1", "DaemonSet", "daemonsets", True, True, ("status",))
JOB = Kind("batch", "v1", "Job", "jobs", True, True, ("status",))
BUDGET = Kind(
    "policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", True, True, ("status",)
)
AUTOSCALER = Kind(
    "autoscaling",
    "v2",
    "HorizontalPodAutoscaler",
    "horizontalpodautoscalers",
    subresources=("status",),
)
STORAGE_CLASS = Kind("storage.k8s.io", "v1", "StorageClass", "storageclasses", False)
CSI_NODE = Kind("storage.k8s.io", "v1", "CSINode", "csinodes", False)
PRIORITY_CLASS = Kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", False)
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")
EVENT = Kind("events.k8s.io", "v1", "Event", "events")

KINDS = (
    POD,
    NODE,
    NAMESPACE,
    SERVICE,
    CONFIG_MAP,
    SERVICE_ACCOUNT,
    QUOTA,
    VOLUME,
    CLAIM,
    CONTROLLER,
    DEPLOYMENT,
    REPLICA_SET,
    STATEFUL_SET,
    DAEMON_SET,
    JOB,
    BUDGET,
    AUTOSCALER,
    STORAGE_CLASS,
    CSI_NODE,
    PRIORITY_CLASS,
    LEASE,
    EVENT,
)
ACCESS_REVIEW = Kind(
    "authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews"
)
"""Answered, never stored."""

BY_ROOT: Mapping[tuple[str, str], Kind] = MappingProxyType({(k.root, k.plural): k for k in KINDS})
BY_NAME: Mapping[tuple[str, str], Kind] = MappingProxyType(
    {(k.api_version, k.kind): k for k in KINDS}
)


@dataclass(frozen=True, slots=True)
class Target:
    """The parts of a path: a collection, an object, or a subresource of an object."""

    kind: Kind
    namespace: str = ""
    """Empty: the whole cluster, or a kind without namespaces."""
    name: str = ""
    subresource: str = ""


def parse_path(path: str) -> Target | None:
    """Parse a path below ``/api`` or ``/apis``; None if there is no such resource."""
    parts = path.strip("/").split("/")
    size = {"api": 2, "apis": 3}.get(parts[0], 0)
    root, names = "/" + "/".join(parts[:size]), parts[size:]
    if not size or not names or not all(names):
        return None
    namespace = ""
    if names[0] == "namespaces" and len(names) > 2 and (root, names[2]) in BY_ROOT:
        namespace, names = names[1], names[2:]
    kind = BY_ROOT.get((root, names[0]))
    if kind is None or len(names) > 3 or bool(namespace) > kind.namespaced:
        return None
    name, subresource = [*names[1:], "", ""][:2]
    if name and kind.namespaced and not namespace:
        return None
    if subresource and subresource not in kind.subresources:
        return None
    return Target(kind, namespace, name, subresource)


def condition(status: Mapping[str, Any], kind: str) -> Json | None:
    """Return the condition of a type, or None."""
    for item in status.get("conditions") or ():
        if item["type"] == kind:
            return dict(item)
    return None


def set_condition(status: Json, kind: str, value: str, now: str, **fields: Any) -> None:
    """Set a condition in place; its transition time changes only with its status, ``value``."""
    conditions = status.setdefault("conditions", [])
    for item in conditions:
        if item["type"] == kind:
            if item["status"] != value:
                item["lastTransitionTime"] = now
            item |= {"status": value, **fields}
            return
    conditions.append({"type": kind, "status": value, "lastTransitionTime": now, **fields})


def is_ready(obj: Mapping[str, Any]) -> bool:
    """Whether a pod or node has the condition Ready."""
    ready = condition(obj.get("status") or {}, "Ready")
    return ready is not None and ready["status"] == "True"
