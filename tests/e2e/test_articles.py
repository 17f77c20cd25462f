"""What the stories ask for and other tests do not show: management pods off spot nodes, pods that follow what they need."""

from typing import Any

import pytest

from rebalancer.kube.access import MARK_RULES, lease_rules
from tests.controlplane import objects, operations, wait_until
from tests.e2e.product import Product

PLACEMENT = """
apiVersion: rebalancer/v1
kind: Policy
steer: marks
protect: {minPodAge: 0s}
strategies:
  topology-spread: {}
  anti-affinity: {}
  duplicates: {}
  low-utilisation: {}
  placement: {avoid: {capacity: spot}, select: {labels: {app: management}}}
"""
NEAR = """
apiVersion: rebalancer/v1
kind: Policy
protect: {minPodAge: 0s}
strategies: {pod-affinity: {}}
"""
MAX_RUNS = 6
SPOT, ON_DEMAND = {"capacity": "spot"}, {"capacity": "on-demand"}


def nodes_of(plane, app):
    """Return the nodes of the pods of ``app`` that are not being deleted, ascending."""
    listed = operations.pods(plane.api, selector=f"app={app}")
    alive = [pod for pod in listed if "deletionTimestamp" not in pod["metadata"]]
    return sorted(pod["spec"].get("nodeName", "") for pod in alive)


def run_until_silent(plane, product, pods, *flags):
    """Call runs until one evicts nothing; return the evictions in all."""
    evicted: list[dict[str, Any]] = []
    for _ in range(MAX_RUNS):
        done = product.run(*flags)
        assert done.code == 0, done.err
        if not done.evicted:
            return evicted
        evicted += done.evicted
        operations.wait_pods_ready(plane.api, pods)
    raise AssertionError([(move["pod"], move["from"], move["reason"]) for move in evicted])


def test_management_pods_leave_spot_nodes_and_never_go_back(cluster, tmp_path):
    cluster.apply([objects.node(f"spot-{i}", labels=SPOT) for i in range(2)])
    operations.wait_nodes_ready(cluster.api, 2)
    cluster.apply([objects.deployment("management", 3, labels={"app": "management"})])
    cluster.apply([objects.deployment("work", 4, labels={"app": "work"})])
    operations.wait_pods_ready(cluster.api, 7)
    assert set(nodes_of(cluster, "management")) <= {"spot-0", "spot-1"}
    cluster.apply([objects.node(f"demand-{i}", labels=ON_DEMAND) for i in range(3)])
    operations.wait_nodes_ready(cluster.api, 5)
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    cluster.apply([{**lease, "metadata": {"name": "turns", "namespace": "default"}}])
    rules = (*MARK_RULES, *lease_rules("default", "turns"))
    product = Product(cluster, tmp_path, PLACEMENT, rules)

    moved = run_until_silent(cluster, product, 7, "--lease=default/turns")

    assert {move["strategy"] for move in moved if move["pod"].startswith("management")} == {
        "placement"
    }
    assert set(nodes_of(cluster, "management")) <= {"demand-0", "demand-1", "demand-2"}
    # New and empty spot nodes attract what may be moved: these pods stay where they are.
    cluster.apply([objects.node(f"spot-{i}", labels=SPOT) for i in (2, 3)])
    operations.wait_nodes_ready(cluster.api, 7)
    uids = {p["metadata"]["uid"] for p in operations.pods(cluster.api, selector="app=management")}
    run_until_silent(cluster, product, 7, "--lease=default/turns")
    now = operations.pods(cluster.api, selector="app=management")
    assert {pod["metadata"]["uid"] for pod in now} == uids


@pytest.mark.parametrize("required", [True, pytest.param(False, marks=pytest.mark.long)])
def test_pods_follow_the_pod_that_they_have_affinity_to(cluster, tmp_path, required):
    term = {"labelSelector": {"matchLabels": {"app": "cache"}}, "topologyKey": objects.ZONE}
    rules = (
        {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        if required
        else {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 100, "podAffinityTerm": term}
            ]
        }
    )
    cluster.apply([objects.node(f"{zone}-0", zone=f"zone-{zone}") for zone in "ab"])
    operations.wait_nodes_ready(cluster.api, 2)
    operations.cordon(cluster.api, ["b-0"])
    cluster.apply([objects.deployment("cache", 1, labels={"app": "cache"})])
    operations.wait_pods_ready(cluster.api, 1)
    web = objects.deployment("web", 3, labels={"app": "web"}, affinity={"podAffinity": rules})
    cluster.apply([web])
    operations.wait_pods_ready(cluster.api, 4)
    operations.cordon(cluster.api, ["b-0"], on=False)
    assert nodes_of(cluster, "web") == ["a-0"] * 3
    # What they stand beside goes to the other zone.
    operations.cordon(cluster.api, ["a-0"])
    [cache] = operations.pods(cluster.api, selector="app=cache")
    cluster.api.delete(f"/api/v1/namespaces/default/pods/{cache['metadata']['name']}")
    wait_until(lambda: nodes_of(cluster, "cache") == ["b-0"], 60, "the cache in the other zone")
    operations.wait_pods_ready(cluster.api, 4)
    operations.cordon(cluster.api, ["a-0"], on=False)

    moved = run_until_silent(cluster, Product(cluster, tmp_path, NEAR), 4)

    assert {move["strategy"] for move in moved} == {"pod-affinity"}
    assert len(moved) == 3
    assert nodes_of(cluster, "web") == ["b-0"] * 3
