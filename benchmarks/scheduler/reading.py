"""A live cluster as a snapshot, by plain lists."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec

from rebalancer.snapshot.build import Fold
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire import objects as o
from rebalancer.wire.pods import decode_page
from tests.controlplane import ApiClient

_WORKLOADS = {
    "Deployment": "/apis/apps/v1/deployments",
    "ReplicaSet": "/apis/apps/v1/replicasets",
    "StatefulSet": "/apis/apps/v1/statefulsets",
}


def read(api: ApiClient, version: tuple[int, int]) -> Snapshot:
    """Return the cluster as it is now."""
    fold = Fold()
    records, _ = decode_page(json.dumps({"items": api.list_all("/api/v1/pods")}).encode())
    fold.add_pods(records)
    fold.add("Node", _all(api, "/api/v1/nodes", o.Node))
    for kind, path in _WORKLOADS.items():
        fold.add(kind, _all(api, path, o.Workload))
    fold.add("Service", _all(api, "/api/v1/services", o.Service))
    fold.add("Namespace", _all(api, "/api/v1/namespaces", o.Namespace))
    return fold.finish(captured_at=time.time(), version=version)


def _all(api: ApiClient, path: str, kind: type[Any]) -> list[Any]:
    return [msgspec.convert(obj, kind) for obj in api.list_all(path)]
