"""Manifests as plain dictionaries, complete enough for a real API server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Manifest = dict[str, Any]
Labels = Mapping[str, str]

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"


def node(
    name: str,
    *,
    zone: str | None = None,
    zone_label: str = ZONE,
    labels: Labels | None = None,
    annotations: Labels | None = None,
    cpu: str = "8",
    memory: str = "32Gi",
    pods: int = 110,
    taints: Iterable[Mapping[str, str]] = (),
    unschedulable: bool = False,
) -> Manifest:
    """Return a node; a kubelet makes it Ready."""
    room = {"cpu": cpu, "memory": memory, "pods": str(pods), "ephemeral-storage": "100Gi"}
    own = {HOSTNAME: name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    if zone is not None:
        own[zone_label] = zone
    spec: Manifest = {"taints": [dict(taint) for taint in taints]} if taints else {}
    if unschedulable:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**own, **(labels or {})},
            "annotations": dict(annotations or {}),
        },
        "spec": spec,
        "status": {"capacity": room, "allocatable": room},
    }


def template(
    labels: Labels,
    annotations: Labels | None = None,
    *,
    cpu: str = "100m",
    memory: str = "64Mi",
    image: str = "nginx",
    **spec: Any,
) -> Manifest:
    """Return a pod template with one container; further fields of the spec by their API names."""
    requests = {"cpu": cpu, "memory": memory}
    container = {"name": "main", "image": image, "resources": {"requests": requests}}
    return {
        "metadata": {"labels": dict(labels), "annotations": dict(annotations or {})},
        "spec": {"containers": [container], **spec},
    }


def deployment(name: str, replicas: int = 3, **more: Any) -> Manifest:
    """Return a Deployment; keyword arguments as for :func:`workload`."""
    return workload("Deployment", name, {"replicas": replicas}, **more)


def replicaset(name: str, replicas: int = 3, **more: Any) -> Manifest:
    """Return a ReplicaSet without a Deployment."""
    return workload("ReplicaSet", name, {"replicas": replicas}, **more)


def statefulset(name: str, replicas: int = 3, *, parallel: bool = True, **more: Any) -> Manifest:
    """Return a StatefulSet; its headless Service need not exist."""
    policy = "Parallel" if parallel else "OrderedReady"
    extra = {"replicas": replicas, "serviceName": name, "podManagementPolicy": policy}
    return workload("StatefulSet", name, extra, **more)


def daemonset(name: str, **more: Any) -> Manifest:
    """Return a DaemonSet."""
    return workload("DaemonSet", name, {}, **more)


def workload(
    kind: str,
    name: str,
    extra: Mapping[str, Any],
    *,
    namespace: str = "default",
    labels: Labels | None = None,
    pod_annotations: Labels | None = None,
    **spec: Any,
) -> Manifest:
    """Return a workload of apps/v1 whose pods carry the labels (by default ``app: <name>``).

    ``extra`` are fields of its own spec; further keyword arguments are those of :func:`template`.
    """
    own = dict(labels or {"app": name})
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "labels": own},
        "spec": {
            **extra,
            "selector": {"matchLabels": own},
            "template": template(own, pod_annotations, **spec),
        },
    }


def job(
    name: str,
    *,
    namespace: str = "default",
    pod_annotations: Labels | None = None,
    job_spec: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Manifest:
    """Return a Job; ``job_spec``: fields of its own spec (parallelism, backoffLimit, ...)."""
    pod_template = template({"job": name}, pod_annotations, **{"restartPolicy": "Never", **spec})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**(job_spec or {}), "template": pod_template},
    }


def pod(
    name: str,
    *,
    namespace: str = "default",
    labels: Labels | None = None,
    annotations: Labels | None = None,
    **spec: Any,
) -> Manifest:
    """Return a pod without an owner."""
    made = template(labels or {"app": name}, annotations, **spec)
    made["metadata"] |= {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", **made}


def pdb(name: str, labels: Labels, *, namespace: str = "default", **spec: Any) -> Manifest:
    """Return a PodDisruptionBudget; give ``minAvailable=`` or ``maxUnavailable=``."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": dict(labels)}, **spec},
    }


def namespace(name: str, labels: Labels | None = None) -> Manifest:
    """Return a Namespace."""
    metadata = {"name": name, "labels": dict(labels or {})}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def service(name: str, labels: Labels, *, namespace: str = "default") -> Manifest:
    """Return a Service that selects the labels."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": dict(labels), "ports": [{"port": 80}]},
    }


def resource_quota(name: str, *, namespace: str = "default", **hard: str) -> Manifest:
    """Return a ResourceQuota, e.g. ``pods="3"``."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"hard": hard},
    }


def prefer_apart(labels: Labels, topology_key: str = ZONE) -> Manifest:
    """Return preferred anti-affinity to pods with the labels."""
    term = {"weight": 100, "podAffinityTerm": _term(labels, topology_key)}
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}


def require_apart(labels: Labels, topology_key: str = HOSTNAME) -> Manifest:
    """Return required anti-affinity to pods with the labels."""
    term = _term(labels, topology_key)
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def spread(
    labels: Labels,
    topology_key: str = ZONE,
    *,
    hard: bool = True,
    max_skew: int = 1,
    **more: Any,
) -> Manifest:
    """Return a topology spread constraint; further fields by their API names."""
    return {
        "maxSkew": max_skew,
        "topologyKey": topology_key,
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        "labelSelector": {"matchLabels": dict(labels)},
        **more,
    }


def _term(labels: Labels, topology_key: str) -> Manifest:
    return {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": topology_key}
