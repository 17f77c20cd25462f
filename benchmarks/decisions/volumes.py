"""StatefulSets with volumes that live in one zone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.controlplane import objects

_CLASS = "zonal"


def storage_class() -> dict[str, Any]:
    """Return a class without provisioner, bound when a pod is scheduled."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": _CLASS},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def volumes(count: int, zones: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield so many volumes in each of the zones."""
    for zone in zones:
        for index in range(count):
            where = {"key": objects.ZONE, "operator": "In", "values": [zone]}
            yield {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"{zone}-{index:03d}"},
                "spec": {
                    "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "persistentVolumeReclaimPolicy": "Retain",
                    "storageClassName": _CLASS,
                    "hostPath": {"path": "/data"},
                    "nodeAffinity": {
                        "required": {"nodeSelectorTerms": [{"matchExpressions": [where]}]}
                    },
                },
            }


def stateful_set(name: str, replicas: int, **spec: Any) -> dict[str, Any]:
    """Return a StatefulSet, each pod with a claim of its own; fields of the pod's spec by name."""
    manifest = objects.statefulset(name, replicas, labels={"app": name}, **spec)
    manifest["spec"]["volumeClaimTemplates"] = [
        {
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": _CLASS,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
    ]
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return manifest
