"""Exchanges: two pods of full nodes that can only take each other's place."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.plan.plan import Code
from rebalancer.planner.plan import plan as plan_on
from rebalancer.planner.review import review
from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Budgets
from rebalancer.policy.values import Limit
from rebalancer.testing.snapshots import ZONE, disruption_budget, node, spread, workload
from tests.unit.planner.conftest import plan_of, planned_draft, problem_of, rechecked
from tests.unit.planner.test_pending_pods import waiting

STEERED = Settings(steer=True)
WEST = {"nodeSelector": {ZONE: "west"}}


def hard(name):
    return spread(name, hard=True)


def full_pair(**of_bar):
    """Two full nodes, both pods of foo in the east and both of bar in the west; each may stand once in a zone."""
    foo = workload("foo", ["e", "e"], cpu="2", spec=hard("foo"))
    bar = workload("bar", ["w", "w"], **{"cpu": "2", "spec": hard("bar"), **of_bar})
    return [node("e", "east"), node("w", "west"), *foo, *bar]


def pairs(plan):
    """(wave, {(pod, from, to)}) of each exchange of a plan; every move belongs to one."""
    waves: dict[int, Any] = {}
    for move in plan.moves:
        assert move.exchanges
        assert move.unit == move.gang
        waves.setdefault(move.wave, []).append(move)
    for one, other in waves.values():
        assert (one.makes_way_for, other.makes_way_for) == (other.uid, one.uid)
        assert one.gang == other.gang == f"exchange of {one.ref} and {other.ref}"
    return [
        (wave, {(move.pod, move.node, move.landings[0].node) for move in moves})
        for wave, moves in waves.items()
    ]


def test_pods_that_no_node_takes_change_places(plan):
    result = plan(full_pair())
    assert pairs(result) == [(1, {("foo-0", "e", "w"), ("bar-0", "w", "e")})]
    assert [move.landings[0].probability for move in result.moves] == [1.0, 1.0]
    assert sum(move.gain.hard for move in result.moves) == pytest.approx(2)
    assert result.after["topology-spread"].cost.hard == 0
    assert result.moves[0].reason.startswith("changes places with default/foo-0: Deployment/")
    assert result.skips == ()


def test_each_exchange_has_a_wave_of_its_own(plan):
    """3 + 3 pods in two zones of two nodes: the second pair goes once the first has landed."""
    foo = workload("foo", ["e1", "e1", "e2", "e2"], cpu="2", spec=hard("foo"))
    bar = workload("bar", ["w1", "w1", "w2", "w2"], cpu="2", spec=hard("bar"))
    nodes = [node(f"{zone[0]}{n}", zone) for zone in ("east", "west") for n in (1, 2)]
    result = plan([*nodes, *foo, *bar])
    assert [wave for wave, _ in pairs(result)] == [1, 2]
    assert result.after["topology-spread"].cost.hard == 0


def test_one_large_pod_changes_places_with_two_small_ones(plan):
    """No single pod of small leaves room enough."""
    large = workload("large", ["w", "w"], cpu="2", spec=hard("large"))
    small = workload("small", ["e"] * 4, cpu="1", spec=hard("small"))
    result = plan([node("e", "east"), node("w", "west"), *large, *small])
    assert [(move.pod, move.landings[0].node, move.wave) for move in result.moves] == [
        ("large-0", "e", 1),
        ("small-0", "w", 1),
        ("small-1", "w", 1),
    ]
    one, *others = result.moves
    assert [move.makes_way_for for move in others] == [one.uid] * 2
    assert one.makes_way_for == others[0].uid
    assert result.after["topology-spread"].cost.hard == 0
    assert [
        why
        for _, why in rechecked(
            [node("e", "east"), node("w", "west"), *large, *small], result.moves
        )
    ] == [None] * 3


def test_the_partner_need_not_violate_a_rule_where_the_scheduler_itself_puts_it_there(plan):
    """Once both places are free, the east has more room: bar goes there by itself."""
    objects = full_pair(spec={})
    objects[0] = node("e", "east", cpu="5")
    foo, bar = sorted(plan(objects).moves, key=lambda move: move.pod, reverse=True)
    assert (foo.pod, bar.pod, bar.marks) == ("foo-0", "bar-0", ())
    assert (bar.landings[0].node, bar.reason) == ("e", "changes places with default/foo-0")


def test_only_marks_keep_the_partner_from_going_back_where_no_rule_does(plan):
    # A constraint over a label that no node has: only load decides.
    objects = full_pair(spec=spread("bar", "rack"))
    objects[1] = node("w", "west", cpu="5")
    assert plan(objects).moves == ()
    result = plan(objects, settings=STEERED)
    assert pairs(result) == [(1, {("foo-0", "e", "w"), ("bar-0", "w", "e")})]
    assert [move.marks for move in result.moves] == [("w",), ("w",)]


@pytest.mark.parametrize(
    ("east", "west", "of_bar", "changes"),
    [
        # Its own node takes it no sooner than the other one: while it terminates only the other one does.
        ("4", "4", {}, True),
        ("5", "4", {}, True),
        # Its own node is the better one, once it is gone.
        ("4", "5", {}, False),
        # Its replacement never comes before it is gone: a tie is a toss of a coin.
        ("4", "4", {"grace": 0}, False),
        ("5", "4", {"grace": 0}, True),
        ("4", "4", {"kind": "StatefulSet"}, False),
        ("5", "4", {"kind": "StatefulSet"}, True),
    ],
)
def test_the_partner_lands_there_early_or_late(plan, east, west, of_bar, changes):
    # A constraint over a label that no node has: only load decides.
    spec = {**spread("bar", "rack"), "terminationGracePeriodSeconds": of_bar.get("grace", 30)}
    objects = full_pair(spec=spec, kind=of_bar.get("kind", "Deployment"))
    objects[:2] = [node("e", "east", cpu=east), node("w", "west", cpu=west)]
    found = [{(pod[:3], *where) for pod, *where in moves} for _, moves in pairs(plan(objects))]
    assert found == ([{("foo", "e", "w"), ("bar", "w", "e")}] if changes else [])


@pytest.mark.parametrize("steer", [False, True])
def test_no_exchange_rests_on_a_mark_alone(plan, steer):
    """Nothing keeps foo from its own node, which has room before the other one: it would go back, mark or not."""
    soft = [
        *workload("foo", ["e", "e"], cpu="2", spec=spread("foo", ZONE)),
        *workload("bar", ["w", "w"], cpu="2", spec=spread("bar", ZONE)),
    ]
    result = plan([node("e", "east"), node("w", "west"), *soft], settings=Settings(steer=steer))
    assert result.moves == ()


@pytest.mark.parametrize(
    "of_bar",
    [
        {"annotations": {"rebalancer/evict": "false"}},
        {"spec": {**hard("bar"), **WEST}},
        {"cpu": "1900m", "memory": "9Gi"},
    ],
    ids=["protected", "bound to its zone", "too large for the other place"],
)
def test_no_exchange_with_a_pod_that_may_not_take_the_other_place(plan, of_bar):
    objects = full_pair(**of_bar)
    objects[0] = node("e", "east", memory="8Gi")
    result = plan(objects)
    assert result.moves == ()
    assert Code.NO_ROOM in {skip.code for skip in result.skips}


@pytest.mark.parametrize(("allowed", "moves"), [(1, 0), (2, 2)])
def test_a_budget_that_counts_both_has_to_allow_both(plan, allowed, moves):
    budget = disruption_budget("all", "any", allowed=allowed)
    budget["spec"]["selector"] = {}
    assert len(plan([*full_pair(), budget]).moves) == moves


@pytest.mark.parametrize(("per_run", "moves"), [(1, 0), (2, 2)])
def test_the_budgets_of_the_run_count_both(plan, per_run, moves):
    budgets = Settings(budgets=Budgets(per_run=Limit.parse(per_run)))
    assert len(plan(full_pair(), settings=budgets).moves) == moves


def test_a_pod_that_waits_for_the_room_is_no_reason_to_make_it_wait_longer(plan):
    """The pending pod would take the first place that is free."""
    assert plan([*full_pair(), waiting("late", "2")]).moves == ()


def test_the_state_is_left_as_the_plan_says():
    draft = planned_draft(full_pair())
    names = draft.snapshot.nodes.names
    assert sorted(names[node] for node in draft.state.node_of.tolist()) == ["e", "e", "w", "w"]
    assert not draft.state.terminating_pods


# -- judged again ------------------------------------------------------------------------------------


def test_an_exchange_is_judged_again_as_one():
    moves = plan_of(full_pair()).moves
    assert [why for _, why in rechecked(full_pair(), moves)] == [None, None]
    assert [move for move, _ in rechecked(full_pair(), moves)] == list(moves)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda objects: [*objects, node("n", "east")], "would land before the other pod has left"),
        (lambda objects: [o for o in objects if o["metadata"]["name"] != "bar-0"], "is gone"),
        (
            lambda objects: full_pair(annotations={"rebalancer/evict": "false"}),
            "default/bar-0 is protected now: optedOut",
        ),
    ],
    ids=["a node has come", "one is gone", "one is protected"],
)
def test_neither_goes_where_the_two_can_not_change_places_any_more(change, why):
    moves = plan_of(full_pair()).moves
    verdicts = [text for _, text in rechecked(change(full_pair()), moves)]
    assert None not in verdicts
    assert any(why in text for text in verdicts)


def test_a_reviewed_plan_keeps_the_two_together():
    problem = problem_of(full_pair())
    moves = plan_on(problem, Settings()).plan.moves
    assert review(moves, problem, Settings()).plan.moves == moves
    one = review(moves[:1], problem, Settings())
    assert set(one.ended) == {moves[0].uid}
    alone = review([moves[0], replace(moves[1], gang="", unit="")], problem, Settings())
    assert set(alone.ended) == {move.uid for move in moves}


def test_where_only_the_first_has_left_the_next_run_lets_its_replacement_in(plan):
    """The second was refused after the first had gone: foo waits, and bar moves for a rule of its own."""
    moves = plan_of(full_pair()).moves
    first, second = moves
    objects = full_pair()
    [victim] = [o for o in objects if o["metadata"].get("uid") == first.uid]
    del victim["spec"]["nodeName"]
    victim["status"] = {"phase": "Pending"}
    [after] = plan(objects).moves
    assert (after.uid, after.landings[0].node) == (second.uid, second.landings[0].node)
    assert after.reason.endswith(f"; pending {first.ref} takes room on {second.node}")


# -- any names, any order ---------------------------------------------------------------------------


@given(
    names=st.permutations(["ann", "bob", "cid", "dan"]),
    order=st.randoms(use_true_random=False),
    zones=st.permutations(["p", "q"]),
)
@settings(max_examples=25, deadline=None)
def test_names_and_orders_change_neither_number_nor_gain(names, order, zones):
    east, west, foo, bar = names
    objects = [
        node(east, zones[0]),
        node(west, zones[1]),
        *workload(foo, [east, east], cpu="2", spec=hard(foo)),
        *workload(bar, [west, west], cpu="2", spec=hard(bar)),
    ]
    order.shuffle(objects)
    result = plan_of(objects)
    assert len(result.moves) == 2
    assert {(move.node, move.landings[0].node) for move in result.moves} == {
        (east, west),
        (west, east),
    }
