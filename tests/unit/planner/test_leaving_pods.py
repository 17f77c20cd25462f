"""Which pods have to leave a node that is to be empty, and which of them cannot."""

import numpy as np
import pytest

from rebalancer.plan.plan import NodeCode
from rebalancer.planner.emptying import LeavingPods
from rebalancer.planner.problem import Contribution
from rebalancer.snapshot.selected import Selected
from rebalancer.testing.snapshots import disruption_budget, node, workload
from tests.unit.planner.conftest import draft_of

PINNED = {"rebalancer/evict": "false"}


def pods_of(*objects, selected=False):
    """The pods of two nodes; ``selected``: none of them is the strategy's."""
    draft = draft_of([node("n0"), node("n1"), *objects], strategies=[])
    none = Selected(np.zeros(len(draft.snapshot.classes), bool), np.ones(2, bool))
    of = Contribution("empty", 1.0, False, lambda _: (), selected=none if selected else None)
    names = draft.snapshot.pods.name
    return LeavingPods(draft, of), lambda pods: [names[pod] for pod in pods]


def test_the_largest_pod_leaves_first():
    small, large = workload("small", ["n0"], cpu="100m"), workload("large", ["n0"], cpu="2")
    pods, named = pods_of(*small, *large, *workload("web", ["n1"]))
    assert named(pods.on(0)) == ["large-0", "small-0"]
    assert named(pods.on(1)) == ["web-0"]
    assert pods.load.tolist() == [pytest.approx(2.1 / 8), pytest.approx(0.1 / 8)]
    assert pods.costs.tolist() == [2.0, 1.0]


def test_nothing_keeps_a_node_whose_pods_may_all_go():
    pods, named = pods_of(*workload("web", ["n0", "n1"]))
    assert named(pods.staying(0)) == []
    assert pods.blocked(0) is None


@pytest.mark.parametrize(
    ("objects", "selected", "reason"),
    [
        (workload("web", ["n0", "n1"], annotations=PINNED), False, "rebalancer/evict"),
        (workload("web", ["n0", "n1"]), True, "the select of empty does not match it"),
        (
            [*workload("web", ["n0", "n1"]), disruption_budget("web", "web", allowed=0)],
            False,
            "default/web allows no disruption",
        ),
    ],
)
def test_a_pod_that_cannot_leave_keeps_its_node_and_is_named(objects, selected, reason):
    pods, named = pods_of(*objects, selected=selected)
    assert named(pods.staying(0)) == ["web-0"]
    why = pods.blocked(0)
    assert why.code is NodeCode.POD_STAYS
    assert why.message.startswith("default/web-0: ")
    assert reason in why.message


def test_a_budget_that_allows_nothing_now_is_waited_for():
    pods, named = pods_of(
        *workload("web", ["n0", "n1"]), disruption_budget("web", "web", allowed=0)
    )
    assert named(pods.staying(0)) == ["web-0"]
    assert named(pods.staying(0, for_good=True)) == []
