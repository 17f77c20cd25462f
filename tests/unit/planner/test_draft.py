"""A plan in the making: what a move does to the state, and what the terms say then."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from rebalancer.plan.plan import Cause, Cost
from rebalancer.planner.draft import Draft
from rebalancer.planner.problem import WeightedTerm
from rebalancer.planner.settings import Settings
from rebalancer.scheduler.prediction import Prediction, Taker
from rebalancer.snapshot.columns import Int32s
from rebalancer.snapshot.selected import Selected
from rebalancer.testing.snapshots import node, workload
from tests.support.terms import NeutralTerm
from tests.unit.planner.conftest import draft_of, problem_of

N0, N1 = range(2)
NODES = [node("n0"), node("n1")]


def crowded(**more):
    return [*NODES, *workload("web", ["n0", "n0"], **more)]


def landing(at, takers=()):
    return Prediction(np.array([at], np.int32), np.ones(1), takers=takers)


def test_a_moved_pod_terminates_where_it_was_and_runs_where_it_lands():
    draft = draft_of(crowded(), strategies=["duplicates"])
    web = int(draft.snapshot.pods.cls[0])
    before = draft.state.pod_count.tolist()
    draft.move(0, web, landing(N1))
    assert draft.state.node_of.tolist() == [N1, N0]
    assert [victim.node for victim in draft.state.terminating_pods] == [N0]
    assert (before, draft.state.pod_count.tolist()) == ([2, 0], [2, 1]), "the victim still counts"


@pytest.mark.parametrize(
    "more", [{"kind": "StatefulSet"}, {"spec": {"terminationGracePeriodSeconds": 0}}]
)
def test_one_whose_owner_waits_is_gone_before_its_replacement_comes(more):
    draft = draft_of(crowded(**more), strategies=["duplicates"])
    draft.move(0, int(draft.snapshot.pods.cls[0]), landing(N1))
    assert not draft.state.terminating_pods
    assert draft.state.pod_count.tolist() == [1, 1]


def test_pending_pods_that_it_feeds_get_their_nodes():
    draft = draft_of([*crowded(), *workload("late", [""])], strategies=["duplicates"])
    late = list(draft.snapshot.pods.name).index("late-0")
    web = list(draft.snapshot.pods.name).index("web-0")
    taker = Taker(late, N0)
    draft.move(web, int(draft.snapshot.pods.cls[web]), landing(N1, (taker,)))
    assert draft.state.node_of[late] == N0


def test_scores_are_of_each_strategy_before_and_after():
    draft = draft_of(crowded(), strategies=["duplicates", "topology-spread"])
    scores = draft.scores()
    assert scores["duplicates"].cost == Cost(soft=1.0)
    assert scores["duplicates"].violated == 1
    assert scores["topology-spread"].cost == Cost()
    draft.move(0, int(draft.snapshot.pods.cls[0]), landing(N1))
    assert draft.scores()["duplicates"].cost == Cost()


def test_a_weight_scales_a_strategys_cost():
    problem = problem_of(crowded(), strategies=["duplicates"])
    (of,) = problem.contributions
    heavy = replace(problem, contributions=[replace(of, weight=3.0)])
    assert Draft(heavy, Settings()).scores()["duplicates"].cost == Cost(soft=3.0)


def test_where_nothing_can_be_judged_every_strategy_says_so():
    (score,) = draft_of(NODES, strategies=["duplicates"]).scores().values()
    assert score.not_judged == ("there is no pod",)


def drafted(**changes):
    problem = problem_of(crowded(), strategies=["duplicates"])
    (of,) = problem.contributions
    return Draft(replace(problem, contributions=[replace(of, **changes)]), Settings())


@pytest.mark.parametrize(
    ("changes", "named", "enforced"),
    [
        ({}, True, 1),
        ({"observed": True}, False, 0),
        ({"selected": Selected(np.array([True]), np.array([True, True]))}, True, 1),
        ({"selected": Selected(np.array([True]), np.array([False, True]))}, False, 1),
    ],
)
def test_a_pair_is_named_by_what_may_move_it(changes, named, enforced):
    draft = drafted(**changes)
    web = int(draft.snapshot.pods.cls[0])
    assert draft.names_pair(web, N0) == named
    assert not draft.names_pair(web, N1)
    assert len(draft.enforced) == enforced


@dataclass
class Judged(NeutralTerm):
    """A term of a plug-in that judges pods, and that Python cannot compare: it holds arrays."""

    pods: Int32s
    cause: Cause

    def judges(self, pod):
        return pod in self.pods

    def delta_of(self, pod, nodes):
        return np.full(len(nodes), -1.0)


def test_terms_need_not_be_comparable_to_say_what_is_wrong_with_a_pod():
    problem = problem_of(crowded(), strategies=["duplicates"])
    draft = Draft(problem, Settings())
    both = np.arange(2, dtype=np.int32)
    first, second = (WeightedTerm("mine", Judged(both.copy(), Cause.AGE), 1.0) for _ in range(2))
    draft.judging_terms = (first, second)
    assert draft.cause(0, {"mine": 1.0}, landing(N1), [first]) is Cause.AGE
