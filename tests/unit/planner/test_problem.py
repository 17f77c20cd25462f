"""What is planned on: which pods may move, and for which strategy."""

import numpy as np
import pytest

from rebalancer.cost.term import Candidates
from rebalancer.planner.problem import Contribution, Problem, WeightedTerm
from rebalancer.policy.protect import Protect
from rebalancer.snapshot.protect import COOL_DOWN, Scope, protect
from rebalancer.snapshot.selected import Selected
from rebalancer.testing.snapshots import disruption_budget, node, workload
from tests.unit.planner.conftest import problem_of

NODES = [node("n0"), node("n1")]
PODS = [*workload("db", ["n0", "n1"]), *workload("web", ["n0", "n1"])]
DB, WEB = 0, 1


def nothing(_):
    return []


def on_nodes(classes, nodes):
    return Selected(np.array(classes, bool), np.array(nodes, bool))


def problem(*contributions, objects=(*NODES, *PODS), cooling=None):
    base = problem_of(objects, strategies=[])
    protected = protect(base.snapshot, Protect(), Scope(cooling=cooling or {}))
    return Problem(base.snapshot, base.scheduler, contributions, protected)


def contribution(name="one", selected=None, *, observed=False):
    return Contribution(name, 1.0, observed, nothing, selected=selected)


def test_pods_are_movable_that_some_strategy_selects():
    assert problem(contribution()).movable.tolist() == [True] * 4
    only = problem(contribution(selected=on_nodes([True, False], [True, True])))
    assert only.movable.tolist() == [True, True, False, False]
    assert only.unprotected == 2
    assert problem().movable.all(), "without a strategy none leaves a pod out"


def test_a_cool_down_keeps_no_pod_from_being_a_candidate():
    cooling = problem(contribution(), cooling={"Deployment/default/db": "until noon"})
    assert (cooling.protected[:2] == COOL_DOWN).all()
    assert cooling.movable.all()
    assert cooling.is_unprotected.tolist() == [False, False, True, True]


def test_pods_of_two_disruption_budgets_are_not_movable():
    both = [disruption_budget(name, "web", allowed=1) for name in ("one", "two")]
    assert problem(objects=[*NODES, *PODS, *both]).movable.tolist() == [True, True, False, False]


def test_a_strategy_may_move_what_it_selects():
    of = problem(
        contribution("db", on_nodes([True, False], [True, True])),
        contribution("n0", on_nodes([True, True], [True, False])),
        contribution("seen", observed=True),
    )
    assert of.may_move("db", DB, 1)
    assert not of.may_move("db", WEB, 1)
    assert not of.may_move("unknown", DB, 0)
    assert of.may_move_both((DB, 0), (WEB, 0)), "n0 has both"
    assert not of.may_move_both((DB, 1), (WEB, 1)), "only one that observes has both"
    assert (of.is_observed("seen"), of.is_observed("db")) == (True, False)


@pytest.mark.parametrize(
    ("selected", "rows"), [(None, [DB, WEB]), (on_nodes([False, True], [True, True]), [WEB])]
)
def test_candidates_are_those_that_the_strategy_may_move(selected, rows):
    both = Candidates(np.array([DB, WEB], np.int32), np.zeros(2, np.int32), np.ones(2))
    weighted = WeightedTerm("one", term=None, weight=1.0, selected=selected)  # type: ignore[arg-type]
    assert weighted.selected_rows(both).cls.tolist() == rows
    assert [cls for cls in (DB, WEB) if weighted.may_move(cls, 0)] == rows


def test_pods_are_looked_up_by_uid():
    assert problem().rows_by_uid(["default/web-1", "gone"]) == {"default/web-1": 3}
