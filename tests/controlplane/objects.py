"""Manifests for tests, as plain dictionaries: short to write, complete enough for a real server."""

from collections.abc import Iterable, Mapping
from typing import Any

Manifest = dict[str, Any]
Labels = Mapping[str, str]

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
DEPRECATED_ZONE = "failure-domain.beta.kubernetes.io/zone"
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
    """Return a node that KWOK will make Ready."""
    room = {"cpu": cpu, "memory": memory, "pods": str(pods), "ephemeral-storage": "100Gi"}
    own = {HOSTNAME: name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    if zone is not None:
        own[zone_label] = zone
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**own, **(labels or {})},
            "annotations": {"kwok.x-k8s.io/node": "fake", **(annotations or {})},
        },
        "spec": {
            **({"taints": [dict(taint) for taint in taints]} if taints else {}),
            **({"unschedulable": True} if unschedulable else {}),
        },
        "status": {"capacity": room, "allocatable": room},
    }


def pod_spec(
    *, cpu: str = "100m", memory: str = "64Mi", image: str = "nginx", **spec: Any
) -> Manifest:
    """Return a pod's spec with one container; further fields of the spec by their API names."""
    requests = {"cpu": cpu, "memory": memory}
    container = {"name": "main", "image": image, "resources": {"requests": requests}}
    return {"containers": [container], **spec}


def template(labels: Labels, annotations: Labels | None = None, **spec: Any) -> Manifest:
    """Return a pod template; keyword arguments as for `pod_spec`."""
    return {
        "metadata": {"labels": dict(labels), "annotations": dict(annotations or {})},
        "spec": pod_spec(**spec),
    }


def deployment(
    name: str,
    replicas: int = 3,
    *,
    namespace: str = "default",
    labels: Labels | None = None,
    pod_annotations: Labels | None = None,
    **spec: Any,
) -> Manifest:
    """Return a Deployment whose pods carry the labels (by default app=NAME)."""
    return _workload(
        "Deployment", name, namespace, labels, pod_annotations, spec, replicas=replicas
    )


def replicaset(
    name: str,
    replicas: int = 3,
    *,
    namespace: str = "default",
    labels: Labels | None = None,
    pod_annotations: Labels | None = None,
    **spec: Any,
) -> Manifest:
    """Return a ReplicaSet of its own, without a Deployment."""
    return _workload(
        "ReplicaSet", name, namespace, labels, pod_annotations, spec, replicas=replicas
    )


def statefulset(
    name: str,
    replicas: int = 3,
    *,
    namespace: str = "default",
    labels: Labels | None = None,
    pod_annotations: Labels | None = None,
    parallel: bool = True,
    **spec: Any,
) -> Manifest:
    """Return a StatefulSet; its headless Service need not exist."""
    extra = {
        "replicas": replicas,
        "serviceName": name,
        "podManagementPolicy": "Parallel" if parallel else "OrderedReady",
    }
    return _workload("StatefulSet", name, namespace, labels, pod_annotations, spec, **extra)


def daemonset(
    name: str,
    *,
    namespace: str = "default",
    labels: Labels | None = None,
    pod_annotations: Labels | None = None,
    **spec: Any,
) -> Manifest:
    """Return a DaemonSet."""
    return _workload("DaemonSet", name, namespace, labels, pod_annotations, spec)


def _workload(
    kind: str,
    name: str,
    namespace: str,
    labels: Labels | None,
    annotations: Labels | None,
    pod: Mapping[str, Any],
    **extra: Any,
) -> Manifest:
    own = dict(labels or {"app": name})
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "labels": own},
        "spec": {
            **extra,
            "selector": {"matchLabels": own},
            "template": template(own, annotations, **pod),
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
    """Return a Job; `job_spec` holds fields of its own spec (parallelism, backoffLimit, ...)."""
    pod = template({"job": name}, pod_annotations, **{"restartPolicy": "Never", **spec})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**(job_spec or {}), "template": pod},
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
    """Return a PodDisruptionBudget; `minAvailable=` or `maxUnavailable=` says how much."""
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
    """Return a ResourceQuota, e.g. pods="3"."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"hard": hard},
    }
