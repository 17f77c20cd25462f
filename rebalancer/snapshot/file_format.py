"""What a snapshot file looks like: its kinds, and what it says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rebalancer.wire.times import rfc3339

API_VERSIONS = {
    "Pod": "v1",
    "Node": "v1",
    "Namespace": "v1",
    "Service": "v1",
    "ResourceQuota": "v1",
    "PersistentVolumeClaim": "v1",
    "PersistentVolume": "v1",
    "ReplicationController": "v1",
    "ReplicaSet": "apps/v1",
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "Job": "batch/v1",
    "PodDisruptionBudget": "policy/v1",
    "StorageClass": "storage.k8s.io/v1",
    "CSINode": "storage.k8s.io/v1",
    "NodeMetrics": "metrics.k8s.io/v1beta1",
    "PodMetrics": "metrics.k8s.io/v1beta1",
}
"""The kinds of a snapshot file."""

METRICS = frozenset({"NodeMetrics", "PodMetrics"})
"""Kinds that are there only if somebody asked for them."""

CAPTURED_AT = "rebalancer/captured-at"
VERSION = "rebalancer/server-version"
KINDS = "rebalancer/kinds"


@dataclass(frozen=True, slots=True)
class Capture:
    """What a snapshot file says of itself."""

    captured_at: float
    """Unix seconds by the server's clock."""
    version: tuple[int, int]
    resource_version: str
    kinds: tuple[str, ...]
    """What was read: of these kinds there is no more than the file holds."""

    def metadata(self) -> dict[str, Any]:
        """Return it as the metadata of the list."""
        annotations = {
            CAPTURED_AT: rfc3339(self.captured_at),
            VERSION: ".".join(str(number) for number in self.version),
            KINDS: ",".join(self.kinds),
        }
        return {"resourceVersion": self.resource_version, "annotations": annotations}
