"""A zone that comes back is refilled by the first plan after its first Ready node, most at risk first, no faster than budgets."""

import contextlib
import threading
from collections import Counter

import pytest
import yaml

from rebalancer.kube.access import lease_rules
from tests.controlplane import audit, objects, operations, stages, wait_until
from tests.e2e.product import RUN_RULES, Product, grant
from tests.e2e.served import PATIENT, Server

POLICY = {
    "apiVersion": "rebalancer/v1",
    "kind": "Policy",
    "protect": {"minPodAge": "0s"},
    "budgets": {"inFlight": 1, "perRun": 100, "perHour": 100},
    "strategies": {"topology-spread": {}},
}
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
RULES = (*RUN_RULES, *lease_rules("default", "turns"))
PODS = 10


def app(name, replicas, zones):
    """A Deployment that may stand unevenly by one at most over the zones in which it may be."""
    return objects.deployment(
        name,
        replicas,
        labels={"app": name, "of": "zones"},
        pod_annotations={stages.READY_AFTER: "500ms"},
        affinity=objects.require_node(objects.ZONE, *zones),
        topologySpreadConstraints=[objects.spread({"app": name}, objects.ZONE)],
    )


@pytest.fixture
def product(cluster, tmp_path):
    """Zones x and y, without z: amber and zinc stand in x alone, web in both."""
    cluster.apply([objects.node(f"{zone}{n}", zone=zone) for zone in "xy" for n in range(2)])
    operations.wait_nodes_ready(cluster.api, 4)
    cluster.apply([app("web", 4, "xyz"), app("amber", 3, "xz"), app("zinc", 3, "xz")])
    operations.wait_pods_ready(cluster.api, PODS, 60, selector="of=zones")
    made = Product(cluster, tmp_path, yaml.safe_dump(POLICY))
    made.kubeconfig = grant(cluster, RULES)
    with contextlib.suppress(Exception):
        cluster.api.delete(f"{LEASES}/turns")
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    cluster.apply([{**lease, "metadata": {"name": "turns", "namespace": "default"}}])
    return made


def come_back(cluster):
    cluster.apply([objects.node("z0", zone="z")])
    operations.wait_nodes_ready(cluster.api, 5)


def living(cluster):
    pods = operations.pods(cluster.api, "default", "of=zones")
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def by_zone(cluster):
    """How many pods of each app stand in which zone."""
    return Counter(
        (pod["metadata"]["labels"]["app"], pod["spec"].get("nodeName", " ")[0])
        for pod in living(cluster)
    )


def is_refilled(cluster):
    counts = by_zone(cluster)
    one_each = all(counts[name, "z"] == 1 for name in ("web", "amber", "zinc"))
    return one_each and sum(map(operations.is_ready, living(cluster))) == PODS


def evicted(log):
    """The apps of the pods that were evicted, in order."""
    asked = [one for one in log.requests() if one.kind == audit.EVICTION and one.code == 201]
    return [one.name.partition("-")[0] for one in asked]


@contextlib.contextmanager
def fewest_ready(cluster):
    """Yield a list of the numbers of Ready pods that are seen meanwhile."""
    seen, end = [], threading.Event()

    def watch():
        while not end.wait(0.05):
            seen.append(sum(map(operations.is_ready, living(cluster))))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    yield seen
    end.set()
    thread.join(30)


def test_serve_refills_it_as_soon_as_its_first_node_is_ready(cluster, product, tmp_path):
    server = Server(product, tmp_path, "one", "--every=1h", "--lease=default/turns")
    try:
        server.await_words("nothing to do")
        log = audit.AuditLog(cluster.audit_log)
        with fewest_ready(cluster) as ready:
            come_back(cluster)
            wait_until(lambda: is_refilled(cluster), PATIENT, "the zone refilled")
        # Those that stand in one zone alone come first, and one pod is on its way at a time.
        assert evicted(log)[2:] == ["web"]
        assert sorted(evicted(log)[:2]) == ["amber", "zinc"]
        assert min(ready) >= PODS - 1
        # No other run but those that the node has called for.
        assert server.said("planning now") >= 1
        assert server.end() == 0
        assert len(evicted(log)) == 3
    finally:
        server.end()


def test_the_next_run_refills_it_and_the_one_after_is_silent(cluster, product):
    assert product.run().evicted == []
    come_back(cluster)
    with fewest_ready(cluster) as ready:
        moves = product.run().evicted
    assert sorted(move["pod"].partition("-")[0] for move in moves[:2]) == ["amber", "zinc"]
    assert [move["pod"].partition("-")[0] for move in moves[2:]] == ["web"]
    assert min(ready) >= PODS - 1
    wait_until(lambda: is_refilled(cluster), PATIENT, "the zone refilled")
    assert product.run().evicted == []
