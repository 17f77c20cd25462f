"""Nodes with single replicas are emptied on a real control plane: their Services never are without an endpoint."""

import json
import signal
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rebalancer.kube.access import DRAIN_RULES, MARK_RULES
from rebalancer.kube.evict import RESTART_RULES, RESTARTED_AT
from rebalancer.machines.aws.groups import ACTS
from rebalancer.signals.notice import NOTICE, NodeNotice, encode_notice
from tests.controlplane import audit, objects, operations, wait_until
from tests.controlplane.build import binary
from tests.controlplane.stages import NEVER_READY, READY_AFTER
from tests.e2e.machines import fleet_of, policy_of, surge_arguments
from tests.e2e.product import RUN_RULES, Product, grant, rebalancer
from tests.e2e.ready import ready_endpoints, ready_pods
from tests.e2e.served import PATIENT, Server, leaving, runs
from tests.support.killed_processes import signal_at

RULES = (*RUN_RULES, *DRAIN_RULES)
RESTARTS = (*RULES, *RESTART_RULES)
RESTART = "--set=method.singleReplicas=restart"
SINGLE = [f"single-{number}" for number in range(3)]
OLD = ["old-0", "old-1"]
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def node(name, generation):
    return objects.node(name, labels={"generation": generation})


def served(plane, name, replicas=1, **more):
    """Run a Deployment behind a Service."""
    labels = {"app": name}
    plane.apply([objects.deployment(name, replicas, labels=labels, **more)])
    plane.apply([objects.service(name, labels)])


def wait_served(plane, names):
    """Wait until each Service has one ready endpoint."""

    def whole():
        slices = plane.api.list_all("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices")
        ready = {
            part["metadata"]["labels"]["kubernetes.io/service-name"]
            for part in slices
            if any(one["conditions"].get("ready") for one in part["endpoints"] or ())
        }
        return ready >= set(names)

    wait_until(whole, 60, "an endpoint for each Service")


@pytest.fixture
def crowded(cluster):
    """Three single replicas and three of many on one node, or on two; new nodes have room for all of them."""
    cluster.apply([node(name, "old") for name in OLD])
    operations.wait_nodes_ready(cluster.api, 2)
    # A moment in which there is no endpoint, where one is evicted.
    slow = {READY_AFTER: "1s"}
    for name in SINGLE:
        served(cluster, name, pod_annotations=slow)
    served(cluster, "many", 3)
    operations.wait_pods_ready(cluster.api, 6, 60)
    cluster.apply([node(name, "new") for name in ("new-0", "new-1")])
    operations.wait_nodes_ready(cluster.api, 4)
    wait_served(cluster, [*SINGLE, "many"])
    return cluster


@contextmanager
def watched(plane):
    """Count the Ready pods and the endpoints of all Services meanwhile."""
    with ready_pods(plane.api) as pods, ready_endpoints(plane.api) as endpoints:
        yield lambda names: {name: (pods.least[name], endpoints.least[name]) for name in names}


def drain(kubeconfig, *more):
    command = ["drain", *OLD, f"--kubeconfig={kubeconfig}", "--timeout=300s", "--output=json"]
    return [*command, *more]


def left_on(plane, names):
    return [pod for pod in operations.pods(plane.api) if pod["spec"].get("nodeName") in names]


def restarted(plane, name):
    template = plane.api.get(f"{DEPLOYMENTS}/{name}")["spec"]["template"]
    return (template["metadata"].get("annotations") or {}).get(RESTARTED_AT)


@pytest.mark.parametrize(
    ("flags", "rules", "least"), [((RESTART,), RESTARTS, (1, 1)), ((), RULES, (0, 0))]
)
def test_a_drain_leaves_no_gap_with_restarts_and_one_without(crowded, flags, rules, least):
    kubeconfig = grant(crowded, rules)
    log = audit.AuditLog(crowded.audit_log)
    with watched(crowded) as seen:
        done = rebalancer(*drain(kubeconfig, *flags))
        assert done.code == 0, done.err
    assert seen(SINGLE) == dict.fromkeys(SINGLE, least)
    assert left_on(crowded, OLD) == []
    ways = {one["pod"][: len(SINGLE[0])]: one["outcome"] for one in done.report["outcomes"]}
    assert {ways[name] for name in SINGLE} == {"restarted" if flags else "evicted"}
    asked = [one for one in log.requests() if one.user.endswith(":rebalancer")]
    used = {one.kind for one in asked}
    restart_rights = {(rule.verb, rule.group, rule.resource) for rule in RESTART_RULES}
    assert restart_rights <= used if flags else not restart_rights & used


def test_rights_that_are_missing_are_named_before_anything_is_changed(crowded):
    kubeconfig = grant(crowded, RULES)
    done = rebalancer(*drain(kubeconfig, RESTART))
    assert done.code == 3
    assert "deployments" in done.err
    assert not any("unschedulable" in one["spec"] for one in crowded.api.list_all("/api/v1/nodes"))


