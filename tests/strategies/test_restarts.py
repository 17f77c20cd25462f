"""Restarts on two nodes: which pods count as restarted too often, and in which order they go."""

import pytest
from pydantic import ValidationError

from rebalancer.plan.plan import Cause, Code
from rebalancer.registry import Registry
from rebalancer.testing.contract import check_strategy
from rebalancer.testing.snapshots import node, snapshot_of, workload
from strategies.restarts import RestartsParams
from tests.strategies.pod_states import running, waiting, with_state
from tests.unit.planner.conftest import plan_of

NAME = "restarts"
NODES = [node("n1"), node("n2")]


def params(**given):
    return RestartsParams.model_validate(given)


def plan(objects, **given):
    return plan_of([*NODES, *objects], strategies=[NAME], params={NAME: params(**given)})


WEB = workload("web", ["n1", "n2", "n1"])


@pytest.mark.parametrize(
    ("state", "given", "matches"),
    [
        ({"main": running(99)}, {}, False),
        ({"main": running(100)}, {}, True),
        # No server sends so many; a file may have them.
        ({"main": running(2**31 - 1)}, {}, True),
        ({"main": running(5)}, {"podRestartThreshold": 5}, True),
        ({"main": running(3), "init": running(2)}, {"podRestartThreshold": 5}, False),
        (
            {"main": running(3), "init": running(2)},
            {"podRestartThreshold": 5, "includingInitContainers": True},
            True,
        ),
        ({"main": running(5), "ephemeral": running(9)}, {"podRestartThreshold": 6}, False),
        ({"main": running(5)}, {"podRestartThreshold": 5, "states": ["Running"]}, True),
        ({"main": running(5)}, {"podRestartThreshold": 5, "states": ["CrashLoopBackOff"]}, False),
        (
            {"main": waiting("CrashLoopBackOff", 5)},
            {"podRestartThreshold": 5, "states": ["CrashLoopBackOff"]},
            True,
        ),
        (
            {"main": waiting("CrashLoopBackOff", 5), "phase": "Pending"},
            {"podRestartThreshold": 5, "states": ["Running"]},
            False,
        ),
        (
            {"main": running(5), "init": waiting("CrashLoopBackOff")},
            {"podRestartThreshold": 5, "states": ["CrashLoopBackOff"]},
            False,
        ),
        (
            {"main": running(5), "init": waiting("CrashLoopBackOff")},
            {
                "podRestartThreshold": 5,
                "states": ["CrashLoopBackOff"],
                "includingInitContainers": True,
            },
            True,
        ),
    ],
)
def test_which_pods_match(state, given, matches):
    result = plan(with_state(WEB, "web-0", **state), **given)
    named = {move.pod for move in result.moves} | {skip.pod for skip in result.skips}
    assert ("web-0" in named) is matches


def test_all_containers_of_a_list_count_together():
    objects = with_state(WEB, "web-0", main=running(3))
    (pod,) = [item for item in objects if item["metadata"]["name"] == "web-0"]
    pod["status"]["containerStatuses"].append(running(4))
    assert [move.pod for move in plan(objects, podRestartThreshold=7).moves] == ["web-0"]


def test_those_restarted_most_often_go_first():
    objects = WEB
    for name, restarts in (("web-0", 7), ("web-1", 9), ("web-2", 8)):
        objects = with_state(objects, name, main=running(restarts))
    result = plan(objects, podRestartThreshold=5)
    assert [move.pod for move in result.moves] == ["web-1", "web-2", "web-0"]
    assert {move.cause for move in result.moves} == {Cause.STATE}
    assert result.moves[0].reason == "default/web-1 was restarted 9 times, podRestartThreshold 5"


def test_only_the_judged_pod_of_its_node_is_named():
    objects = with_state(WEB, "web-2", main=running(9))
    result = plan(objects, podRestartThreshold=5)
    assert [move.pod for move in result.moves] == ["web-2"]
    assert result.skips == ()


def test_a_crash_loop_is_left_alone_in_a_rollout():
    objects = with_state(WEB, "web-0", main=waiting("CrashLoopBackOff", 9), ready=False)
    objects[0] = {**objects[0], "status": {**objects[0]["status"], "updatedReplicas": 1}}
    result = plan(objects, podRestartThreshold=5)
    assert result.moves == ()
    assert {skip.code for skip in result.skips} == {Code.PROTECTED}


def test_the_threshold_is_at_least_one():
    with pytest.raises(ValidationError, match="podRestartThreshold"):
        params(podRestartThreshold=0)


def test_contract():
    objects = with_state(WEB, "web-0", main=running(9))
    snapshot = snapshot_of([*NODES, *with_state(objects, "web-2", main=running(7))])
    check_strategy(Registry.installed().strategy(NAME), params(podRestartThreshold=5), [snapshot])
