"""What a strategy is given to make terms: which pods are movable, replaceable, crowded, and where."""

import numpy as np
import pytest

from rebalancer.testing.snapshots import node, workload
from tests.unit.cost.small import class_of, view_on

N0, N1, N2 = range(3)
NODES = [node("n0", cpu="1"), node("n1"), node("n2", labels={"disk": "ssd"})]


@pytest.fixture
def view():
    return view_on([*NODES, *workload("web", ["n0", "n0", "n1"]), *workload("db", ["n1"])])


def pod(of, on, **reference):
    """A pod of its own, or of the controller that ``reference`` names."""
    (*_, made) = workload(of, [on])
    references = [{"apiVersion": "apps/v1", "uid": of, "controller": True, **reference}]
    made["metadata"]["ownerReferences"] = references if reference else []
    return made


@pytest.mark.parametrize(
    ("price", "cpu", "least"),
    [
        ([1, 0, 0.5], "100m", 0.0),
        # n1 is full for pods of 3 CPU: the best of the others counts.
        ([1, 0, 0.5], "3", 0.5),
        # No node has room.
        ([1, 0, 0.5], "100", np.inf),
        # No pod pays anything where it stands: nothing is asked.
        ([0, 1, 1], "100", 0.0),
    ],
)
def test_the_lowest_price_of_a_node_with_room(price, cpu, least):
    view = view_on([*NODES, *workload("fill", ["n1"], cpu="2"), *workload("web", ["n0"], cpu=cpu)])
    assert view.least_with_room([class_of(view, "web-0")], np.array(price, float)) == least


def test_nodes_are_eligible_by_affinity_and_taints_as_asked():
    view = view_on(
        [
            *NODES,
            node("n3", taints=[{"key": "gpu", "effect": "NoSchedule"}], labels={"disk": "ssd"}),
            *workload("web", ["n2"], spec={"nodeSelector": {"disk": "ssd"}}),
        ]
    )
    web = class_of(view, "web-0")
    assert view.eligible(web).tolist() == [False, False, True, False]
    assert view.eligible(web, taints=False).tolist() == [False, False, True, True]
    assert view.eligible(web, affinity=False).tolist() == [True, True, True, False]
    assert view.eligible(web) is view.eligible(web)
