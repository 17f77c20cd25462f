"""Snapshots from API objects given as plain dictionaries."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from rebalancer.snapshot.build import Fold
from rebalancer.snapshot.columns import freeze, sum_by_node
from rebalancer.snapshot.model import MEASURED, Snapshot, Usage
from rebalancer.wire.lists import DECODED
from rebalancer.wire.pods import decode_page

Object = Mapping[str, Any]


def snapshot_of(
    objects: Iterable[Object],
    *,
    now: float = 1_800_000_000.0,
    version: tuple[int, int] = (1, 36),
    finished: frozenset[str] = frozenset(),
) -> Snapshot:
    """Return the snapshot of ``objects``, taken at ``now`` (Unix seconds), of any kinds in any order.

    ``finished``: the phases of pods that have ended and are kept aside.

    Raises:
        ValueError: an object is of a kind that snapshots do not contain.
    """
    by_kind: dict[str, list[Object]] = {}
    for item in objects:
        by_kind.setdefault(str(item["kind"]), []).append(item)
    fold = Fold(finished)
    pods, _ = decode_page(json.dumps({"items": by_kind.pop("Pod", [])}).encode())
    fold.add_pods(pods)
    for kind, items in sorted(by_kind.items()):
        if kind not in DECODED:
            raise ValueError(f"no snapshot holds objects of kind {kind!r}")
        of_kind = DECODED[kind]
        fold.add(kind, [msgspec.convert(item, of_kind) for item in items])
    return fold.finish(captured_at=now, version=version)


def with_usage(
    snapshot: Snapshot,
    pods: Mapping[str, tuple[int, int]] | None = None,
    *,
    unknown: Collection[str] = (),
    at: float | None = None,
) -> Snapshot:
    """Return ``snapshot`` with usage measured ``at`` (Unix seconds; by default when it was captured).

    ``pods``: name of an owner -> (millicores, bytes) of each of its pods; other pods use their requests. A
    node uses the sum of its pods; ``unknown`` nodes have no measurement.
    """
    classes = snapshot.requests[[snapshot.resources.index(name) for name in MEASURED]].copy()
    for index in range(len(snapshot.classes)):
        owner = snapshot.owner_of(index)
        if owner is not None and owner.name in (pods or {}):
            classes[:, index] = (pods or {})[owner.name]
    placed = snapshot.pods.node >= 0
    cls, node = snapshot.pods.cls[placed], snapshot.pods.node[placed]
    used = sum_by_node(classes, cls, node, len(snapshot.nodes))
    known = np.array([name not in unknown for name in snapshot.nodes.names], bool)
    return replace(
        snapshot,
        usage=Usage(
            nodes=freeze(np.where(known, used, 0)),
            known=freeze(known),
            classes=freeze(classes),
            at=snapshot.captured_at if at is None else at,
        ),
    )


Manifest = dict[str, Any]

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
) -> Manifest:
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
) -> list[Manifest]:
    """Return a workload with one running, ready pod per entry of ``nodes``.

    ``kind`` is Deployment (with its ReplicaSet), StatefulSet or ReplicaSet; ``spec`` is merged into the pod
    spec; labels are ``app: <name>`` unless given.
    """
    of_pod = dict(labels or {"app": name})
    pod_spec: Manifest = {
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
    objects: list[Manifest] = []
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


def number_pods(objects: Sequence[Manifest]) -> list[Manifest]:
    """Return a StatefulSet's objects with the labels that its controller sets on each pod."""
    return [_number_pod(item) if item["kind"] == "Pod" else item for item in objects]


def _number_pod(pod: Manifest) -> Manifest:
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
) -> Manifest:
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


def _reference(kind: str, namespace: str, name: str) -> Manifest:
    uid = f"{kind}/{namespace}/{name}"
    reference = {"kind": kind, "apiVersion": api_version(kind), "name": name, "uid": uid}
    return {**reference, "controller": True}


def spread(
    name: str, key: str = ZONE, *, max_skew: int = 1, hard: bool = False, **more: Any
) -> Manifest:
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
) -> Manifest:
    """Return a pod spec with anti-affinity to pods labelled ``app: <name>``.

    It is preferred if a ``weight`` is given, else required.
    """
    term: Manifest = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": name}}}
    if namespaces:
        term["namespaces"] = list(namespaces)
    if weight is None:
        rule: Manifest = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    else:
        preferred = {"weight": weight, "podAffinityTerm": term}
        rule = {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}
    return {"affinity": {"podAntiAffinity": rule}}


def disruption_budget(
    name: str, app: str, *, allowed: int, namespace: str = "default", healthy: int = 3
) -> Manifest:
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
