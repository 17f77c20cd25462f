"""Nodes, pods, and what was measured of them, as plain objects."""

from typing import Any

from rebalancer.wire.times import rfc3339

NOW = 1_800_000_000.0
MIB = 1 << 20


def node(name: str, created: float = NOW - 86400) -> dict[str, Any]:
    return {
        "kind": "Node",
        "metadata": {"name": name, "creationTimestamp": rfc3339(created)},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
    }


def pod(
    name: str,
    app: str,
    node: str = "",
    *,
    namespace: str = "default",
    cpu: str = "100m",
    age: float = 3600,
    uid: str | None = None,
    labels: dict[str, str] | None = None,
    going: bool = False,
) -> dict[str, Any]:
    reference = {"kind": "ReplicaSet", "name": app, "uid": f"rs-{app}", "controller": True}
    requests = {"cpu": cpu, "memory": "64Mi"}
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{namespace}-{name}" if uid is None else uid,
            "creationTimestamp": rfc3339(NOW - age),
            "labels": {"app": app, **(labels or {})},
            "ownerReferences": [reference],
            **({"deletionTimestamp": rfc3339(NOW)} if going else {}),
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "c", "resources": {"requests": requests}}],
        },
        "status": {"phase": "Running"},
    }


def replica_set(app: str, cpu: str) -> dict[str, Any]:
    """A ReplicaSet whose template asks for so much cpu."""
    requests = {"cpu": cpu, "memory": "64Mi"}
    return {
        "kind": "ReplicaSet",
        "metadata": {"name": app, "namespace": "default", "uid": f"rs-{app}"},
        "spec": {
            "replicas": 1,
            "template": {
                "metadata": {"labels": {"app": app}},
                "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]},
            },
        },
    }


def node_metrics(name: str, cpu: Any, memory: Any = "0", age: float = 30) -> dict[str, Any]:
    return {
        "kind": "NodeMetrics",
        "metadata": {"name": name},
        "timestamp": rfc3339(NOW - age),
        "window": "20s",
        "usage": {"cpu": cpu, "memory": memory},
    }


def pod_metrics(
    name: str, *used: tuple[Any, Any], namespace: str = "default", age: float = 30
) -> dict[str, Any]:
    """One container for each of ``used``: cpu and memory."""
    return {
        "kind": "PodMetrics",
        "metadata": {"name": name, "namespace": namespace},
        "timestamp": rfc3339(NOW - age),
        "window": "20s",
        "containers": [
            {"name": f"c{number}", "usage": {"cpu": cpu, "memory": memory}}
            for number, (cpu, memory) in enumerate(used)
        ],
    }
