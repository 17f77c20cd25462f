"""What moving a pod brings at each place where it may land."""

import numpy as np

from rebalancer.cost.guards import guard_term
from rebalancer.planner.effects import signs
from rebalancer.planner.judge import Judge
from rebalancer.scheduler.prediction import Prediction
from rebalancer.testing.snapshots import HOSTNAME, ZONE, apart, node, spread, workload
from tests.unit.planner.conftest import draft_of

HALVES = Prediction(np.array([1, 2], np.int32), np.array([0.5, 0.5]))


def crowded():
    """Two pods of web on n0 that want hosts of their own, a third one on n1; n2 is free."""
    pods = workload("web", ["n0", "n0", "n1"], spec=apart("web", HOSTNAME, weight=100))
    return draft_of([*(node(f"n{i}") for i in range(3)), *pods], strategies=["anti-affinity"])


def judge_of(draft):
    return Judge(draft.view, draft.terms, guard_term(draft.view), draft.settings.threshold)


def test_a_move_brings_something_only_where_the_rule_is_kept_afterwards():
    draft = crowded()
    judge = judge_of(draft)
    judge.judge_landing(0, 0, 1.0, HALVES)
    effects = judge.effects
    soft = effects.changes()[1]
    # From a node with a sibling to another one with a sibling, or to a free one.
    assert soft[0] == 0
    assert soft[1] < 0
    assert effects.gain == (0.0, -soft[1] / 2, 0.0)
    assert effects.by_strategy() == {"anti-affinity": -soft[1] / 2}


def test_the_changes_on_all_nodes_are_those_at_the_landings():
    draft = crowded()
    judge = judge_of(draft)
    everywhere = judge.effects.on_nodes(0, 0, np.arange(3, dtype=np.int32))
    judge.judge_landing(0, 0, 1.0, HALVES)
    assert everywhere[:, 1:].tolist() == judge.effects.changes().tolist()
    assert everywhere[:, 0].tolist() == [0.0, 0.0, 0.0]


def test_a_landing_that_breaks_a_hard_rule_that_holds_is_never_worth_it():
    """One pod in each zone, evenly as they must be; n2 stands in the zone of n0, n3 in that of n1."""
    nodes = [node(f"n{i}", "ab"[i % 2]) for i in range(4)]
    pods = workload("web", ["n0", "n1"], spec=spread("web", ZONE, hard=True))
    effects = judge_of(draft_of([*nodes, *pods])).effects
    hard = effects.on_nodes(1, 1, np.array([2, 3], np.int32))[0]
    assert np.isinf(hard).tolist() == [True, False]


def test_an_earlier_entry_decides_whether_a_landing_is_better():
    changes = np.array([[0.0, -1.0, 1.0, 0.0], [1.0, 1.0, -1.0, 0.0], [-1.0, 1.0, -1.0, -0.5]])
    assert signs(changes).tolist() == [1.0, -1.0, 1.0, -1.0]
