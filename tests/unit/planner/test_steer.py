"""Landings that are chosen: where the scheduler's choice fixes nothing, a few marks make a better one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from rebalancer.plan.plan import Code, Later, Plan
from rebalancer.planner.rules import RunRules
from rebalancer.planner.settings import Settings
from rebalancer.policy.load import load_text
from rebalancer.policy.model import Budgets
from rebalancer.policy.values import Limit
from rebalancer.registry import Registry
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.model import MEASURED, Snapshot
from rebalancer.snapshot.protect import Scope
from rebalancer.snapshot.state import ClusterState
from rebalancer.testing.snapshots import (
    HOSTNAME,
    ZONE,
    Manifest,
    apart,
    node,
    snapshot_of,
    spread,
    with_usage,
    workload,
)
from strategies.utilisation import LowUtilisationParams
from tests.unit.planner.conftest import plan_of, rechecked

ONLY = {"strategies": ["duplicates"]}
MARKS = Settings(steer=True)


class Sampling(SchedulerProfile):
    """Scores four nodes only, so that small clusters are sampled, too."""

    def nodes_to_find(self, nodes: int) -> int:
        return min(4, nodes)


def crowded(**web: object) -> list[Manifest]:
    """Two web pods on n0; n1, the emptiest, would take any replacement, and holds one of web already."""
    nodes = [node(f"n{i}", "a") for i in range(3)]
    # Its own constraint switches the default spreading over hosts off: only load decides.
    spec = {**spread("web", ZONE), **web}
    pods = workload("web", ["n0", "n0", "n1"], cpu="500m", spec=spec)
    return [*nodes, *pods, *workload("fill", ["n2"], cpu="800m")]


def shown(plan: Plan) -> list[tuple[str, str, str, tuple[str, ...]]]:
    return [(m.pod, m.node, m.landings[0].node, m.marks) for m in plan.moves]


def test_without_marks_the_emptiest_node_draws_the_replacement_in_vain():
    made = plan_of(crowded(), **ONLY)
    assert made.moves == ()
    assert {skip.code for skip in made.skips} == {Code.NO_GAIN}


def test_a_mark_on_the_node_that_draws_is_enough():
    made = plan_of(crowded(), settings=MARKS, **ONLY)
    # n0 has 500m in use once web-0 is gone (and 1000m until then), n1 500m, n2 800m: only n1 is above n2,
    # for the victim still holds its place on n0.
    assert shown(made) == [("web-0", "n0", "n2", ("n1",))]
    (move,) = made.moves
    assert move.landings[0].probability == 1.0
    assert move.gain.soft == 1
    assert made.after["duplicates"].cost.soft == 0


def test_a_pod_that_tolerates_marks_stays_and_the_reason_says_so():
    made = plan_of(crowded(tolerations=[{"operator": "Exists"}]), settings=MARKS, **ONLY)
    assert made.moves == ()
    assert {skip.code for skip in made.skips} == {Code.NO_GAIN}
    assert all(skip.message.endswith("; no marks would change that") for skip in made.skips)


@pytest.mark.parametrize(("most", "moves"), [(0, 0), (1, 1)])
def test_no_more_nodes_are_marked_than_the_budget_allows(most, moves):
    settings = Settings(steer=True, budgets=Budgets(marks=Limit.parse(most)))
    assert len(plan_of(crowded(), settings=settings, **ONLY).moves) == moves


def test_a_node_that_is_about_to_go_is_not_chosen():
    objects = crowded()
    taint = {"key": "ToBeDeletedByClusterAutoscaler", "value": "", "effect": "PreferNoSchedule"}
    next(o for o in objects if o["metadata"]["name"] == "n2")["spec"]["taints"] = [taint]
    assert plan_of(objects, settings=MARKS, **ONLY).moves == ()


def test_balance_alone_is_not_worth_marks():
    # Both nodes are over their thresholds or not by cpu alone; whatever is planned carries no mark.
    nodes = [node("n0", cpu="10"), node("n1", cpu="10"), node("n2", cpu="10")]
    objects = [*nodes, *(o for i in range(8) for o in workload(f"w{i}", ["n0"], cpu="1"))]
    made = plan_of(objects, settings=MARKS, strategies=["low-utilisation"])
    assert all(move.marks == () for move in made.moves)


def test_moves_of_a_wave_share_marks_where_they_agree():
    # Two workloads with a duplicate on n0 each; n1 draws the replacement of both, and holds one of both.
    nodes = [node(f"n{i}", "a") for i in range(4)]
    both = [
        o
        for name in ("web", "api")
        for o in workload(name, ["n0", "n0", "n1"], cpu="300m", spec=spread(name, ZONE))
    ]
    fill = [*workload("fill", ["n2"], cpu="1100m"), *workload("more", ["n3"], cpu="1200m")]
    made = plan_of([*nodes, *both, *fill], settings=MARKS, **ONLY)
    moves = [move for move in made.moves if move.marks]
    assert len(moves) == 2
    assert {move.wave for move in moves} == {1}
    assert moves[0].marks == moves[1].marks


def test_in_a_sampled_cluster_it_is_done_only_where_the_probability_is_as_asked():
    # Four of seven nodes are scored: the chosen one is not always among them.
    nodes = [node(f"n{i}", "a") for i in range(7)]
    full = [o for i in range(2, 6) for o in workload(f"full{i}", [f"n{i}"], cpu="3900m")]
    web = workload("web", ["n0", "n0", "n1"], cpu="500m", spec=spread("web", ZONE))
    fill = workload("fill", ["n6"], cpu="800m")
    roomy = [*nodes, *web, *fill]
    sampled = Sampling.for_version((1, 36))
    for objects in (roomy, [*roomy, *full]):
        for move in plan_of(objects, settings=MARKS, profile=sampled, **ONLY).moves:
            assert sum(landing.probability for landing in move.landings[:1]) > 0
            assert move.gain.soft >= 0.75  # careful asks for 75 % of the landings
    # Three nodes have room at all: all of them are scored, and the landing is sure.
    (move,) = plan_of([*roomy, *full], settings=MARKS, profile=sampled, **ONLY).moves
    assert (move.landings[0].node, move.landings[0].probability) == ("n6", 1.0)


def test_between_waves_a_move_keeps_its_marks_or_gets_those_that_it_needs_now():
    objects = crowded()
    (move,) = plan_of(objects, settings=MARKS, **ONLY).moves
    ((same, why),) = rechecked(objects, [move], settings=MARKS, **ONLY)
    assert (why, same.marks, same.landings) == (None, ("n1",), move.landings)
    # A fourth node has joined, and is empty: the replacement goes there by itself.
    ((now, why),) = rechecked([*objects, node("n3", "a")], [move], settings=MARKS, **ONLY)
    assert (why, now.marks, now.landings[0].node) == (None, (), "n3")
    # n2 is full by now.
    full = [*objects, *workload("late", ["n2"], cpu="3000m")]
    ((_, why),) = rechecked(full, [move], settings=MARKS, **ONLY)
    assert why is not None
    assert why.startswith("NoGain")


def test_no_move_keeps_marks_under_a_policy_that_does_not_steer():
    # A plan that was made with marks, reviewed under another policy: nothing would set them.
    (move,) = plan_of(crowded(), settings=MARKS, **ONLY).moves
    ((_, why),) = rechecked(crowded(), [move], settings=Settings(), **ONLY)
    assert why is not None
    assert why.startswith("NoGain")


@pytest.mark.parametrize(
    ("value", "steer", "counts"),
    [
        ("steer.20200101T000000Z.dead", "marks", False),
        ("steer.20200101T000000Z.dead", "off", True),
        ("by-hand", "off", True),
        ("steer.20991231T000000Z.live", "off", False),
        ("steer.20991231T000000Z.live", "marks", False),
    ],
)
def test_a_mark_counts_in_predictions_if_it_stands_and_no_run_removes_it(value, steer, counts):
    taint = {"key": "rebalancer/mark", "value": value, "effect": "PreferNoSchedule"}
    registry = Registry.installed()
    text = f"apiVersion: rebalancer/v1\nkind: Policy\nsteer: {steer}\n"
    rules = RunRules(load_text(text.encode(), "policy", registry), registry, Scope())
    problem = rules.problem(snapshot_of([node("n0", taints=[taint]), node("n1")]))
    assert any(problem.snapshot.nodes.taint_sets) is counts


def drifted(seed: int) -> list[Manifest]:
    """Workloads under many rules, thrown onto six nodes of three zones, two of them nearly empty."""
    rng = random.Random(seed)
    objects = [node(f"n{i}", f"zone-{i % 3}") for i in range(6)]
    for i in range(12):
        rules = (
            None,
            apart(f"w{i}", HOSTNAME, weight=100),
            apart(f"w{i}", ZONE),
            spread(f"w{i}", ZONE),
        )
        stand = [f"n{rng.randrange(4)}" for _ in range(rng.choice((2, 3, 6)))]
        cpu = rng.choice(("20m", "200m", "450m"))
        objects += workload(f"w{i}", stand, cpu=cpu, spec=rng.choice(rules))
    return objects


@pytest.mark.parametrize("seed", range(4))
def test_what_is_planned_is_what_the_scheduler_does_while_the_marks_stand(seed):
    """Played move by move: a fresh model with marked nodes places each replacement on one of the nodes that the plan names."""
    objects = drifted(seed)
    many = Budgets(
        in_flight=Limit.parse("100%"), per_run=Limit.parse("100%"), per_hour=Limit.parse("100%")
    )
    plain = plan_of(objects, settings=Settings(budgets=many))
    made = plan_of(objects, settings=Settings(steer=True, budgets=many))
    snapshot = snapshot_of(objects)
    model = SchedulerModel(snapshot, SchedulerProfile.for_version(snapshot.version))
    state = ClusterState(snapshot)
    wave = 1
    for move in made.moves:
        if move.wave != wave:
            state.reap()
            wave = move.wave
        pod = list(snapshot.pods.uid).index(move.uid)
        cls = int(state.cls_of[pod])
        state.evict(pod)
        marks = np.array([snapshot.nodes.index[name] for name in move.marks], np.int32)
        with model.marking(marks):
            predicted = model.predict(state, snapshot.classes[cls].replacement)
        names = [snapshot.nodes.names[landing] for landing in predicted.nodes]
        assert set(names) <= {landing.node for landing in move.landings}
        if move.marks:
            assert len(names) == 1
        state.place(pod, snapshot.classes[cls].replacement, int(predicted.nodes[0]))
    left = {name: score.cost.as_tuple()[:2] for name, score in made.after.items()}
    without = {name: score.cost.as_tuple()[:2] for name, score in plain.after.items()}
    total = np.sum(list(left.values()), axis=0)
    assert tuple(total) <= tuple(np.sum(list(without.values()), axis=0))


def test_a_wave_of_steered_moves_is_short_for_they_go_one_by_one():
    nodes = [node(f"n{i}", "a", cpu="64", memory="256Gi") for i in range(3)]
    many = [
        o
        for i in range(30)
        for o in workload(f"web{i}", ["n0", "n0", "n1"], cpu="100m", spec=spread(f"web{i}", ZONE))
    ]
    fill = workload("fill", ["n2"], cpu="40")
    all_at_once = dict.fromkeys(("in_flight", "per_node", "per_run", "per_hour"), Limit.parse(1000))
    settings = Settings(steer=True, budgets=Budgets(**all_at_once))
    made = plan_of([*nodes, *many, *fill], settings=settings, **ONLY)
    steered = [move.wave for move in made.moves if move.marks]
    assert [steered.count(wave) for wave in sorted(set(steered))] == [20, 10]


def test_between_waves_a_landing_that_would_fix_less_is_chosen_again():
    # The policy wants web in both zones, of which the scheduler knows nothing: n1 fixes the duplicate only.
    nodes = [node("n0", "a"), node("n1", "a"), node("n2", "b")]
    web = workload("web", ["n0", "n0"], spec=spread("web", "absent"))
    objects = [*nodes, *web, *workload("fill", ["n2"], cpu="2")]
    strategy = Registry.installed().strategy("topology-spread")
    zones = {"labels": {"app": "web"}, "topologyKey": ZONE}
    options = {
        "strategies": ["duplicates", "topology-spread"],
        "params": {"topology-spread": strategy.Params.model_validate({"defaults": [zones]})},
    }
    (move,) = plan_of(objects, settings=MARKS, **options).moves
    assert (move.landings[0].node, move.marks, move.gain.soft) == ("n2", ("n0", "n1"), 2)
    ((now, why),) = rechecked(objects, [move], settings=MARKS, **options)
    assert (why, now.marks, now.gain.soft) == (None, ("n0", "n1"), 2)


# -- balance by use --------------------------------------------------------------------------------


def heated(uses: Sequence[int], *, on: int = 0) -> Snapshot:
    """Return four nodes, of which ``on`` has the least requests, and a pod of each app; it uses ``uses[i]`` millicores there and elsewhere."""
    objects = [node(f"n{n}", cpu="4") for n in range(4)]
    for number, _ in enumerate(uses):
        others = [n for n in range(4) if n != on]
        places = [f"n{on}", f"n{others[number % 3]}"]
        # A rule over a label that no node has: only load decides.
        objects += workload(f"app-{number}", places, cpu="200m", spec=spread("app", "rack"))
        objects += workload(f"idle-{number}", [f"n{n}" for n in others], cpu="200m")
    pods = {f"app-{number}": (use, 1 << 20) for number, use in enumerate(uses)}
    pods |= {f"idle-{number}": (5, 1 << 20) for number in range(len(uses))}
    return with_usage(snapshot_of(objects), pods)


def by_use(**more: object) -> dict[str, Any]:
    given = {"signal": "usage", "runs": 1, "over": {"cpu": 0.6}, "under": {"cpu": 0.45}, **more}
    return {
        "strategies": ["low-utilisation"],
        "params": {"low-utilisation": LowUtilisationParams.model_validate(given)},
    }


def used(snapshot: Snapshot, plan: Plan) -> list[float]:
    """Return the shares of cpu in use once each move has landed where it most probably does."""
    assert snapshot.usage is not None
    row = MEASURED.index("cpu")
    names, pods = snapshot.nodes.names, snapshot.pods
    amounts = dict(zip(names, snapshot.usage.nodes[row].tolist(), strict=True))
    for move in plan.moves:
        [pod] = pods.uid.rows_of({move.uid}).tolist()
        amount = int(snapshot.usage.classes[row, pods.cls[pod]])
        amounts[move.node] -= amount
        amounts[move.landings[0].node] += amount
    return [amounts[name] / 4000 for name in names]


HOT = heated([700, 700, 700, 700])


def test_without_marks_the_scheduler_puts_pods_of_a_hot_node_back_for_requests_are_even():
    made = plan_of(HOT, **by_use())
    assert made.moves == ()
    assert {skip.code for skip in made.skips} <= {Code.COMES_BACK, Code.UNSURE, Code.NO_GAIN}


def test_marks_let_pods_leave_a_node_that_is_hot_by_use_for_the_least_used_one():
    assert used(HOT, Plan((), Later(lambda: pytest.fail("not asked"))))[0] == pytest.approx(0.7)
    made = plan_of(HOT, settings=MARKS, **by_use())
    assert made.moves
    assert all(move.node == "n0" and "n0" in move.marks for move in made.moves)
    assert max(used(HOT, made)) <= 0.6
    assert made.after["low-utilisation"].violated == 0


def test_no_mark_is_set_for_balance_by_requests():
    objects = [node(f"n{n}", cpu="4") for n in range(3)]
    full = workload("a", ["n0"] * 4, cpu="900m") + workload("b", ["n1"] * 2, cpu="700m")
    made = plan_of([*objects, *full], settings=MARKS, strategies=["low-utilisation"])
    assert all(not move.marks for move in made.moves)


def test_a_steered_move_by_use_is_judged_again_as_it_was_planned():
    made = plan_of(HOT, settings=MARKS, **by_use())
    assert [
        (move.marks, why) for move, why in rechecked(HOT, made.moves, settings=MARKS, **by_use())
    ] == [(move.marks, None) for move in made.moves]


@given(st.lists(st.integers(10, 900), min_size=3, max_size=8))
@hypothesis_settings(max_examples=30, deadline=None)
def test_where_use_is_as_measured_nothing_moves_a_second_time(uses):
    before = heated(uses)
    made = plan_of(before, settings=MARKS, **by_use())
    moved = {move.uid: move.landings[0].node for move in made.moves}
    index = before.nodes.index
    places = before.pods.node.copy()
    for uid, name in moved.items():
        [pod] = before.pods.uid.rows_of({uid}).tolist()
        places[pod] = index[name]
    after = replace(before, pods=replace(before.pods, node=places))
    shares = np.array(used(before, made)) * 4000
    assert before.usage is not None
    nodes = before.usage.nodes.copy()
    nodes[MEASURED.index("cpu")] = shares.round()
    again = plan_of(
        replace(after, usage=replace(before.usage, nodes=nodes)), settings=MARKS, **by_use()
    )
    assert {move.uid for move in again.moves}.isdisjoint(moved)
