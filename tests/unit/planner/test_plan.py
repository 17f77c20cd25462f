"""The plan as a whole: its scores, its funnel, its lower bound, and what is left for further runs."""

import numpy as np
import pytest

from rebalancer.cost.term import Bound, Entry
from rebalancer.plan.plan import Backlog, Cost
from rebalancer.planner.plan import Callbacks, _bound, plan, size_of
from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Budgets
from rebalancer.testing.snapshots import node, workload
from tests.unit.planner.conftest import plan_of, problem_of

NODES = [node(f"n{i}") for i in range(4)]


def crowded(pairs=1):
    """So many workloads with two pods on n0, one of which has to go."""
    return [*NODES, *(each for i in range(pairs) for each in workload(f"w{i}", ["n0", "n0"]))]


def planned(objects, **budgets):
    settings = Settings(budgets=Budgets.model_validate(budgets))
    return plan_of(objects, strategies=["duplicates"], settings=settings)


def test_nothing_to_do_is_an_empty_plan():
    made = planned([*NODES, *workload("web", ["n0", "n1"])])
    assert (made.moves, made.skips, made.lower_bound) == ((), (), 0)
    assert made.before == made.after
    assert made.backlog == Backlog()


def test_what_can_be_fixed_is_fixed_with_as_few_moves_as_it_takes():
    made = planned(crowded(2))
    assert made.before["duplicates"].cost == Cost(soft=2.0)
    assert made.after["duplicates"].cost == Cost()
    assert len(made.moves) == made.lower_bound == 2
    assert {move.node for move in made.moves} == {"n0"}
    assert {landing.node for move in made.moves for landing in move.landings} <= {"n1", "n2", "n3"}


def test_the_funnel_goes_from_all_pods_to_the_moves():
    single = workload("one", ["n1"])  # a single replica is protected
    assert planned([*crowded(2), *single]).funnel == {
        "pods": 5,
        "movable": 4,
        "candidates": 4,
        "free": 4,
        "others": 0,
        "moves": 2,
    }


def test_what_a_budget_keeps_back_is_left_for_further_runs():
    made = planned(crowded(3), perRun=1)
    assert len(made.moves) == 1
    assert (made.backlog.moves, made.backlog.runs) == (2, 2)
    assert made.lower_bound <= 3


def test_the_size_is_of_all_pods_and_of_those_that_may_move():
    objects = [*crowded(), *workload("one", ["n1"])]
    assert size_of(problem_of(objects, strategies=[])) == {"pods": 3, "movable": 2}


class Phases:
    """A context manager that notes when it is entered."""

    def __init__(self):
        self.names = []

    def __call__(self, name):
        self.names.append(name)
        return self

    def __enter__(self):
        return None

    def __exit__(self, *_):
        return None


class Looks:
    """An observer that counts the pods that have moved."""

    def before(self, draft):
        self.first = draft.state.version

    def after(self, draft, chosen):
        self.then = draft.state.version
        self.chosen = len(chosen)


def test_an_observer_sees_the_state_before_and_after_and_changes_nothing():
    looks, phases = Looks(), Phases()
    problem = problem_of(crowded(2), strategies=["duplicates"])
    seen = plan(problem, Settings(), Callbacks(observe=lambda: looks, phase=phases))
    assert (looks.first, looks.chosen) == (0, 2)
    assert looks.then > 0
    assert seen.observer is looks
    assert phases.names == ["terms", "plan"]
    alone = plan(problem_of(crowded(2), strategies=["duplicates"]), Settings())
    assert [move.uid for move in seen.plan.moves] == [move.uid for move in alone.plan.moves]
    assert seen.plan.after == alone.plan.after


@pytest.mark.parametrize("after", [0, 1])
def test_it_ends_early_with_what_is_planned_so_far(after):
    asked = iter([None] * after)
    made = plan_of(
        crowded(3), strategies=["duplicates"], stop=lambda: next(asked, "the time is over")
    )
    assert len(made.moves) <= after
    assert "the time is over" in made.stopped


@pytest.mark.parametrize(
    ("before", "moves", "waiting", "least"),
    [(8, 7, 0, 7), (3, 7, 0, 3), (8, 7, 2, 8), (12, 7, 2, 9)],
)
def test_the_lower_bound_is_never_above_a_plan_that_reaches_the_same(before, moves, waiting, least):
    bound = (Entry.HARD, Bound(before, np.array([0], np.int32), 1.0))
    assert _bound([bound], [], frozenset(), moves, Backlog(waiting, 1, more=True)) == least
