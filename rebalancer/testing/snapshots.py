"""Snapshots from API objects given as plain dictionaries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from rebalancer.snapshot.build import Fold
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire import objects as o
from rebalancer.wire.pods import decode_page

Object = Mapping[str, Any]

_WORKLOADS = (
    "DaemonSet",
    "Deployment",
    "Job",
    "ReplicaSet",
    "ReplicationController",
    "StatefulSet",
)


def snapshot_of(
    objects: Iterable[Object], *, now: float = 1_800_000_000.0, version: tuple[int, int] = (1, 36)
) -> Snapshot:
    """Return the snapshot of ``objects``, taken at ``now`` (Unix seconds), of any kinds in any order.

    Raises:
        ValueError: an object is of a kind that no snapshot holds.
    """
    by_kind: dict[str, list[Object]] = {}
    for item in objects:
        by_kind.setdefault(str(item["kind"]), []).append(item)
    fold = Fold()
    pods, _ = decode_page(json.dumps({"items": by_kind.pop("Pod", [])}).encode())
    fold.add_pods(pods)
    for kind, items in sorted(by_kind.items()):
        _feed(fold, kind, items)
    return fold.finish(captured_at=now, version=version)


def _feed(fold: Fold, kind: str, items: list[Object]) -> None:
    if kind in _WORKLOADS:
        fold.add_workloads(kind, msgspec.convert(items, list[o.Workload]))
    elif kind == "Node":
        fold.add_nodes(msgspec.convert(items, list[o.Node]))
    elif kind == "PodDisruptionBudget":
        fold.add_budgets(msgspec.convert(items, list[o.PodDisruptionBudget]))
    elif kind == "Namespace":
        fold.add_namespaces(msgspec.convert(items, list[o.Namespace]))
    elif kind == "Service":
        fold.add_services(msgspec.convert(items, list[o.Service]))
    elif kind == "ResourceQuota":
        fold.add_quotas(msgspec.convert(items, list[o.ResourceQuota]))
    elif kind == "PersistentVolume":
        fold.add_volumes(msgspec.convert(items, list[o.PersistentVolume]))
    elif kind == "PersistentVolumeClaim":
        fold.add_claims(msgspec.convert(items, list[o.PersistentVolumeClaim]))
    elif kind == "StorageClass":
        fold.add_storage_classes(msgspec.convert(items, list[o.StorageClass]))
    elif kind == "CSINode":
        fold.add_csi_nodes(msgspec.convert(items, list[o.CSINode]))
    else:
        raise ValueError(f"no snapshot holds objects of kind {kind!r}")
