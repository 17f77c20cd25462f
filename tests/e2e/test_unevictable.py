"""Deployments under budgets that never allow an eviction leave nodes on a real control plane, with all endpoints all the while."""

import signal
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from rebalancer.kube.access import DRAIN_RULES, MARK_RULES
from rebalancer.kube.evict import RESTART_RULES, RESTARTED_AT
from rebalancer.signals.notice import NOTICE, NodeNotice, encode_notice
from tests.controlplane import audit, objects, operations, wait_until
from tests.controlplane.stages import NEVER_READY, READY_AFTER
from tests.e2e.product import RUN_RULES, Product, grant, rebalancer
from tests.e2e.ready import ready_endpoints, ready_pods
from tests.e2e.served import PATIENT, Server, leaving
from tests.support.killed_processes import signal_at
from tests.support.worlds import rolling_update

RULES = (*RUN_RULES, *DRAIN_RULES, *RESTART_RULES)
RESTART = "--set=method.unevictable=restart"
OLD, NEW = ["old-0", "old-1"], ["new-0", "new-1"]
APPS = "/apis/apps/v1/namespaces/default"
REPLICAS = 3


def rolling(name, replicas=REPLICAS, *, surge=1, unavailable=0, **more):
    made = objects.deployment(name, replicas, labels={"app": name}, **more)
    made["spec"]["strategy"] = rolling_update(surge, unavailable)
    return made


def wait_counted(plane, name, replicas):
    def counted():
        budget = plane.api.get(f"/apis/policy/v1/namespaces/default/poddisruptionbudgets/{name}")
        return budget.get("status", {}).get("currentHealthy") == replicas

    wait_until(counted, 30, f"the budget {name} counted")


def serve(plane, *deployments, least=False):
    """Run Deployments behind Services and under budgets that never let a pod go."""
    for one in deployments:
        name, replicas = one["metadata"]["name"], one["spec"]["replicas"]
        never = {"minAvailable": replicas} if least else {"maxUnavailable": 0}
        labels = {"app": name}
        plane.apply([one, objects.service(name, labels), objects.pdb(name, labels, **never)])
        operations.wait_pods_ready(plane.api, replicas, 60, selector=f"app={name}")
        wait_counted(plane, name, replicas)

        def served(name=name, replicas=replicas):
            with ready_endpoints(plane.api) as seen:
                return seen.least.get(name) == replicas

        wait_until(served, 60, "all endpoints")


@pytest.fixture
def crowded(cluster):
    """Two old nodes, on which all pods start, and two new ones with room."""
    cluster.apply([objects.node(name, labels={"generation": "old"}) for name in OLD])
    operations.wait_nodes_ready(cluster.api, 2)

    def made(*deployments, **options):
        serve(cluster, *deployments, **options)
        cluster.apply([objects.node(name, labels={"generation": "new"}) for name in NEW])
        operations.wait_nodes_ready(cluster.api, 4)
        return cluster

    return made


def drain(kubeconfig, *more, nodes=OLD):
    command = ["drain", *nodes, f"--kubeconfig={kubeconfig}", "--timeout=300s", "--output=json"]
    return [*command, RESTART, *more]


def left_on(plane, names):
    return [pod for pod in operations.pods(plane.api) if pod["spec"].get("nodeName") in names]


def count_sets(plane):
    sets = plane.api.list_all(f"{APPS}/replicasets")
    return Counter(one["metadata"]["labels"]["app"] for one in sets)


def restarted(plane, name):
    template = plane.api.get(f"{APPS}/deployments/{name}")["spec"]["template"]
    return (template["metadata"].get("annotations") or {}).get(RESTARTED_AT)


