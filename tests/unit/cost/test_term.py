"""What a strategy is given to make terms: which pods are movable, replaceable, crowded, and where."""

from dataclasses import replace

import numpy as np
import pytest

from rebalancer.cost.term import Candidates
from rebalancer.testing.snapshots import node, workload
from tests.unit.cost.small import class_of, classes, move, view_on

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


def test_candidates_are_columns_of_rows():
    made = Candidates.of([(1, 2, 0.5), (3, 4, 1.0)])
    assert (made.cls.tolist(), made.node.tolist(), made.gain.tolist()) == ([1, 3], [2, 4], [0.5, 1])
    assert not len(Candidates.of([]).cls)
    assert not len(Candidates.none().gain)


def test_pods_of_daemon_sets_and_bare_pods_are_not_replaceable():
    view = view_on(
        [
            *NODES,
            *workload("web", ["n0"]),
            pod("alone", "n0"),
            pod("agent", "n0", kind="DaemonSet", name="agent"),
        ]
    )
    assert [cls for cls, _ in view.replaceable()] == [class_of(view, "web-0")]


def test_classes_are_grouped_by_owner_and_rule(view):
    grouped = list(view.replaceable_by(lambda cls: cls.labels["app"][0]))
    assert grouped == [
        ("Deployment/default/db", [class_of(view, "db-0")]),
        ("Deployment/default/web", [class_of(view, "web-0")]),
    ]
    only = view.replaceable_by(lambda cls: cls.labels["app"] == "db" or None)
    assert [owner for owner, _ in only] == ["Deployment/default/db"]


def test_pairs_are_distinct_and_of_pods_that_have_not_moved(view):
    web, db = class_of(view, "web-0"), class_of(view, "db-0")

    def pairs(nodes, of=None):
        return sorted(
            zip(*(part.tolist() for part in view.pairs_on(np.array(nodes), of)), strict=True)
        )

    assert pairs([True, True, True]) == sorted([(web, N0), (web, N1), (db, N1)])
    assert pairs([False, True, True], classes(db)) == [(db, N1)]
    move(view, "db-0", "n2")
    assert pairs([False, True, True]) == [(web, N1)]


def test_immobile_are_pods_of_other_classes_and_protected_ones():
    view = view_on([*NODES, *workload("web", ["n0", "n0"]), *workload("db", ["n1", "n2"])])
    web, db = class_of(view, "web-0"), class_of(view, "db-0")
    both = classes(web, db)
    node_of = view.snapshot.pods.node
    assert view.immobile(both, both).tolist() == []
    assert sorted(node_of[view.immobile(both, classes(web))].tolist()) == [N1, N2], (
        "only web is moved for it"
    )
    fixed = replace(view, movable=np.zeros(len(view.snapshot.pods), bool))
    assert node_of[fixed.immobile(classes(web), classes(web))].tolist() == [N0, N0]
    assert not fixed.any_movable(both)
    assert view.any_movable(both)


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


def test_equal_masks_are_one_array(view):
    mask = view.shared(np.array([True, False, True]))
    assert view.shared(np.array([True, False, True])) is mask
    assert not mask.flags.writeable


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
