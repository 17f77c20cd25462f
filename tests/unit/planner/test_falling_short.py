"""Moves that would fix one rule and break another: they wait until they land better."""

import random
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.decisions.world import draw
from rebalancer.plan.plan import Cost
from rebalancer.policy.protect import Protect
from rebalancer.testing.snapshots import ZONE, node, spread, workload
from tests.unit.planner.conftest import plan_of, rechecked

ONLY = {"strategies": ["topology-spread", "duplicates"]}


def skewed(**fill):
    """Three web pods on n0 of zone a, one on n1 of zone b, which is the emptiest of its zone.

    The next web pod would land on n1 beside the other, until a pod of more has landed there.
    """
    nodes = [node("n0", "a"), *(node(f"n{i}", "b") for i in (1, 2, 3))]
    web = workload("web", ["n0"] * 3 + ["n1"], cpu="100m", spec=spread("web", ZONE, hard=True))
    more = workload("more", ["n0", "n0"], cpu="400m", spec=spread("more", ZONE))
    return [
        *nodes,
        *web,
        *more,
        *workload("fill", ["n2", "n3"], cpu="400m", spec=spread("fill", ZONE), **fill),
    ]


def test_a_pod_waits_that_would_land_beside_its_like(plan):
    result = plan(skewed(), **ONLY)
    assert [(m.wave, m.pod, m.node, m.landings[0].node) for m in result.moves] == [
        (1, "more-0", "n0", "n1"),
        (1, "fill-0", "n2", "n0"),
        (2, "web-0", "n0", "n2"),
    ]
    assert [(m.gain.hard, m.gain.soft) for m in result.moves] == [(0, 2), (0, 1), (1, 1)]
    # Two of web must share n0, the only node of zone a.
    assert (result.after["topology-spread"].violated, result.after["duplicates"].cost.soft) == (
        0,
        1,
    )


def test_a_pod_that_cannot_land_better_goes_all_the_same(plan):
    objects = skewed(annotations={"rebalancer/evict": "false"})
    objects = [o for o in objects if not o["metadata"]["name"].startswith("more")]
    [move] = plan(objects, **ONLY).moves
    assert (move.pod, move.landings[0].node) == ("web-0", "n1")
    assert (move.gain.hard, move.gain.soft) == (1, 0)


@pytest.mark.parametrize(
    ("elsewhere", "why"),
    [
        (False, None),
        (True, "it would fix less than planned where it would land now: left to the next run"),
    ],
)
def test_a_move_that_would_fix_less_than_planned_is_dropped(elsewhere, why):
    *_, last = plan_of(skewed(), **ONLY).moves
    now = [o for o in skewed() if o["metadata"]["name"] != "more-0"]
    # What was to land on n1 landed on n3.
    landed = workload("more", ["n3" if elsewhere else "n1"], cpu="400m", spec=spread("more", ZONE))
    now += [o for o in landed if o["kind"] == "Pod"]
    [(_, reason)] = rechecked(now, [last], **ONLY)
    assert reason == why


@settings(max_examples=17, deadline=None)
@example(98035)  # what counts as a duplicate depended on when it was first asked
@given(st.integers(0, 2**32))
def test_an_unchanged_cluster_is_judged_as_it_was_planned(seed):
    objects = draw(random.Random(seed)).objects()
    moves = plan_of(objects).moves
    again = rechecked(objects, moves)
    first = [pair for pair in again if pair[0].wave == 1]
    assert first == [(move, None) for move in moves if move.wave == 1]
    # Of later waves the landings are judged once it is their turn.
    but_for_landings = [(replace(move, landings=()), why) for move, why in again]
    assert but_for_landings == [(replace(move, landings=()), None) for move in moves]


def crowded_and_over():
    """Two twins on n0, and three pods that fill n1 to above the threshold; n2 is free."""
    nodes = [node(f"n{i}", "a") for i in range(3)]
    twins = workload("twin", ["n0", "n0"], cpu="100m")
    return [*nodes, *twins, *(o for i in range(3) for o in workload(f"big{i}", ["n1"], cpu="1"))]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, ["", ""]),
        ({"gain": Cost(0, 3, 0)}, ["it would fix less", "may need the room"]),
        ({"uid": "of a pod that is gone"}, ["the pod is gone", ""]),
    ],
)
def test_balance_waits_where_a_rule_could_not_be_fixed_as_planned(change, reason):
    protections = Protect(single_replicas=False)
    objects = crowded_and_over()
    rule, balance = plan_of(objects, protections=protections).moves
    assert (rule.owner, rule.gain.soft) == ("Deployment/default/twin", 1)
    assert (balance.node, balance.gain.hard, balance.gain.soft) == ("n1", 0, 0)
    moves = [replace(rule, **change), balance]
    judged = rechecked(objects, moves, protections=protections)
    for why, part in zip([why or "" for _, why in judged], reason, strict=True):
        assert part in why
        assert bool(part) == bool(why)
