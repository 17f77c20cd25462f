"""Spread over zones, case by case: what is left to fix, what cannot be, and what a move changes."""

from dataclasses import replace

import numpy as np
import pytest

from rebalancer.cost.groups import Domains
from rebalancer.cost.spread_group import SpreadGroup
from rebalancer.testing.snapshots import node, workload
from tests.unit.cost.small import class_of, classes, view_on
from tests.unit.cost.test_separable_groups import EVERYWHERE, view_of, zones


def spread(view, cls, **options):
    options = {"movers": cls, "max_skew": 1, **options}
    return SpreadGroup(view, label="x", domains=zones(view), counted=cls, **options)


@pytest.mark.parametrize(
    ("on", "max_skew", "moves"),
    [
        (["a1", "b1", "c1"], 1, 0),
        (["a1", "a1", "b1"], 1, 1),
        (["a1", "a1", "b1"], 2, 0),
        (["a1"] * 6, 1, 4),
        (["a1"] * 6, 3, 2),
        (["a1", "a2", "a1", "b1", "b1", "b1"], 1, 2),
    ],
)
def test_the_fewest_moves_that_bring_the_zones_within_the_skew(on, max_skew, moves):
    view, cls = view_of(web=on)
    assert spread(view, cls["web"], max_skew=max_skew).potential() == moves


def test_only_a_move_from_the_fullest_zone_to_the_emptiest_gains():
    view, cls = view_of(web=["a1", "a1", "a2", "b1"])
    group, web = spread(view, cls["web"]), int(cls["web"][0])
    assert group.gains().tolist() == [1, 1, 0, 0]
    assert group.delta(web, 0, web, EVERYWHERE).tolist() == [0, 0, 0, -1]
    # One more in zone a is one more to move.
    assert group.delta(web, 2, web, EVERYWHERE).tolist() == [1, 1, 0, 0]


def test_pods_that_cannot_be_moved_make_it_impossible():
    view, cls = view_of(web=["a1", "a1", "a1", "b1"])
    group = spread(view, cls["web"], movers=np.zeros(0, np.int32))
    assert group.potential() == 0
    assert group.unsatisfiable() is not None


@pytest.mark.parametrize(
    ("kept_by", "why"),
    [
        ({}, "4 of 4 pods cannot be moved"),
        ({"young": 4}, "4 of 4 pods cannot be moved (young)"),
        ({"young": 3}, "4 of 4 pods cannot be moved (3 young)"),
        ({"b": 1, "a": 1, "young": 2}, "4 of 4 pods cannot be moved (2 young; 1 a; 1 more reason)"),
    ],
)
def test_what_keeps_the_pods_in_place_is_named_the_most_frequent_first(kept_by, why):
    view, cls = view_of(web=["a1", "a1", "a1", "a2"])
    view = replace(
        view, movable=np.zeros(4, bool), kept_by=lambda pods: kept_by if len(pods) == 4 else {}
    )
    assert spread(view, cls["web"]).unsatisfiable().endswith(f": {why}")


def test_with_fewer_domains_than_asked_for_the_emptiest_counts_as_empty():
    view, cls = view_of(web=["a1", "a1", "a1", "b1", "b1", "c1", "c1"])
    assert spread(view, cls["web"], max_skew=2, min_domains=3).potential() == 0
    few = spread(view, cls["web"], max_skew=2, min_domains=4)
    assert few.potential() == 1
    assert few.satisfied(1, 2)
    assert not few.satisfied(2, 3)
    assert few.unsatisfiable() is None
    assert spread(view, cls["web"], max_skew=2, min_domains=3).satisfied(2, 4)


@pytest.mark.parametrize(
    ("least", "most", "fine"), [(0, 0, True), (1, 2, True), (0, 2, False), (5, 6, True)]
)
def test_the_extremes_of_the_counts_show_where_nothing_is_to_be_fixed(least, most, fine):
    view, cls = view_of(web=["a1"])
    assert spread(view, cls["web"]).satisfied(least, most) is fine


def test_a_closed_and_empty_zone_is_no_place_to_even_out_to():
    closed = node("c1", "c", unschedulable=True)
    view = view_on([node("a1", "a"), node("b1", "b"), closed, *workload("web", ["a1"] * 3)])
    web = class_of(view, "web-0")
    group = spread(view, classes(web))
    # Two of the three zones count: one pod of three moves, not two.
    assert group.potential() == 1
    assert group.gains().tolist() == [1, 0, 0]
    # To b that is all it takes; to c, which does not count, leaves two in a and none in b.
    assert group.delta(web, 0, web, np.arange(3, dtype=np.int32)).tolist() == [0, -1, 0]


def test_of_many_empty_nodes_each_is_as_good_as_the_other():
    nodes = [node(f"n{number:02}") for number in range(100)]
    view = view_on([*nodes, *workload("web", ["n07", "n07", "n09"])])
    web = class_of(view, "web-0")
    group = SpreadGroup(
        view,
        label="x",
        domains=Domains.nodes(view),
        counted=classes(web),
        movers=classes(web),
        max_skew=1,
    )
    every = np.arange(100, dtype=np.int32)
    assert group.potential() == 1
    assert group.gains().nonzero()[0].tolist() == [7]
    change = group.delta(web, 7, web, every)
    assert (change[7], change[9]) == (0, 0)
    assert set(np.delete(change, [7, 9]).tolist()) == {-1}
    assert group.standing() == "n07 2, n09 1, n00 0, n01 0, n02 0, n03 0 and 94 more (least 0)"


def test_groups_alike_share_one_rule_and_those_that_differ_do_not():
    view, cls = view_of(web=["a1", "a1", "a2", "b1"])
    web = cls["web"]
    one = spread(view, web)
    assert spread(view, web).rule is one.rule
    stuck = np.zeros(len(view.movable), bool)
    for other in (
        spread(view, web, max_skew=2),
        spread(view, web, min_domains=4),
        spread(view, web, movers=np.zeros(0, np.int32)),
        spread(replace(view, movable=stuck), web),
    ):
        assert other.rule is not one.rule
