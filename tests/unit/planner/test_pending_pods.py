"""Pods that wait for room are part of the plan: what a move frees goes to them first."""

import pytest

from rebalancer.plan.plan import Code
from rebalancer.testing.snapshots import HOSTNAME, OLD, ZONE, node, spread, workload

AT_A = {"nodeSelector": {HOSTNAME: "a"}}


def waiting(name, cpu, minute=0, **spec):
    """A pending pod without a controller."""
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"default/{name}",
            "creationTimestamp": OLD.replace("08:00", f"08:{minute:02}"),
        },
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}], **spec},
        "status": {"phase": "Pending"},
    }


def hot():
    """Nodes a and c are full of eight pods each; b is empty."""
    nodes = [node(name, cpu="8") for name in "abc"]
    pods = [o for i in range(8) for o in workload(f"w{i}", ["a", "c"], cpu="1")]
    return [*nodes, *pods]


def test_pods_of_a_hot_node_stay_if_pending_pods_take_their_room(plan):
    free = plan(hot(), strategies=["low-utilisation"])
    assert {(move.node, move.landings[0].node) for move in free.moves} == {("a", "b"), ("c", "b")}
    queue = [waiting(f"p{i}", "1", i, **AT_A) for i in range(9)]
    result = plan([*hot(), *queue], strategies=["low-utilisation"])
    assert {move.node for move in result.moves} <= {"c"}
    said = [skip.message for skip in result.skips if skip.node == "a"]
    assert said
    assert all("pending default/p0 takes room on a" in message for message in said)


def test_a_move_that_fixes_a_rule_goes_all_the_same_and_names_the_pending_pod(plan):
    objects = [
        node("a", "z1", cpu="2"),
        node("b", "z2", cpu="8"),
        *workload("web", ["a", "a"], cpu="1", spec=spread("web", hard=False)),
        waiting("p", "1", **AT_A),
    ]
    result = plan(objects, strategies=["topology-spread"])
    [move] = result.moves
    assert (move.node, move.landings[0].node) == ("a", "b")
    assert move.reason.endswith("; pending default/p takes room on a")


def test_what_a_pending_pod_fixes_is_no_gain_of_the_move(plan):
    # Zone z1 lacks a pod of db; the one that waits for room on a would come once web-0 is gone.
    rule = spread("db", hard=False)
    objects = [
        node("a", "z1", cpu="2"),
        node("b", "z2", cpu="8"),
        *workload("web", ["a", "a", "b"], cpu="1"),
        *workload("db", ["b", "b"], cpu="1", spec=rule),
        waiting("db-2", "1", **AT_A, **rule),
    ]
    objects[-1]["metadata"]["labels"] = {"app": "db"}
    result = plan(objects, strategies=["topology-spread"])
    assert [move for move in result.moves if move.pod.startswith("web")] == []


@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        ([], (Code.COMES_BACK, "the scheduler would put it back (a 100%)")),
        (
            [waiting("p", "1")],
            (Code.NO_ROOM, "no node takes its replacement: pending default/p takes room on a"),
        ),
    ],
)
def test_the_room_of_a_pod_that_is_gone_first_is_taken_by_a_pending_pod(plan, queue, expected):
    # Two of three replicas are on a, and all other nodes are full.
    objects = [
        node("a", "z1", cpu="2"),
        node("b", "z2", cpu="2"),
        node("c", "z3", cpu="1"),
        *workload("db", ["a", "a", "b"], kind="StatefulSet", cpu="1", spec=spread("db")),
        *workload("other", ["c", "b"], cpu="1"),
        *queue,
    ]
    result = plan(objects, strategies=["topology-spread"])
    assert result.moves == ()
    said = {(skip.code, skip.message) for skip in result.skips if skip.node == "a"}
    assert said == {expected}


def test_a_pending_pod_takes_room_once(plan):
    objects = [
        node("a", "z1", cpu="4"),
        node("b", "z2", cpu="8"),
        *workload("web", ["a"] * 4, cpu="1", spec=spread("web", ZONE)),
        waiting("p", "1", **AT_A),
    ]
    result = plan(objects, strategies=["topology-spread"])
    assert len(result.moves) == 2
    assert ["pending" in move.reason for move in result.moves] == [True, False]