def test_a_budget_that_allows_nothing_holds_no_node_and_the_server_is_asked_first(crowded):
    crowded.apply([objects.pdb(name, {"app": name}, minAvailable=1) for name in SINGLE])
    kubeconfig = grant(crowded, RESTARTS)

    def counted():
        budgets = crowded.api.list_all("/apis/policy/v1/poddisruptionbudgets")
        return all(one.get("status", {}).get("currentHealthy") == 1 for one in budgets)

    wait_until(counted, 30, "the budgets counted")
    assert rebalancer(*drain(kubeconfig)).code == 3
    versions = [
        crowded.api.get(f"{DEPLOYMENTS}/{name}")["metadata"]["generation"] for name in SINGLE
    ]
    asked = rebalancer(*drain(kubeconfig, RESTART, "--dry-run=server"))
    assert asked.code == 0, asked.err + asked.out
    pods = [pod for of in asked.report["nodes"] for pod in of["pods"]]
    assert sorted(pod["method"] for pod in pods) == ["evict"] * 3 + ["restart"] * 3
    assert versions == [
        crowded.api.get(f"{DEPLOYMENTS}/{name}")["metadata"]["generation"] for name in SINGLE
    ]
    with watched(crowded) as seen:
        done = rebalancer(*drain(kubeconfig, RESTART))
        assert done.code == 0, done.err
    assert seen(SINGLE) == dict.fromkeys(SINGLE, (1, 1))


def test_a_drain_that_is_killed_at_a_restart_is_gone_on_with(crowded):
    kubeconfig = grant(crowded, RESTARTS)
    with watched(crowded) as seen:
        killed = signal_at(drain(kubeconfig, RESTART), lambda _, line: " restarted " in line)
        assert killed.code == -signal.SIGKILL
        assert any(restarted(crowded, name) for name in SINGLE)
        done = rebalancer(*drain(kubeconfig, RESTART))
        assert done.code == 0, done.err
    assert seen(SINGLE) == dict.fromkeys(SINGLE, (1, 1))
    assert left_on(crowded, OLD) == []
    sets = crowded.api.list_all("/apis/apps/v1/namespaces/default/replicasets")
    of = [one["metadata"]["labels"]["app"] for one in sets]
    assert {name: of.count(name) for name in SINGLE} == dict.fromkeys(SINGLE, 2)


def test_a_new_pod_that_does_not_become_ready_leaves_the_old_one_in_service(cluster):
    cluster.apply([node("old-0", "old")])
    operations.wait_nodes_ready(cluster.api, 1)
    served(cluster, "web", pod_annotations={NEVER_READY: "true"})
    wait_until(lambda: operations.pods(cluster.api, selector="app=web"), 30, "a pod")
    (pod,) = operations.pods(cluster.api, selector="app=web")
    # This one is Ready all the same; the next one of the same template will not be.
    path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
    cluster.api.patch(path, {"metadata": {"annotations": {NEVER_READY: None}}})
    operations.wait_pods_ready(cluster.api, 1, 60, selector="app=web")
    cluster.apply([node("new-0", "new")])
    operations.wait_nodes_ready(cluster.api, 2)
    wait_served(cluster, ["web"])
    kubeconfig = grant(cluster, RESTARTS)
    flags = [f"--kubeconfig={kubeconfig}", "--output=json", RESTART]
    with watched(cluster) as seen:
        awaited = "it stays until its rollout is at its end: Deployment/default/web"
        arguments = ["drain", "old-0", *flags, "--set=safety.maxReadyTime=5s"]
        ended = signal_at(arguments, lambda _, line: awaited in line, signal.SIGINT)
        assert ended.code == 4, ended
        assert awaited in json.loads(ended.out)["ended"]
        (old,) = left_on(cluster, ["old-0"])
        assert operations.is_ready(old)
        (new,) = left_on(cluster, ["new-0"])
        assert not operations.is_ready(new)
        new_path = f"/api/v1/namespaces/default/pods/{new['metadata']['name']}"
        cluster.api.patch(new_path, {"metadata": {"annotations": {NEVER_READY: None}}})
        done = rebalancer("drain", "old-0", *flags)
        assert done.code == 0, done.err
    assert seen(["web"]) == {"web": (1, 1)}
    assert left_on(cluster, ["old-0"]) == []


@pytest.mark.parametrize(
    ("flags", "rules", "least"),
    [((RESTART,), RESTARTS, (1, 1)), pytest.param((), RULES, (0, 0), marks=pytest.mark.long)],
)
def test_a_replacement_leaves_no_gap_with_restarts_and_one_without(crowded, flags, rules, least):
    kubeconfig = grant(crowded, rules)
    remove = f"{binary('kubectl')} --kubeconfig={crowded.kubeconfig} delete node"
    command = [
        "replace",
        "--selector=generation=old",
        f"--kubeconfig={kubeconfig}",
        "--pause=0s",
        "--timeout=300s",
        f"--then={remove}",
        "--output=json",
    ]
    with watched(crowded) as seen:
        done = rebalancer(*command, *flags)
        assert done.code == 0, done.err
    assert seen(SINGLE) == dict.fromkeys(SINGLE, least)
    names = {one["metadata"]["name"] for one in crowded.api.list_all("/api/v1/nodes")}
    assert names == {"new-0", "new-1"}
    assert json.loads(done.out)["kind"] == "ReplaceReport"


