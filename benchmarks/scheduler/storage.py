"""Claims and volumes for random pods: bound, zonal, local, late, free, exclusive, and counted."""

from __future__ import annotations

import random
from collections.abc import Iterator

from benchmarks.scheduler.vocabulary import CSI_DRIVER, HOSTNAME, ZONE, ZONES, Manifest


def classes() -> Iterator[Manifest]:
    """Yield the storage classes."""
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": list(ZONES[:2])}]}]
    for name, more in (("late", {}), ("late-zonal", {"allowedTopologies": topologies})):
        yield {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name},
            "provisioner": "late.example.com",
            "volumeBindingMode": "WaitForFirstConsumer",
            **more,
        }


def volume(
    rng: random.Random, feature: str, pod: Manifest, node_names: list[str]
) -> list[Manifest]:
    """Give the pod a claim of this kind; return what must be created before it."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    mount = {"name": "claimed", "persistentVolumeClaim": {"claimName": name}}
    pod["spec"].setdefault("volumes", []).append(mount)
    mode = "ReadWriteOncePod" if feature == "exclusive-volume" else "ReadWriteOnce"
    claim = _claim(name, namespace, mode)
    if feature == "late-volume":
        claim["spec"]["storageClassName"] = rng.choice(("late", "late-zonal"))
        return [claim]
    if feature == "free-volume":
        claim["spec"]["storageClassName"] = f"free-{name}"
        return [*_free(rng, name, node_names), claim]
    claim["spec"] |= {"volumeName": f"pv-{name}", "storageClassName": ""}
    claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    made = _volume(name, namespace, mode)
    if feature == "zone-volume":
        made["metadata"]["labels"] = {ZONE: rng.choice((ZONES[0], "__".join(ZONES[:2])))}
    elif feature == "local-volume":
        affinity = _affinity(HOSTNAME, rng.sample(node_names, min(3, len(node_names))))
        made["spec"] |= {"local": {"path": "/data"}, "nodeAffinity": affinity}
        del made["spec"]["csi"]
    elif feature == "bound-volume":
        made["spec"]["nodeAffinity"] = _affinity(ZONE, rng.sample(ZONES, 2))
    return [made, claim]


def _free(rng: random.Random, name: str, node_names: list[str]) -> Iterator[Manifest]:
    """Yield volumes that only the claim of this pod can take, in a storage class of its own: none is taken twice."""
    yield {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": f"free-{name}"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    for index in range(rng.randint(1, 4)):
        within = (
            _affinity(ZONE, rng.sample(ZONES, 2))
            if rng.random() < 0.5
            else _affinity(HOSTNAME, rng.sample(node_names, min(5, len(node_names))))
        )
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"pv-{name}-{index}"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": rng.choice(("512Mi", "1Gi", "1500Mi", "3Gi", "17G"))},
                "local": {"path": "/data"},
                "nodeAffinity": within,
                "storageClassName": f"free-{name}",
            },
            "status": {"phase": "Available"},
        }


def _claim(name: str, namespace: str, mode: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}},
    }


def _volume(name: str, namespace: str, mode: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pv-{name}"},
        "spec": {
            "accessModes": [mode],
            "capacity": {"storage": "1Gi"},
            "csi": {"driver": CSI_DRIVER, "volumeHandle": f"handle-{name}"},
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": namespace, "name": name},
            "persistentVolumeReclaimPolicy": "Retain",
        },
    }


def _affinity(key: str, values: list[str]) -> Manifest:
    expression = {"key": key, "operator": "In", "values": values}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
