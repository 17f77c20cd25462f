"""Machines by their state: small groups that a person can check."""

import pytest

from rebalancer.machines.capacity.groups import Groups, Sizes, size_of_cluster, sizes_of
from rebalancer.providers.contract import NodeGroup
from rebalancer.testing.snapshots import node, snapshot_of
from tests.unit.machines.capacity.conftest import group

_YOUNG = "2027-01-15T07:50:00Z"
_GOING = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}


def _node(name, *, created=None, **more):
    made = node(name, **more)
    made["metadata"]["creationTimestamp"] = created or made["metadata"]["creationTimestamp"]
    return made


def _sizes(nodes, *groups):
    snapshot = snapshot_of(nodes)
    return sizes_of(snapshot, Groups(snapshot, groups))


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (_node("a"), Sizes(ready=1)),
        (_node("a", ready=False), Sizes(unready=1)),
        # A node that is not Ready ten minutes after it was made has not started yet.
        (_node("a", ready=False, created=_YOUNG), Sizes(not_started=1)),
        (_node("a", taints=[_GOING]), Sizes(being_deleted=1)),
        # A cordon is no state of the machine.
        (_node("a", unschedulable=True), Sizes(ready=1)),
    ],
)
def test_a_node_is_in_one_state(made, expected):
    assert _sizes([made], group("pool", "a")) == {"pool": expected}


def test_machines_without_a_node_are_unregistered():
    sizes = _sizes([_node("a")], group("pool", "a", desired=4))["pool"]
    assert (sizes.registered, sizes.unregistered, sizes.upcoming) == (1, 3, 3)


def test_a_node_that_starts_is_on_its_way_too():
    nodes = [_node("a"), _node("b", ready=False, created=_YOUNG)]
    sizes = _sizes(nodes, group("pool", "a", "b", desired=3))["pool"]
    assert (sizes.unregistered, sizes.upcoming) == (1, 2)


@pytest.mark.parametrize(
    "key",
    [
        "agent/not-ready",
        "startup-taint.cluster-autoscaler.kubernetes.io/agent",
        "ignore-taint.cluster-autoscaler.kubernetes.io/agent",
        # The kubelet has said that it is Ready, and the node controller has not seen it yet.
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/network-unavailable",
        "node.kubernetes.io/disk-pressure",
    ],
)
def test_a_node_that_a_taint_keeps_from_taking_pods_starts(key):
    taint = {"key": key, "effect": "NoSchedule"}
    snapshot = snapshot_of([_node("a", taints=[taint], created=_YOUNG)])
    groups = Groups(snapshot, [group("pool", "a")], ["agent/not-ready"])
    assert sizes_of(snapshot, groups)["pool"] == Sizes(not_started=1)
    old = snapshot_of([_node("a", taints=[taint])])
    groups = Groups(old, [group("pool", "a")], ["agent/not-ready"])
    assert sizes_of(old, groups)["pool"] == Sizes(unready=1)


def test_a_taint_that_comes_and_goes_is_no_start():
    taint = {"key": "status-taint.cluster-autoscaler.kubernetes.io/x", "effect": "NoSchedule"}
    assert _sizes([_node("a", taints=[taint], created=_YOUNG)], group("pool", "a"))[
        "pool"
    ] == Sizes(ready=1)


@pytest.mark.parametrize(
    ("unready", "ready", "healthy"), [(3, 0, True), (4, 5, True), (4, 4, False), (9, 12, True)]
)
def test_few_unready_nodes_are_no_reason_to_add_none(unready, ready, healthy):
    assert Sizes(unready=unready, ready=ready).are_healthy is healthy


def test_a_group_with_more_nodes_than_it_is_to_have_misses_none():
    assert (
        _sizes([_node("a"), _node("b")], group("pool", "a", "b", desired=1))["pool"].upcoming == 0
    )


def test_of_a_group_whose_size_is_not_known_none_are_unregistered():
    assert _sizes([_node("a")], NodeGroup(name="pool", instances=("a",)))["pool"] == Sizes(ready=1)


def test_the_cluster_counts_nodes_in_no_group_as_well():
    snapshot = snapshot_of([_node("a"), _node("alone")])
    groups = Groups(snapshot, [group("pool", "a", desired=2)])
    assert size_of_cluster(snapshot, groups) == Sizes(ready=2, unregistered=1)
