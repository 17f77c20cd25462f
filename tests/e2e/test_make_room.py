"""Pods that wait are let in on a real scheduler: by the fewest moves, with the room kept for them, and then nothing moves."""

import threading

import pytest

from rebalancer.kube.access import MARK_RULES, SCALE_OUT_RULES
from tests.controlplane import objects, operations, wait_until
from tests.e2e.product import RUN_RULES, grant, rebalancer
from tests.e2e.served import Server

RULES = (*RUN_RULES, *MARK_RULES, *SCALE_OUT_RULES)
POLICY = """
apiVersion: rebalancer/v1
kind: Policy
steer: marks
budgets: {perHour: 100%}
protect: {minPodAge: 0s}
strategies:
  make-room: {after: 0s}
"""
RIVALS = 4


@pytest.fixture
def flags(cluster, tmp_path):
    """What the command needs on the cluster, with a policy that makes room."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    return f"--policy={policy}", f"--kubeconfig={grant(cluster, RULES)}", "--output=json"


def fill(cluster):
    """Three nodes of 8 CPUs, 4 of them in use on each."""
    names = ("n0", "n1", "n2")
    cluster.apply([objects.node(name, cpu="8") for name in names])
    operations.wait_nodes_ready(cluster.api, len(names))
    # The emptiest node takes the next pod: each gets one of the twos, then two of the ones.
    for name, replicas, cpu in (("twos", 3, "2"), ("ones", 6, "1")):
        labels = {"app": name, "placed": "here"}
        cluster.apply([objects.deployment(name, replicas, cpu=cpu, labels=labels)])
        operations.wait_pods_ready(cluster.api, replicas, selector=f"app={name}")


def pod_of(cluster, app):
    """The pods of a workload that do not terminate."""
    pods = operations.pods(cluster.api, selector=f"app={app}")
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def wait_unschedulable(cluster, app):
    def said():
        conditions = [
            c for pod in pod_of(cluster, app) for c in pod["status"].get("conditions", ())
        ]
        return any(c.get("reason") == "Unschedulable" for c in conditions)

    wait_until(said, 30, f"{app} is unschedulable")


def marks(cluster):
    return [
        node["metadata"]["name"]
        for node in cluster.api.list_all("/api/v1/nodes")
        if any(t["key"] == "rebalancer/mark" for t in node["spec"].get("taints", ()))
    ]


def test_the_fewest_moves_let_in_what_fits_nowhere_and_no_rival_takes_the_room(cluster, flags):
    fill(cluster)
    cluster.apply([objects.deployment("big", 1, cpu="6")])
    wait_unschedulable(cluster, "big")
    before = {pod["metadata"]["uid"] for app in ("ones", "twos") for pod in pod_of(cluster, app)}

    def rivals():
        """Rivals come as soon as something leaves."""
        wait_until(
            lambda: (
                {p["metadata"]["uid"] for a in ("ones", "twos") for p in pod_of(cluster, a)}
                != before
            ),
            60,
            "something leaves",
        )
        cluster.apply([objects.deployment("rival", RIVALS, cpu="1")])

    coming = threading.Thread(target=rivals)
    coming.start()
    ran = rebalancer("run", "--yes", *flags)
    coming.join()
    assert ran.code == 0, ran.err
    (move,) = ran.evicted
    assert (move["pod"].rpartition("-")[0].rpartition("-")[0], move["predicted"]) == ("twos", True)
    operations.wait_pods_ready(cluster.api, 10 + RIVALS, 60)
    (big,) = pod_of(cluster, "big")
    assert big["spec"]["nodeName"] == move["from"]
    assert marks(cluster) == []
    again = rebalancer("run", "--yes", *flags)
    assert again.report["moves"] == []


def scale_out_event(pod, *, old):
    """An Event on a pod as autoscalers write it, by the API of today or the old one."""
    about = {"kind": "Pod", "namespace": "default", "name": pod["metadata"]["name"]}
    about |= {"uid": pod["metadata"]["uid"], "apiVersion": "v1"}
    body = {"kind": "Event", "metadata": {"name": f"{about['name']}.1", "namespace": "default"}}
    if old:  # Karpenter's, by client-go's recorder
        return {
            "apiVersion": "v1",
            "involvedObject": about,
            "reason": "Nominated",
            "message": "Pod should schedule on: nodeclaim/general-x",
            "type": "Normal",
            "source": {"component": "karpenter"},
            **body,
        }
    return {
        "apiVersion": "events.k8s.io/v1",
        "regarding": about,
        "reason": "TriggeredScaleUp",
        "note": "pod triggered scale-up: [{pool 1->2 (max: 5)}]",
        "type": "Normal",
        "action": "ScaleUp",
        "reportingController": "cluster-autoscaler",
        "reportingInstance": "cluster-autoscaler-0",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        **body,
    }


@pytest.mark.parametrize("old", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_pod_for_which_an_autoscaler_has_asked_for_a_machine_is_left_alone(cluster, flags, old):
    fill(cluster)
    cluster.apply([objects.deployment("big", 1, cpu="6")])
    wait_unschedulable(cluster, "big")
    (big,) = pod_of(cluster, "big")
    said = scale_out_event(big, old=old)
    cluster.api.post(cluster.api.collection(said), said)
    ran = rebalancer("run", "--yes", *flags)
    assert (ran.code, ran.report["moves"]) == (0, []), ran.err
    (skip,) = ran.report["skipped"]
    assert skip["code"] == "MachineComes"
    assert said["reason"] in skip["message"]
    cluster.api.delete(f"{cluster.api.collection(said)}/{said['metadata']['name']}")
    ran = rebalancer("run", "--yes", *flags)
    assert [move["makesWayFor"] for move in ran.evicted] == [big["metadata"]["uid"]], ran.err
    operations.wait_pods_ready(cluster.api, 10, 60)


def test_a_node_that_starts_is_waited_for(cluster, flags):
    fill(cluster)
    cluster.apply([objects.deployment("big", 1, cpu="6")])
    wait_unschedulable(cluster, "big")
    starts = {"key": "startup-taint.cluster-autoscaler.kubernetes.io/agent", "effect": "NoSchedule"}
    cluster.apply([objects.node("n3", cpu="8", taints=[starts])])
    operations.wait_nodes_ready(cluster.api, 4)
    ran = rebalancer("run", "--yes", *flags)
    assert (ran.code, ran.report["moves"]) == (0, []), ran.err
    (skip,) = ran.report["skipped"]
    assert (skip["code"], skip["message"]) == (
        "MachineComes",
        "n3 takes it once it is ready for pods",
    )


@pytest.mark.parametrize("reason", ["Deferred", pytest.param("Infeasible", marks=pytest.mark.long)])
def test_a_resize_gets_room_by_its_neighbours_moves_and_its_pod_stays(cluster, flags, reason):
    fill(cluster)
    (pod, *_) = pod_of(cluster, "twos")
    path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
    (container,), (status,) = pod["spec"]["containers"], pod["status"]["containerStatuses"]
    # As a kubelet that can resize reports it; without, the API refuses a resize.
    has = {"requests": {"cpu": "2"}}
    status |= {"resources": has, "allocatedResources": has["requests"]}
    cluster.api.patch(f"{path}/status", {"status": {"containerStatuses": [status]}}, "strategic")
    size = {"name": container["name"], "resources": {"requests": {"cpu": "7"}}}
    cluster.api.patch(f"{path}/resize", {"spec": {"containers": [size]}}, "strategic")
    # The simulated kubelet resizes nothing: what a real one says of it, see tests/node/test_resize.py.
    pending = {"type": "PodResizePending", "status": "True", "reason": reason}
    pending["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    cluster.api.patch(f"{path}/status", {"status": {"conditions": [pending]}}, "strategic")
    ran = rebalancer("run", "--yes", *flags)
    assert ran.code == 0, ran.err
    if reason == "Infeasible":
        assert ran.report["moves"] == []
        (skip,) = ran.report["skipped"]
        assert (skip["pod"], skip["code"]) == (pod["metadata"]["name"], "Unsatisfiable")
        return
    (move,) = ran.evicted
    assert (move["from"], move["pod"].partition("-")[0]) == (pod["spec"]["nodeName"], "ones")
    assert cluster.api.get(path)["metadata"]["uid"] == pod["metadata"]["uid"]
    operations.wait_pods_ready(cluster.api, 9, 60)
    assert marks(cluster) == []
    assert rebalancer("run", "--yes", *flags).report["moves"] == []


def test_what_cannot_be_let_in_disturbs_none_and_the_reason_is_said(cluster, flags):
    fill(cluster)
    cluster.apply([objects.deployment("huge", 1, cpu="7500m")])
    wait_unschedulable(cluster, "huge")
    cluster.apply([objects.pdb("all", {"placed": "here"}, minAvailable="100%")])
    wait_until(
        lambda: (
            cluster.api.get("/apis/policy/v1/namespaces/default/poddisruptionbudgets/all")
            .get("status", {})
            .get("expectedPods")
        ),
        30,
        "the budget counts its pods",
    )
    ran = rebalancer("run", "--yes", *flags)
    assert ran.code == 0, ran.err
    assert ran.report["moves"] == []
    (skip,) = ran.report["skipped"]
    assert skip["code"] == "PodDisruptionBudget"
    (huge,) = pod_of(cluster, "huge")
    explained = rebalancer("explain", "pod", f"default/{huge['metadata']['name']}", *flags[:2])
    assert skip["message"] in " ".join(explained.out.split())


def test_pods_of_a_daemonset_get_in_on_their_own_nodes_under_serve(cluster, flags, tmp_path):
    """The recipe of kubernetes#140984: pods of its own priority were there first, and no preemption helps."""
    cluster.apply([objects.node(name, cpu="4") for name in ("n0", "n1")])
    operations.wait_nodes_ready(cluster.api, 2)
    cluster.apply([objects.deployment("web", 8, cpu="1")])
    operations.wait_pods_ready(cluster.api, 8, 60)
    product = type(
        "Product",
        (),
        {"policy": flags[0].partition("=")[2], "kubeconfig": flags[1].partition("=")[2]},
    )
    server = Server(product, tmp_path, "room")
    try:
        cluster.apply([objects.node("n2", cpu="4"), objects.daemonset("agent", cpu="1")])
        operations.wait_pods_ready(cluster.api, 11, 60)
    finally:
        server.end()
    agents = {pod["spec"]["nodeName"] for pod in pod_of(cluster, "agent")}
    assert agents == {"n0", "n1", "n2"}
    assert marks(cluster) == []
    again = rebalancer("run", "--yes", *flags)
    assert again.report["moves"] == []


