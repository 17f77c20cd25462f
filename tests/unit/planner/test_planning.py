"""From a policy and what earlier runs left to problems and plans."""

import math
from dataclasses import replace

import pytest

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.plan.plan import Outcome, Pace, Status
from rebalancer.planner.planning import Reviewed, make_plan
from rebalancer.planner.rules import History, RunRules
from rebalancer.planner.scheduler_profile import scheduler_profile
from rebalancer.policy.load import load_text
from rebalancer.registry import Registry
from rebalancer.scheduler.pending import Pending
from rebalancer.snapshot.protect import COOL_DOWN, Scope
from rebalancer.testing.snapshots import HOSTNAME, node, snapshot_of, spread, workload

REGISTRY = Registry.installed()
NODES = [node(f"n{i}") for i in range(3)]
WEB = workload("web", ["n0", "n0"])
DUPLICATES = "strategies: {duplicates: {}}"
SPREAD = "strategies: {topology-spread: {}}"


def rules_of(text=DUPLICATES, scope=None, **options):
    head = "apiVersion: rebalancer/v1\nkind: Policy\n"
    loaded = load_text((head + text).encode(), "policy", REGISTRY)
    return RunRules(loaded, REGISTRY, scope or Scope(), **options)


def planned(of, objects=(*NODES, *WEB), **options):
    return make_plan(of, snapshot_of(objects), Timings(SystemClock()), **options)


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
    assert rules_of(text).needs_usage is needed


def test_a_crowded_workload_loses_a_pod_and_what_is_left_is_tried():
    made = planned(rules_of())
    (move,) = made.plan.moves
    assert (move.node, made.standstill, made.left) == ("n0", (), (move,))
    gone = Outcome(move, Status.DROPPED, "the pod is gone")
    assert replace(made, ended={move.uid: gone}).left == ()


def test_nothing_is_moved_while_the_evictions_of_the_hour_are_not_known():
    unknown = History(hour_unknown="the memory could not be read")
    assert planned(rules_of(), history=unknown).standstill == (
        "what perHour allows is not known: the memory could not be read",
    )
    lifted = rules_of(lifted=True)
    made = planned(lifted, history=unknown)
    assert (lifted.counts_the_hour, made.standstill) == (False, ())


def test_an_owner_in_a_cool_down_is_left_alone():
    of, cooling = rules_of(), History({"Deployment/default/web": "until noon"})
    problem = of.problem(snapshot_of([*NODES, *WEB]), cooling)
    assert (problem.protected == COOL_DOWN).all()
    (skip, *_) = planned(of, history=cooling).plan.skips
    assert "until noon" in skip.message


def test_what_earlier_runs_used_of_the_hour_counts():
    of = rules_of("budgets: {perHour: 5}\n" + DUPLICATES)
    history = History(moved_last_hour=5, pace=Pace(wave=7.0))
    settings = of.settings(history)
    assert (settings.moved_last_hour, settings.pace) == (5, Pace(wave=7.0))
    assert not planned(of, history=history).plan.moves


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
    (of,) = rules_of(text).problem(snapshot_of([*NODES, *WEB])).contributions
    assert of.observed is observed


@pytest.mark.parametrize(("steer", "observed"), [("off", True), ("marks", False)])
def test_no_pod_leaves_a_marked_node_where_the_policy_does_not_steer(steer, observed):
    value = "empty.20991231T000000Z.nolease"
    taint = {"key": "rebalancer/empty", "value": value, "effect": "PreferNoSchedule"}
    web = workload("web", ["n0", "n1", "n1", "n1"], cpu="200m")
    of = rules_of(f"steer: {steer}\nstrategies: {{consolidation: {{}}}}")
    made = planned(of, [node("n0", taints=[taint]), node("n1"), *web])
    assert [(move.node, move.observed) for move in made.plan.moves] == [("n0", observed)]


def test_strategies_that_are_off_have_no_part():
    of = rules_of("strategies: {duplicates: {mode: off}, taints: {}}")
    assert [one.strategy for one in of.problem(snapshot_of(NODES)).contributions] == ["taints"]
    assert list(of.settings().of_strategy) == ["taints"]


def test_a_reviewed_plan_is_not_cut_by_the_time_of_a_run():
    of = rules_of(seconds=60)
    assert of.settings().seconds == planned(of).rules.seconds == 60
    assert planned(of, reviewed=Reviewed([])).rules.seconds == math.inf


