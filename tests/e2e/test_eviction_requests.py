"""EvictionRequests on the API server of 1.37 with the gate on, and the controllers of 1.38's beta beside it; a responder of our own.

1.37 serves the API and acts on nothing; the controllers are those of Kubernetes itself, built from its modules.
"""

import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

import pytest

from rebalancer.kube.eviction_requests import LIST_REQUESTS, REQUEST_RULES
from tests.controlplane import ControlPlane, Options, audit, build, objects, operations, wait_until
from tests.controlplane.api import ApiError
from tests.e2e.product import RUN_RULES, grant, rebalancer

pytestmark = pytest.mark.long

RULES = (*RUN_RULES, *LIST_REQUESTS, *REQUEST_RULES)
POLICY = """
apiVersion: rebalancer/v1
kind: Policy
method: {{evictionRequests: {within}}}
protect: {{minPodAge: 0s, singleReplicas: false}}
safety: {{maxReadyTime: {ready}}}
strategies: {{node-affinity: {{}}}}
"""
API = "/apis/lifecycle.k8s.io/v1alpha1"
OURS = "acme.example/mover"
NAMED = {"evictionResponders": [{"name": OURS, "priority": 10000}]}
POOL = {"nodeSelector": {"pool": "web"}}


FIRST = "1.37.2"
"""It serves the API, and has no controllers for it."""


@pytest.fixture(scope="module")
def plane(kubernetes):
    users = {"userGroups": ["system:serviceaccounts:default"]}
    whole = int(kubernetes.split(".")[1]) > int(FIRST.split(".")[1])
    options = Options(
        version=kubernetes if whole else FIRST,
        feature_gates={"EvictionRequestAPI": True},
        extra_args={"kube-apiserver": ["--runtime-config=lifecycle.k8s.io/v1alpha1=true"]},
        audit_policy=audit.policy(users),
    )
    with ControlPlane(options) as running:
        if whole:
            yield running
            return
        command = [str(build.binary("eviction-requests")), f"--kubeconfig={running.kubeconfig}"]
        log = running.directory / "eviction-requests.log"
        with log.open("w") as written, subprocess.Popen(command, stderr=written) as controllers:
            yield running
            controllers.terminate()


@pytest.fixture
def misplaced(plane):
    """One pod with a responder on node a, from which the label has gone that it asks for; b has it."""
    plane.reset()
    plane.apply([objects.node("a", labels={"pool": "web"}), objects.node("b")])
    operations.wait_nodes_ready(plane.api, 2)
    plane.apply([objects.deployment("web", 1, labels={"app": "web"}, **POOL, **NAMED)])
    operations.wait_pods_ready(plane.api, 1, 60, selector="app=web")
    for name, pool in (("a", None), ("b", "web")):
        plane.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {"pool": pool}}})
    return plane


@pytest.fixture
def flags(misplaced, tmp_path):
    """Return the flags of a run: ``within`` is the time of responders, ``ready`` that of a wave."""
    kubeconfig = grant(misplaced, RULES)

    def written(within="1h", ready="60s"):
        policy = tmp_path / "policy.yaml"
        policy.write_text(POLICY.format(within=within, ready=ready))
        return f"--policy={policy}", f"--kubeconfig={kubeconfig}"

    return written


@pytest.fixture
def run(flags):
    def once(**how):
        done = rebalancer("run", *flags(**how), "--output=json", "--yes")
        assert done.code == 0, done.err + done.out
        return done.report

    return once


def requests_of(plane):
    return plane.api.get(f"{API}/evictionrequests")["items"]


def state_of_ours(plane):
    """The state that the controllers give our responder in each Eviction."""
    return [
        one["state"]
        for eviction in plane.api.get(f"{API}/evictions")["items"]
        for one in eviction.get("status", {}).get("targetResponders", [])
        if one["name"] == OURS
    ]


def the_pod(plane):
    (pod,) = operations.pods(plane.api, selector="app=web")
    return pod


@contextmanager
def responding(plane, *, deletes):
    """Run the responder: it deletes the pod that it is asked to end, or only says that it is done."""
    over = threading.Event()

    def respond():
        while not over.wait(0.2):
            for eviction in plane.api.get(f"{API}/evictions")["items"]:
                # It may be gone by now, with its request.
                with suppress(ApiError):
                    answer(plane, eviction, deletes=deletes)

    thread = threading.Thread(target=respond)
    thread.start()
    yield
    over.set()
    thread.join()


def answer(plane, eviction, *, deletes):
    status = eviction.get("status", {})
    active = [one["name"] for one in status.get("targetResponders", []) if one["state"] == "Active"]
    mine = [one for one in status.get("responders", []) if one["name"] == OURS]
    if active != [OURS] or not mine or "completionTime" in mine[0]:
        return
    target = eviction["spec"]["target"]["pod"]
    if deletes:
        uid = {"preconditions": {"uid": target["uid"]}}
        plane.api.delete(f"/api/v1/namespaces/default/pods/{target['name']}", uid)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    done = {"name": OURS, "heartbeatTime": now, "completionTime": now}
    path = f"{API}/namespaces/default/evictions/{eviction['metadata']['name']}/status"
    plane.api.patch(path, {"status": {"responders": [done]}}, kind="strategic")


