"""Tiny clusters, all placements tried: the bound is never above the optimum, the plan never harms."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.planner.unmet import scores_of
from rebalancer.testing.snapshots import HOSTNAME, ZONE, apart, node, spread, workload
from tests.unit.planner.conftest import draft_of, plan_of

NODES = ("n0", "n1", "n2", "n3")
RULED = ["anti-affinity", "duplicates", "topology-spread"]
RULES = [
    lambda name: {},
    lambda name: spread(name, hard=True),
    lambda name: spread(name, HOSTNAME),
    lambda name: apart(name, ZONE, weight=100),
    lambda name: apart(name, HOSTNAME, weight=100),
    lambda name: apart(name, HOSTNAME),
    lambda name: {**spread(name, hard=True), **apart(name, HOSTNAME, weight=100)},
]


def build(shape):
    """Two nodes in zone a, one in b, one in c; workloads of (rule, nodes of the replicas)."""
    zones = dict(zip(NODES, "aabc", strict=True))
    objects = [node(name, zone, cpu="8") for name, zone in zones.items()]
    for index, (rule, places) in enumerate(shape):
        name = f"w{index}"
        objects += workload(name, [NODES[p] for p in places], spec=RULES[rule](name))
    return objects


def cost(shape):
    """(hard, soft) of a placement as the terms see it."""
    scores = scores_of(draft_of(build(shape), strategies=RULED))
    hard = sum(score.cost.hard for score in scores.values())
    return hard, sum(score.cost.soft for score in scores.values())


def placements(shape):
    """Every placement of all pods, pods of a workload being alike."""
    of_each = [
        [(rule, places) for places in itertools.combinations_with_replacement(range(4), len(start))]
        for rule, start in shape
    ]
    return itertools.product(*of_each)


def moves_between(before, after):
    total = 0
    for (_, mine), (_, theirs) in zip(before, after, strict=True):
        gone = np.bincount(mine, minlength=4) - np.bincount(theirs, minlength=4)
        total += int(np.maximum(0, gone).sum())
    return total


workloads = st.tuples(
    st.integers(0, len(RULES) - 1), st.lists(st.integers(0, 3), min_size=2, max_size=4)
)


@settings(max_examples=25, deadline=None)
@given(st.lists(workloads, min_size=1, max_size=1))
def test_the_bound_is_never_above_the_fewest_moves_to_the_least_cost(shape):
    costs = {placement: cost(placement) for placement in placements(shape)}
    least = min(costs.values())
    optimum = min(moves_between(shape, p) for p, value in costs.items() if value == least)
    plan = plan_of(build(shape), strategies=RULED)
    assert plan.lower_bound <= optimum
    assert len(plan.moves) <= optimum


@settings(max_examples=40, deadline=None)
@given(st.lists(workloads, min_size=1, max_size=4))
def test_a_plan_never_makes_the_cost_worse_and_replanning_ends(shape):
    plan = plan_of(build(shape), strategies=RULED)
    before = tuple(sum(getattr(s.cost, e) for s in plan.before.values()) for e in ("hard", "soft"))
    after = tuple(sum(getattr(s.cost, e) for s in plan.after.values()) for e in ("hard", "soft"))
    assert after <= before
    assert len(plan.moves) == 0 or after < before
    assert plan.lower_bound <= len(plan.moves) + plan.backlog.moves
    assert len({move.uid for move in plan.moves}) == len(plan.moves)


@settings(max_examples=15, deadline=None)
@given(st.lists(workloads, min_size=1, max_size=3))
def test_the_order_of_objects_does_not_matter(shape):
    objects = build(shape)
    one = plan_of(objects, strategies=RULED)
    other = plan_of(list(reversed(objects)), strategies=RULED)
    assert one == other
