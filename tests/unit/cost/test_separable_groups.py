"""Caps, conflicts and attractions on clusters of a few pods: what is left to fix, and what a move changes."""

import numpy as np
import pytest

from rebalancer.cost.groups import Domains
from rebalancer.cost.separable_groups import AttractionGroup, CapGroup, ConflictGroup
from rebalancer.testing.snapshots import ZONE, node, workload
from tests.unit.planner.conftest import draft_of

NODES = [node("a1", "a"), node("a2", "a"), node("b1", "b"), node("c1", "c")]
EVERYWHERE = np.arange(4, dtype=np.int32)


def view_of(**stand):
    """A view of workloads by the nodes that their pods are on, and the class of each."""
    objects = [*NODES, *(o for name, on in stand.items() for o in workload(name, on))]
    view = draft_of(objects, strategies=[]).view
    names = view.snapshot.pods.name
    cls = {
        name: int(view.snapshot.pods.cls[names.index(f"{name}-0")])
        for name, on in stand.items()
        if on
    }
    return view, {name: np.array([of], np.int32) for name, of in cls.items()}


def zones(view):
    return Domains.of(view, ZONE, np.ones(len(view.snapshot.nodes), bool))


@pytest.mark.parametrize(
    ("on", "cap", "potential"),
    [
        (["a1"], 1, 0),
        (["a1", "a1"], 1, 1),
        (["a1", "a1", "a1", "b1", "b1"], 1, 3),
        (["a1", "a1", "a1", "b1", "b1"], 2, 1),
        # Two nodes are two domains, whatever zone they are in.
        (["a1", "a2"], 1, 0),
    ],
)
def test_a_cap_has_all_above_it_to_fix(on, cap, potential):
    view, cls = view_of(web=on)
    group = CapGroup(view, label="x", domains=Domains.nodes(view), counted=cls["web"], cap=cap)
    assert group.potential() == group.minimum() == potential
    assert group.satisfied(0, cap)
    assert not group.satisfied(0, cap + 1)


def test_a_pod_that_leaves_a_full_node_gains_one_where_it_finds_room():
    view, cls = view_of(web=["a1", "a1", "b1"])
    web = cls["web"]
    group = CapGroup(view, label="x", domains=Domains.nodes(view), counted=web, cap=1)
    assert group.gains().tolist() == [1, 0, 0, 0]
    # Back to a1, to a2, beside the one on b1, to c1.
    assert group.delta(int(web[0]), 0, int(web[0]), EVERYWHERE).tolist() == [0, -1, 0, -1]
    assert group.delta(int(web[0]), 2, int(web[0]), EVERYWHERE).tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize(
    ("web", "potential", "why"),
    [
        (["a1", "b1", "c1"], 0, None),
        # One of the two in the zone goes.
        (["a1", "a2", "b1"], 1, None),
        # Four pods in three zones: one pair has to share, and does.
        (["a1", "a2", "b1", "c1"], 0, "4 pods, 3 domains: 1 must share"),
        (["a1", "a2", "a2", "a2"], 2, "4 pods, 3 domains: 1 must share"),
    ],
)
def test_pods_that_repel_each_other_leave_all_but_one(web, potential, why):
    view, cls = view_of(web=web)
    group = ConflictGroup(
        view, label="x", domains=zones(view), owners=cls["web"], matched=cls["web"]
    )
    assert (group.potential(), group.unsatisfiable()) == (potential, why)


@pytest.mark.parametrize(
    ("web", "cache", "potential"),
    [
        (["a1"], ["b1"], 0),
        # The fewer of both go.
        (["a1", "a1", "a2"], ["a2"], 1),
        (["a1"], ["a1", "a2", "a2"], 1),
        # Those of one side do not repel each other.
        (["a1", "a1"], ["b1", "b1"], 0),
    ],
)
def test_of_two_kinds_that_repel_each_other_the_fewer_leave(web, cache, potential):
    view, cls = view_of(web=web, cache=cache)
    group = ConflictGroup(
        view, label="x", domains=zones(view), owners=cls["web"], matched=cls["cache"]
    )
    assert group.potential() == potential


def test_of_those_that_may_not_leave_the_others_go():
    view, cls = view_of(web=["a1", "a1", "a2"], cache=["a2"])
    group = ConflictGroup(
        view,
        label="x",
        domains=zones(view),
        owners=cls["web"],
        matched=cls["cache"],
        fixed=cls["cache"],
    )
    assert group.potential() == 3
    assert group.movers.tolist() == cls["web"].tolist()


def test_the_last_match_leaves_those_behind_that_need_it():
    view, cls = view_of(web=["a1", "a2"], cache=["a1", "b1"])
    web, cache = cls["web"], int(cls["cache"][0])
    group = AttractionGroup(view, label="x", domains=zones(view), owners=web, matched=cls["cache"])
    assert group.potential() == 0
    # The cache of zone a to a2, which is in the zone, or away from its two pods.
    assert group.delta(cache, 0, cache, EVERYWHERE).tolist() == [0, 0, 2, 2]
    # A pod to a zone with a match, or without.
    assert group.delta(int(web[0]), 0, int(web[0]), EVERYWHERE).tolist() == [0, 0, 0, 1]
