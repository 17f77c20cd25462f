"""Nodes and replicas that are not there: edits on the objects of a snapshot file."""

import copy

import pytest

from rebalancer.base.errors import PolicyError
from rebalancer.testing.snapshots import HOSTNAME, ZONE, node, workload
from rebalancer.whatif.edits import (
    NodeToAdd,
    Objects,
    add_node,
    cordon_node,
    lose_zone,
    remove_node,
    renew_budgets,
)


def objects_of(*items):
    return Objects({}, [copy.deepcopy(item) for item in items])


def daemon(name, on):
    pod = next(item for item in workload(name, [on], kind="ReplicaSet") if item["kind"] == "Pod")
    pod["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    pod["spec"]["affinity"] = {"nodeAffinity": {"made": "for the node"}}
    return pod


def labels_of(objects, name):
    return objects.snapshot().nodes.labels_of(name)


def test_a_new_node_is_like_the_commonest_but_for_what_is_said():
    objects = objects_of(node("big", "a", cpu="64"), node("n1", "a"), node("n2", "b"))
    add_node(objects, NodeToAdd.parse("n9:zone=c,memory=8Gi,disk=ssd"))
    snapshot = objects.snapshot()
    index = snapshot.nodes.index["n9"]
    assert snapshot.nodes.allocatable[:2, index].tolist() == [4000, 8 * 2**30]
    assert labels_of(objects, "n9") == {HOSTNAME: "n9", ZONE: "c", "disk": "ssd"}
    assert snapshot.nodes.ready[index]


def test_a_new_node_like_another_takes_its_shape_and_its_daemons_but_not_its_taints():
    tainted = node("big", "a", cpu="64", taints=[{"key": "x", "effect": "NoSchedule"}])
    objects = objects_of(tainted, node("n1", "b"), daemon("agent", "big"))
    add_node(objects, NodeToAdd.parse("n9:like=big"))
    snapshot = objects.snapshot()
    index = snapshot.nodes.index["n9"]
    assert snapshot.nodes.allocatable[0, index] == 64000
    assert snapshot.nodes.taint_sets[snapshot.nodes.taint_set[index]] == ()
    assert snapshot.pods.node.tolist().count(index) == 1


def test_a_deprecated_zone_label_is_kept_in_use():
    old = "failure-domain.beta.kubernetes.io/zone"
    objects = objects_of(node("n1", labels={old: "a"}))
    add_node(objects, NodeToAdd.parse("n9:zone=b"))
    assert labels_of(objects, "n9") == {HOSTNAME: "n9", old: "b"}


def test_pods_of_a_removed_node_wait_and_those_bound_to_it_are_gone():
    web = workload("web", ["n1", "n2"])
    alone = next(item for item in workload("alone", ["n1"]) if item["kind"] == "Pod")
    del alone["metadata"]["ownerReferences"]
    objects = objects_of(node("n1"), node("n2"), *web, alone, daemon("agent", "n1"))
    remove_node(objects, "n1")
    snapshot = objects.snapshot()
    assert snapshot.nodes.names == ("n2",)
    assert dict(zip(snapshot.pods.name, snapshot.pods.node.tolist(), strict=True)) == {
        "web-0": -1,
        "web-1": 0,
    }
    assert "default/web-0" not in set(snapshot.pods.uid)


def test_pods_without_uids_are_different_pods_when_they_are_recreated():
    objects = objects_of(node("n1"), node("n2"), *workload("web", ["n1", "n1", "n1"]))
    for item in objects.items:
        item["metadata"].pop("uid", None)
    remove_node(objects, "n1")
    assert len(set(objects.snapshot().pods.uid)) == 3


def test_a_zone_is_lost_with_its_nodes_and_the_others_stay():
    old = "failure-domain.beta.kubernetes.io/zone"
    moved = node("n3", "b", labels={old: "a"})
    web = workload("web", ["n1", "n2", "n3", "n4"])
    objects = objects_of(node("n1", "a"), node("n2", labels={old: "a"}), moved, node("n4"), *web)
    lose_zone(objects, "a")
    snapshot = objects.snapshot()
    assert snapshot.nodes.names == ("n3", "n4")
    assert snapshot.pods.node.tolist() == [-1, -1, 0, 1]


def test_a_cordoned_node_keeps_its_pods_and_takes_no_more():
    objects = objects_of(node("n1"), node("n2"), *workload("web", ["n1", "n2"]))
    cordon_node(objects, "n1")
    cordon_node(objects, "n1")
    snapshot = objects.snapshot()
    assert snapshot.nodes.unschedulable.tolist() == [True, False]
    taints = snapshot.nodes.taint_sets[snapshot.nodes.taint_set[0]]
    assert [(taint.key, taint.effect) for taint in taints] == [
        ("node.kubernetes.io/unschedulable", "NoSchedule")
    ]
    assert snapshot.pods.node.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("spec", "healthy", "desired", "allowed"),
    [
        ({"minAvailable": 2}, 3, 2, 1),
        ({"maxUnavailable": 1}, 3, 4, 0),
        ({"minAvailable": "50%"}, 3, 3, 0),
        ({"maxUnavailable": "50%"}, 3, 2, 1),
    ],
)
def test_budgets_follow_the_edit_as_the_controller_would_write_them(
    spec, healthy, desired, allowed
):
    budget = {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": "default"},
        "spec": {**spec, "selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 3, "currentHealthy": 9, "desiredHealthy": 6},
    }
    web = workload("web", ["n1", "n1", "n1", "n2", "n2"])
    objects = objects_of(node("n1"), node("n2"), *web, budget)
    remove_node(objects, "n2")
    renew_budgets(objects)
    budget = objects.snapshot().budgets[0]
    assert (budget.healthy, budget.desired, budget.allowed) == (healthy, desired, allowed)


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "write NAME"), ("n:zone", "no key=value"), ("n:cpu=many", "cpu"), ("n:=x", "no key")],
)
def test_a_node_that_cannot_be_understood_is_refused(text, says):
    with pytest.raises(PolicyError, match=says):
        NodeToAdd.parse(text)


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda o: add_node(o, NodeToAdd("n1")), "a node of this name"),
        (lambda o: add_node(o, NodeToAdd("n9", like="n8")), "no node n8; known here: n1"),
        (lambda o: remove_node(o, "n1x"), "no node of this name; did you mean n1?"),
        (lambda o: cordon_node(o, "n9"), "no node of this name"),
        (lambda o: lose_zone(o, "z"), "no node is in this zone"),
    ],
)
def test_what_cannot_be_done_is_said(edit, says):
    with pytest.raises(PolicyError, match=says):
        edit(objects_of(node("n1"), *workload("web", ["n1", "n1"])))
