"""Snapshots of a real API server, kept in a directory with exactly the documented rights, and read by compare."""

import json
import time

from rebalancer.fleet.comparison import list_snapshots
from rebalancer.kube.access import READ_RULES
from rebalancer.snapshot.load import load_snapshot
from tests.controlplane import objects, operations
from tests.e2e.product import grant, rebalancer


def test_what_changed_between_two_records_is_read_back(cluster, tmp_path):
    cluster.apply([objects.node("n-0", zone="a"), objects.node("n-1", zone="b")])
    operations.wait_nodes_ready(cluster.api, 2)
    cluster.apply([objects.deployment("web", 12, labels={"app": "web"}, cpu="100m")])
    operations.wait_pods_ready(cluster.api, 12)
    folder = tmp_path / "recorded"
    args = ("record", f"--kubeconfig={grant(cluster, READ_RULES)}", f"--to={folder}")
    first = rebalancer(*args)
    assert first.code == 0, first.err
    gone = operations.pods(cluster.api, "default", "app=web")[0]["metadata"]["name"]
    cluster.api.delete(f"/api/v1/namespaces/default/pods/{gone}")
    operations.wait_pods_ready(cluster.api, 12)
    time.sleep(1.1)  # the server's clock, by which files are named, has whole seconds
    second = rebalancer(*args)
    assert second.code == 0, second.err
    sources = list_snapshots([str(folder)])
    before, after = (set(load_snapshot(source).pods.name) for source in sources)
    assert gone in before
    assert gone not in after
    assert {name for name in before if name.startswith("web-")} - {gone} <= after
    compared = rebalancer(
        "compare", "--policies", "default", "--snapshots", str(folder), "--draws=1", "-ojson"
    )
    assert compared.code == 0, compared.err
    assert [row["nodes"] for row in json.loads(compared.out)["rows"]] == [2, 2]
