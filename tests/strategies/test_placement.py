"""Placement on clusters of two to four nodes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rebalancer.plan.plan import Code
from rebalancer.registry import Registry
from rebalancer.testing.contract import check_strategy
from rebalancer.testing.snapshots import node, snapshot_of, spread, workload
from rebalancer.wire.times import rfc3339
from strategies.placement import PlacementParams
from tests.unit.planner.conftest import plan_of

NAME = "placement"
SPOT = {"capacity": "spot"}
CAPTURED = 1_800_000_000.0
"""When snapshot_of takes its snapshots."""


def params(**given):
    return PlacementParams.model_validate(given)


def plan(objects, strategies=(NAME,), **given):
    return plan_of(objects, strategies=list(strategies), params={NAME: params(**given)})


def pairs(result):
    return [(move.node, move.landings[0].node) for move in result.moves]


def nodes(cpu="4"):
    return [
        node("s0", labels=SPOT),
        node("s1", labels=SPOT),
        node("d0", cpu=cpu),
        node("d1", cpu=cpu),
    ]


def test_pods_leave_nodes_to_avoid_where_the_scheduler_puts_them_elsewhere():
    objects = [*nodes(), *workload("argocd", ["s0", "d0"]), *workload("fat", ["s0", "s1"], cpu="3")]
    # The replacement goes to the emptiest node, which is none to avoid.
    result = plan(objects, avoid=SPOT)
    assert ("s0", "d1") in pairs(result)
    assert result.before[NAME].cost.soft == 3
    assert "s0 is to be avoided" in result.moves[0].reason


def test_where_the_replacement_would_land_on_such_a_node_again_it_stays_and_says_so():
    objects = [*nodes(), *workload("argocd", ["s0", "s0"]), *workload("fat", ["d0", "d1"], cpu="3")]
    result = plan(objects, avoid=SPOT)
    assert result.moves == ()
    assert {skip.code for skip in result.skips} <= {Code.NO_GAIN, Code.COMES_BACK, Code.UNSURE}
    assert result.skips


def test_what_has_no_other_place_is_unsatisfiable_and_stays():
    objects = [
        node("s0", labels=SPOT),
        node("d0", cpu="1"),
        *workload("big", ["s0", "s0"], cpu="2"),
    ]
    result = plan(objects, avoid=SPOT)
    assert result.moves == ()
    assert result.before[NAME].unsatisfiable == (
        "Deployment/default/big: no better node takes 2 of its pods",
    )


def test_preferred_nodes_are_gone_to():
    objects = [node("a", cpu="2"), node("p", labels={"pool": "system"}, cpu="8")]
    result = plan([*objects, *workload("dns", ["a", "a"])], prefer={"pool": "system"})
    # The second would land on the node that the first has left.
    assert pairs(result) == [("a", "p")]
    assert {skip.code for skip in result.skips} == {Code.COMES_BACK}


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": SPOT},
        {
            "affinity": {
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 1,
                            "preference": {
                                "matchExpressions": [{"key": "capacity", "operator": "Exists"}]
                            },
                        }
                    ]
                }
            }
        },
    ],
)
def test_what_a_pod_says_of_the_label_itself_has_the_last_word(spec):
    result = plan([*nodes(), *workload("batch", ["s0", "s0"], spec=spec)], avoid=SPOT)
    assert (result.moves, result.before[NAME].cost.soft) == ((), 0)


def test_no_move_may_break_a_hard_one():
    # d0 holds both replicas; the other nodes are emptier, but to be avoided.
    objects = [node("s0", labels=SPOT), node("d0"), *workload("dns", ["d0", "d0"])]
    spreading = [NAME, "duplicates"]
    assert pairs(plan(objects, spreading, prefer={"x": "y"})) == [("d0", "s0")]
    assert plan(objects, spreading, avoid=SPOT, hard=True).moves == ()


def test_a_soft_one_weighs_as_much_as_other_soft_rules():
    rules = {"topologySpreadConstraints": spread("dns")["topologySpreadConstraints"]}
    objects = [node("s0", "a", labels=SPOT), node("d0", "b")]
    objects += workload("dns", ["d0", "d0", "s0"], spec=rules)
    assert plan(objects, [NAME, "topology-spread"], avoid=SPOT).moves == ()


ON_DEMAND = {"capacity": "on-demand"}
ORDER = [ON_DEMAND, SPOT]


def of_ages(**minutes):
    """Return a node of 8 cpu for each name: d on demand, s Spot, others neither; with the age in minutes, 0 for an old one."""
    kinds = {"d": ON_DEMAND, "s": SPOT}
    made = []
    for name, age in minutes.items():
        one = node(name, cpu="8", labels=kinds.get(name[0]))
        if age:
            one["metadata"]["creationTimestamp"] = rfc3339(CAPTURED - 60 * age)
        made.append(one)
    return made


@pytest.mark.parametrize(
    ("ages", "full", "on", "moved"),
    [
        ({"d0": 0, "x0": 0}, [], "x0", ["d0"]),
        ({"d0": 0, "s0": 0}, [], "s0", ["d0"]),
        ({"s0": 0, "x0": 0}, [], "x0", ["s0"]),
        ({"d0": 0, "s0": 0, "x0": 0}, [], "d0", []),
        # No room on demand: Spot is the next best, and a pod on it stays.
        ({"d0": 0, "s0": 0, "x0": 0}, ["d0"], "x0", ["s0"]),
        ({"d0": 0, "s0": 0, "x0": 0}, ["d0"], "s0", []),
        # A node that has just come is not worth a move, nor is it left.
        ({"d0": 20, "s0": 0}, [], "s0", []),
        ({"d0": 31, "s0": 0}, [], "s0", ["d0"]),
        ({"d0": 20, "s0": 0}, [], "d0", []),
        # Neither where old ones of its kind are full: those that come beside them go, too.
        ({"s0": 20, "s1": 0, "x0": 0}, ["s1"], "x0", []),
        ({"d0": 20, "d1": 0, "s0": 0}, ["d1"], "s0", []),
        ({"d0": 20, "d1": 0, "s0": 0}, ["d1"], "d0", []),
        ({"d0": 31, "d1": 0, "s0": 0}, ["d1"], "s0", ["d0"]),
        # Where nothing else has room, it is for the scheduler to go there.
        ({"d0": 20, "s0": 0, "x0": 0}, ["s0"], "x0", []),
        # Where all nodes are young there is no other.
        ({"d0": 5, "s0": 5}, [], "s0", ["d0"]),
    ],
)
def test_the_first_nodes_of_the_order_with_room_are_gone_to(ages, full, on, moved):
    pods = [*workload("web", [on] * 2, cpu="3"), *workload("full", full * 2, cpu="3")]
    result = plan([*of_ages(**ages), *pods], order=ORDER)
    assert sorted({to for _, to in pairs(result)}) == moved
    assert all(move.strategy == NAME for move in result.moves)


def test_the_place_in_the_order_is_said():
    result = plan([*of_ages(d0=0, s0=0), *workload("web", ["s0"] * 2, cpu="3")], order=ORDER)
    assert "s0 is place 2 of 3 in the order" in result.moves[0].reason


def test_nodes_that_come_and_go_are_not_worth_moves():
    """On-demand nodes are there for ten minutes, ten times: the pods on Spot stay; one that lasts is gone to, once."""
    pods = workload("web", ["s0"] * 2, cpu="3")
    for _ in range(10):
        assert plan([*of_ages(d0=10, s0=0), *pods], order=ORDER).moves == ()
        assert plan([*of_ages(s0=0), *pods], order=ORDER).moves == ()
    assert len(plan([*of_ages(d0=30, s0=0), *pods], order=ORDER).moves) >= 1
    there = workload("web", ["d0"] * 2, cpu="3")
    assert plan([*of_ages(d0=40, s0=0), *there], order=ORDER).moves == ()


@settings(max_examples=12, deadline=None)
@given(
    stays=st.lists(st.integers(1, 29), min_size=10, max_size=10),
    lasting=st.integers(0, 2),
    seed=st.integers(0, 999),
)
def test_what_comes_and_goes_ten_times_moves_no_pod_for_its_sake(stays, lasting, seed):
    """Of the best kind some nodes last and are full, and one comes ten times, for less than half an hour each.

    In between the pods are on Spot, or where chance has put them.
    """
    random = np.random.default_rng(seed)
    old = {f"d{n}": 0 for n in range(lasting)}
    full = workload("full", [name for name in old for _ in range(2)], cpu="3")
    for stay in stays:
        on = str(random.choice(["s0", "s1", "d9"]))
        pods = [*full, *workload("web", [on, "s0"], cpu="3")]
        there = of_ages(**old, s0=0, s1=0, d9=int(random.integers(1, stay + 1)))
        assert plan([*there, *pods], order=ORDER).moves == ()


@pytest.mark.parametrize("given", [{}, {"avoid": {}}, {"hard": True}, {"order": []}])
def test_it_needs_some_nodes(given):
    with pytest.raises(ValidationError, match="placement needs avoid, prefer or order"):
        params(**given)


def test_an_order_and_what_it_takes_the_place_of_are_refused():
    with pytest.raises(ValidationError, match="order takes the place of avoid and prefer"):
        params(order=ORDER, avoid=SPOT)


@pytest.mark.parametrize("hard", [False, True])
def test_the_contract_holds_where_nodes_are_avoided(hard):
    objects = [*nodes(), *workload("one", ["s0", "d0"]), *workload("two", ["s1", "s1", "d1"])]
    given = params(avoid=SPOT, prefer={"x": "y"}, hard=hard)
    check_strategy(Registry.installed().strategy(NAME), given, [snapshot_of(objects)])


def test_the_contract_holds_for_an_order():
    objects = [*of_ages(d0=0, d1=20, s0=0, x0=5), *workload("one", ["s0", "x0"])]
    check_strategy(Registry.installed().strategy(NAME), params(order=ORDER), [snapshot_of(objects)])
