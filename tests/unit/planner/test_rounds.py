"""Rounds: several moves that do not touch each other are judged and made at once, and come to what one by one does."""

import random

import pytest

from rebalancer.planner.effort import Effort
from rebalancer.planner.plan import plan as made
from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Budgets
from rebalancer.policy.values import Limit
from rebalancer.testing.snapshots import HOSTNAME, apart, node, workload
from tests.unit.planner.conftest import problem_of

WIDE = Budgets(in_flight=Limit.parse("100%"), per_run=Limit.parse("100%"), per_node=Limit.parse(50))


def crowded(seed):
    """Forty nodes; owners of two to five replicas, most of which stand beside each other on a third of the nodes."""
    draw = random.Random(seed)
    objects = [node(f"n{i}", f"zone-{i % 3}") for i in range(40)]
    for i in range(60):
        rule = apart(f"w{i}", HOSTNAME, weight=100) if draw.random() < 0.7 else None
        stand = [f"n{draw.randrange(13)}" for _ in range(draw.choice((2, 3, 5)))]
        objects += workload(f"w{i}", stand, cpu=draw.choice(("5m", "50m", "200m")), spec=rule)
    return problem_of(objects, strategies=["anti-affinity", "duplicates", "low-utilisation"])


def left(plan):
    costs = [score.cost.as_tuple() for score in plan.after.values()]
    return [round(sum(cost[entry] for cost in costs), 6) for entry in range(3)]


@pytest.mark.parametrize("seed", range(6))
def test_rounds_leave_no_rule_unmet_that_one_by_one_fixes_and_evict_no_more(monkeypatch, seed):
    plans = []
    for together in (1, 10):
        monkeypatch.setattr(Effort, "of", staticmethod(lambda _, b=together: Effort(together=b)))
        plans.append(made(crowded(seed), Settings(budgets=WIDE)).plan)
    alone, rounds = plans
    assert left(rounds)[:2] <= left(alone)[:2]
    assert len(rounds.moves) <= 1.05 * len(alone.moves)


@pytest.mark.parametrize("together", [1, 10])
def test_in_a_round_no_budget_is_exceeded(monkeypatch, together):
    monkeypatch.setattr(Effort, "of", staticmethod(lambda _: Effort(together=together)))
    budgets = Budgets(in_flight=Limit.parse(4), per_node=Limit.parse(2), per_owner=Limit.parse(1))
    plan = made(crowded(1), Settings(budgets=budgets)).plan
    waves: dict[int, list[str]] = {}
    for move in plan.moves:
        waves.setdefault(move.wave, []).append(move.owner)
    assert len(waves) > 1
    assert all(len(owners) <= 4 and len(set(owners)) == len(owners) for owners in waves.values())


def test_a_round_has_as_many_moves_as_the_cluster_bears():
    assert [Effort.of(nodes).together for nodes in (3, 99, 100, 1_000, 5_000)] == [1, 1, 2, 20, 100]