def test_responders_end_the_pod_and_the_run_sees_where_the_next_one_lands(misplaced, flags, run):
    log = audit.AuditLog(misplaced.audit_log)
    shown = rebalancer("plan", *flags(), "--output=json").report["moves"]
    assert [(one["method"], one["outcome"]) for one in shown] == [("request", "planned")]
    assert OURS in shown[0]["reason"]
    assert requests_of(misplaced) == []

    with responding(misplaced, deletes=True):
        (move,) = run()["moves"]
    assert (move["outcome"], move["landed"], move["predicted"]) == ("requested", "b", True)
    writes = [one for one in log.requests() if one.verb in ("create", "patch", "delete")]
    assert {one.kind[1:] for one in writes} >= {("lifecycle.k8s.io", "evictionrequests")}
    # The eviction was a dry run: it only asks whether PodDisruptionBudgets would allow it.
    assert [one.name for one in log.evictions()] == [shown[0]["pod"]]
    wait_until(lambda: requests_of(misplaced) == [], 60, "the request gone with its pod")
    assert run()["moves"] == []


def test_a_request_outlives_its_run_and_the_next_runs_count_it_in_flight(misplaced, flags, run):
    pod = the_pod(misplaced)
    (move,) = run(ready="3s")["moves"]
    assert (move["outcome"], move["landed"]) == ("requested", None)
    assert "have not ended it yet" in move["message"]

    (request,) = requests_of(misplaced)
    assert request["spec"]["target"]["pod"]["uid"] == pod["metadata"]["uid"]
    assert request["spec"]["intent"] == "Eviction"
    again = run(ready="3s")
    assert again["moves"] == []
    explained = rebalancer("explain", "pod", f"default/{pod['metadata']['name']}", *flags())
    text = " ".join(explained.out.split())
    assert f"{OURS} (10000)" in text
    assert f"EvictionRequest {request['metadata']['name']} of rebalancer/moves" in text

    with responding(misplaced, deletes=True):
        wait_until(lambda: the_node(misplaced) == "b", 60, "the pod on the other node")
    assert run()["moves"] == []


def the_node(plane):
    pods = operations.pods(plane.api, selector="app=web")
    return pods[0]["spec"].get("nodeName") if len(pods) == 1 else None


def test_where_no_responder_ends_it_the_last_one_evicts_and_budgets_hold(misplaced, run):
    run(ready="2s")
    pod = the_pod(misplaced)
    misplaced.apply([objects.pdb("web", {"app": "web"}, minAvailable=1)])
    with responding(misplaced, deletes=False):
        wait_until(lambda: state_of_ours(misplaced) == ["Completed"], 30, "our responder done")
    # The controller's own responder is refused by the budget, and tries again.
    assert the_pod(misplaced)["metadata"]["uid"] == pod["metadata"]["uid"]
    assert run(ready="2s")["moves"] == []
    misplaced.api.delete("/apis/policy/v1/namespaces/default/poddisruptionbudgets/web")
    wait_until(lambda: the_node(misplaced) == "b", 90, "the pod evicted at last")


def test_a_signal_withdraws_what_is_open_and_the_next_run_asks_again(misplaced, flags, run):
    command = [sys.executable, "-m", "rebalancer", "run", *flags(), "--output=json", "--yes"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_until(lambda: state_of_ours(misplaced) == ["Active"], 60, "our responder asked")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert b"its request was withdrawn" in out, err
    (request,) = requests_of(misplaced)
    assert request["spec"]["intent"] == "Withdrawn"
    wait_until(lambda: state_of_ours(misplaced) == ["Canceled"], 30, "our responder cancelled")
    pod = the_pod(misplaced)
    assert "deletionTimestamp" not in pod["metadata"]

    with responding(misplaced, deletes=True):
        (move,) = run()["moves"]
    assert (move["outcome"], move["landed"]) == ("requested", "b")


def test_a_request_that_takes_too_long_is_withdrawn_and_the_pod_left_alone(misplaced, run):
    run(within="4s", ready="2s")
    late = {}
    wait_until(lambda: late.update(run(within="4s", ready="2s")) or late["warnings"], 60, "late")
    assert any("withdrawn: open for more than 4s" in note for note in late["warnings"])
    (request,) = requests_of(misplaced)
    assert request["spec"]["intent"] == "Withdrawn"
    after = run(within="4s", ready="2s")
    assert after["moves"] == []
    assert any("no run asks again within 24h" in skip["message"] for skip in after["skipped"])
