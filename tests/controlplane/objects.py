"""Manifests for a real server: those of the testing package, with nodes simulated by KWOK."""

from typing import Any

from rebalancer.testing import objects
from rebalancer.testing.objects import (
    HOSTNAME,
    ZONE,
    daemonset,
    deployment,
    job,
    namespace,
    pdb,
    pod,
    prefer_apart,
    replicaset,
    require_apart,
    resource_quota,
    service,
    spread,
    statefulset,
    template,
)

DEPRECATED_ZONE = "failure-domain.beta.kubernetes.io/zone"


def node(name: str, *, annotations: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """Return a node that KWOK will make Ready; keyword arguments as for the testing package's."""
    played = {"kwok.x-k8s.io/node": "fake", **(annotations or {})}
    return objects.node(name, annotations=played, **more)


def require_node(key: str, *values: str) -> dict[str, Any]:
    """Return required node affinity to nodes whose label has one of these values."""
    expression = {"key": key, "operator": "In", "values": list(values)}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


__all__ = [
    "DEPRECATED_ZONE",
    "HOSTNAME",
    "ZONE",
    "daemonset",
    "deployment",
    "job",
    "namespace",
    "node",
    "pdb",
    "pod",
    "prefer_apart",
    "replicaset",
    "require_apart",
    "require_node",
    "resource_quota",
    "service",
    "spread",
    "statefulset",
    "template",
]
