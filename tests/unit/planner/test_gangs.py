"""Gangs move as one unit, for hard rules, if all of their pods land; else none moves, and the reason is named."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.plan.plan import Code, Method
from rebalancer.planner.plan import plan as plan_on
from rebalancer.planner.recheck import recheck
from rebalancer.planner.review import review
from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Budgets
from rebalancer.policy.protect import Protect
from rebalancer.policy.select import Select
from rebalancer.snapshot.model import PodGroup
from rebalancer.snapshot.owners import HASH, with_restarts
from rebalancer.snapshot.selected import select_pods
from rebalancer.testing.snapshots import (
    apart,
    disruption_budget,
    node,
    snapshot_of,
    spread,
    workload,
)
from strategies.leaving import LeavingParams
from tests.unit.planner.conftest import plan_of, problem_of

GOING = node("going", unschedulable=True)


LEAVES = {"leaving": LeavingParams(nodes=("going",))}


def gang(nodes, name="train", *, group="train", **options):
    """A workload whose pods, one on each of ``nodes``, are one gang."""
    labels = {"app": name, "scheduling.x-k8s.io/pod-group": group}
    return workload(name, nodes, labels=labels, **{"cpu": "1", **options})


def planned_on(snapshot, **options):
    """The plan that empties the node ``going``."""
    return plan_of(snapshot, strategies=["leaving"], params=LEAVES, **options)


def planned(*objects, **options):
    return planned_on([GOING, *objects], **options)


def moved(plan):
    """Pod -> its most probable landing, of moves that are one unit in one wave."""
    assert len({(move.unit, move.wave) for move in plan.moves}) <= 1
    return {move.pod: move.landings[0].node for move in plan.moves}


def why(plan):
    """The one reason why pods of the gang stay."""
    assert plan.moves == ()
    (reason,) = {(skip.code, skip.message) for skip in plan.skips}
    assert reason[0] is Code.GANG
    return reason[1]


def test_pods_on_other_nodes_go_with_those_of_the_node_that_must_be_empty():
    plan = planned(node("a"), node("b"), *gang(["going", "a", "a"]))
    assert set(moved(plan)) == {"train-0", "train-1", "train-2"}
    assert "going" not in moved(plan).values()
    assert {move.unit for move in plan.moves} == {"default: PodGroup train"}
    assert sum(move.gain.hard for move in plan.moves) == pytest.approx(1.0)
    assert (
        plan.moves[0].reason
        == "Deployment/default/train: going must be empty: named by the policy; 3 pods of PodGroup train leave together"
    )
    assert (
        plan.moves[1].reason == "goes with default/train-0; 3 pods of PodGroup train leave together"
    )


def test_other_gangs_and_pods_go_as_they_would_without_it():
    others = [*workload("web", ["going", "a"]), *gang(["a", "b"], "calm", group="calm")]
    plan = planned(node("a"), node("b"), *gang(["going", "a"]), *others)
    assert [move.pod for move in plan.moves if not move.unit] == ["web-0"]
    assert {move.pod for move in plan.moves if move.unit} == {"train-0", "train-1"}


def test_two_gangs_go_in_two_waves():
    plan = planned(
        node("a"), node("b"), *gang(["going", "a"]), *gang(["going", "going"], "sim", group="sim")
    )
    assert [(move.pod, move.wave) for move in plan.moves] == [
        ("sim-0", 1), ("sim-1", 1), ("train-0", 2), ("train-1", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        # Two pods have to leave, and one has room.
        ([node("a", cpu="2"), *gang(["going", "going", "a"])], "no node takes its replacement once all of its gang are gone"),
        ([node("a"), *gang(["going", "a"]), disruption_budget("train", "train", allowed=1, healthy=2)],
         "default/train allows 1 disruption now; 2 pods would go at once"),
        ([node("a"), *gang(["going", "a"]), disruption_budget("x", "train", allowed=2), disruption_budget("y", "train", allowed=2)],
         "default/x and default/y both select it"),
        ([node("a"), *gang(["going", "a"], annotations={"rebalancer/evict": "false"})], "default/train-0 is protected: optedOut"),
        ([node("a"), *gang(["going", "a"], spec={"schedulerName": "volcano"})], "not predictable: scheduled by volcano"),
        ([node("a"), *gang(["going", "a"]), *gang(["a"], "more", kind="Job")], "more-0 is protected: job"),
    ],
)  # fmt: skip
def test_all_stay_where_one_cannot_go(objects, reason):
    assert reason in why(planned(*objects))


def test_a_budget_that_lets_all_go_at_once_lets_the_gang_go():
    budget = disruption_budget("train", "train", allowed=2, healthy=4)
    plan = planned(node("a"), *gang(["going", "a"]), budget)
    assert len(moved(plan)) == 2


def test_a_gang_with_a_pod_without_a_node_is_left_as_it_is():
    objects = gang(["going", "a"])
    objects[-1]["spec"].pop("nodeName")
    assert "1 pod of it is starting or ending" in why(planned(node("a"), *objects))


def test_pods_that_repel_each_other_take_each_others_places_once_all_are_gone():
    """One by one none could go: each node that stays holds one of them already."""
    spec = {**apart("train", "kubernetes.io/hostname"), "terminationGracePeriodSeconds": 0}
    nodes = [node("a"), node("b")]
    plan = planned(*nodes, *gang(["going", "a"], spec=spec))
    assert sorted(moved(plan).values()) == ["a", "b"]


def test_a_gang_larger_than_what_a_run_may_move_stays():
    few = Settings(budgets=Budgets.model_validate({"perRun": 2}))
    objects = [node("a"), *gang(["going", "a", "a"])]
    assert "3 moves at once are more than the budgets of this run leave" in why(
        planned(*objects, settings=few)
    )


def test_limits_in_flight_let_a_unit_begin_that_is_larger_than_they_are():
    one = Settings(budgets=Budgets.model_validate({"inFlight": 1, "perOwner": 1}))
    assert len(moved(planned(node("a"), *gang(["going", "a", "a"]), settings=one))) == 3


def test_where_the_policy_keeps_no_gangs_pods_go_one_by_one():
    plan = planned(node("a"), *gang(["going", "a"]), protections=Protect(gangs=False))
    assert [(move.pod, move.unit) for move in plan.moves] == [("train-0", "")]


def test_for_a_soft_rule_no_gang_is_interrupted():
    plan = plan_of([node("a"), node("b"), *gang(["a", "a"])], strategies=["duplicates"])
    assert plan.moves == ()
    assert {skip.code for skip in plan.skips} == {Code.GANG}


def test_a_pod_may_come_back_where_the_rule_is_about_the_gang_as_a_whole():
    """Two in one zone and none in another: once all are gone, they land one in each, perhaps on the nodes they had."""
    nodes = [node("a", "a", cpu="64"), node("b", "b"), node("c", "c")]
    made = plan_of(
        [*nodes, *gang(["a", "a", "b"], spec=spread("train", hard=True))],
        strategies=["topology-spread"],
    )
    assert sorted(moved(made).values()) == ["a", "b", "c"]


def of_group(nodes, group):
    """The plan that empties ``going``, of a PodGroup of Kubernetes; ``group``: what it says, None: it was not read."""
    spec = {"schedulingGroup": {"podGroupName": "train"}}
    objects = [GOING, node("a"), node("b"), *workload("train", nodes, cpu="1", spec=spec)]
    groups = {} if group is None else {("default", "scheduling.k8s.io", "train"): group}
    return planned_on(replace(snapshot_of(objects), pod_groups=groups))


@pytest.mark.parametrize(
    ("group", "moves"),
    [
        (PodGroup(least=3, alone=False, constrained=False), ["train-0", "train-1", "train-2"]),
        # Enough of it stay: only those go that have to.
        (PodGroup(least=2, alone=False, constrained=False), ["train-0"]),
        # Enough would stay, but it may be disrupted as a whole only.
        (PodGroup(least=2, alone=False, constrained=False, together=True), ["train-0", "train-1", "train-2"]),
        # Its pods may be disrupted one by one.
        (PodGroup(least=3, alone=True, constrained=False), ["train-0"]),
        # One of its pods is enough.
        (PodGroup(least=1, alone=False, constrained=False), ["train-0"]),
    ],
)  # fmt: skip
def test_what_a_pod_group_says_of_its_pods_counts(group, moves):
    plan = of_group(["going", "a", "b"], group)
    assert [move.pod for move in plan.moves] == moves
    assert {bool(move.unit) for move in plan.moves} == {not group.alone and group.least > 1}


def test_a_pod_with_a_label_of_the_same_name_is_not_one_of_those_that_have_to_stay():
    spec = {"schedulingGroup": {"podGroupName": "train"}}
    of_group = workload("train", ["going", "a", "b"], cpu="1", spec=spec)
    snapshot = snapshot_of([GOING, node("a"), node("b"), *of_group, *gang(["a"], "labelled")])
    groups = {
        ("default", "scheduling.k8s.io", "train"): PodGroup(least=3, alone=False, constrained=False)
    }
    assert len(moved(planned_on(replace(snapshot, pod_groups=groups)))) == 4


@pytest.mark.parametrize(
    ("needs", "moves"),
    [("3", ["train-0", "train-1", "train-2"]), ("2", ["train-0"])],
)
def test_of_a_gang_that_needs_fewer_pods_only_those_go_that_have_to(needs, moves):
    """The same rule as for a PodGroup of Kubernetes, whoever says the number."""
    of_koordinator = {
        "gang.scheduling.koordinator.sh/name": "train",
        "gang.scheduling.koordinator.sh/min-available": needs,
    }
    pods = workload("train", ["going", "a", "b"], cpu="1", annotations=of_koordinator)
    plan = planned(node("a"), node("b"), *pods)
    assert [move.pod for move in plan.moves] == moves
    assert {move.unit for move in plan.moves} == {"default: PodGroup train"}


@pytest.mark.parametrize("group", [None, PodGroup(least=3, alone=False, constrained=True)])
def test_a_pod_group_with_constraints_or_of_which_nothing_is_known_stays(group):
    plan = of_group(["going", "a", "b"], group)
    assert "not predictable: the scheduler places the pods of PodGroup train together" in why(plan)


@pytest.mark.parametrize("limit", ["perRun", "perHour"])
def test_the_budget_of_the_strategy_that_moves_a_gang_counts(limit):
    """Also where a strategy before it in the alphabet has no budget of its own."""
    own = Settings(of_strategy={"leaving": Budgets.model_validate({limit: 2})})
    objects = [GOING, node("a"), *gang(["going", "a", "a"])]
    plan = plan_of(objects, strategies=["duplicates", "leaving"], params=LEAVES, settings=own)
    assert plan.moves == ()
    assert all(
        "3 moves at once are more than the budgets of this run leave" in skip.message
        for skip in plan.skips
        if skip.pod == "train-0"
    )


def test_a_strategy_moves_no_gang_of_which_its_select_matches_a_part_only():
    objects = [GOING, node("a"), *gang(["going"]), *gang(["a"], "more")]
    problem = problem_of(objects, strategies=["leaving", "duplicates"], params=LEAVES)
    some = select_pods(problem.snapshot, Select.model_validate({"labels": {"app": "train"}}))
    leaving, duplicates = problem.contributions
    problem = replace(problem, contributions=[replace(leaving, selected=some), duplicates])
    result = plan_on(problem, Settings()).plan
    assert "the select of leaving does not match default/more-0" in why(result)


def test_a_gang_with_a_pod_that_moves_by_a_restart_stays():
    """A restart cannot be rehearsed, and is not sent with evictions."""
    labels = {"scheduling.x-k8s.io/pod-group": "train", HASH: "abc"}
    lead = workload("lead", ["going"], labels={"app": "lead", **labels}, cpu="1")
    work = workload("work", ["a"], labels={"app": "work", **labels}, cpu="1")
    snapshot = with_restarts(snapshot_of([GOING, node("a"), *lead, *work]))
    assert "moves by a restart of its rollout" in why(planned_on(snapshot))


def test_a_budget_that_was_made_since_the_plan_counts_between_waves():
    """The evictions are compared with it once more before they are sent."""
    objects = [GOING, node("a"), node("b"), *gang(["going", "a"])]
    moves = planned(*objects[1:]).moves
    budget = disruption_budget("train", "train", allowed=2, healthy=9)
    problem = problem_of([*objects, budget], strategies=["leaving"], params=LEAVES)
    judged = recheck(problem, Settings(), moves)
    assert [(move.budgets, why) for move, why in judged] == [(("default/train",), None)] * 2


def reviewed(change, **options):
    """Why the moves of a gang, changed in their file by ``change``, stay when the file is applied."""
    others = [*gang(["going", "a"]), *workload("web", ["going", "a"])]
    snapshot = snapshot_of([GOING, node("a"), node("b"), *others])
    moves = {move.pod: move for move in planned_on(snapshot).moves}
    changed = change(moves["train-0"], moves["train-1"], moves["web-0"])
    problem = problem_of(snapshot, strategies=["leaving"], params=LEAVES, **options)
    ended = review(changed, problem, Settings()).ended.values()
    return {one.message for one in ended if one.move.of_gang}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda one, other, web: [one, replace(other, wave=2), replace(web, wave=3)], "one right after the other in one wave"),
        (lambda one, other, web: [one, replace(web, wave=1), other], "one right after the other in one wave"),
        (lambda one, other, web: [one, replace(other, method=Method.RESTART), web], "planned as restart, it would be evict now"),
        (lambda one, other, web: [one, web], "other pods of it would go than planned"),
    ],
)  # fmt: skip
def test_a_file_moves_no_gang_in_another_way_than_a_run_would(change, reason):
    (said,) = reviewed(change)
    assert reason in said


def test_a_file_with_gangs_in_one_wave_is_applied_in_a_wave_for_each():
    objects = [
        *gang(["going", "a"]),
        *gang(["going", "a"], "sim", group="sim"),
        *workload("web", ["going", "a"]),
    ]
    snapshot = snapshot_of([GOING, node("a"), node("b"), *objects])
    moves = [replace(move, wave=1) for move in planned_on(snapshot).moves]
    problem = problem_of(snapshot, strategies=["leaving"], params=LEAVES)
    applied = review(moves, problem, Settings()).plan.moves
    assert [move.wave for move in applied] == [1, 1, 2, 2, 3]


def test_a_file_moves_no_gang_as_a_whole_that_the_policy_keeps_together_no_more():
    """Its pods may go one by one now: those that no rule names have no reason to."""
    (said,) = reviewed(lambda *moves: list(moves), protections=Protect(gangs=False))
    assert "are not kept together any more" in said


@st.composite
def clusters(draw):
    """Nodes of which one must be empty, gangs and single pods on them, and budgets over some of the gangs."""
    nodes = [node(f"n{number}", cpu=draw(st.sampled_from(["2", "4", "6"]))) for number in range(4)]
    names = ["going", *(one["metadata"]["name"] for one in nodes)]
    objects = [GOING, *nodes]
    for number in range(draw(st.integers(1, 3))):
        name = f"gang-{number}"
        on = draw(st.lists(st.sampled_from(names), min_size=2, max_size=4))
        objects += gang(on, name, group=name, cpu=draw(st.sampled_from(["500m", "1", "1500m"])))
        if draw(st.booleans()):
            objects.append(
                disruption_budget(name, name, allowed=draw(st.integers(0, 4)), healthy=9)
            )
    on = draw(st.lists(st.sampled_from(names), max_size=4))
    return [*objects, *workload("web", on, cpu="1", replicas=9)]


@settings(max_examples=40, deadline=None)
@given(clusters())
def test_whatever_the_cluster_a_gang_goes_as_a_whole_within_budgets_and_again_as_planned(objects):
    snapshot = snapshot_of(objects)
    plan = planned_on(snapshot)
    pods = {snapshot.pods.uid[row]: row for row in range(len(snapshot.pods))}
    allowed = {budget.ref: budget.allowed for budget in snapshot.budgets}
    for (namespace, name), members in snapshot.gangs.items():
        moves = [move for move in plan.moves if pods[move.uid] in members.tolist()]
        assert len(moves) in (0, len(members))
        assert {move.unit for move in moves} <= {f"{namespace}: {name}"}
        assert len({move.wave for move in moves}) <= 1
        for ref in {ref for move in moves for ref in move.budgets}:
            assert sum(ref in move.budgets for move in moves) <= allowed[ref]
        assert "going" not in {landing.node for move in moves for landing in move.landings}
        goes = {snapshot.nodes.names[node] for node in snapshot.pods.node[members].tolist()}
        assert not moves or "going" in goes
    assert planned_on(snapshot).moves == plan.moves
    # Judged again on the same cluster, as between waves and for a plan from a file, all of them may go still.
    problem = problem_of(snapshot, strategies=["leaving"], params=LEAVES)
    assert [why for _, why in recheck(problem, Settings(), plan.moves)] == [None] * len(plan.moves)
    reviewed = review(plan.moves, problem, Settings())
    assert not reviewed.ended
    assert [move.uid for move in reviewed.plan.moves] == [move.uid for move in plan.moves]
