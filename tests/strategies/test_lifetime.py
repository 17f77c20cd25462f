"""Lifetime on two nodes: which pods are to be replaced, and whether they are."""

import pytest
from pydantic import ValidationError

from rebalancer.plan.plan import Cause, Code
from rebalancer.registry import Registry
from rebalancer.testing.contract import check_strategy
from rebalancer.testing.snapshots import apart, disruption_budget, node, snapshot_of, workload
from strategies.lifetime import LifetimeParams
from tests.strategies.pod_states import ago, condition, ended, waiting, with_state
from tests.unit.planner.conftest import plan_of

NAME = "lifetime"
NODES = [node("n1"), node("n2")]


def params(**given):
    return LifetimeParams.model_validate(given)


def plan(objects, **given):
    return plan_of([*NODES, *objects], strategies=[NAME], params={NAME: params(**given)})


def moved(objects, **given):
    return [move.pod for move in plan(objects, **given).moves]


def web(*ages, **options):
    """A Deployment with pods of these ages in hours, one per node in turn."""
    objects = workload("web", [f"n{i % 2 + 1}" for i in range(len(ages))], **options)
    pods = [item for item in objects if item["kind"] == "Pod"]
    for pod, hours in zip(pods, ages, strict=True):
        pod["metadata"]["creationTimestamp"] = ago(hours=hours)
        pod["status"]["conditions"][0]["lastTransitionTime"] = ago(hours=hours)
    return objects


@pytest.mark.parametrize(
    ("hours", "old"),
    [(23.0, False), (24.0, False), (24 + 1 / 3600, True), (48.0, True), (-1.0, False)],
)
def test_older_is_strictly_older_in_whole_seconds(hours, old):
    assert bool(moved(web(hours, 1.0), maxPodLifeTime="24h")) is old


def test_the_oldest_go_first_and_each_is_replaced_where_there_is_room():
    result = plan(web(30, 50, 1, 40), maxPodLifeTime="24h")
    assert [move.pod for move in result.moves] == ["web-1", "web-3", "web-0"]
    assert result.before[NAME].violated == 3
    assert result.after[NAME].violated == 0
    assert {move.cause for move in result.moves} == {Cause.AGE}
    assert result.moves[0].reason == "default/web-1 is 50h old, maxPodLifeTime 24h"


def test_the_same_node_will_do():
    result = plan_of(
        [
            node("n1"),
            *web(30, 30)[:2],
            *[{**p, "spec": {**p["spec"], "nodeName": "n1"}} for p in web(30, 30)[2:]],
        ],
        strategies=[NAME],
        params={NAME: params(maxPodLifeTime="24h")},
    )
    assert len(result.moves) == 2
    assert {move.landings[0].node for move in result.moves} == {"n1"}


def test_nothing_is_evicted_whose_replacement_has_no_place():
    result = plan(web(30, 30, cpu="3"), maxPodLifeTime="24h")
    assert result.moves == ()
    assert {skip.code for skip in result.skips} == {Code.NO_ROOM}


def test_a_hard_rule_is_not_broken_for_it():
    alone = workload("alone", ["n1", "n2"], spec=apart("alone", "kubernetes.io/hostname"))
    result = plan([*alone], maxPodLifeTime="1h")
    # Each replacement arrives while its victim still holds its node, and the other node is taken.
    assert result.moves == ()


