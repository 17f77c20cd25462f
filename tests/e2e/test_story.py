"""The story on a real control plane: a third zone joins, one pod moves there, then silence."""

import json
from collections import Counter

import pytest

from rebalancer.kube.access import READ_RULES
from tests.controlplane import drift, objects, operations
from tests.e2e.product import NO_WAIT, Product, grant, rebalancer


def zones_of(plane, label):
    """How many nginx pods stand in each zone."""
    zone = {
        node["metadata"]["name"]: node["metadata"]["labels"][label]
        for node in plane.api.list_all("/api/v1/nodes")
    }
    pods = operations.pods(plane.api, selector="app=nginx")
    return Counter(
        zone[pod["spec"]["nodeName"]] for pod in pods if "deletionTimestamp" not in pod["metadata"]
    )


@pytest.mark.parametrize(
    ("nodes", "label", "rule"),
    [
        (3, objects.DEPRECATED_ZONE, "prefer-apart"),
        (6, objects.ZONE, "spread"),
        pytest.param(6, objects.ZONE, "prefer-apart", marks=pytest.mark.long),
    ],
)
def test_one_eviction_then_one_per_zone_then_silence(cluster, tmp_path, nodes, label, rule):
    drift.article(cluster, nodes=nodes, zone_label=label, rule=rule)
    assert sorted(zones_of(cluster, label).values()) == [1, 2]
    product = Product(cluster, tmp_path)

    planned = product.run("--dry-run")
    assert planned.code == 0, planned.err
    assert sorted(zones_of(cluster, label).values()) == [1, 2]
    first = product.run(start=("-m", "rebalancer"))
    assert first.code == 0, first.err
    assert len(first.evicted) == 1
    # The first wave of a real run is that of a dry run made just before.
    assert first.report["moves"][0]["uid"] == planned.report["moves"][0]["uid"]
    moved = first.evicted[0]
    assert moved["landed"].startswith("zone-c")
    assert moved["landed"] in [landing["node"] for landing in moved["landings"]]
    assert zones_of(cluster, label) == {"zone-a": 1, "zone-b": 1, "zone-c": 1}

    operations.wait_pods_ready(cluster.api, 3, selector="app=nginx")
    for _ in range(3):
        silent = product.run()
        assert silent.code == 0, silent.err
        assert silent.report["moves"] == []
        assert "every rule holds" in silent.report["stopped"]


def test_a_reviewed_plan_fixes_the_same_and_applied_again_evicts_nothing(cluster, tmp_path):
    drift.article(cluster)
    product = Product(cluster, tmp_path)
    planned = product.run("--dry-run")
    [move] = planned.report["moves"]
    # A user has added a pod of a zone that is well off, with a promise that it does not keep.
    [lone] = [
        pod
        for pod in operations.pods(cluster.api, selector="app=nginx")
        if pod["spec"]["nodeName"][:6] != move["from"][:6]
    ]
    names = {"pod": lone["metadata"]["name"], "uid": lone["metadata"]["uid"]}
    added = {**move, **names, "from": lone["spec"]["nodeName"], "wave": 2}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({**planned.report, "moves": [move, added]}))

    first = product.apply(path)
    assert first.code == 0, first.err
    assert [moved["uid"] for moved in first.evicted] == [move["uid"]]
    assert first.evicted[0]["landed"].startswith("zone-c")
    assert first.report["moves"][1]["outcome"] == "dropped"
    assert zones_of(cluster, objects.DEPRECATED_ZONE) == {"zone-a": 1, "zone-b": 1, "zone-c": 1}

    again = product.apply(path)
    assert again.code == 0, again.err
    assert [moved["outcome"] for moved in again.report["moves"]] == ["gone", "dropped"]
    assert again.report["stopped"].startswith("Nothing to do: nothing is left of the plan")
    assert zones_of(cluster, objects.DEPRECATED_ZONE) == {"zone-a": 1, "zone-b": 1, "zone-c": 1}


def test_events_on_pod_and_owner_say_who_and_why(cluster, tmp_path):
    drift.article(cluster)
    done = Product(cluster, tmp_path).run()
    assert len(done.evicted) == 1, done.err
    events = [
        event
        for event in cluster.api.list_all("/apis/events.k8s.io/v1/events")
        if event.get("reportingController") == "kube-rebalancer"
    ]
    assert {event["regarding"]["kind"] for event in events} == {"Pod", "Deployment"}
    for event in events:
        assert event["reason"] == "Rebalanced"
        assert "zone-c" in event["note"]


@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("workload", "deploy/default/nginx"),
        pytest.param("node", "zone-a-0", marks=pytest.mark.long),
    ],
)
def test_an_explanation_needs_the_rights_of_a_dry_run_and_reports_its_plan(
    cluster, tmp_path, what, name
):
    drift.article(cluster)
    flags = [f"--policy={tmp_path / 'policy.yaml'}", f"--kubeconfig={grant(cluster, READ_RULES)}"]
    (tmp_path / "policy.yaml").write_text(NO_WAIT)
    planned = rebalancer("run", "--dry-run", *flags, "--output=json")
    (move,) = planned.report["moves"]
    explained = rebalancer("explain", what, name, *flags, "--output=json")
    assert explained.code == 0, explained.err
    pods = json.loads(explained.out)["pods"]
    moves = {pod["pod"]: pod["plan"]["move"] for pod in pods if pod["plan"]["move"]}
    here = what == "workload" or move["from"] == name
    assert moves == ({move["pod"]: move} if here else {})
    table = rebalancer("explain", what, name, *flags)
    assert (table.code, "Deployment/default/nginx" in table.out) == (0, True), table.err
