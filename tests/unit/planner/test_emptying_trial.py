"""Whether nodes can be emptied together is tried in the state of a draft, which stays as it was."""

import numpy as np
import pytest

from rebalancer.planner.effort import Effort
from rebalancer.planner.emptying import EmptyingTrial, LeavingPods
from rebalancer.planner.problem import Contribution
from rebalancer.scheduler.filters import FILTERS
from rebalancer.testing.snapshots import node, workload
from tests.unit.planner.conftest import draft_of


def trial_of(stand, *, cpu="1", others=()):
    """Pods of ``cpu`` on three nodes of 4."""
    objects = [*(node(f"n{i}") for i in range(3)), *workload("web", stand, cpu=cpu)]
    draft = draft_of(objects, strategies=[])
    pods = LeavingPods(draft, Contribution("empty", 1.0, False, lambda _: ()))
    return draft, EmptyingTrial(draft, pods, np.array(others, np.int32))


@pytest.mark.parametrize(
    ("stand", "nodes", "failing"),
    [
        (["n0", "n1", "n2"], [0], []),
        (["n0", "n1", "n2"], [0, 1], []),
        # Each fits alone; together they are 6 on a node of 4.
        (["n0"] * 2 + ["n1"] * 2 + ["n2"] * 2, [0], []),
        (["n0"] * 2 + ["n1"] * 2 + ["n2"] * 2, [0, 1], [1]),
        (["n0"] * 2 + ["n1"] * 2 + ["n2"] * 2, [1, 0], [0]),
        # No node is left.
        (["n0"], [0, 1, 2], [0]),
    ],
)
def test_the_pods_of_all_nodes_need_landings_together(stand, nodes, failing):
    draft, trial = trial_of(stand)
    before = draft.state.node_of.tolist(), draft.state.pod_count.tolist()
    assert list(trial.failing(nodes)) == failing
    assert (draft.state.node_of.tolist(), draft.state.pod_count.tolist()) == before


def test_one_that_fails_is_enough_where_only_that_is_asked():
    _, trial = trial_of(["n0"] * 3 + ["n1"] * 3 + ["n2"] * 3)
    assert list(trial.failing([0, 1])) == [0, 1]
    assert list(trial.failing([0, 1], one_will_do=True)) == [0]


def test_a_node_that_something_else_empties_takes_no_pod():
    _, trial = trial_of(["n0", "n1", "n1", "n1", "n1"], others=[2])
    (why,) = trial.failing([0]).values()
    assert why == "default/web-0: would land on n2, which is to be empty, too"


def test_once_its_judgements_are_used_up_nothing_can_be_emptied(monkeypatch):
    monkeypatch.setattr(Effort, "of", staticmethod(lambda _: Effort(emptying=1)))
    _, trial = trial_of(["n0", "n1"])
    assert not trial.exhausted
    assert trial.failing([0]) == {}
    assert trial.exhausted
    (why,) = trial.failing([1]).values()
    assert (
        why == "default/web-1: whether it has a landing elsewhere takes too long to say in one run"
    )


def test_nodes_that_are_removed_take_no_pod_back_and_are_as_they_were_afterwards():
    draft, _ = trial_of(["n0", "n1"])
    with draft.scheduler.removing(np.array([0, 1], np.int32)):
        assert draft.scheduler.feasible(draft.state, 0).tolist() == [False, False, True]
        with draft.scheduler.removing(np.array([2], np.int32)):
            assert draft.scheduler.predict_replacement(draft.state, 0).nodes.tolist() == [0]
        names = draft.scheduler.evaluate(draft.state, 0).filtered_by
        assert [FILTERS[index] for index in names] == ["NodeUnschedulable"] * 2 + [""]
    assert draft.scheduler.feasible(draft.state, 0).all()
