"""Whether nodes can be emptied together is tried in the state of a draft, which stays as it was."""

import numpy as np

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


def test_once_its_judgements_are_used_up_nothing_can_be_emptied(monkeypatch):
    monkeypatch.setattr(Effort, "of", staticmethod(lambda _: Effort(emptying=1)))
    draft, trial = trial_of(["n0", "n1"])
    assert not trial.exhausted
    assert trial.failing([0]) == {}
    assert trial.exhausted
    (why,) = trial.failing([1]).values()
    assert (
        why.text(draft.snapshot)
        == "default/web-1: whether it has a landing elsewhere takes too long to say in one run"
    )


def test_a_node_that_fails_leaves_its_pods_for_the_nodes_after_it():
    """n2 has room for one pod of 2: n0 has two of them, n1 one."""
    objects = [*(node(f"n{i}", cpu="4") for i in range(3))]
    objects += workload("web", ["n0", "n0", "n1", "n2"], cpu="2")
    draft = draft_of(objects, strategies=[])
    pods = LeavingPods(draft, Contribution("empty", 1.0, False, lambda _: ()))
    trial = EmptyingTrial(draft, pods, np.array([], np.int32))
    assert list(trial.failing([0, 1])) == [0]
    assert trial.failing([1]) == {}


def test_nodes_that_are_removed_take_no_pod_back_and_are_as_they_were_afterwards():
    draft, _ = trial_of(["n0", "n1"])
    with draft.scheduler.removing(np.array([0, 1], np.int32)):
        assert draft.scheduler.feasible(draft.state, 0).tolist() == [False, False, True]
        with draft.scheduler.removing(np.array([2], np.int32)):
            assert draft.scheduler.predict_replacement(draft.state, 0).nodes.tolist() == [0]
        names = draft.scheduler.evaluate(draft.state, 0).filtered_by
        assert [FILTERS[index] for index in names] == ["NodeUnschedulable"] * 2 + [""]
    assert draft.scheduler.feasible(draft.state, 0).all()
