"""What moving a pod brings at each place where it may land."""

import numpy as np

from rebalancer.cost.guards import guard_term
from rebalancer.planner.judge import Judge
from rebalancer.testing.snapshots import ZONE, node, spread, workload
from tests.unit.planner.conftest import draft_of


def judge_of(draft):
    return Judge(draft.view, draft.terms, guard_term(draft.view), draft.settings.threshold)


def test_a_landing_that_breaks_a_hard_rule_that_holds_is_never_worth_it():
    """One pod in each zone, evenly as they must be; n2 stands in the zone of n0, n3 in that of n1."""
    nodes = [node(f"n{i}", "ab"[i % 2]) for i in range(4)]
    pods = workload("web", ["n0", "n1"], spec=spread("web", ZONE, hard=True))
    judge = judge_of(draft_of([*nodes, *pods]))
    hard = judge.on_nodes(1, 1, np.array([2, 3], np.int32))[0]
    assert np.isinf(hard).tolist() == [True, False]
