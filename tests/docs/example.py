"""The snapshot files in docs/examples: small clusters that have drifted, from the embedded cluster.

The cluster's clock stands still, so that the same code makes the same bytes.
"""

import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rebalancer.embedded import demo
from rebalancer.embedded.apiserver.kinds import POD
from rebalancer.embedded.apiserver.store import EmbeddedClock
from rebalancer.embedded.cluster import EmbeddedCluster
from rebalancer.embedded.controllers.nodes import NEVER_READY
from rebalancer.embedded.manifests import ZONE, deployment, node, spread
from rebalancer.kube.capture import write_cluster_snapshot
from rebalancer.kube.client import connect
from rebalancer.testing import snapshots
from rebalancer.wire.pods import FINISHED

_START = 1_790_000_000.0
_MINUTES = 600.0
_MANIFEST = "manifest.json"
_SOURCE = "https://cluster.example"


def _zone_back(cluster: EmbeddedCluster) -> None:
    demo.many_workloads(cluster)
    demo.zone_lost(cluster)
    demo.zone_back(cluster)


def _nodes(cluster: EmbeddedCluster, *zones: str) -> None:
    for zone in zones:
        cluster.add_node(f"node-{zone}1", f"zone-{zone}")
    cluster.advance(_MINUTES)


def _settled(cluster: EmbeddedCluster, *manifests: Mapping[str, object]) -> None:
    cluster.apply(*manifests)
    cluster.advance(_MINUTES)


def _duplicates(cluster: EmbeddedCluster) -> None:
    """Two nodes join after four replicas were placed on two others."""
    _nodes(cluster, "a", "b")
    _settled(cluster, deployment("web", 4))
    _nodes(cluster, "c", "d")


def _low_utilisation(cluster: EmbeddedCluster) -> None:
    """Two nodes are three quarters full, and an empty one joins."""
    _nodes(cluster, "a", "b")
    _settled(cluster, *(deployment(f"app-{number}", 2, cpu="1") for number in range(1, 7)))
    _nodes(cluster, "c")


def _node_affinity(cluster: EmbeddedCluster) -> None:
    """The label that a workload asks for is taken from one node and given to another."""
    pool = {"pool": "front"}
    cluster.add_node("node-a1", "zone-a", labels=pool)
    cluster.add_node("node-b1", "zone-b", labels=pool)
    _nodes(cluster, "c")
    _settled(cluster, deployment("web", 2, nodeSelector=pool))
    _settled(
        cluster,
        node("node-b1", zone="zone-b", labels={"pool": "batch"}),
        node("node-c1", zone="zone-c", labels=pool),
    )


def _taints(cluster: EmbeddedCluster) -> None:
    """A node is reserved for others while pods run on it."""
    _nodes(cluster, "a", "b")
    _settled(cluster, deployment("web", 2))
    _nodes(cluster, "c")
    taint = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
    _settled(cluster, node("node-b1", zone="zone-b", taints=[taint]))


def _leaving(cluster: EmbeddedCluster) -> None:
    """A node is cordoned, and announced to go."""
    _nodes(cluster, "a", "b", "c")
    _settled(cluster, deployment("web", 3))
    going = {"rebalancer/leave": "now"}
    _settled(cluster, node("node-b1", zone="zone-b", annotations=going, unschedulable=True))


def _consolidation(cluster: EmbeddedCluster) -> None:
    """A workload on three nodes shrinks from nine replicas to four."""
    _nodes(cluster, "a", "b", "c")
    _settled(cluster, deployment("web", 9, cpu="1"))
    _settled(cluster, deployment("web", 4, cpu="1"))


def _pod_affinity(cluster: EmbeddedCluster) -> None:
    """Pods prefer the zone of a cache that has come after them."""
    _nodes(cluster, "a", "b")
    term = {"labelSelector": {"matchLabels": {"app": "cache"}}, "topologyKey": ZONE}
    near = {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "podAffinityTerm": term}
        ]
    }
    _settled(cluster, deployment("web", 2, affinity={"podAffinity": near}))
    pool = {"pool": "cache"}
    cluster.add_node("node-c1", "zone-c", labels=pool)
    cluster.advance(_MINUTES)
    _settled(cluster, deployment("cache", 2, nodeSelector=pool))


