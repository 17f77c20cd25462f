"""Snapshots from API objects given as plain dictionaries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from rebalancer.snapshot.build import Fold
from rebalancer.snapshot.feed import WORKLOADS, feed
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire import objects as o
from rebalancer.wire.pods import decode_page

Object = Mapping[str, Any]

_KINDS: Mapping[str, type[Any]] = {
    "CSINode": o.CSINode,
    "Namespace": o.Namespace,
    "Node": o.Node,
    "PersistentVolume": o.PersistentVolume,
    "PersistentVolumeClaim": o.PersistentVolumeClaim,
    "PodDisruptionBudget": o.PodDisruptionBudget,
    "ResourceQuota": o.ResourceQuota,
    "Service": o.Service,
    "StorageClass": o.StorageClass,
    **dict.fromkeys(WORKLOADS, o.Workload),
}


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
        if kind not in _KINDS:
            raise ValueError(f"no snapshot holds objects of kind {kind!r}")
        of_kind = _KINDS[kind]
        feed(fold, kind, [msgspec.convert(item, of_kind) for item in items])
    return fold.finish(captured_at=now, version=version)
