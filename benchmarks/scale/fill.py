"""Makes a drifted cluster of a given shape on a real API server."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import urllib3

from benchmarks.scale import objects
from benchmarks.scale.copies import Etcd, Original, uids
from benchmarks.scale.shape import ZONES, App, Shape, apps, zone_of
from rebalancer.wire.protobuf import PROTOBUF
from tests.controlplane.api import ApiClient
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.options import Options

OPTIONS = Options(
    components=("etcd", "kube-apiserver"),
    extra_args={"etcd": ["--max-request-bytes=16777216", "--max-txn-ops=256"]},
)
"""Nothing that would move pods or judge nodes while programs are measured."""
_CORE = "/api/v1"
_APPS = "/apis/apps/v1"


def fill(plane: ControlPlane, shape: Shape, say: Callable[[str], None]) -> None:
    """Fill an empty control plane, and wait until its API server serves everything."""
    started = time.monotonic()
    originals = Originals(plane, shape)
    etcd = Etcd(f"http://127.0.0.1:{plane._paths.ports['etcd']}")  # noqa: SLF001
    stored = etcd.put(entries(shape, originals))
    say(f"{stored} objects stored after {time.monotonic() - started:.0f} s")
    originals.delete()
    plane.wait_until(lambda: _served(plane.api) >= shape.apps * shape.replicas, 900, "all pods")
    say(f"all of them served after {time.monotonic() - started:.0f} s")


def _served(api: ApiClient) -> int:
    """Return how many pods the server's cache holds."""
    answer = api.get(f"{_CORE}/pods?limit=1")
    return len(answer["items"]) + int(answer["metadata"].get("remainingItemCount", 0))


class Originals:
    """One object of each kind, made through the API server and read back as it stores or serves it."""

    def __init__(self, plane: ControlPlane, shape: Shape, accept: str = PROTOBUF) -> None:
        self._plane, self._api, self._shape = plane, plane.api, shape
        self._accept = accept
        self._pool = urllib3.PoolManager(ca_certs=str(plane.ca_file))
        core = f"{_CORE}/namespaces/{objects.NAMESPACE}"
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": objects.NAMESPACE}}
        self.namespace = self._make(f"{_CORE}/namespaces", space)
        self._make(f"{core}/serviceaccounts", {"metadata": {"name": "default"}})
        self.nodes: dict[str, Original] = {}
        for zone in sorted({zone_of(node) for node in range(shape.nodes)}):
            self._delete(f"{_CORE}/nodes/{objects.NODE}")
            self.nodes[zone] = self._make(f"{_CORE}/nodes", objects.node(zone, lean=shape.lean))
        self.apps = {kind: self._app(kind, core) for kind in objects.KINDS}

    def delete(self) -> None:
        """Delete what stands in none of the copies' namespaces."""
        self._delete(f"{_CORE}/nodes/{objects.NODE}")
        self._delete(f"{_CORE}/namespaces/{objects.NAMESPACE}/serviceaccounts/default")

    def _app(self, kind: str, core: str) -> dict[str, Original]:
        lean, replicas = self._shape.lean, self._shape.replicas
        workloads = f"{_APPS}/namespaces/{objects.NAMESPACE}"
        settled = objects.workload_status(replicas)
        made = {
            "deployment": self._make(
                f"{workloads}/deployments",
                objects.deployment(kind, lean=lean, replicas=replicas),
                {**settled, "updatedReplicas": replicas},
            )
        }
        owner = made["deployment"].uid
        for part, name, count in (
            ("set", objects.REPLICA_SET, replicas),
            ("old", objects.OLD_REPLICA_SET, 0),
        ):
            manifest = objects.replica_set(kind, name, owner, lean=lean, replicas=count)
            status = objects.workload_status(count)
            made[part] = self._make(f"{workloads}/replicasets", manifest, status)
        manifest = objects.pod(kind, made["set"].uid, lean=lean)
        made["pod"] = self._make(f"{core}/pods", manifest, objects.pod_status(manifest))
        made["budget"] = self._make(
            f"/apis/policy/v1/namespaces/{objects.NAMESPACE}/poddisruptionbudgets",
            objects.budget(),
            objects.budget_status(replicas),
        )
        for original in reversed(made.values()):
            self._delete(original.path)
        return made

    def _make(self, path: str, manifest: dict[str, Any], status: Any = None) -> Original:
        made = self._api.post(path, manifest)
        own = f"{path}/{made['metadata']['name']}"
        if made.get("spec", {}).pop("taints", None):
            # The server taints every new node as not ready, until a controller would take that off.
            made = self._api.put(own, made)
        if status is not None:
            made["status"] = status
            self._api.put(f"{own}/status", made)
        answer = self._pool.request(
            "GET",
            self._plane.url + own,
            headers={"Accept": self._accept, "Authorization": f"Bearer {self._plane.admin_token}"},
        )
        if answer.status != 200:
            raise RuntimeError(f"{own}: {answer.status} {answer.data[:200]!r}")
        return Original(answer.data, own, made["metadata"]["uid"], time.time())

    def _delete(self, path: str) -> None:
        if self._api.find(path) is not None:
            self._api.delete(path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})


