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
    replicaset,
    resource_quota,
    service,
    statefulset,
    template,
)

DEPRECATED_ZONE = "failure-domain.beta.kubernetes.io/zone"


def node(name: str, *, annotations: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """Return a node that KWOK will make Ready; keyword arguments as for the testing package's."""
    played = {"kwok.x-k8s.io/node": "fake", **(annotations or {})}
    return objects.node(name, annotations=played, **more)


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
    "replicaset",
    "resource_quota",
    "service",
    "statefulset",
    "template",
]
