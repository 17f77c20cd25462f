"""Pods that are judged by themselves: which still have to move, which goes first, and what a move of one brings."""

import numpy as np
import pytest

from rebalancer.cost.pod_term import PodTerm
from rebalancer.plan.plan import Cause
from rebalancer.testing.snapshots import node, workload
from tests.unit.cost.small import class_of, move, view_on

N0, N1, N2 = range(3)
NODES = [node(f"n{i}") for i in range(3)]
# web: two pods on n0, one on n1; api: one on n1.
PODS = [*workload("web", ["n0", "n0", "n1"]), *workload("api", ["n1"])]


@pytest.fixture
def view():
    return view_on([*NODES, *PODS])


def rows(view, names):
    order = list(view.snapshot.pods.name)
    return np.array([order.index(name) for name in names], np.int32)


def judging(view, worth, **more):
    """A term that judges pods (name -> worth)."""
    return PodTerm(
        view,
        pods=rows(view, worth),
        worth=np.array(list(worth.values()), float),
        reason=lambda pod: f"{view.snapshot.pods.name[pod]} is too old",
        **{"by_state": False, **more},
    )


def changes(term, view, pod, *, elsewhere=(N0, N1, N2)):
    """What the move of a pod of the class and node of ``pod`` changes, by landing."""
    row = int(rows(view, [pod])[0])
    cls = class_of(view, pod)
    at = int(view.snapshot.pods.node[row])
    return term.delta(cls, at, cls, np.array(elsewhere, np.int32)).tolist()


def test_where_another_node_is_asked_for_one_with_a_judged_pod_of_its_class_does_not_count(view):
    term = judging(view, {"web-0": 1.0, "web-2": 1.0}, elsewhere=True)
    assert not term.in_place
    # n0 and n1 hold judged pods of web.
    assert changes(term, view, "web-0") == [0.0, 0.0, -1.0]
    move(view, "web-0", "n1")
    assert term.potential() == 2.0
    move(view, "web-2", "n2")
    assert term.potential() == 1.0


def test_the_pod_that_is_worth_most_goes_first_then_the_first_row(view):
    term = judging(view, {"web-0": 1.0, "web-1": 5.0, "web-2": 5.0, "api-0": 5.0})
    names = [view.snapshot.pods.name[pod] for pod in term.judged().tolist()]
    assert names[-1] == "web-0"
    assert sorted(names[:3]) == ["api-0", "web-1", "web-2"]
    assert term.judged()[:3].tolist() == sorted(term.judged()[:3].tolist())
    web = class_of(view, "web-0")
    assert term.describe(web, N0) == "web-1 is too old"
    move(view, "web-1", "n2")
    assert term.describe(web, N0) == "web-0 is too old"
    move(view, "web-0", "n2")
    assert term.describe(web, N0) == ""


@pytest.mark.parametrize(("by_state", "cause"), [(True, Cause.STATE), (False, Cause.AGE)])
def test_its_cause_is_the_state_of_the_pods_or_their_age(view, by_state, cause):
    assert judging(view, {"web-0": 1.0}, by_state=by_state).cause is cause


def test_pods_that_belong_to_their_node_and_bare_ones_are_not_judged():
    alone, agent = workload("alone", ["n0"])[-1], workload("agent", ["n0"])[-1]
    alone["metadata"]["ownerReferences"] = []
    agent["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    others = [alone, agent]
    view = view_on([*NODES, *PODS, *others])
    term = judging(view, {"alone-0": 1.0, "agent-0": 1.0, "web-0": 1.0})
    assert [view.snapshot.pods.name[pod] for pod in term.judged().tolist()] == ["web-0"]


def test_the_bound_leaves_out_pods_that_may_not_be_moved():
    stays = workload("stays", ["n0"], annotations={"rebalancer/evict": "false"})
    view = view_on([*NODES, *PODS, *stays])
    term = judging(view, {"web-0": 1.0, "web-2": 1.0, "stays-0": 1.0})
    bounds = [(bound.moves, bound.classes.tolist(), bound.weight) for bound in term.bounds()]
    assert bounds == [(2.0, [class_of(view, "web-0")], 1.0)]
    assert term.potential() == 3.0