@pytest.mark.parametrize(
    ("state", "given", "matches"),
    [
        ({}, {"states": ["Running"]}, True),
        ({}, {"states": ["Pending"]}, False),
        ({"phase": "Pending"}, {"states": ["Pending"]}, True),
        ({"reason": "NodeLost"}, {"states": ["NodeLost"]}, True),
        ({"main": waiting("CrashLoopBackOff")}, {"states": ["CrashLoopBackOff"]}, True),
        ({"main": ended("OOMKilled", 137)}, {"states": ["OOMKilled"]}, True),
        ({"main": ended("OOMKilled", 137)}, {"states": ["Error"]}, False),
        ({"init": waiting("ImagePullBackOff")}, {"states": ["ImagePullBackOff"]}, False),
        (
            {"init": waiting("ImagePullBackOff")},
            {"states": ["ImagePullBackOff"], "includingInitContainers": True},
            True,
        ),
        ({"ephemeral": ended("Error", 1)}, {"states": ["Error"]}, False),
        (
            {"ephemeral": ended("Error", 1)},
            {"states": ["Error"], "includingEphemeralContainers": True},
            True,
        ),
        ({"main": ended("Error", 3)}, {"exitCodes": [2, 3]}, True),
        ({"main": ended("Error", 3)}, {"exitCodes": [1]}, False),
        ({"init": ended("Error", 3)}, {"exitCodes": [3]}, False),
        ({"init": ended("Error", 3)}, {"exitCodes": [3], "includingInitContainers": True}, True),
        ({"ephemeral": ended("Error", 3)}, {"exitCodes": [3]}, False),
        ({"main": ended("Error", 3)}, {"exitCodes": [3], "states": ["OOMKilled"]}, False),
        ({"main": ended("Error", 3)}, {"exitCodes": [3], "maxPodLifeTime": "240h"}, False),
        ({"conditions": [condition("Bad", "True")]}, {"conditions": [{"type": "Bad"}]}, True),
        (
            {"conditions": [condition("Bad", "True")]},
            {"conditions": [{"type": "Bad", "status": "False"}]},
            False,
        ),
        (
            {"conditions": [condition("Bad", "True", reason="Worn")]},
            {"conditions": [{"type": "No"}, {"reason": "Worn"}]},
            True,
        ),
        (
            {"conditions": [condition("Bad", "True", hours=2)]},
            {"conditions": [{"type": "Bad", "minTimeSinceLastTransition": "1h"}]},
            True,
        ),
        (
            {"conditions": [condition("Bad", "True", hours=0.5)]},
            {"conditions": [{"type": "Bad", "minTimeSinceLastTransition": "1h"}]},
            False,
        ),
        (
            {"conditions": [condition("Bad", "True", hours=None)]},
            {"conditions": [{"type": "Bad", "minTimeSinceLastTransition": "1h"}]},
            False,
        ),
        ({}, {"conditions": [{"type": "Ready", "status": "True"}]}, True),
        ({}, {"conditions": [{"type": "Ready", "minTimeSinceLastTransition": "25h"}]}, False),
    ],
)
def test_which_pods_match(state, given, matches):
    objects = with_state(workload("web", ["n1", "n2"]), "web-0", **state)
    result = plan(objects, **given)
    named = {move.pod for move in result.moves} | {skip.pod for skip in result.skips}
    assert ("web-0" in named) is matches


def test_a_pod_that_is_not_ready_may_go_where_it_alone_keeps_its_owner_from_being_at_rest():
    objects = with_state(
        workload("web", ["n1", "n2"]), "web-0", main=waiting("CrashLoopBackOff"), ready=False
    )
    result = plan(objects, states=["CrashLoopBackOff"])
    assert [(move.pod, move.cause) for move in result.moves] == [("web-0", Cause.STATE)]


def test_a_pod_that_is_only_old_stays_while_a_sibling_is_not_ready():
    objects = with_state(workload("web", ["n1", "n2"]), "web-0", ready=False)
    result = plan(objects, maxPodLifeTime="1h")
    assert result.moves == ()
    assert {skip.code for skip in result.skips} == {Code.PROTECTED}


def test_a_disruption_budget_is_kept():
    objects = [*workload("web", ["n1", "n2"]), disruption_budget("web", "web", allowed=0)]
    result = plan(objects, maxPodLifeTime="1h")
    assert result.moves == ()
    assert {skip.code for skip in result.skips} == {Code.PDB}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "needs maxPodLifeTime"),
        ({"states": ["Evicted", "Shutdown"]}, "only pods that have ended are Evicted, Shutdown"),
        ({"states": ["Succeeded"]}, "states"),
        ({"conditions": [{}]}, "needs type, status or reason"),
        ({"conditions": [{"type": "PodScheduled", "status": "True"}]}, "every healthy pod"),
    ],
)
def test_options_that_ask_for_nothing_are_refused(given, says):
    with pytest.raises(ValidationError, match=says):
        params(**given)


def test_a_single_replica_stays():
    objects = workload("lone", ["n1"])
    result = plan(objects, maxPodLifeTime="1h")
    assert [(skip.pod, skip.code) for skip in result.skips] == [("lone-0", Code.PROTECTED)]


@pytest.mark.parametrize(
    "options", [{"maxPodLifeTime": "24h"}, {"states": ["CrashLoopBackOff"]}], ids=str
)
def test_contract(options):
    objects = [*NODES, *with_state(web(30, 1, 30, 1), "web-1", main=waiting("CrashLoopBackOff"))]
    check_strategy(Registry.installed().strategy(NAME), params(**options), [snapshot_of(objects)])
