"""From a policy and what earlier runs left to problems and plans."""

import math
from dataclasses import replace

import pytest

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.plan.plan import Outcome, Pace, Status
from rebalancer.planner.planning import Planning
from rebalancer.planner.scheduler_profile import scheduler_profile
from rebalancer.policy.load import load_text
from rebalancer.registry import Registry
from rebalancer.snapshot.protect import COOL_DOWN, Scope
from rebalancer.testing.snapshots import node, snapshot_of, workload

REGISTRY = Registry.installed()
NODES = [node(f"n{i}") for i in range(3)]
WEB = workload("web", ["n0", "n0"])
DUPLICATES = "strategies: {duplicates: {}}"


def planning(text=DUPLICATES, scope=None, **options):
    head = "apiVersion: rebalancer/v1\nkind: Policy\n"
    loaded = load_text((head + text).encode(), "policy", REGISTRY)
    return Planning(loaded, REGISTRY, scope or Scope(), **options)


def planned(of, objects=(*NODES, *WEB), skew=0.0):
    return of.plan(snapshot_of(objects), skew, Timings(SystemClock()))


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        (DUPLICATES, False),
        ("strategies: {low-utilisation: {}}", False),
        ("strategies: {low-utilisation: {signal: usage}}", True),
        ("strategies: {low-utilisation: {signal: larger, mode: observe}}", True),
        ("strategies: {low-utilisation: {signal: usage, mode: off}}", False),
    ],
)
def test_usage_is_read_where_a_strategy_asks_for_it(text, needed):
    assert planning(text).needs_usage is needed


def test_a_crowded_workload_loses_a_pod_and_what_is_left_is_tried():
    made = planned(planning())
    (move,) = made.plan.moves
    assert (move.node, made.standstill, made.left) == ("n0", (), (move,))
    gone = Outcome(move, Status.DROPPED, "the pod is gone")
    assert replace(made, ended={move.uid: gone}).left == ()


def test_nothing_is_moved_while_the_evictions_of_the_hour_are_not_known():
    of = planning()
    of.remember({}, 0, hour_unknown="the memory could not be read")
    assert planned(of).standstill == (
        "what perHour allows is not known: the memory could not be read",
    )
    lifted = planning(lifted=True)
    lifted.remember({}, 0, hour_unknown="the memory could not be read")
    assert (lifted.counts_the_hour, planned(lifted).standstill) == (False, ())


def test_an_owner_in_a_cool_down_is_left_alone():
    of = planning()
    of.remember({"Deployment/default/web": "until noon"}, 0)
    problem = of.problem(snapshot_of([*NODES, *WEB]))
    assert (problem.protected == COOL_DOWN).all()
    (skip, *_) = planned(of).plan.skips
    assert "until noon" in skip.message


def test_what_earlier_runs_used_of_the_hour_counts():
    of = planning("budgets: {perHour: 5}\n" + DUPLICATES)
    of.remember({}, 5, pace=Pace(wave=7.0))
    assert (of.settings().moved_last_hour, of.settings().pace) == (5, Pace(wave=7.0))
    assert not planned(of).plan.moves


@pytest.mark.parametrize(
    ("text", "observed"),
    [
        (DUPLICATES, False),
        ("strategies: {duplicates: {mode: observe}}", True),
        # 2027-01-15 is a Friday.
        ("windows: [{allow: '0 2 * * 6', for: 2h}]\n" + DUPLICATES, True),
        ("windows: [{allow: '0 7 * * 5', for: 2h}]\n" + DUPLICATES, False),
    ],
)
def test_outside_its_window_a_strategy_only_observes(text, observed):
    (of,) = planning(text).problem(snapshot_of([*NODES, *WEB])).contributions
    assert of.observed is observed


@pytest.mark.parametrize(("steer", "observed"), [("off", True), ("marks", False)])
def test_no_pod_leaves_a_marked_node_where_the_policy_does_not_steer(steer, observed):
    value = "empty.20991231T000000Z.nolease"
    taint = {"key": "rebalancer/empty", "value": value, "effect": "PreferNoSchedule"}
    web = workload("web", ["n0", "n1", "n1", "n1"], cpu="200m")
    of = planning(f"steer: {steer}\nstrategies: {{consolidation: {{}}}}")
    made = planned(of, [node("n0", taints=[taint]), node("n1"), *web])
    assert [(move.node, move.observed) for move in made.plan.moves] == [("n0", observed)]


def test_strategies_that_are_off_have_no_part():
    of = planning("strategies: {duplicates: {mode: off}, taints: {}}")
    assert [one.strategy for one in of.problem(snapshot_of(NODES)).contributions] == ["taints"]
    assert list(of.settings().of_strategy) == ["taints"]


def test_a_reviewed_plan_is_not_cut_by_the_time_of_a_run():
    assert planning(seconds=60).settings().seconds == 60
    assert planning(seconds=60, reviewed=[]).settings().seconds == math.inf


def test_between_waves_shares_stay_those_of_the_plan():
    of = planning()
    assert (of.settings().planned, of.settings().movable) == (frozenset(), None)
    (move,) = planned(of).plan.moves
    assert (of.settings().planned, of.settings().movable) == (frozenset({move.uid}), 2)


def test_a_cluster_that_is_unhealthy_by_now_stops_the_moves_that_are_left():
    of = planning()
    (move,) = planned(of).plan.moves
    sick = [*(node(f"n{i}", ready=False) for i in range(3)), *WEB]
    ((again, why),) = of.rechecked(snapshot_of(sick), [move], 0.0)
    assert again == move
    assert why == "standing still: 3 of 3 nodes are NotReady, safety.maxNotReadyNodes allows 1"
    assert of.rechecked(snapshot_of([*NODES, *WEB]), [move], 0.0) == [(move, None)]


def test_the_scope_is_noted():
    of = planning(scope=Scope(namespace="shop"))
    assert of.namespace == "shop"
    made = planned(of)
    assert not made.plan.moves
    assert "-n shop: there is no such namespace, so that nothing may move" in made.plan.warnings


@pytest.mark.parametrize(
    ("text", "version"), [(DUPLICATES, (1, 36)), ("scheduler: {version: '1.34'}", (1, 34))]
)
def test_the_scheduler_is_that_of_the_server_unless_the_policy_says_otherwise(text, version):
    head = "apiVersion: rebalancer/v1\nkind: Policy\n"
    policy = load_text((head + text).encode(), "policy", REGISTRY).policy
    snapshot = snapshot_of(NODES)
    other = scheduler_profile(policy, replace(snapshot, version=version))
    assert scheduler_profile(policy, snapshot) == other
