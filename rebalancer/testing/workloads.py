"""Small clusters in a few lines: nodes, and workloads with pods on given nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Object = dict[str, Any]

# One day before the time that snapshot_of takes by default: no pod counts as young.
OLD = "2027-01-14T08:00:00Z"
NOW = "2027-01-15T08:00:00Z"
ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"


def node(
    name: str,
    zone: str | None = None,
    *,
    cpu: str = "4",
    memory: str = "16Gi",
    pods: int = 110,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    unschedulable: bool = False,
    ready: bool = True,
) -> Object:
    """Return a Node."""
    every = {HOSTNAME: name, **({ZONE: zone} if zone else {}), **(labels or {})}
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name, "labels": every, "creationTimestamp": OLD},
        "spec": {"taints": list(taints), "unschedulable": unschedulable},
        "status": {
            "allocatable": {"cpu": cpu, "memory": memory, "pods": str(pods)},
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True" if ready else "False",
                    "lastHeartbeatTime": NOW,
                }
            ],
        },
    }


def workload(
    name: str,
    nodes: Sequence[str],
    *,
    namespace: str = "default",
    kind: str = "Deployment",
    cpu: str = "100m",
    memory: str = "128Mi",
    spec: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    replicas: int | None = None,
    priority: int = 0,
) -> list[Object]:
    """Return a workload with one running, ready pod per entry of ``nodes``.

    ``kind`` is Deployment (with its ReplicaSet), StatefulSet or ReplicaSet; ``spec`` is merged into the pod
    spec; labels are ``app: <name>`` unless given.
    """
    of_pod = dict(labels or {"app": name})
    pod_spec: Object = {
        "priority": priority,
        "containers": [
            {
                "name": "main",
                "image": name,
                "resources": {"requests": {"cpu": cpu, "memory": memory}},
            }
        ],
        **(spec or {}),
    }
    count = len(nodes) if replicas is None else replicas
    objects: list[Object] = []
    controller = kind
    if kind == "Deployment":
        controller = "ReplicaSet"
        objects.append(_controller("Deployment", name, namespace, count, of_pod, pod_spec))
    owner = _controller(controller, name, namespace, count, of_pod, pod_spec)
    if kind == "Deployment":
        owner["metadata"]["ownerReferences"] = [_reference("Deployment", namespace, name)]
    objects.append(owner)
    for index, on in enumerate(nodes):
        objects.append(
            {
                "kind": "Pod",
                "apiVersion": "v1",
                "metadata": {
                    "name": f"{name}-{index}",
                    "namespace": namespace,
                    "uid": f"{namespace}/{name}-{index}",
                    "labels": of_pod,
                    "annotations": dict(annotations or {}),
                    "creationTimestamp": OLD,
                    "ownerReferences": [_reference(controller, namespace, name)],
                },
                "spec": {**pod_spec, "nodeName": on},
                "status": {
                    "phase": "Running" if on else "Pending",
                    "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": OLD}],
                },
            }
        )
    return objects


def number_pods(objects: Sequence[Object]) -> list[Object]:
    """Return a StatefulSet's objects with the labels that its controller sets on each pod."""
    return [_number_pod(item) if item["kind"] == "Pod" else item for item in objects]


def _number_pod(pod: Object) -> Object:
    name = pod["metadata"]["name"]
    owner, _, ordinal = name.rpartition("-")
    labels = {
        **pod["metadata"]["labels"],
        "apps.kubernetes.io/pod-index": ordinal,
        "statefulset.kubernetes.io/pod-name": name,
        "controller-revision-hash": f"{owner}-1",
    }
    return {**pod, "metadata": {**pod["metadata"], "labels": labels}}


def api_version(kind: str) -> str:
    """Return the API version of one of Kubernetes' own controllers."""
    return {"Job": "batch/v1", "ReplicationController": "v1"}.get(kind, "apps/v1")


def _controller(
    kind: str,
    name: str,
    namespace: str,
    replicas: int,
    labels: Mapping[str, str],
    pod_spec: Mapping[str, Any],
) -> Object:
    return {
        "kind": kind,
        "apiVersion": api_version(kind),
        "metadata": {"name": name, "namespace": namespace, "uid": f"{kind}/{namespace}/{name}"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": dict(labels)},
            "template": {"metadata": {"labels": dict(labels)}, "spec": dict(pod_spec)},
        },
        "status": {
            "replicas": replicas,
            "readyReplicas": replicas,
            "updatedReplicas": replicas,
            "availableReplicas": replicas,
        },
    }


def _reference(kind: str, namespace: str, name: str) -> Object:
    uid = f"{kind}/{namespace}/{name}"
    reference = {"kind": kind, "apiVersion": api_version(kind), "name": name, "uid": uid}
    return {**reference, "controller": True}


def spread(
    name: str, key: str = ZONE, *, max_skew: int = 1, hard: bool = False, **more: Any
) -> Object:
    """Return a pod spec with one topology spread constraint over pods labelled ``app: <name>``."""
    constraint = {
        "maxSkew": max_skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": name}},
        **more,
    }
    return {"topologySpreadConstraints": [constraint]}


def apart(
    name: str, key: str = ZONE, *, weight: int | None = None, namespaces: Sequence[str] = ()
) -> Object:
    """Return a pod spec with anti-affinity to pods labelled ``app: <name>``: required without a weight."""
    term: Object = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": name}}}
    if namespaces:
        term["namespaces"] = list(namespaces)
    if weight is None:
        rule: Object = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    else:
        preferred = {"weight": weight, "podAffinityTerm": term}
        rule = {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}
    return {"affinity": {"podAntiAffinity": rule}}


def disruption_budget(
    name: str, app: str, *, allowed: int, namespace: str = "default", healthy: int = 3
) -> Object:
    """Return a PodDisruptionBudget over pods labelled ``app: <app>``."""
    return {
        "kind": "PodDisruptionBudget",
        "apiVersion": "policy/v1",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": healthy - allowed,
        },
    }