@pytest.mark.parametrize("least", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_drain_of_two_nodes_restarts_each_rollout_once_and_no_endpoint_is_missing(crowded, least):
    slow = {READY_AFTER: "1s"}
    plane = crowded(
        rolling("web", pod_annotations=slow),
        rolling("api", 4, surge=2, pod_annotations=slow),
        least=least,
    )
    kubeconfig = grant(plane, RULES)
    refused = rebalancer("drain", *OLD, f"--kubeconfig={kubeconfig}")
    assert refused.code == 3
    assert "never-satisfiable" in refused.out
    asked = rebalancer(*drain(kubeconfig, "--dry-run=server"))
    assert asked.code == 0, asked.out + asked.err
    assert (restarted(plane, "web"), restarted(plane, "api")) == (None, None)
    log = audit.AuditLog(plane.audit_log)
    with ready_pods(plane.api) as pods, ready_endpoints(plane.api) as endpoints:
        done = rebalancer(*drain(kubeconfig))
        assert done.code == 0, done.err + done.out
    assert {name: (pods.least[name], endpoints.least[name]) for name in ("web", "api")} == {
        "web": (3, 3),
        "api": (4, 4),
    }
    assert left_on(plane, OLD) == []
    assert count_sets(plane) == {"web": 2, "api": 2}
    outcomes = [(one["outcome"], one["landed"] in NEW) for one in done.report["outcomes"]]
    assert outcomes == [("restarted", True)] * 7
    kinds = [one.kind for one in log.requests() if one.user.endswith(":rebalancer")]
    assert kinds.count(("patch", "apps", "deployments")) == 2
    assert ("create", "", "pods/eviction") not in kinds


def test_pods_on_a_node_that_stays_are_named_and_land_as_foreseen(crowded):
    plane = crowded(rolling("web", 6, surge=2))
    kubeconfig = grant(plane, RULES)
    (one, other) = OLD
    elsewhere = {pod["metadata"]["name"] for pod in left_on(plane, [other])}
    assert elsewhere
    asked = rebalancer(*drain(kubeconfig, "--dry-run=client", nodes=[one]))
    pods = asked.report["nodes"][0]["pods"]
    mine = [pod for pod in pods if pod["method"] == "restart"]
    also = {each["pod"]: each for pod in mine for each in pod["alsoRestarted"]}
    assert set(also) == elsewhere
    done = rebalancer(*drain(kubeconfig, nodes=[one]))
    assert done.code == 0, done.err
    assert {each["pod"] for each in done.report["outcomes"]} >= elsewhere
    foreseen = Counter(each["landings"][0]["node"] for each in [*mine, *also.values()])
    landed = Counter(each["landed"] for each in done.report["outcomes"])
    assert landed == foreseen


def test_a_drain_that_is_killed_at_a_restart_is_gone_on_with(crowded):
    plane = crowded(rolling("web", pod_annotations={READY_AFTER: "2s"}))
    kubeconfig = grant(plane, RULES)
    with ready_pods(plane.api) as pods, ready_endpoints(plane.api) as endpoints:
        killed = signal_at(drain(kubeconfig), lambda _, line: " restarted " in line)
        assert killed.code == -signal.SIGKILL
        assert restarted(plane, "web")
        # Meanwhile the budget counts the surge, too, and would let an old pod go.
        done = rebalancer(*drain(kubeconfig))
        assert done.code == 0, done.err
    assert (pods.least["web"], endpoints.least["web"]) == (REPLICAS, REPLICAS)
    assert count_sets(plane) == {"web": 2}
    assert left_on(plane, OLD) == []


def test_replicas_that_change_midway_are_followed(crowded):
    plane = crowded(rolling("web", pod_annotations={READY_AFTER: "2s"}))
    kubeconfig = grant(plane, RULES)

    def scale(_, line):
        if " restarted " in line:
            plane.api.patch(f"{APPS}/deployments/web", {"spec": {"replicas": 5}})
            return True
        return False

    with ready_endpoints(plane.api) as endpoints:
        ended = signal_at(drain(kubeconfig), scale, signal.SIGINT)
        assert ended.code == 4
        done = rebalancer(*drain(kubeconfig))
        assert done.code == 0, done.err
    assert endpoints.least["web"] == REPLICAS
    operations.wait_pods_ready(plane.api, 5, 60, selector="app=web")
    assert left_on(plane, OLD) == []
    assert count_sets(plane) == {"web": 2}


def test_new_pods_that_do_not_become_ready_leave_the_old_ones_in_service(cluster):
    cluster.apply([objects.node("old-0", labels={"generation": "old"})])
    operations.wait_nodes_ready(cluster.api, 1)
    web = rolling("web", 2, pod_annotations={NEVER_READY: "true"})
    web["spec"]["progressDeadlineSeconds"] = 5
    cluster.apply([web])
    wait_until(lambda: len(operations.pods(cluster.api, selector="app=web")) == 2, 30, "two pods")
    for pod in operations.pods(cluster.api, selector="app=web"):
        path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
        cluster.api.patch(path, {"metadata": {"annotations": {NEVER_READY: None}}})
    serve(cluster, web)
    cluster.apply([objects.node("new-0", labels={"generation": "new"})])
    operations.wait_nodes_ready(cluster.api, 2)
    kubeconfig = grant(cluster, RULES)
    with ready_pods(cluster.api) as pods, ready_endpoints(cluster.api) as endpoints:
        awaited = "it stays until its rollout is at its end: Deployment/default/web"
        command = drain(kubeconfig, "--set=safety.maxReadyTime=5s", nodes=["old-0"])
        ended = signal_at(command, lambda _, line: awaited in line, signal.SIGINT)
        assert ended.code == 4, ended
        assert len(left_on(cluster, ["old-0"])) == 2
        first = restarted(cluster, "web")

        def mend():
            for pod in left_on(cluster, ["new-0"]):
                if not operations.is_ready(pod):
                    path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
                    cluster.api.patch(path, {"metadata": {"annotations": {NEVER_READY: None}}})
            return not left_on(cluster, ["old-0"])

        wait_until(mend, 60, "the rollout at its end")
        done = rebalancer(*drain(kubeconfig, nodes=["old-0"]))
        assert done.code == 0, done.err
    assert restarted(cluster, "web") == first
    assert (pods.least["web"], endpoints.least["web"]) == (2, 2)


@pytest.mark.parametrize("paused", [True, False])
def test_what_is_paused_or_would_have_fewer_pods_is_refused_and_left(crowded, paused):
    web = rolling("web", unavailable=0 if paused else 1)
    plane = crowded(web)
    if paused:
        plane.api.patch(f"{APPS}/deployments/web", {"spec": {"paused": True}})
    kubeconfig = grant(plane, RULES)
    done = rebalancer(*drain(kubeconfig))
    assert done.code == 3
    (node, *_) = [one for one in done.report["nodes"] if one["verdict"] == "never-satisfiable"]
    said = "it is paused" if paused else "lets 1 of 3 old pods go first"
    assert all(
        pod["message"].endswith(said) for pod in node["pods"] if pod["owner"].endswith("/web")
    )
    assert restarted(plane, "web") is None
    assert not any("unschedulable" in one["spec"] for one in plane.api.list_all("/api/v1/nodes"))


@pytest.mark.parametrize("minutes", [50, pytest.param(0, marks=pytest.mark.long)])
def test_machines_that_go_leave_no_gap_however_late(crowded, tmp_path, minutes):
    plane = crowded(rolling("web", pod_annotations={READY_AFTER: "1s"}))
    product = Product(plane, tmp_path, leaving("unevictable"), (*MARK_RULES, *RESTART_RULES))
    server = Server(product, tmp_path, "server", "--every=1h", "--output=json")
    try:
        server.await_words("nothing to do")
        with ready_endpoints(plane.api) as endpoints:
            for name in OLD:
                at = datetime.now(UTC) + timedelta(minutes=minutes)
                notice = NodeNotice(name, "spot", at.strftime("%Y-%m-%dT%H:%M:%SZ"))
                meta = {"annotations": {NOTICE: encode_notice(notice)}}
                plane.api.patch(f"/api/v1/nodes/{name}", {"metadata": meta})
            wait_until(lambda: not left_on(plane, OLD), PATIENT, "the nodes empty")
            wait_until(lambda: server.said('"outcome": "restarted"'), PATIENT, "a report of it")
        assert endpoints.least["web"] == REPLICAS
        assert server.said('"unit": "default: Deployment web"') >= REPLICAS
        assert server.said("Traceback") == 0
    finally:
        assert server.end() == 0