def test_a_cluster_that_is_unhealthy_by_now_stops_the_moves_that_are_left():
    made = planned(rules_of())
    (move,) = made.plan.moves
    sick = [*(node(f"n{i}", ready=False) for i in range(3)), *WEB]
    ((again, why),) = made.revalidate(snapshot_of(sick), [move])
    assert again == move
    assert why == "standing still: 3 of 3 nodes are NotReady, safety.maxNotReadyNodes allows 1"
    assert made.revalidate(snapshot_of([*NODES, *WEB]), [move]) == [(move, None)]


def test_the_scope_is_noted():
    of = rules_of(scope=Scope(namespace="shop"))
    assert of.namespace == "shop"
    made = planned(of)
    assert not made.plan.moves
    assert made.plan.warnings[0].startswith("-n shop: there is no such namespace")


def test_what_the_user_left_out_is_no_reason_why_a_rule_cannot_hold():
    web = workload("web", ["n0", "n0", "n0"], spec=spread("web", HOSTNAME))
    text = "protect: {pods: [{labels: {app: web}}]}\nstrategies: {topology-spread: {}}"
    before = [
        planned(of, (*NODES, *web)).plan.before["topology-spread"].unsatisfiable
        for of in (rules_of(text), rules_of(SPREAD, Scope(namespace="shop")), rules_of(SPREAD))
    ]
    assert [len(texts) for texts in before] == [1, 0, 0]
    assert "3 of 3 pods cannot be moved (pods: named by protect.pods)" in before[0][0]


@pytest.mark.parametrize(
    ("text", "version"), [(DUPLICATES, (1, 36)), ("scheduler: {version: '1.34'}", (1, 34))]
)
def test_the_scheduler_is_that_of_the_server_unless_the_policy_says_otherwise(text, version):
    head = "apiVersion: rebalancer/v1\nkind: Policy\n"
    policy = load_text((head + text).encode(), "policy", REGISTRY).policy
    snapshot = snapshot_of(NODES)
    other = scheduler_profile(policy, replace(snapshot, version=version))
    assert scheduler_profile(policy, snapshot) == other


def test_the_start_up_taints_of_capacity_hold_for_plans_too():
    of = rules_of("capacity: {startupTaints: [example.com/agent]}\nstrategies: {make-room: {}}")
    assert of.settings().startup_taints == {"example.com/agent"}


@pytest.mark.parametrize("mode", ["observe", "enforce"])
@pytest.mark.parametrize(("held", "broken"), [(("n0", "n2"), 1), (("n2", "n2"), 0)])
def test_a_rule_that_the_moves_break_counts_after_them_whoever_has_it(mode, held, broken):
    shun = {"key": "shun", "value": "yes"}
    nodes = [
        node("n0", taints=[{**shun, "effect": "NoSchedule"}]),
        node("n1", labels={"metal": "tin"}),
        node("n2", taints=[{**shun, "effect": "PreferNoSchedule"}]),
    ]
    placement = f"placement: {{mode: {mode}, avoid: {{metal: tin}}}}"
    of = rules_of(f"strategies: {{taints: {{weight: 5}}, {placement}}}")
    plan = planned(of, [*nodes, *workload("web", held)]).plan
    landings = [move.landings[0].node for move in plan.moves if not move.observed]
    assert (landings, plan.after["placement"].violated) == (["n1"] * broken, broken)


def test_whether_to_stop_is_asked_after_each_move_whose_room_a_pending_pod_may_take(monkeypatch):
    shut = [{"key": "shut", "value": "", "effect": "NoSchedule"}]
    nodes = [node("full", cpu="1"), *(node(f"n{i}", cpu="1", taints=shut) for i in range(12))]
    pods = [one for i in range(12) for one in workload(f"web{i}", [f"n{i}"] * 2, cpu="500m")]
    pods += workload("keeps", ["full"] * 2, cpu="500m")
    pods += workload("late", [""], cpu="500m", spec={"tolerations": [{"operator": "Exists"}]})
    since_asked: list[int] = [0]
    foresee = Pending.foresee_with

    def counted(*of):
        since_asked[-1] += 1
        return foresee(*of)

    def stop():
        since_asked.append(0)

    monkeypatch.setattr(Pending, "foresee_with", counted)
    made = planned(rules_of("strategies: {taints: {}}"), [*nodes, *pods], stop=stop)
    assert not made.plan.moves
    assert sum(since_asked) >= 12
    assert max(since_asked) == 1
