"""Numbers of kube-scheduler's own table tests (``plugins/tainttoleration``)."""

from __future__ import annotations

import pytest

from tests.unit.scheduler.worlds import Json, World, node, pod

PREFER, HARD, EXECUTE = "PreferNoSchedule", "NoSchedule", "NoExecute"


def taint(key: str, value: str, effect: str = PREFER) -> Json:
    return {"key": key, "value": value, "effect": effect}


def toleration(key: str, value: str, effect: str = PREFER) -> Json:
    return {"key": key, "operator": "Equal", "value": value, "effect": effect}


ARM, SSD = taint("cpu-type", "arm64"), taint("disk-type", "ssd")


@pytest.mark.parametrize(
    ("tolerations", "taints", "expected"),
    [
        ([toleration("foo", "bar")], [[taint("foo", "bar")], [taint("foo", "blah")]], [100, 0]),
        (
            [toleration("cpu-type", "arm64"), toleration("disk-type", "ssd")],
            [[], [ARM], [ARM, SSD]],
            [100, 100, 100],
        ),
        ([toleration("foo", "bar")], [[], [ARM], [ARM, SSD]], [100, 50, 0]),
        (
            [toleration("cpu-type", "arm64", HARD), toleration("disk-type", "ssd", HARD)],
            [[], [taint("cpu-type", "arm64", HARD)], [ARM, SSD]],
            [100, 100, 0],
        ),
        ([], [[], [ARM]], [100, 0]),
    ],
)
def test_fewer_untolerated_soft_taints_score_higher(tolerations, taints, expected):
    nodes = [node(f"node{i}", taints=of_node) for i, of_node in enumerate(taints)]
    world = World(nodes, [pod("p", tolerations=tolerations)])
    assert world.plain("p", "TaintToleration") == expected


@pytest.mark.parametrize(
    ("tolerations", "taints", "fits"),
    [
        ([], [taint("dedicated", "user1", HARD)], False),
        ([toleration("dedicated", "user1", HARD)], [taint("dedicated", "user1", HARD)], True),
        ([toleration("dedicated", "user2", HARD)], [taint("dedicated", "user1", HARD)], False),
        ([{"key": "foo", "operator": "Exists", "effect": HARD}], [taint("foo", "bar", HARD)], True),
        ([{"operator": "Exists"}], [taint("foo", "bar", HARD), taint("a", "b", EXECUTE)], True),
        ([toleration("foo", "bar", PREFER)], [taint("foo", "bar", HARD)], False),
        ([], [taint("dedicated", "user1", PREFER)], True),
        ([toleration("foo", "bar", "")], [taint("foo", "bar", EXECUTE)], True),
        (
            [{"key": "n", "operator": "Gt", "value": "1", "effect": HARD}],
            [taint("n", "2", HARD)],
            False,
        ),
    ],
)
def test_only_tolerated_hard_taints_let_a_pod_in(tolerations, taints, fits):
    world = World([node("node1", taints=taints)], [pod("p", tolerations=tolerations)])
    assert world.filters("p") == {"node1": "" if fits else "TaintToleration"}


def test_a_cordoned_node_takes_only_pods_that_tolerate_the_cordon():
    cordon = "node.kubernetes.io/unschedulable"
    tolerant = pod("tolerant", tolerations=[{"key": cordon, "effect": HARD, "operator": "Exists"}])
    world = World([node("node1", unschedulable=True)], [pod("plain"), tolerant])
    assert world.filters("plain") == {"node1": "NodeUnschedulable"}
    assert world.feasible("tolerant") == ["node1"]
