"""Pods that are judged by themselves, on a real control plane: replaced once, then silence; PodDisruptionBudgets hold."""

import time

from tests.controlplane import objects, operations, wait_until
from tests.controlplane.stages import NEVER_READY
from tests.e2e.product import Product

AGE = 40
"""Seconds: pods of this age are too old in the first run."""
POLICY = """
apiVersion: rebalancer/v1
kind: Policy
protect: {minPodAge: 0s}
budgets: {perOwner: 100%}
strategies:
  topology-spread: {}
  duplicates: {}
  lifetime: {maxPodLifeTime: 40s, select: {labels: {app: old}}}
  restarts: {podRestartThreshold: 5}
  stuck: {after: 30s}
"""


def pods_of(plane, app):
    pods = operations.pods(plane.api, "default", f"app={app}")
    return sorted(
        (pod for pod in pods if "deletionTimestamp" not in pod["metadata"]),
        key=lambda pod: pod["metadata"]["name"],
    )


def patch_status(plane, pod, status):
    name = pod["metadata"]["name"]
    plane.api.patch(f"/api/v1/namespaces/default/pods/{name}/status", {"status": status})


def container(restarts, state, *, ready):
    return {
        "name": "main",
        "image": "x",
        "imageID": "",
        "restartCount": restarts,
        "ready": ready,
        "state": state,
    }


def restarted(plane, pod):
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    patch_status(plane, pod, {"containerStatuses": [container(9, state, ready=True)]})


def is_stuck(plane, pod):
    """Let a pod not be Ready any more."""
    path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
    plane.api.patch(path, {"metadata": {"annotations": {NEVER_READY: "true"}}})
    wait_until(lambda: not operations.is_ready(plane.api.get(path)), 30, "the pod is not Ready")


def names(pods):
    return {pod["metadata"]["name"] for pod in pods}


def test_each_judged_pod_is_replaced_once_and_then_all_is_silent(cluster, tmp_path):
    cluster.apply([objects.node(f"node-{zone}", zone=f"zone-{zone}") for zone in "abc"])
    operations.wait_nodes_ready(cluster.api, 3)
    apps = ("old", "often", "kept", "sick")
    sizes = {"sick": "1"}
    cluster.apply(
        [objects.deployment(app, 3, labels={"app": app}, cpu=sizes.get(app, "50m")) for app in apps]
    )
    cluster.apply([objects.pdb("kept", {"app": "kept"}, maxUnavailable=0)])
    cluster.apply([objects.pdb("often", {"app": "often"}, maxUnavailable=1)])
    operations.wait_pods_ready(cluster.api, 12)
    # Where no pod is yet: otherwise the scheduler would put the stuck one back.
    cluster.apply([objects.node("node-d", zone="zone-d")])
    operations.wait_nodes_ready(cluster.api, 4)
    is_stuck(cluster, pods_of(cluster, "sick")[0])
    time.sleep(AGE + 1)
    before = {app: pods_of(cluster, app) for app in apps}
    restarted(cluster, before["often"][0])
    restarted(cluster, before["kept"][0])
    product, started = Product(cluster, tmp_path, POLICY), time.monotonic()
    done = product.run("--yes")
    assert done.code == 0, done.err
    evicted = {move["pod"]: move["strategy"] for move in done.report["moves"]}
    assert {move["outcome"] for move in done.report["moves"]} == {"evicted"}, done.report["moves"]
    assert evicted == {  # all that is judged, but for what a PodDisruptionBudget keeps
        **dict.fromkeys(names(before["old"]), "lifetime"),
        before["often"][0]["metadata"]["name"]: "restarts",
        before["sick"][0]["metadata"]["name"]: "stuck",
    }, (done.report["skipped"], pods_of(cluster, "sick"))
    (stays,) = done.report["skipped"]
    assert stays["pod"] == before["kept"][0]["metadata"]["name"]
    assert stays["code"] == "PodDisruptionBudget"
    (moved,) = [move for move in done.report["moves"] if move["strategy"] == "stuck"]
    assert moved["landed"] != moved["from"]
    # Of all pods that there were, only those are gone.
    for app in apps:
        gone = names(before[app]) - names(pods_of(cluster, app))
        assert gone == names(before[app]) & evicted.keys()
    # Replacements are younger than what has passed since; what they replaced would be older.
    old = int(time.monotonic() - started) + AGE - 15
    again = product.run("--yes", "--set", f"strategies.lifetime.maxPodLifeTime={old}s")
    assert again.code == 0, again.err
    assert again.report["moves"] == []
