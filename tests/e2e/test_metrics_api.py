"""What is really used, read from a real API server: measured, not served, not answered, not allowed."""

import time
from collections import Counter
from contextlib import nullcontext

import pytest

from rebalancer.base.errors import ExitCode
from rebalancer.kube.access import READ_RULES, USAGE_RULES
from rebalancer.kube.client import USER_AGENT, connect
from rebalancer.kube.failures import ForbiddenError
from rebalancer.kube.metrics import MetricsApi
from rebalancer.kube.read import read_cluster
from rebalancer.snapshot.load import load_snapshot
from tests.controlplane import audit, metrics, objects, operations
from tests.e2e.product import grant, rebalancer

MIB = 1 << 20
RULES = (*READ_RULES, *USAGE_RULES)


@pytest.fixture
def two_nodes(cluster):
    """Two nodes with a pod on one of them."""
    cluster.apply([objects.node("n-0", zone="a"), objects.node("n-1", zone="b")])
    operations.wait_nodes_ready(cluster.api, 2)
    cluster.apply([objects.deployment("web", 2, labels={"app": "web"}, cpu="100m")])
    operations.wait_pods_ready(cluster.api, 2)
    return cluster


def client_with(cluster, rules):
    return connect(kubeconfig=grant(cluster, rules), environ={})


def read(client):
    return read_cluster(client, clock=time.time, usage=MetricsApi(client))


def captured(cluster, folder, rules):
    """Run ``rebalancer snapshot --usage`` with these rights."""
    path = folder / "cluster.zip"
    done = rebalancer("snapshot", "--usage", f"--kubeconfig={grant(cluster, rules)}", f"-o{path}")
    return done, path


def columns(snapshot):
    usage = snapshot.usage
    return usage.nodes.tolist(), usage.known.tolist(), usage.classes.tolist()


def test_what_was_measured_is_read_with_exactly_the_documented_rights(two_nodes, tmp_path):
    api = two_nodes.api
    pods = operations.pods(api, "default", "app=web")
    with metrics.served(api):
        metrics.tell_node(api, "n-1", {"cpu": "1234567890n", "memory": "300Mi"})
        metrics.tell_pod(
            api, pods[0], [{"cpu": "250m", "memory": "2048Ki"}, {"cpu": "1500000n", "memory": "0"}]
        )
        log = audit.AuditLog(two_nodes.audit_log)
        reading = read(client_with(two_nodes, RULES))
        asked = {
            request.kind
            for request in log.requests()
            if request.agent == USER_AGENT and request.code == 200
        }
        done, path = captured(two_nodes, tmp_path, RULES)
    assert reading.readings.notes == ()
    values = [[0, 1235], [0, 300 * MIB]], [False, True], [[252], [2 * MIB]]
    assert columns(reading.snapshot) == values
    assert {(rule.verb, rule.group, rule.resource) for rule in RULES} == asked
    assert done.code == ExitCode.DONE, done.err
    assert "usage" not in done.err
    assert columns(load_snapshot(path)) == values


def test_a_cluster_without_a_metrics_server_is_read_and_a_note_says_what_is_missing(
    two_nodes, tmp_path
):
    client = client_with(two_nodes, RULES)
    reading = read(client)
    assert len(reading.snapshot.pods) == 2
    assert reading.snapshot.usage is None
    (note,) = reading.readings.notes
    assert "the API server does not serve them" in note
    assert "Install metrics-server" in note
    done, path = captured(two_nodes, tmp_path, RULES)
    assert done.code == ExitCode.DONE, done.err
    assert note in done.err
    assert load_snapshot(path).usage is None


def test_a_metrics_server_that_does_not_answer_holds_nothing_up(two_nodes, tmp_path):
    with metrics.silent(two_nodes.api):
        client = client_with(two_nodes, RULES)
        log = audit.AuditLog(two_nodes.audit_log)
        reading = read(client)
        # It is asked once for each kind, and not again: that would take a quarter of a minute.
        asked = Counter(request.resource for request in log.requests() if request.code == 503)
        assert asked == {"nodes": 1, "pods": 1}
    assert reading.snapshot.usage is None
    (note,) = reading.readings.notes
    assert "nodes.metrics.k8s.io and pods.metrics.k8s.io: HTTP 503" in note


@pytest.mark.parametrize(
    "there",
    [pytest.param(True, id="served"), pytest.param(False, id="not served", marks=pytest.mark.long)],
)
@pytest.mark.parametrize("missing", USAGE_RULES, ids=str)
def test_each_missing_right_is_named(two_nodes, tmp_path, missing, there):
    rules = [rule for rule in RULES if rule != missing]
    with metrics.served(two_nodes.api) if there else nullcontext():
        with pytest.raises(ForbiddenError) as caught:
            read(client_with(two_nodes, rules))
        done, path = captured(two_nodes, tmp_path, rules)
    assert caught.value.missing == (missing,)
    assert done.code == ExitCode.UNREADABLE
    assert str(missing) in done.err
    assert missing.as_yaml() in done.err
    assert "Traceback" not in done.err
    assert not path.exists()


def test_all_missing_rights_are_named_at_once(two_nodes):
    with pytest.raises(ForbiddenError) as caught:
        read(client_with(two_nodes, READ_RULES[:-1]))
    assert set(caught.value.missing) == {READ_RULES[-1], *USAGE_RULES}
