"""Machines that say they will go, on the real control plane: `serve` cordons and empties them, also after a kill -9."""

import contextlib
import json
import signal
import time
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from rebalancer.kube.access import MARK_RULES, config_map_rules
from rebalancer.kube.client import USER_AGENT
from rebalancer.node_record.protocol import EXCLUDE as LABEL
from rebalancer.signals.notice import NOTICE, NodeNotice, encode_notice
from rebalancer.signals.state import STATE
from rebalancer.snapshot.leaving import LEAVE
from tests.controlplane import audit, wait_until
from tests.e2e import crowd
from tests.e2e.product import RUN_RULES, Product, grant
from tests.e2e.served import PATIENT, Server

APPS = 3
CORDON = ("patch", "", "nodes")
NODE = "/api/v1/nodes/crowd-a"
TOUCHED = "example.com/touched"
POLICY = {
    "apiVersion": "rebalancer/v1",
    "kind": "Policy",
    "protect": {"minPodAge": "0s"},
    "strategies": {"leaving": {}},
    "signals": {"kubernetes": {}},
    "safety": {"maxPendingPods": 100},
    "budgets": {"perRun": 1000, "perHour": 1000, "perNode": 1000, "inFlight": 1},
}
"""One eviction after the other, so that a kill comes in the middle."""


@pytest.fixture
def product(cluster, tmp_path):
    crowd.gather(cluster, APPS)
    made = Product(cluster, tmp_path, yaml.safe_dump(POLICY))
    cluster.apply([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}}])
    kept = config_map_rules("default", "kept")
    rules = (*RUN_RULES, *MARK_RULES, *kept)
    made.kubeconfig = grant(cluster, rules)
    return made


@pytest.fixture
def serve(product, tmp_path):
    with contextlib.ExitStack() as at_end:

        def start(name):
            flags = ("--every=1h", "--output=json", "--machine-state=default/kept")
            server = Server(product, tmp_path, name, *flags)
            at_end.callback(server.end)
            return server

        yield start


def announce(cluster):
    """Let the node say that it goes, far enough away for a machine that does much else; return when it did."""
    at = datetime.now(UTC)
    deadline = (at + timedelta(minutes=50)).strftime("%Y-%m-%dT%H:%M:%SZ")
    notice = encode_notice(NodeNotice("spot-1", "spot", deadline))
    cluster.api.patch(NODE, {"metadata": {"annotations": {NOTICE: notice}}})
    return at


def state(cluster):
    annotations = cluster.api.get(NODE)["metadata"].get("annotations") or {}
    return json.loads(annotations.get(STATE, "{}"))


def on_node(cluster):
    return [pod for pod in crowd.pods(cluster).values() if pod["spec"].get("nodeName") == "crowd-a"]


def reports_an_end(cluster, server, result):
    """Return whether a run of a process has said this result; else change the node, which calls for another run.

    That for the uncordoned node may come before the end is noted, and the next by the clock is an hour away.
    """
    if server.said(f'"result": "{result}"'):
        return True
    cluster.api.patch(NODE, {"metadata": {"labels": {TOUCHED: str(time.time_ns())}}})
    return False


def test_a_node_that_goes_is_emptied_though_the_process_is_killed_and_comes_back_if_it_stays(
    cluster, product, serve
):
    first = serve("first")
    first.await_words("nothing to do")
    before = len(on_node(cluster))
    assert before >= APPS
    log = audit.AuditLog(cluster.audit_log)
    with crowd.BudgetWatcher(cluster) as budgets:
        said = announce(cluster)
        wait_until(lambda: len(on_node(cluster)) < before, PATIENT, "the first pod leaves")
        first.process.send_signal(signal.SIGKILL)
        first.process.wait(PATIENT)
        between = state(cluster)
        assert on_node(cluster)
        assert not between.get("ended")
        second = serve("second")
        wait_until(lambda: state(cluster).get("ended"), PATIENT, "the pipeline at its end")
    assert budgets.samples
    assert not budgets.broken
    assert not on_node(cluster)
    after, node = state(cluster), cluster.api.get(NODE)
    assert {name: step["status"] for name, step in after["steps"].items()} == dict.fromkeys(
        ("cordon", "exclude", "leave"), "done"
    )
    assert after["begun"] == between["begun"]
    assert after["steps"]["cordon"] == between["steps"]["cordon"]
    assert node["spec"]["unschedulable"]
    assert {LABEL} <= set(node["metadata"]["labels"])
    second.await_words("crowd-a: cordon done; exclude done; leave done")
    assert first.said("Traceback") == second.said("Traceback") == 0

    ours = [one for one in log.requests() if one.agent == USER_AGENT and one.code < 300]
    first_of = {
        kind: min(one.at for one in ours if one.kind == kind) for kind in (CORDON, audit.EVICTION)
    }
    assert said < first_of[CORDON] < first_of[audit.EVICTION]

    # What the other process has done is undone by this one.
    cluster.api.patch(NODE, {"metadata": {"annotations": {NOTICE: None}}})
    wait_until(lambda: not state(cluster), PATIENT, "the state gone")
    node = cluster.api.get(NODE)
    assert not node["spec"].get("unschedulable")
    assert LABEL not in node["metadata"]["labels"]
    assert LEAVE not in node["metadata"]["annotations"]
    wait_until(lambda: reports_an_end(cluster, second, "cancelled"), PATIENT, "a run that says it")
    cluster.api.patch(NODE, {"metadata": {"labels": {TOUCHED: None}}})
    assert second.end() == 0
