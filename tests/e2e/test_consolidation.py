"""Consolidation on a real scheduler: whole nodes are emptied, stay empty while pods come, and then nothing moves."""

import json

from rebalancer.kube.access import ACT_RULES, EVENT_RULES, FOLLOW_RULES, MARK_RULES, READ_RULES
from tests.controlplane import objects, operations, wait_until
from tests.e2e.product import grant, rebalancer

RULES = (*READ_RULES, *ACT_RULES, *FOLLOW_RULES, *EVENT_RULES, *MARK_RULES)
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


def holding(plane):
    """Names of the nodes with pods."""
    pods = operations.pods(plane.api)
    return {p["spec"]["nodeName"] for p in pods if "deletionTimestamp" not in p["metadata"]}


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
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    flags = (f"--policy={policy}", f"--kubeconfig={grant(cluster, RULES)}", "--output=json")

    def run():
        ran = rebalancer("run", "--yes", *flags)
        assert ran.code == 0, ran.err
        operations.wait_pods_ready(cluster.api, APPS * REPLICAS + 1, 60)
        return ran

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
        ran = rebalancer("run", "--yes", *flags)
        assert (ran.code, ran.report["moves"]) == (0, [])
        assert emptied(cluster) == empty

    listed = rebalancer("marks", f"--kubeconfig={grant(cluster, RULES)}", "--clear")
    assert listed.code == 0, listed.err
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