def test_a_slot_is_kept_free_for_a_pod_that_is_still_to_come(cluster, flags, tmp_path):
    fill(cluster)
    policy = tmp_path / "slots.yaml"
    policy.write_text(POLICY.replace("make-room: {after: 0s}", "slots: {free: {cpu: 6}}"))
    slots = (f"--policy={policy}", *flags[1:])
    ran = rebalancer("run", "--yes", *slots)
    assert ran.code == 0, ran.err
    (move,) = ran.evicted
    assert (move["pod"].rpartition("-")[0].rpartition("-")[0], move["predicted"]) == ("twos", True)
    operations.wait_pods_ready(cluster.api, 9, 60)
    assert marks(cluster) == []
    # What would fill it by itself does not, run after run.
    levels = "{under: {cpu: 40%}, over: {cpu: 50%}}"
    policy.write_text(f"{policy.read_text()}  low-utilisation: {levels}\n")
    for _ in range(10):
        again = rebalancer("run", "--yes", *slots)
        assert (again.code, again.report["moves"]) == (0, [])
    cluster.apply([objects.deployment("big", 1, cpu="6")])
    operations.wait_pods_ready(cluster.api, 10, 60)
    (big,) = pod_of(cluster, "big")
    assert big["spec"]["nodeName"] == move["from"]