def _placement(cluster: EmbeddedCluster) -> None:
    """One of two nodes is spot capacity, and a third one joins that is not."""
    cluster.add_node("node-a1", "zone-a", labels={"capacity": "spot"})
    _nodes(cluster, "b")
    _settled(cluster, deployment("web", 2))
    _nodes(cluster, "c")


def _lifetime(cluster: EmbeddedCluster) -> None:
    """Pods run for two days; a workload that came later is younger."""
    _nodes(cluster, "a", "b")
    _settled(cluster, deployment("web", 2))
    cluster.advance(47 * 3600.0)
    _settled(cluster, deployment("api", 2))


def _change_first(cluster: EmbeddedCluster, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the first pod of namespace default."""
    with cluster.store.lock:
        cluster.store.modify(POD, cluster.store.items(POD, "default")[0], change)
    cluster.advance(_MINUTES)


def _restarts(cluster: EmbeddedCluster) -> None:
    """A container was restarted 130 times."""
    _nodes(cluster, "a", "b")
    _settled(cluster, deployment("web", 2))

    def restarted(pod: dict[str, Any]) -> None:
        pod["status"]["containerStatuses"][0]["restartCount"] = 130

    _change_first(cluster, restarted)


def _stuck(cluster: EmbeddedCluster) -> None:
    """A pod does not get Ready on a node, and another node joins."""
    _nodes(cluster, "a", "b")
    _settled(cluster, deployment("web", 2, cpu="1"))
    _change_first(cluster, lambda pod: pod["metadata"].update(annotations={NEVER_READY: "true"}))
    _nodes(cluster, "c")


def _failed_pods(cluster: EmbeddedCluster) -> None:
    """A kubelet evicts a pod, and another is made."""
    _nodes(cluster, "a", "b")
    _settled(cluster, deployment("web", 2))

    def evicted(pod: dict[str, Any]) -> None:
        pod["status"] |= {"phase": "Failed", "reason": "Evicted", "containerStatuses": []}

    _change_first(cluster, evicted)
    cluster.advance(2 * 3600.0)


def _make_room(cluster: EmbeddedCluster) -> None:
    """Three nodes of eight CPUs are half full, and a pod that asks for six waits."""
    cluster.apply(*(node(f"node-{zone}1", zone=f"zone-{zone}", cpu="8") for zone in "abc"))
    cluster.advance(_MINUTES)
    _settled(cluster, deployment("web", 6, cpu="1"))
    _settled(cluster, deployment("cache", 3, cpu="2"))
    _settled(cluster, deployment("model", 1, cpu="6"))


def _slots(cluster: EmbeddedCluster) -> None:
    """Three nodes of eight CPUs are half full."""
    cluster.apply(*(node(f"node-{zone}1", zone=f"zone-{zone}", cpu="8") for zone in "abc"))
    cluster.advance(_MINUTES)
    _settled(cluster, deployment("web", 6, cpu="1"))
    _settled(cluster, deployment("cache", 3, cpu="2"))


def _deletion_cost(cluster: EmbeddedCluster) -> None:
    """Six replicas were placed on two zones, and a third one joins."""
    _nodes(cluster, "a", "b")
    even = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    _settled(cluster, deployment("web", 6, topologySpreadConstraints=[even]))
    _nodes(cluster, "c")


def _capacity(cluster: EmbeddedCluster) -> None:
    """Two nodes of three are hardly used, one holds a single replica, one is full, and two workloads wait for room."""
    for name, pool in (*((f"node-{zone}1", "web") for zone in "abc"), ("node-d1", "batch")):
        zone = f"zone-{name[5]}"
        cluster.add_node(name, zone, labels={"eks.amazonaws.com/nodegroup": pool, "pool": pool})
    cluster.advance(_MINUTES)
    web, batch = ({"nodeSelector": {"pool": pool}} for pool in ("web", "batch"))
    _settled(cluster, deployment("web", 2, cpu="400m", **web))
    _settled(cluster, deployment("cache", 1, cpu="1", **web))
    _settled(cluster, deployment("report", 5, cpu="1", **batch))
    _settled(cluster, deployment("train", 3, cpu="3500m", **batch))
    _settled(cluster, deployment("model", 1, cpu="100", **batch))


def _exchange(cluster: EmbeddedCluster) -> None:
    """Two workloads fill one node each; then either may stand on both, and has to."""
    cluster.add_node("node-a1", "zone-a", labels={"team-a": "yes"})
    cluster.add_node("node-b1", "zone-b", labels={"team-b": "yes"})
    cluster.advance(_MINUTES)
    for name in ("a", "b"):
        labels = {"app": f"app-{name}"}
        rule = spread(labels, ZONE)
        more = {"nodeSelector": {f"team-{name}": "yes"}, "topologySpreadConstraints": [rule]}
        _settled(cluster, deployment(f"app-{name}", 2, labels=labels, cpu="4", **more))
    both = {"team-a": "yes", "team-b": "yes"}
    _settled(cluster, *(node(f"node-{zone}1", zone=f"zone-{zone}", labels=both) for zone in "ab"))


def _pins(cluster: EmbeddedCluster) -> None:
    """On each of four nodes that are hardly used is a pod that may not be moved."""
    _nodes(cluster, "a", "b", "c", "d")
    safe = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    _settled(cluster, deployment("ingest", 4, cpu="500m", pod_annotations=safe))


_DRIFTS: Mapping[str, Callable[[EmbeddedCluster], None]] = {
    "zone-back": _zone_back,
    "duplicates": _duplicates,
    "low-utilisation": _low_utilisation,
    "node-affinity": _node_affinity,
    "taints": _taints,
    "leaving": _leaving,
    "consolidation": _consolidation,
    "pod-affinity": _pod_affinity,
    "placement": _placement,
    "lifetime": _lifetime,
    "restarts": _restarts,
    "stuck": _stuck,
    "failed-pods": _failed_pods,
    "make-room": _make_room,
    "slots": _slots,
    "deletion-cost": _deletion_cost,
    "capacity": _capacity,
    "pins": _pins,
    "exchange": _exchange,
}


def _hot_node() -> bytes:
    """Return a list of objects, with what metrics.k8s.io measures: all pods ask for the same, and those of four workloads use more."""
    names = ("node-a1", "node-b1", "node-c1")
    objects = [snapshots.node(name, f"zone-{name[5]}", cpu="4") for name in names]
    used = dict.fromkeys(names, 100)
    for number in range(9):
        busy = number < 4
        places = [names[0], names[1 + number % 2]] if busy else list(names[1:])
        name, cpu = f"{'busy' if busy else 'idle'}-{number}", 450 if busy else 20
        objects += snapshots.workload(name, places, cpu="200m")
        for at, place in enumerate(places):
            used[place] += cpu
            container = {"name": "main", "usage": {"cpu": f"{cpu}m", "memory": "100Mi"}}
            objects.append(_measured("Pod", f"{name}-{at}", {"containers": [container]}))
    for name, cpu in used.items():
        objects.append(_measured("Node", name, {"usage": {"cpu": f"{cpu}m", "memory": "2Gi"}}))
    return json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}).encode()


def _measured(kind: str, name: str, what: Mapping[str, object]) -> dict[str, object]:
    """Return a measurement of a pod or a node."""
    space = {"namespace": "default"} if kind == "Pod" else {}
    meta = {"name": name, **space, "creationTimestamp": snapshots.NOW}
    head = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": f"{kind}Metrics", "metadata": meta}
    return {**head, "timestamp": snapshots.NOW, "window": "30s", **what}


def files() -> Iterator[tuple[str, bytes]]:
    """Yield path below the repository and content of each example."""
    for name, drift in _DRIFTS.items():
        with EmbeddedCluster(EmbeddedClock(_START), seed=7) as cluster:
            drift(cluster)
            cluster.catch_up()
            yield f"docs/examples/{name}.zip", _captured(cluster)
    yield "docs/examples/hot-node.json", _hot_node()


def _captured(cluster: EmbeddedCluster) -> bytes:
    """Return a snapshot file that names no port, which is another one each time."""
    stream, same = io.BytesIO(), io.BytesIO()
    client = connect(kubeconfig=str(cluster.kubeconfig), context=None, environ={})
    write_cluster_snapshot(client, stream, clock=cluster.clock.now, finished=FINISHED)
    with zipfile.ZipFile(stream) as archive, zipfile.ZipFile(same, "w") as copy:
        for info in archive.infolist():
            content = archive.read(info)
            if info.filename == _MANIFEST:
                content = content.replace(cluster.url.encode(), _SOURCE.encode())
            copy.writestr(info, content, zipfile.ZIP_DEFLATED)
    return same.getvalue()
