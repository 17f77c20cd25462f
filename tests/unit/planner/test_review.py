"""What is left of a reviewed plan on the cluster as it is now."""

from dataclasses import replace

import pytest

from rebalancer.plan.plan import Status
from rebalancer.planner.review import review
from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Budgets
from rebalancer.testing.snapshots import node, workload
from tests.unit.planner.conftest import plan_of, problem_of

NODES = [node(f"n{i}") for i in range(4)]


def crowded(pairs=2, **more):
    return [each for i in range(pairs) for each in workload(f"w{i}", ["n0", "n0"], **more)]


MOVES = plan_of([*NODES, *crowded()], strategies=["duplicates"]).moves


def reviewed(objects, moves=MOVES, *, observed=False, **budgets):
    problem = problem_of([*NODES, *objects], strategies=["duplicates"])
    (of,) = problem.contributions
    problem = replace(problem, contributions=[replace(of, observed=observed)])
    return review(moves, problem, Settings(budgets=Budgets.model_validate(budgets)))


def ends(decision):
    """Pod -> how its move ended before it was tried."""
    return {one.move.pod: (one.status, one.message) for one in decision.ended.values()}


def test_on_an_unchanged_cluster_all_is_left():
    decision = reviewed(crowded())
    assert [move.uid for move in decision.plan.moves] == [move.uid for move in MOVES]
    assert not decision.ended
    assert decision.plan.funnel["planned"] == decision.plan.funnel["moves"] == 2
    assert decision.plan.after["duplicates"].violated == 0


def test_a_move_that_people_took_out_is_not_made():
    decision = reviewed(crowded(), MOVES[:1])
    assert [move.uid for move in decision.plan.moves] == [MOVES[0].uid]
    assert decision.plan.after["duplicates"].violated == 1


@pytest.mark.parametrize(
    ("objects", "status"),
    [
        (crowded(1), Status.GONE),
        (crowded(2, annotations={"rebalancer/evict": "false"}), Status.DROPPED),
        ([each for i in range(2) for each in workload(f"w{i}", ["n0", "n1"])], Status.DROPPED),
    ],
)
def test_what_does_not_hold_any_more_ends_with_a_reason(objects, status):
    decision = reviewed(objects)
    assert ends(decision)
    assert status in {ended for ended, _ in ends(decision).values()}
    assert all(why for _, why in ends(decision).values())


def test_a_budget_leaves_moves_to_a_later_time():
    decision = reviewed(crowded(), perRun=1)
    (status, why) = next(iter(ends(decision).values()))
    assert (status, why) == (Status.NOT_ATTEMPTED, "Budget: perRun 1")


def test_moves_of_a_strategy_that_observes_by_now_are_shown_only():
    decision = reviewed(crowded(), observed=True)
    assert {status for status, _ in ends(decision).values()} <= {Status.OBSERVED}
    assert all(move.observed for move in decision.plan.moves)


def test_of_an_empty_plan_nothing_is_left():
    decision = reviewed(crowded(), ())
    assert (decision.plan.moves, decision.ended) == ((), {})
