"""A random cluster on a real control plane, and the same cluster as a snapshot."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import msgspec

from benchmarks.scheduler.generate import WantedPod
from benchmarks.scheduler.journal import Decision, Journal
from benchmarks.scheduler.vocabulary import NAMESPACES, Manifest
from rebalancer.snapshot.build import Fold
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire import objects as o
from rebalancer.wire.pods import decode_page
from tests.controlplane import ApiError, ControlPlane, Options

COMPONENTS = ("etcd", "kube-apiserver", "kube-scheduler")
_WORKLOADS = ("ReplicaSet", "StatefulSet", "ReplicationController")
_PODS = "/api/v1/namespaces/{}/pods"
_COLLECTIONS = (
    "/api/v1/namespaces/{}/persistentvolumeclaims",
    "/apis/apps/v1/namespaces/{}/replicasets",
    "/apis/apps/v1/namespaces/{}/statefulsets",
    "/api/v1/namespaces/{}/replicationcontrollers",
    "/api/v1/namespaces/{}/services",
)
_CLUSTER_COLLECTIONS = (
    "/api/v1/nodes",
    "/api/v1/persistentvolumes",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/storage.k8s.io/v1/csinodes",
    "/apis/node.k8s.io/v1/runtimeclasses",
)
_NOW = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
_NOTICE = 60.0
"""Seconds in which the scheduler takes notice of what was written."""
# Of what it tells nothing: volumes, claims, services, workloads. They are written first, and come by watches of
# their own.
_SETTLE = 0.6


def options(version: str, scheduler_config: Mapping[str, Any] | None = None) -> Options:
    """Return a control plane without controllers and kubelets: nothing moves but the scheduler."""
    return Options(
        version=version,
        components=COMPONENTS,
        scheduler_verbosity=10,
        scheduler_config=scheduler_config or {},
        # New nodes would be tainted as not ready, and who takes that off does not run.
        extra_args={"kube-apiserver": ["--disable-admission-plugins=TaintNodesByCondition"]},
    )


@dataclass
class Objects:
    """What the API server answered, by kind."""

    nodes: list[Any] = field(default_factory=list)
    pods: dict[str, Manifest] = field(default_factory=dict)
    others: dict[str, list[Any]] = field(default_factory=dict)
    uids: dict[tuple[str, str, str], str] = field(default_factory=dict)


class Ground:
    """One control plane, one cluster after the other."""

    def __init__(self, plane: ControlPlane) -> None:
        major, minor = plane.options.version.split(".")[:2]
        self.version = int(major), int(minor)
        self._api = plane.api
        self.journal = Journal(plane.log("kube-scheduler"))
        self.objects = Objects()
        self._pool = ThreadPoolExecutor(8)

    def load(self, nodes: Iterable[Manifest], fixtures: Iterable[Manifest]) -> None:
        """Create the nodes and what pods refer to."""
        self.objects = Objects()
        for manifest in fixtures:
            self._note(self._api.apply(manifest))
        for manifest in nodes:
            made = self._api.post("/api/v1/nodes", manifest)
            self.objects.nodes.append(msgspec.convert(made, o.Node))

    def stand(self, wanted: WantedPod, node: str, *, terminating: bool) -> None:
        """Create a pod that stands on a node already."""
        for manifest in wanted.objects:
            self._create(manifest)
        pod = self._with_owner(wanted)
        pod["spec"]["nodeName"] = node
        made = self._api.post(_PODS.format(pod["metadata"]["namespace"]), pod)
        if terminating:
            path = f"{_PODS.format(made['metadata']['namespace'])}/{made['metadata']['name']}"
            self._api.delete(path, {**_NOW, "gracePeriodSeconds": 3000})
            made = self._api.get(path)
        self.objects.pods[_ref(made)] = made

    def settle(self) -> None:
        """Wait until the scheduler knows all nodes and pods."""
        names = {node.metadata.name for node in self.objects.nodes}
        self.journal.wait_known(names | set(self.objects.pods), _NOTICE)
        ending = {
            ref for ref, pod in self.objects.pods.items() if "deletionTimestamp" in pod["metadata"]
        }
        self.journal.wait_changed(ending, _NOTICE)
        time.sleep(_SETTLE)

    def decide(self, wanted: WantedPod) -> tuple[Snapshot, str, Decision] | None:
        """Create a pod for the scheduler; return the cluster it was decided in, its name, the decision.

        None if the API server refuses such a pod, or if the scheduler does not look at it.
        """
        for manifest in wanted.objects:
            self._create(manifest)
        pod = self._with_owner(wanted)
        path = _PODS.format(pod["metadata"]["namespace"])
        if wanted.objects:
            time.sleep(_SETTLE)
        try:
            made = self._api.post(path, pod)
        except ApiError as error:
            if error.status not in (400, 422):
                raise
            return None
        snapshot = self.snapshot(made)
        name = made["metadata"]["name"]
        if pod["spec"].get("schedulingGates") or any("ephemeral" in v for v in _volumes(pod)):
            self._api.delete(f"{path}/{name}", _NOW)
            return snapshot, name, Decision()
        decision = self.journal.wait_for(_ref(made), _NOTICE)
        if not decision.node:
            self._api.delete(f"{path}/{name}", _NOW)
        else:
            made["spec"]["nodeName"] = decision.node
            self.objects.pods[_ref(made)] = made
        return snapshot, name, decision

    def snapshot(self, pending: Manifest | None = None) -> Snapshot:
        """Fold what there is now, with one pod that waits."""
        fold = Fold()
        items = [*self.objects.pods.values(), *([pending] if pending else [])]
        records, _ = decode_page(json.dumps({"items": items}).encode())
        fold.add_pods(records)
        fold.add("Node", self.objects.nodes)
        others = self.objects.others
        for kind in _WORKLOADS:
            fold.add(kind, others.get(kind, ()))
        fold.add("Service", others.get("Service", ()))
        fold.add("Namespace", others.get("Namespace", ()))
        fold.add("PersistentVolumeClaim", others.get("PersistentVolumeClaim", ()))
        fold.add("PersistentVolume", others.get("PersistentVolume", ()))
        fold.add("StorageClass", others.get("StorageClass", ()))
        fold.add("CSINode", others.get("CSINode", ()))
        return fold.finish(captured_at=time.time(), version=self.version)

    def clear(self) -> None:
        """Delete everything of the cluster."""
        for namespace in NAMESPACES:
            self._delete_all(_PODS.format(namespace))
            for path in _COLLECTIONS:
                self._delete_all(path.format(namespace))
        for path in _CLUSTER_COLLECTIONS:
            self._delete_all(path)
        nodes = {node.metadata.name for node in self.objects.nodes}
        self.journal.wait_gone(nodes | set(self.objects.pods), _NOTICE)
        time.sleep(_SETTLE)
        self.journal.forget()

    def _delete_all(self, path: str) -> None:
        listed = self._api.find(path) or {"items": []}

        def delete(thing: Manifest) -> None:
            one = f"{path}/{thing['metadata']['name']}"
            if thing["metadata"].get("finalizers"):
                self._api.patch(one, {"metadata": {"finalizers": None}})
            try:
                self._api.delete(one, _NOW)
            except ApiError as error:
                if error.status != 404:
                    raise

        list(self._pool.map(delete, listed["items"]))

    def _create(self, manifest: Manifest) -> None:
        path = self._api.collection(manifest)
        made = self._api.post(path, manifest)
        if "status" in manifest:
            status = {"status": manifest["status"]}
            made = self._api.patch(f"{path}/{made['metadata']['name']}/status", status)
        self._note(made)

    def _note(self, made: Manifest) -> None:
        kind, metadata = made["kind"], made["metadata"]
        self.objects.uids[kind, metadata.get("namespace", ""), metadata["name"]] = metadata["uid"]
        wire = _WIRE.get(kind)
        if wire is not None:
            self.objects.others.setdefault(kind, []).append(msgspec.convert(made, wire))

    def _with_owner(self, wanted: WantedPod) -> Manifest:
        pod = wanted.manifest
        if wanted.owner is not None:
            kind, name = wanted.owner
            uid = self.objects.uids[kind, pod["metadata"]["namespace"], name]
            version = "v1" if kind == "ReplicationController" else "apps/v1"
            reference = {"apiVersion": version, "kind": kind, "name": name, "uid": uid}
            pod["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
        return pod


_WIRE: dict[str, Any] = {
    "ReplicaSet": o.Workload,
    "StatefulSet": o.Workload,
    "ReplicationController": o.Workload,
    "Service": o.Service,
    "Namespace": o.Namespace,
    "PersistentVolumeClaim": o.PersistentVolumeClaim,
    "PersistentVolume": o.PersistentVolume,
    "StorageClass": o.StorageClass,
    "CSINode": o.CSINode,
}


def _ref(pod: Manifest) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _volumes(pod: Manifest) -> list[Manifest]:
    volumes: list[Manifest] = pod["spec"].get("volumes", [])
    return volumes
