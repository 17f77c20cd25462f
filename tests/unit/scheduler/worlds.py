"""Small clusters by hand: JSON as the API server sends it, folded as in production."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from rebalancer.scheduler.model import FILTERS, Evaluation, SchedulerModel
from rebalancer.scheduler.profile import DEFAULT_WEIGHTS, SchedulerProfile
from rebalancer.snapshot.build import Fold
from rebalancer.snapshot.columns import Int32s
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.state import ClusterState
from rebalancer.wire import objects as o
from rebalancer.wire.kinds import OF_DEVICES
from rebalancer.wire.lists import DECODED
from rebalancer.wire.pods import decode_page

Json = dict[str, Any]
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def node(
    name: str,
    *,
    cpu: str = "10",
    memory: str = "10Gi",
    pods: str = "110",
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Json] = (),
    unschedulable: bool = False,
    images: Iterable[Json] = (),
    hostname: bool = True,
    allocatable: Mapping[str, str] | None = None,
) -> Json:
    """Return a Node; it carries its hostname label unless labels say otherwise."""
    own = {HOSTNAME: name} if hostname else {}
    amounts = {"cpu": cpu, "memory": memory, "pods": pods, **(allocatable or {})}
    return {
        "metadata": {"name": name, "labels": {**own, **(labels or {})}},
        "spec": {"taints": list(taints), "unschedulable": unschedulable},
        "status": {"allocatable": amounts, "images": list(images)},
    }


def pod(
    name: str,
    *,
    on: str = "",
    labels: Mapping[str, str] | None = None,
    namespace: str = "default",
    requests: Mapping[str, str] | None = None,
    terminating: bool = False,
    owner: tuple[str, str, str] | None = None,
    containers: Iterable[Json] | None = None,
    **spec: Any,
) -> Json:
    """Return a Pod with one container, or with those given; ``spec`` are further fields of its spec."""
    metadata: Json = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"}
    metadata["labels"] = dict(labels or {})
    if terminating:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if owner is not None:
        kind, owner_name, uid = owner
        reference = {"kind": kind, "name": owner_name, "uid": uid, "controller": True}
        metadata["ownerReferences"] = [reference]
    if containers is None:
        containers = [{"name": "main", "resources": {"requests": dict(requests or {})}}]
    return {
        "metadata": metadata,
        "spec": {"nodeName": on, "containers": list(containers), **spec},
        "status": {"phase": "Running" if on else "Pending"},
    }


def spread(skew: int, key: str, action: str, selector: Json | None, **more: Any) -> Json:
    """Return the spec field of one topology spread constraint."""
    constraint = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": action}
    if selector is not None:
        constraint["labelSelector"] = selector
    return {"topologySpreadConstraints": [{**constraint, **more}]}


def snapshot(
    nodes: Iterable[Json],
    pods: Iterable[Json],
    *,
    missing: tuple[str, ...] = (),
    **others: Iterable[Json],
) -> Snapshot:
    """Fold a cluster. ``others``: services, replica_sets, claims, volumes, storage_classes, ..."""
    fold = Fold()
    records, _ = decode_page(json.dumps({"items": list(pods)}).encode())
    fold.add_pods(records)
    fold.add("Node", _decoded(nodes, o.Node))
    for kind, name in (("ReplicaSet", "replica_sets"), ("StatefulSet", "stateful_sets")):
        fold.add(kind, _decoded(others.get(name, ()), o.Workload))
    fold.add("Service", _decoded(others.get("services", ()), o.Service))
    fold.add("Namespace", _decoded(others.get("namespaces", ()), o.Namespace))
    fold.add("PersistentVolumeClaim", _decoded(others.get("claims", ()), o.PersistentVolumeClaim))
    fold.add("PersistentVolume", _decoded(others.get("volumes", ()), o.PersistentVolume))
    fold.add("StorageClass", _decoded(others.get("storage_classes", ()), o.StorageClass))
    fold.add("CSINode", _decoded(others.get("csi_nodes", ()), o.CSINode))
    fold.add("ResourceQuota", _decoded(others.get("resourcequotas", ()), o.ResourceQuota))
    for resource in OF_DEVICES:
        if resource.plural in others:
            kind = resource.kind
            fold.add(kind, _decoded(others[resource.plural], DECODED[kind]))
    return fold.finish(captured_at=0.0, version=(1, 36), missing=missing)


def _decoded(objects: Iterable[Json], kind: type[Any]) -> list[Any]:
    return [msgspec.convert(thing, kind) for thing in objects]


class World:
    """A cluster, its state and the model, asked by the names of pods and nodes."""

    def __init__(
        self,
        nodes: Iterable[Json],
        pods: Iterable[Json],
        *,
        version: tuple[int, int] = (1, 36),
        profile: Mapping[str, Any] | SchedulerProfile | None = None,
        missing: tuple[str, ...] = (),
        **others: Iterable[Json],
    ) -> None:
        self.snapshot = snapshot(nodes, pods, missing=missing, **others)
        self.state = ClusterState(self.snapshot)
        if not isinstance(profile, SchedulerProfile):
            profile = SchedulerProfile.for_version(version, **(profile or {}))
        self.model = SchedulerModel(self.snapshot, profile)

    def cls(self, name: str) -> int:
        """Return the class of the pod of this name."""
        return int(self.snapshot.pods.cls[self.row(name)])

    def row(self, name: str) -> int:
        """Return the row of the pod of this name."""
        return list(self.snapshot.pods.name).index(name)

    def feasible(self, name: str) -> list[str]:
        """Return the names of the feasible nodes for a pod like this one."""
        return self._names(self.model.feasible(self.state, self.cls(name)).nonzero()[0])

    def evaluate(self, name: str, among: Iterable[str] | None = None) -> Evaluation:
        """Return the evaluation of a pod like this one, scored over all feasible nodes or ``among``."""
        rows = None if among is None else self.rows(among)
        return self.model.evaluate(self.state, self.cls(name), among=rows)

    def scores(self, name: str, plugin: str, among: Iterable[str] | None = None) -> dict[str, int]:
        """Return node -> weighted score of one plug-in."""
        column = self.evaluate(name, among).scores[plugin]
        return dict(zip(self.snapshot.nodes.names, column.tolist(), strict=True))

    def plain(self, name: str, plugin: str, among: Iterable[str] | None = None) -> list[int]:
        """Return the scores before weighting, of all nodes or of ``among``, by name of node."""
        scores = self.scores(name, plugin, among)
        wanted = scores if among is None else sorted(among)
        return [scores[node] // DEFAULT_WEIGHTS[plugin] for node in wanted]

    def filters(self, name: str) -> dict[str, str]:
        """Return node -> filter that it fails, empty if feasible."""
        failed = self.evaluate(name).filtered_by.tolist()
        return dict(zip(self.snapshot.nodes.names, (FILTERS[f] for f in failed), strict=True))

    def landings(self, name: str) -> dict[str, float]:
        """Return node -> probability for a pod like this one."""
        prediction = self.model.predict(self.state, self.cls(name))
        names = self._names(prediction.nodes)
        return dict(zip(names, prediction.probability.tolist(), strict=True))

    def rows(self, names: Iterable[str]) -> Int32s:
        """Return the rows of nodes."""
        return np.array([self.snapshot.nodes.index[name] for name in names], np.int32)

    def _names(self, rows: Any) -> list[str]:
        return [self.snapshot.nodes.names[row] for row in rows]
