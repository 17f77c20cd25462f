"""Manifests and an embedded cluster for tests."""

from __future__ import annotations

from rebalancer.embedded.cluster import EmbeddedCluster
from rebalancer.embedded.manifests import (
    HOSTNAME,
    ZONE,
    daemonset,
    deployment,
    job,
    namespace,
    node,
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

__all__ = [
    "HOSTNAME",
    "ZONE",
    "EmbeddedCluster",
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
    "resource_quota",
    "service",
    "spread",
    "statefulset",
    "template",
]
