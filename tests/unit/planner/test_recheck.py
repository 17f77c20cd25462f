"""Between waves: what is left of a plan once the cluster has changed."""

from dataclasses import replace

import pytest

from rebalancer.plan.plan import Cost
from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Budgets
from rebalancer.testing.snapshots import node, workload
from tests.unit.planner.conftest import plan_of, rechecked

NODES = [node(f"n{i}") for i in range(3)]


def web(*nodes, **more):
    return workload("web", list(nodes), **more)


@pytest.fixture(scope="module")
def move():
    """One of two pods on n0 goes."""
    (only,) = plan_of([*NODES, *web("n0", "n0")], strategies=["duplicates"]).moves
    return only


def verdict(objects, *moves, **options):
    return [why for _, why in rechecked(objects, moves, strategies=["duplicates"], **options)]


def test_on_an_unchanged_cluster_the_move_goes_as_planned(move):
    ((again, why),) = rechecked([*NODES, *web("n0", "n0")], [move], strategies=["duplicates"])
    assert why is None
    assert again == move


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        (NODES, "the pod is gone"),
        ([*NODES, *web("n1", "n1")], "the pod is on another node now"),
        ([*NODES, *web("", "")], "the pod is on another node now"),
        (
            [*NODES, *web("n0", "n0", annotations={"rebalancer/evict": "false"})],
            "protected now: optedOut",
        ),
    ],
)
def test_a_pod_that_went_moved_or_is_protected_now_stays(move, objects, why):
    assert verdict(objects, move) == [why]


def test_a_move_that_fixes_nothing_any_more_stays(move):
    even = web("n0", "n1") if move.pod == "web-0" else web("n1", "n0")
    (why,) = verdict([*NODES, *even], move)
    assert why is not None
    assert why.startswith("NoGain")


@pytest.mark.parametrize("strategy", ["low-utilisation", "consolidation"])
def test_what_its_strategy_asks_for_no_more_stays(move, strategy):
    for_balance = replace(move, strategy=strategy, gain=Cost(imbalance=1.0))
    (why,) = verdict([*NODES, *web("n0", "n1")], for_balance)
    assert why == f"{strategy} asks for no move off n0 any more"


def test_without_room_it_stays(move):
    full = [*NODES[:1], *(node(f"n{i}", unschedulable=True) for i in (1, 2))]
    (why,) = verdict([*full, *web("n0", "n0")], move)
    assert why is not None


def test_what_came_into_flight_meanwhile_takes_its_part(move):
    none = Settings(budgets=Budgets.model_validate({"inFlight": 0}))
    (why,) = verdict([*NODES, *web("n0", "n0")], move, settings=none)
    assert why == "left to the next run: inFlight 0, with what else is in flight now"


def test_of_no_moves_nothing_is_said():
    assert verdict(NODES) == []