def entries(shape: Shape, originals: Originals) -> Iterator[tuple[str, bytes]]:
    """Yield all objects of a cluster by their keys in etcd."""
    fresh = uids(random.Random(shape.seed + 1))
    for number in range(shape.namespaces):
        name = f"ns{number:05d}"
        namespace = originals.namespace
        changes = {objects.NAMESPACE: name, namespace.uid: next(fresh)}
        yield f"/registry/namespaces/{name}", namespace.copy(changes)
    for number in range(shape.nodes):
        name, node = f"no{number:05d}", originals.nodes[zone_of(number)]
        yield f"/registry/minions/{name}", node.copy({objects.NODE: name, node.uid: next(fresh)})
    for app in apps(shape):
        yield from _of_app(shape, originals.apps[app.kind], app, fresh)


def _of_app(
    shape: Shape, of_kind: dict[str, Original], app: App, fresh: Iterator[str]
) -> Iterator[tuple[str, bytes]]:
    namespace, name = f"ns{app.namespace:05d}", f"ap{app.number:06d}"
    common = {
        objects.NAMESPACE: namespace,
        objects.APP: name,
        objects.HASH: f"h{app.number:08d}",
        of_kind["deployment"].uid: next(fresh),
        of_kind["set"].uid: next(fresh),
    }
    yield f"/registry/deployments/{namespace}/{name}", of_kind["deployment"].copy(common)
    current = f"{name}-{common[objects.HASH]}"
    yield f"/registry/replicasets/{namespace}/{current}", of_kind["set"].copy(common)
    for number in range(shape.old_sets):
        mark = f"{number:01d}{app.number:08d}"
        changes = {**common, objects.OLD_HASH: mark, of_kind["old"].uid: next(fresh)}
        yield f"/registry/replicasets/{namespace}/{name}-{mark}", of_kind["old"].copy(changes)
    if app.budget:
        changes = {**common, of_kind["budget"].uid: next(fresh)}
        key = f"/registry/poddisruptionbudgets/{namespace}/{name}"
        yield key, of_kind["budget"].copy(changes)
    volume = of_kind["pod"].token_volume
    for replica, node in enumerate(app.nodes):
        suffix = f"p{replica:04d}"
        changes = {
            **common,
            objects.SUFFIX: suffix,
            objects.NODE: f"no{node:05d}",
            # Since 1.35 a bound pod carries its node's zone.
            ZONES[-1]: zone_of(node),
            of_kind["pod"].uid: next(fresh),
        }
        if volume is not None:
            changes[volume] = volume[:-5] + next(fresh)[:5]
        yield f"/registry/pods/{namespace}/{current}-{suffix}", of_kind["pod"].copy(changes)
