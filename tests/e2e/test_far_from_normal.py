"""Clusters far from normal on a real control plane: nodes that vanished, and a zone that is closed."""

from tests.controlplane import drift, objects, operations
from tests.e2e.product import Product


def test_after_nodes_have_vanished_nothing_is_evicted(cluster, tmp_path):
    drift.article(cluster, nodes=9, zone_label=objects.ZONE, rule="spread")
    product = Product(cluster, tmp_path)
    assert product.run("--dry-run").report["moves"]
    on = {pod["spec"]["nodeName"] for pod in operations.pods(cluster.api, selector="app=nginx")}
    for name in sorted(on)[:2]:
        cluster.api.delete(f"/api/v1/nodes/{name}")
    done = product.run()
    assert done.code == 0, done.err
    assert done.evicted == []
    (why, *_) = done.report["standstill"]
    assert "2 of 9 nodes do not exist, though pods are on them" in why
    assert "every rule holds" not in done.report["stopped"]


def test_while_a_zone_is_closed_nothing_moves_for_a_soft_rule(cluster, tmp_path):
    drift.article(cluster, nodes=6, zone_label=objects.ZONE, rule="prefer-apart")
    product = Product(cluster, tmp_path)
    assert product.run("--dry-run").report["moves"]
    nodes = cluster.api.list_all("/api/v1/nodes")
    zones = {one["metadata"]["name"]: one["metadata"]["labels"][objects.ZONE] for one in nodes}
    on = [pod["spec"]["nodeName"] for pod in operations.pods(cluster.api, selector="app=nginx")]
    zone = max(set(zones.values()), key=lambda one: sum(zones[name] == one for name in on))
    closed = [name for name in zones if zones[name] == zone]
    assert sum(name in on for name in closed) == 2
    operations.cordon(cluster.api, closed)
    done = product.run()
    assert (done.code, done.evicted) == (0, []), done.err
    assert any(f"zone {zone} (" in text for text in done.report["warnings"])
    operations.cordon(cluster.api, closed, on=False)
    assert product.run().evicted
