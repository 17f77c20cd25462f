"""Deployments of several replicas that no eviction takes move by a restart of their rollout, as one unit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.plan.plan import Code, Method
from rebalancer.planner.methods import with_methods
from rebalancer.planner.recheck import recheck
from rebalancer.planner.refusal import Refusal
from rebalancer.planner.rollout import foresee_rollout
from rebalancer.planner.settings import Settings
from rebalancer.policy.load import load_text
from rebalancer.policy.model import Budgets
from rebalancer.registry import Registry
from rebalancer.scheduler.spread import DefaultMatches
from rebalancer.snapshot.owners import HASH
from rebalancer.testing.snapshots import (
    HOSTNAME,
    apart,
    disruption_budget,
    node,
    snapshot_of,
    spread,
    workload,
)
from strategies.leaving import LeavingParams
from tests.unit.planner.conftest import draft_of, plan_of, problem_of

GOING = node("going", "z", unschedulable=True)
LEAVES = {"leaving": LeavingParams(nodes=("going",))}
POLICY = b"apiVersion: rebalancer/v1\nkind: Policy\nmethod: {unevictable: restart}\n"
RESTARTING = load_text(POLICY, "policy", Registry.installed()).policy


def rolling(surge, unavailable=0):
    pace = {"maxSurge": surge, "maxUnavailable": unavailable}
    return {"type": "RollingUpdate", "rollingUpdate": pace}


def web(nodes, *, name="web", surge=1, strategy=None, kind="Deployment", **options):
    """A Deployment with a pod on each of ``nodes``, under a budget that never lets one go."""
    objects = workload(name, nodes, kind=kind, **{"cpu": "1", **options})
    for one in objects:
        if one["kind"] == "Pod":
            one["metadata"]["labels"] = {**one["metadata"]["labels"], HASH: "abc"}
        elif one["kind"] == "ReplicaSet":
            of = one["spec"]["template"]["metadata"]
            of["labels"] = {**of["labels"], HASH: "abc"}
        elif one["kind"] == "Deployment":
            one["spec"]["strategy"] = strategy or rolling(surge)
    return [*objects, closed(name, len(nodes))]


def closed(name, pods):
    budget = disruption_budget(name, name, allowed=0, healthy=pods)
    return {**budget, "status": {**budget["status"], "expectedPods": pods}}


def snapshot(*objects, policy=RESTARTING):
    return with_methods(policy, snapshot_of([GOING, *objects]))


def planned(*objects, **options):
    """The plan that empties the node ``going``."""
    return plan_of(snapshot(*objects), strategies=["leaving"], params=LEAVES, **options)


def landed(plan):
    """The nodes of the new pods, in any order."""
    return sorted(move.landings[0].node for move in plan.moves)


def why(plan):
    assert plan.moves == ()
    (reason,) = {(skip.code, skip.message) for skip in plan.skips}
    return reason


def test_all_pods_of_the_deployment_move_and_are_named():
    plan = planned(node("a"), node("b"), *web(["going", "a", "b"]))
    assert [(move.pod, move.node, move.method) for move in plan.moves] == [
        ("web-0", "going", Method.RESTART),
        ("web-1", "a", Method.RESTART),
        ("web-2", "b", Method.RESTART),
    ]
    assert {(move.unit, move.gang, move.wave, move.budgets) for move in plan.moves} == {
        ("default: Deployment web", "default: Deployment web", 1, ())
    }
    assert "going" not in landed(plan)
    assert plan.moves[0].reason.endswith(
        "named by the policy; 3 pods of Deployment web leave in turn; by a restart of the rollout"
    )
    assert plan.moves[1].reason == (
        "goes with default/web-0; 3 pods of Deployment web leave in turn; by a restart of the rollout"
    )
    assert plan.funnel["moves"] == 3


def test_two_nodes_that_are_emptied_restart_it_once():
    plan = plan_of(
        snapshot(node("too", unschedulable=True), node("a"), *web(["going", "too", "a"])),
        strategies=["leaving"],
        params={"leaving": LeavingParams(nodes=("going", "too"))},
    )
    assert len(plan.moves) == len({move.uid for move in plan.moves}) == 3
    assert {move.wave for move in plan.moves} == {1}
    assert landed(plan) == ["a", "a", "a"]


def test_without_the_key_its_pods_stay():
    evicting = load_text(POLICY.replace(b"restart", b"evict"), "policy", Registry.installed())
    objects = [node("a"), *web(["going", "a"])]
    seen = snapshot(*objects, policy=evicting.policy)
    code, text = why(plan_of(seen, strategies=["leaving"], params=LEAVES))
    assert code is Code.PDB
    assert text.endswith("can never allow an eviction: of 2 pods 2 have to be healthy")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"strategy": {"type": "Recreate"}}, "Deployment/default/web: its strategy is Recreate"),
        ({"surge": 0}, "Deployment/default/web: its maxSurge is 0"),
        (
            {"strategy": rolling(1, 1)},
            "Deployment/default/web: its maxUnavailable of 1 lets 1 of 2 old pods go first",
        ),
        (
            {"kind": "StatefulSet"},
            "StatefulSet/default/web: the rolling update of a StatefulSet ends each pod before it creates the next",
        ),
        ({"kind": "ReplicaSet"}, "ReplicaSet/default/web is not a Deployment"),
        (
            {"labels": {"app": "web", "scheduling.x-k8s.io/pod-group": "train"}},
            "Deployment/default/web: its pods are members of PodGroup train",
        ),
    ],
)
def test_what_would_have_fewer_pods_ready_stays_and_says_why(options, reason):
    plan = planned(node("a"), *web(["going", "a"], **options))
    assert plan.moves == ()
    assert any(
        skip.message.endswith(f"not by a restart either: {reason}") for skip in plan.skips
    ) or ("labels" in options)


def test_the_default_pace_of_a_deployment_keeps_all_of_three_but_not_of_four():
    default = {"type": "RollingUpdate"}
    assert len(planned(node("a"), *web(["going", "a", "a"], strategy=default)).moves) == 3
    _, text = why(planned(node("a"), *web(["going", "a", "a", "a"], strategy=default)))
    assert text.endswith("its maxUnavailable of 25% lets 1 of 4 old pods go first")


def test_a_budget_that_allows_some_lets_pods_go_one_by_one():
    objects = web(["going", "a", "a"])[:-1]
    some = disruption_budget("web", "web", allowed=1)
    some["status"]["expectedPods"] = 3
    (move,) = planned(node("a"), *objects, some).moves
    assert move.method is Method.EVICT


def test_pods_that_two_budgets_select_are_as_unevictable():
    two = disruption_budget("other", "web", allowed=1)
    assert len(planned(node("a"), *web(["going", "a"]), two).moves) == 2


def test_a_single_replica_under_such_a_budget_is_restarted_by_this_key_alone():
    (move,) = planned(node("a"), *web(["going"])).moves
    assert (move.method, move.unit) == (Method.RESTART, "")


# Three pods apart from each other on n nodes, of which one is emptied: the first new one needs a free node, and the next
# ones the nodes of old pods, of which the first to go may be the one on the node that is emptied.
@pytest.mark.parametrize(
    ("others", "surge", "moves"),
    [(["a", "b"], 1, 0), (["a", "b", "c"], 1, 0), (["a", "b", "c", "d"], 1, 3), (["a", "b", "c", "d"], 2, 0), (["a", "b", "c", "d", "e"], 2, 3)],
)  # fmt: skip
def test_a_rollout_that_might_come_to_a_standstill_is_not_begun(others, surge, moves):
    objects = web(["going", "a", "b"], spec=apart("web", HOSTNAME), surge=surge)
    plan = planned(*map(node, others), *objects)
    assert len(plan.moves) == moves
    if not moves:
        code, text = why(plan)
        assert code is Code.WHOLE_ROLLOUT
        assert "its rollout might never end: no node takes the new pod" in text


def test_there_is_room_for_the_surge_or_none_moves():
    # a has room for one pod of 1 CPU more than runs there: enough for a surge of 1, whose rollout then goes on in place.
    fits = [node("a", cpu="3"), *web(["going", "a", "a"])]
    assert landed(planned(*fits)) == []
    assert landed(planned(node("a", cpu="4"), *web(["going", "a", "a"]))) == ["a", "a", "a"]


def test_old_pods_count_in_a_spread_while_new_ones_land():
    # Zones z and y, one old pod in each, and a rule that counts both templates.
    rule = spread("web", hard=True)
    objects = [node("a", "y"), node("b", "z"), *web(["going", "a"], spec=rule)]
    assert landed(planned(*objects)) == ["a", "b"]


def test_only_what_lands_beside_counts_in_a_quota():
    quota = {
        "kind": "ResourceQuota",
        "apiVersion": "v1",
        "metadata": {"name": "few", "namespace": "default"},
        "spec": {"hard": {"pods": "4"}},
        "status": {"hard": {"pods": "4"}, "used": {"pods": "3"}},
    }
    assert len(planned(node("a"), *web(["going", "a", "a"]), quota).moves) == 3
    assert planned(node("a"), *web(["going", "a", "a"], surge=2), quota).moves == ()


@pytest.mark.parametrize(("per_run", "moves"), [(2, 0), (3, 3)])
def test_all_that_moves_counts_in_the_budget_of_the_run(per_run, moves):
    objects = [node("a"), *web(["going", "a", "a"])]
    budget = Settings(budgets=Budgets.model_validate({"perRun": per_run, "perHour": 100}))
    plan = planned(*objects, settings=budget)
    assert len(plan.moves) == moves


def test_a_protected_pod_elsewhere_keeps_the_whole():
    objects = web(["going", "a"])
    for one in objects:
        if one["metadata"]["name"] == "web-1":
            one["metadata"]["annotations"] = {"rebalancer/evict": "false"}
    code, text = why(planned(node("a"), *objects))
    assert code is Code.WHOLE_ROLLOUT
    assert "and the whole stays: default/web-1 is protected: optedOut" in text


def test_soft_rules_restart_no_rollout():
    objects = [node("a"), node("b"), *web(["a", "a"])]
    seen = with_methods(RESTARTING, snapshot_of(objects))
    plan = plan_of(seen, strategies=["duplicates"])
    assert plan.moves == ()
    assert {skip.code for skip in plan.skips} == {Code.WHOLE_ROLLOUT}


def test_methods_that_are_chosen_twice_stay_the_same():
    once = snapshot(node("a"), *web(["going", "a"]))
    again = with_methods(RESTARTING, once)
    assert again.classes == once.classes


def test_between_waves_it_is_judged_as_a_whole():
    objects = [node("a"), node("b"), *web(["going", "a"])]
    moves = planned(*objects).moves
    problem = problem_of(snapshot(*objects), strategies=["leaving"], params=LEAVES)
    assert [reason for _, reason in recheck(problem, Settings(), moves)] == [None, None]
    # One replica more, as of an autoscaler: it is not settled, and what was planned is left.
    grown = web(["going", "a"], replicas=3)
    problem = problem_of(
        snapshot(node("a"), node("b"), *grown), strategies=["leaving"], params=LEAVES
    )
    assert all(reason for _, reason in recheck(problem, Settings(), moves))


NODES = ["a", "b", "c"]


@st.composite
def clusters(draw):
    """Up to six pods on nodes of little room, with rules, and how many new ones come first."""
    nodes = [node(name, draw(st.sampled_from("xyz")), cpu=str(draw(st.integers(1, 5)))) for name in NODES]  # fmt: skip
    on = draw(st.lists(st.sampled_from(["going", *NODES]), min_size=2, max_size=6))
    rule = draw(st.sampled_from([{}, apart("web", HOSTNAME), spread("web", hard=True)]))  # fmt: skip
    return [*nodes, *web(on, spec=rule, surge=draw(st.integers(1, 3)))]


@settings(deadline=None)
@given(clusters())
def test_whatever_the_cluster_all_move_or_none_and_the_state_is_left_as_it_was(objects):
    seen = snapshot(*objects)
    draft = draft_of(seen, strategies=["leaving"], params=LEAVES)
    pods = list(range(len(seen.pods)))
    before = draft.state.used.copy(), draft.state.node_of.copy(), draft.state.pod_count.copy()
    foreseen = foresee_rollout(draft, pods, pods[:1])
    assert all((one == then).all() for one, then in zip(before, (draft.state.used, draft.state.node_of, draft.state.pod_count), strict=True))  # fmt: skip
    if not isinstance(foreseen, Refusal):
        assert sorted(foreseen) == pods
        # Never more than the surge beside the old ones fits: every landing is a node that takes one.
        assert all(len(landing.nodes) for landing in foreseen.values())
    moves = plan_of(seen, strategies=["leaving"], params=LEAVES).moves
    assert len(moves) in (0, len(pods))
    assert "going" not in {move.landings[0].node for move in moves}
    assert seen.surge_of(pods) >= 1


def test_default_spread_counts_the_new_pods_and_not_the_old_ones():
    objects = web(["going", "a"])
    for one in objects:
        if one["kind"] == "ReplicaSet":
            one["spec"]["selector"] = {"matchLabels": {"app": "web", HASH: "abc"}}
    seen = snapshot(node("a"), *objects)
    old = int(seen.pods.cls[0])
    new = seen.classes[old].replacement
    of_new, of_old = map(DefaultMatches(seen).of, (new, old))
    assert of_new is not None
    assert of_old is not None
    assert new in of_new
    assert old not in of_new
    assert old in of_old
