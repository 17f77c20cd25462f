"""Consolidation on a real scheduler: whole nodes are emptied, stay empty while pods come, and then nothing moves."""

import json
from functools import partial

from rebalancer.kube.access import MARK_RULES, READ_RULES
from tests.controlplane import objects, operations, wait_until
from tests.e2e.product import RUN_RULES, grant, rebalancer

RULES = (*RUN_RULES, *MARK_RULES)
POLICY = """
apiVersion: rebalancer/v1
kind: Policy
steer: marks
budgets: {perHour: 100%}
protect: {minPodAge: 0s}
strategies:
  consolidation: {minNodeAge: 0s}
  topology-spread: {constraints: [hard]}
"""
NODES, APPS, REPLICAS = 8, 4, 5
MOST_RUNS = 6


def emptied(plane):
    """Names of the nodes that are marked as to be empty."""
    return {
        node["metadata"]["name"]
        for node in plane.api.list_all("/api/v1/nodes")
        if any(taint["key"] == "rebalancer/empty" for taint in node["spec"].get("taints", ()))
    }


def pinned(plane):
    """Names of the nodes that are marked because pods hold them."""
    return {
        node["metadata"]["name"]
        for node in plane.api.list_all("/api/v1/nodes")
        if any(str(t.get("value")).startswith("pins.") for t in node["spec"].get("taints", ()))
    }


def holding(plane):
    """Names of the nodes with pods."""
    pods = operations.pods(plane.api)
    return {p["spec"]["nodeName"] for p in pods if "deletionTimestamp" not in p["metadata"]}


def prepare(plane, folder):
    """Return what carries out a run and waits until all pods are Ready again, and the flags of its policy and rights."""
    policy = folder / "policy.yaml"
    policy.write_text(POLICY)
    flags = (f"--policy={policy}", f"--kubeconfig={grant(plane, RULES)}", "--output=json")

    def run():
        pods = len(operations.pods(plane.api))
        ran = rebalancer("run", "--yes", *flags)
        assert ran.code == 0, ran.err
        operations.wait_pods_ready(plane.api, pods, 60)
        return ran

    return run, flags


def app(number, replicas=REPLICAS):
    return objects.deployment(f"app{number}", replicas, cpu="700m")


def test_whole_nodes_are_emptied_and_stay_empty_and_then_it_is_silent(cluster, tmp_path):
    cluster.apply([objects.node(f"n{i}", zone="abc"[i % 3]) for i in range(NODES)])
    operations.wait_nodes_ready(cluster.api, NODES)
    cluster.apply([app(number) for number in range(APPS)])
    bare = objects.pod("bare", cpu="100m")
    bare["spec"]["nodeName"] = "n7"
    cluster.apply([bare])
    operations.wait_pods_ready(cluster.api, APPS * REPLICAS + 1, 120)
    assert len(holding(cluster)) == NODES
    run, flags = prepare(cluster, tmp_path)
    first = run()
    needed = first.report["before"]["consolidation"]["nodes"]["needed"]
    runs = [first]
    while runs[-1].report["moves"] and len(runs) < MOST_RUNS:
        runs.append(run())
    evicted = [move for ran in runs for move in ran.evicted]
    empty = emptied(cluster)
    assert runs[-1].report["moves"] == []
    assert all(move["predicted"] for move in evicted)
    assert {move["from"] for move in evicted} <= empty
    assert holding(cluster).isdisjoint(empty)
    assert len(empty) == NODES - needed
    assert "n7" not in empty
    stays = rebalancer("explain", "node", "n7", *flags[:2])
    assert "PodStays: default/bare: noController" in stays.out

    # Pods that come land on the others while these have room, and nothing is to be done afterwards.
    cluster.apply([app(0, REPLICAS + 1)])
    operations.wait_pods_ready(cluster.api, APPS * REPLICAS + 2, 60)
    assert holding(cluster).isdisjoint(empty)
    for _ in range(2):
        assert run().report["moves"] == []
        assert emptied(cluster) == empty

    assert rebalancer("marks", flags[1], "--clear").code == 0
    assert emptied(cluster) == set()