def test_scale_in_leaves_no_gap(cluster, tmp_path, monkeypatch):
    with fleet_of(cluster, monkeypatch) as fleet:
        fleet.add("pool", 3, low=2, high=3)
        first, *others = [one["metadata"]["name"] for one in cluster.api.list_all("/api/v1/nodes")]
        operations.cordon(cluster.api, others)
        for name in SINGLE:
            served(cluster, name, pod_annotations={READY_AFTER: "1s"})
        operations.wait_pods_ready(cluster.api, len(SINGLE), 60)
        operations.cordon(cluster.api, others, on=False)
        # These two stay: more than half of each is requested.
        pads = {"app": "pad"}
        apart = objects.require_apart(pads)
        served(cluster, "pad", 2, cpu="1100m", affinity=apart)
        operations.wait_pods_ready(cluster.api, 2, 60, selector="app=pad")
        wait_served(cluster, [*SINGLE, "pad"])
        policy = policy_of(
            fleet,
            tmp_path,
            {"scale-in": {"unneededFor": "10s", "coolDownAfterGrowth": "0s"}},
            method={"singleReplicas": "restart"},
        )
        kubeconfig = grant(cluster, (*RESTARTS, *MARK_RULES))
        moves: list[dict[str, Any]] = []

        with (
            watched(cluster) as seen,
            runs(f"--policy={policy}", f"--kubeconfig={kubeconfig}") as serving,
        ):

            def gone():
                moves.extend(move for report in serving() for move in report["moves"])
                fleet.join()
                return fleet.sizes["pool"] == 2

            wait_until(gone, 240, "the machine is gone")
        assert seen(SINGLE) == dict.fromkeys(SINGLE, (1, 1))
        done = {(one["owner"].rpartition("/")[2], one["outcome"], one["from"]) for one in moves}
        assert done == {(name, "restarted", first) for name in SINGLE}


@pytest.mark.parametrize(
    ("minutes", "least", "outcome", "says"),
    [
        (50, (1, 1), "restarted", "by a restart of the rollout"),
        pytest.param(
            0,
            (0, 0),
            "evicted",
            "a restart would come too late: its machine goes in 0 s",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_machine_that_goes_leaves_no_gap_where_there_is_time(
    crowded, tmp_path, minutes, least, outcome, says
):
    product = Product(crowded, tmp_path, leaving("singleReplicas"), (*MARK_RULES, *RESTART_RULES))
    server = Server(product, tmp_path, "server", "--every=1h", "--output=json")
    try:
        server.await_words("nothing to do")
        with watched(crowded) as seen:
            for name in OLD:
                at = datetime.now(UTC) + timedelta(minutes=minutes)
                notice = NodeNotice(name, "spot", at.strftime("%Y-%m-%dT%H:%M:%SZ"))
                meta = {"annotations": {NOTICE: encode_notice(notice)}}
                crowded.api.patch(f"/api/v1/nodes/{name}", {"metadata": meta})
            wait_until(lambda: not left_on(crowded, OLD), PATIENT, "the nodes empty")
            wait_until(lambda: server.said(f'"outcome": "{outcome}"'), PATIENT, "a report of it")
            operations.wait_pods_ready(crowded.api, 6, 60)
        assert seen(SINGLE) == dict.fromkeys(SINGLE, least)
        assert server.said(says) >= len(SINGLE)
        assert server.said("Traceback") == 0
    finally:
        assert server.end() == 0


def test_a_replacement_with_new_machines_leaves_no_gap(cluster, tmp_path, monkeypatch):
    with fleet_of(cluster, monkeypatch) as fleet:
        fleet.add("pool", 2, low=1, high=4)
        old = set(fleet.machines("pool"))
        for name in SINGLE:
            served(cluster, name, pod_annotations={READY_AFTER: "1s"})
        operations.wait_pods_ready(cluster.api, len(SINGLE), 60)
        wait_served(cluster, SINGLE)
        policy = policy_of(fleet, tmp_path, {}, method={"singleReplicas": "restart"})
        fleet.new_version(ImageId="ami-03cf127a")
        fleet.cloud.after_call = lambda call, _: fleet.join() if call in ACTS else None
        with watched(cluster) as seen:
            done = rebalancer(*surge_arguments(policy, grant(cluster, RESTARTS)))
            assert done.code == 0, done.err + done.out
        fleet.join()
        assert seen(SINGLE) == dict.fromkeys(SINGLE, (1, 1))
        assert not old & set(fleet.machines("pool"))
        ways = {one["outcome"] for one in json.loads(done.out)["outcomes"]}
        assert ways == {"restarted"}
