"""Which nodes a replacement takes, and what it waits for, on a real control plane."""

import threading
import time
from contextlib import contextmanager
from datetime import datetime

from rebalancer.kube.access import DRAIN_RULES
from tests.controlplane import objects, operations, wait_until
from tests.controlplane.build import binary
from tests.controlplane.stages import COMPLETE_AFTER
from tests.e2e.product import RUN_RULES, grant, rebalancer

RULES = (*RUN_RULES, *DRAIN_RULES)
WORKFLOW, WORKFLOW_READ = "workflows.argoproj.io/workflow", "workflows.argoproj.io/completed"
READ_AFTER = 6.0
"""Seconds from when a step has ended until the controller of Workflows reads its result."""
APART = 30.0
"""Seconds between the creation of old nodes and of new ones: far more than a command needs to read them."""


def versioned(name, kubelet):
    node = objects.node(name)
    node["status"]["nodeInfo"] = {"kubeletVersion": kubelet}
    return node


def replace(plane, *choice):
    """Call the command; kubectl deletes the nodes, as the provider would."""
    remove = f"{binary('kubectl')} --kubeconfig={plane.kubeconfig} delete node"
    return rebalancer(
        "replace",
        *choice,
        f"--kubeconfig={grant(plane, RULES)}",
        "--pause=0s",
        "--timeout=300s",
        f"--then={remove}",
        "--output=json",
    )


def names_of_nodes(plane):
    return {node["metadata"]["name"] for node in plane.api.list_all("/api/v1/nodes")}


def test_nodes_of_an_older_kubelet_are_replaced_and_the_others_stay(cluster):
    cluster.apply(
        versioned(f"old-{i}", version) for i, version in enumerate(("v1.34.9", "v1.35.4"))
    )
    operations.wait_nodes_ready(cluster.api, 2)
    cluster.apply([objects.deployment("web", 4, labels={"app": "web"})])
    operations.wait_pods_ready(cluster.api, 4)
    cluster.apply(
        versioned(f"new-{i}", version) for i, version in enumerate(("v1.36.0", "v1.36.3"))
    )
    operations.wait_nodes_ready(cluster.api, 4)

    done = replace(cluster, "--kubelet-below=1.36")

    assert done.code == 0, done.err + done.out
    assert names_of_nodes(cluster) == {"new-0", "new-1"}
    ready = operations.wait_pods_ready(cluster.api, 4)
    assert {pod["spec"]["nodeName"] for pod in ready} <= {"new-0", "new-1"}
    again = replace(cluster, "--kubelet-below=1.36")
    assert names_of_nodes(cluster) == {"new-0", "new-1"}, again.out


def test_nodes_older_than_an_age_are_replaced_and_younger_ones_stay(cluster):
    cluster.apply(objects.node(f"old-{i}") for i in range(2))
    operations.wait_nodes_ready(cluster.api, 2)
    cluster.apply([objects.deployment("web", 4, labels={"app": "web"})])
    operations.wait_pods_ready(cluster.api, 4)
    time.sleep(APART)
    cluster.apply(objects.node(f"new-{i}") for i in range(2))
    operations.wait_nodes_ready(cluster.api, 4)
    nodes = cluster.api.list_all("/api/v1/nodes")
    youngest_old = max(
        datetime.fromisoformat(node["metadata"]["creationTimestamp"])
        for node in nodes
        if node["metadata"]["name"].startswith("old")
    )
    # The command knows the API server's time to the second.
    age = int((datetime.now(youngest_old.tzinfo) - youngest_old).total_seconds()) - 2

    done = replace(cluster, f"--older-than={age}s")

    assert done.code == 0, done.err + done.out
    assert names_of_nodes(cluster) == {"new-0", "new-1"}
    ready = operations.wait_pods_ready(cluster.api, 4)
    assert {pod["spec"]["nodeName"] for pod in ready} <= {"new-0", "new-1"}


@contextmanager
def controller_of_workflows(plane):
    """Read the result of each finished step late, as Argo's controller does when it has much to do.

    Yields uid -> the result of a step that was read while its pod was there, and a label that says so.
    """
    results: dict[str, str] = {}
    end = threading.Event()

    def reconcile():
        client = plane.client(plane.admin_token)
        ended: dict[str, float] = {}
        while not end.wait(0.2):
            for pod in client.list_all("/api/v1/namespaces/default/pods"):
                meta = pod["metadata"]
                labels = meta.get("labels") or {}
                finished = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
                if WORKFLOW not in labels or WORKFLOW_READ in labels or not finished:
                    continue
                if time.monotonic() < ended.setdefault(meta["uid"], time.monotonic()) + READ_AFTER:
                    continue
                results[meta["uid"]] = pod["status"]["phase"]
                path = f"/api/v1/namespaces/default/pods/{meta['name']}"
                client.patch(path, {"metadata": {"labels": {WORKFLOW_READ: "true"}}})
        client.close()

    thread = threading.Thread(target=reconcile)
    thread.start()
    try:
        yield results
    finally:
        end.set()
        thread.join()


def test_a_node_is_not_removed_before_the_results_of_its_workflow_were_read(cluster):
    cluster.apply([objects.node("old-0", labels={"generation": "old"})])
    operations.wait_nodes_ready(cluster.api, 1)
    steps = [
        objects.pod(
            f"step-{i}",
            labels={WORKFLOW: "build"},
            annotations={COMPLETE_AFTER: f"{2 + 3 * i}s"},
            restartPolicy="Never",
        )
        for i in range(2)
    ]
    owner = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "name": "build",
        "uid": "w-1",
    }
    for step in steps:
        step["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    with controller_of_workflows(cluster) as results:
        cluster.apply(steps)
        wait_until(
            lambda: all(p["spec"].get("nodeName") for p in operations.pods(cluster.api)),
            60,
            "the steps on the node",
        )
        uids = {pod["metadata"]["uid"] for pod in operations.pods(cluster.api)}
        cluster.apply([objects.node("new-0", labels={"generation": "new"})])
        operations.wait_nodes_ready(cluster.api, 2)

        done = replace(cluster, "--selector=generation=old")

        assert done.code == 0, done.err + done.out
        assert names_of_nodes(cluster) == {"new-0"}
        assert results == dict.fromkeys(uids, "Succeeded")