def test_new_nodes_of_the_group_that_capacity_names_take_the_pods_that_wait(cluster, tmp_path):
    """Two groups: a node of the one has no room for a pod, one of the other has room for one."""
    label = "eks.amazonaws.com/nodegroup"

    def machine(name, group):
        sizes = {"small": "1", "large": "4"}
        return objects.node(name, labels={label: group}, cpu=sizes[group])

    cluster.apply([machine("small-0", "small"), machine("large-0", "large")])
    operations.wait_nodes_ready(cluster.api, 2)
    cluster.apply([objects.deployment("web", 4, cpu="2200m")])

    def seen():
        """How many pods are Ready, and how many the scheduler has refused."""
        pods = operations.pods(cluster.api, selector="app=web")
        refused = [
            each
            for pod in pods
            for each in pod.get("status", {}).get("conditions", ())
            if "nodeName" not in pod["spec"] and each.get("reason") == "Unschedulable"
        ]
        return sum(map(operations.is_ready, pods)), len(refused)

    wait_until(lambda: seen() == (1, 3), 60, "one pod is Ready and three wait")
    ran = rebalancer("capacity", f"--kubeconfig={grant(cluster, READ_RULES)}", "--output=json")
    assert ran.code == 0, ran.err
    report = json.loads(ran.out)
    grows = {group["name"]: group["increase"] for group in report["groups"]}
    assert grows == {"small": 0, "large": 3}
    assert [(p["code"], p["group"]) for p in report["pending"]] == [("GroupGrows", "large")] * 3
    # One node fewer is not enough, and so many are.
    cluster.apply([machine(f"large-{i}", "large") for i in (1, 2)])
    wait_until(lambda: seen() == (3, 1), 60, "three pods are Ready and one waits")
    cluster.apply([machine("large-3", "large")])
    wait_until(lambda: seen() == (4, 0), 60, "all pods are Ready")
    web = operations.pods(cluster.api, selector="app=web")
    assert sorted(pod["spec"]["nodeName"] for pod in web) == [f"large-{i}" for i in range(4)]


def test_pods_that_hold_nodes_stand_together_once_they_have_restarted_by_themselves(
    cluster, tmp_path
):
    """No run evicts them; marks on all of their nodes but one let each land beside its like, whoever ended it."""
    cluster.apply([objects.node(f"n{i}", zone="abc"[i % 3]) for i in range(5)])
    operations.wait_nodes_ready(cluster.api, 5)
    kept = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    cluster.apply([objects.deployment("job", 4, pod_annotations=kept, cpu="200m")])
    operations.wait_pods_ready(cluster.api, 4, 60)
    cluster.apply([objects.deployment("web", 6, cpu="100m")])
    operations.wait_pods_ready(cluster.api, 10, 60)
    run, flags = prepare(cluster, tmp_path)

    def settle():
        while run().report["moves"]:
            pass
        # While pods of the run before end, their workload rests.
        assert run().report["moves"] == []

    def on():
        pods = operations.pods(cluster.api, selector="app=job")
        return sorted(pod["spec"].get("nodeName", "") for pod in pods)

    def has_left(apart):
        return set(on()) & apart < apart

    settle()
    assert (len(set(on())), len(pinned(cluster))) == (4, 3)
    # A person ends them, and then a rollout the last of them.
    while apart := pinned(cluster):
        pods = operations.pods(cluster.api, selector="app=job")
        pod = next(pod for pod in pods if pod["spec"]["nodeName"] in apart)
        if len(apart) > 1:
            operations.evict(cluster.api, "default", pod["metadata"]["name"])
        else:
            stamp = {"metadata": {"annotations": {**kept, "rolled": "out"}}}
            path = "/apis/apps/v1/namespaces/default/deployments/job"
            cluster.api.patch(path, {"spec": {"template": stamp}})
        wait_until(partial(has_left, frozenset(apart)), 60, "it has left its node")
        operations.wait_pods_ready(cluster.api, 10, 60)
        assert pod["spec"]["nodeName"] not in on()
        settle()
        assert pinned(cluster) < apart
    # All others are empty, or are emptied.
    assert set(on()).isdisjoint(emptied(cluster))
    assert len(emptied(cluster)) >= 3
    assert run().report["emptying"]["pinned"] == []
    assert rebalancer("marks", flags[1], "--clear").code == 0
    assert emptied(cluster) == set()
