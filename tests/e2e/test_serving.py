"""`rebalancer serve` as its users have it: it reads once, leads alone, and outlives what happens to the API server."""

import contextlib
from collections import Counter

import pytest
import yaml

from rebalancer.base.errors import ExitCode
from rebalancer.kube.access import lease_rules
from rebalancer.kube.client import USER_AGENT
from tests.controlplane import audit, objects, operations, wait_until
from tests.e2e import crowd
from tests.e2e.fault_proxy import FaultProxy
from tests.e2e.product import NO_WAIT, RUN_RULES, Product, grant
from tests.e2e.served import PATIENT, Server

APPS = 3
LEASE = "default/turns"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
POLICY = yaml.safe_load(NO_WAIT)
POLICY["strategies"]["leaving"] = {}
POLICY["budgets"] = {"perRun": 1000, "perHour": 1000}


@pytest.fixture
def product(cluster, tmp_path):
    crowd.gather(cluster, APPS)
    made = Product(cluster, tmp_path, yaml.safe_dump(POLICY))
    made.kubeconfig = grant(cluster, (*RUN_RULES, *lease_rules("default", "turns")))
    with contextlib.suppress(Exception):
        cluster.api.delete(f"{LEASES}/turns")
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    cluster.apply([{**lease, "metadata": {"name": "turns", "namespace": "default"}}])
    return made


@pytest.fixture
def serve(product, tmp_path):
    started = []

    def start(name="one", every="1s"):
        options = (f"--every={every}", f"--lease={LEASE}")
        started.append(Server(product, tmp_path, name, *options))
        return started[-1]

    yield start
    for server in started:
        server.end()


def holder(cluster):
    lease = cluster.api.get(f"{LEASES}/turns")
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def ours(log):
    return [request for request in log.requests() if request.agent == USER_AGENT]


def test_an_unchanged_cluster_is_asked_for_nothing_but_the_version_and_the_lease(
    cluster, product, serve
):
    server = serve()
    wait_until(lambda: crowd.moved(cluster) == APPS, PATIENT, "the apps spread")
    crowd.settle(cluster, APPS)
    server.await_words("nothing to do", server.said("nothing to do") + 2)
    log = audit.AuditLog(cluster.audit_log)
    server.await_words("nothing to do", server.said("nothing to do") + 10)
    asked = Counter((request.verb, request.resource) for request in ours(log))
    # A server ends a watch now and then, after five minutes at the latest; it is opened again where it ended.
    rest = {kind: times for kind, times in asked.items() if kind[0] != "watch"}
    assert set(rest) <= {("get", "/version"), ("update", "leases"), ("get", "leases")}
    assert rest["get", "/version"] >= 9
    assert server.end() == 0
    assert holder(cluster) == ""


def test_a_notice_on_a_node_empties_it_long_before_the_next_plan_is_due(cluster, product, serve):
    server = serve(every="1h")
    server.await_words("landed", APPS)
    crowd.settle(cluster, APPS)
    log = audit.AuditLog(cluster.audit_log)
    taint = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}
    cluster.api.patch("/api/v1/nodes/crowd-c", {"spec": {"taints": [taint]}})
    wait_until(lambda: crowd.moved(cluster) == 0, PATIENT, "the node empty")
    assert (
        server.said(
            "node crowd-c has a new taint ToBeDeletedByClusterAutoscaler:NoSchedule: planning now"
        )
        == 1
    )
    evictions = [request for request in ours(log) if request.kind == audit.EVICTION]
    assert len([request for request in evictions if request.code == 201]) == APPS
    assert not [request for request in ours(log) if request.verb == "list"]
    assert server.end() == 0


@pytest.mark.parametrize(
    ("watches", "lists", "refusals"),
    [
        pytest.param(401, None, 10, id="watches are refused for a moment"),
        pytest.param(401, None, 120, id="watches are refused for long", marks=pytest.mark.long),
        pytest.param(410, 503, 40, id="changes are forgotten, and lists fail"),
    ],
)
def test_a_notice_on_a_node_is_heard_after_the_server_has_refused(
    cluster, product, serve, tmp_path, watches, lists, refusals
):
    with FaultProxy(product.kubeconfig, tmp_path).passing() as proxy:
        product.kubeconfig = proxy.kubeconfig
        server = serve(every="1h")
        server.await_words("landed", APPS)
        crowd.settle(cluster, APPS)
        proxy.watches, proxy.lists = watches, lists
        proxy.cut()
        wait_until(lambda: proxy.refused >= refusals, PATIENT, "requests refused")
        proxy.watches = proxy.lists = None
        taint = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}
        cluster.api.patch("/api/v1/nodes/crowd-c", {"spec": {"taints": [taint]}})
        wait_until(lambda: crowd.moved(cluster) == 0, PATIENT, "the node empty")
        assert server.said("are not received") <= 2
        assert server.end() == 0


def test_of_two_one_leads_and_the_other_takes_over_when_it_is_killed(cluster, product, serve):
    first = serve("first")
    first.await_words("nothing to do")
    second = serve("second")
    second.await_words("standing by")
    # A CronJob's run beside them is refused the Lease.
    done = product.run(f"--lease={LEASE}")
    assert done.code == ExitCode.DONE
    assert done.report["heldBy"]["holder"].startswith("first_")
    assert second.said("nothing to do") == 0
    first.process.kill()
    wait_until(lambda: holder(cluster).startswith("second_"), PATIENT, "the second leads")
    cluster.apply([objects.deployment("alone", 2, labels={"app": "alone"})])
    second.await_words("nothing to do", 2)
    assert second.end() == 0
    assert holder(cluster) == ""


def test_it_outlives_a_restart_of_the_api_server(cluster, product, serve):
    server = serve()
    server.await_words("landed", APPS)
    for kill in (False, True):
        cluster.restart("kube-apiserver", kill=kill)
        cluster.restart_clients()
        operations.wait_nodes_ready(cluster.api, 3)
        crowd.settle(cluster, APPS)
        # What happens afterwards is seen: an app is where it should not be, and is moved.
        operations.cordon(cluster.api, ["crowd-c"])
        first = next(
            pod for pod in crowd.pods(cluster).values() if pod["spec"].get("nodeName") == crowd.LAST
        )
        operations.evict(cluster.api, "default", first["metadata"]["name"])
        crowd.settle(cluster, APPS)
        operations.cordon(cluster.api, ["crowd-c"], on=False)
        wait_until(lambda: crowd.moved(cluster) == APPS, PATIENT, "the app back in its zone")
        crowd.settle(cluster, APPS)
    assert server.end() == 0
