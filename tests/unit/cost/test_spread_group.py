"""Spread over zones, case by case: what is left to fix, what cannot be, and what a move changes."""

import numpy as np
import pytest

from rebalancer.cost.spread_group import SpreadGroup
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


def test_with_fewer_domains_than_asked_for_the_emptiest_counts_as_empty():
    view, cls = view_of(web=["a1", "a1", "a1", "b1", "b1", "c1", "c1"])
    assert spread(view, cls["web"], max_skew=2, min_domains=3).potential() == 0
    few = spread(view, cls["web"], max_skew=2, min_domains=4)
    assert few.potential() == 1
    assert not few.satisfied(1, 1)
    assert spread(view, cls["web"], max_skew=2, min_domains=3).satisfied(2, 4)


@pytest.mark.parametrize(
    ("least", "most", "fine"), [(0, 0, True), (1, 2, True), (0, 2, False), (5, 6, True)]
)
def test_the_extremes_of_the_counts_show_where_nothing_is_to_be_fixed(least, most, fine):
    view, cls = view_of(web=["a1"])
    assert spread(view, cls["web"]).satisfied(least, most) is fine


def test_many_domains_are_evaluated_as_few_are(monkeypatch):
    view, cls = view_of(web=["a1", "a1", "a2", "b1"])
    web = int(cls["web"][0])
    each = [spread(view, cls["web"]).delta(web, n, web, EVERYWHERE).tolist() for n in range(4)]
    monkeypatch.setattr("rebalancer.cost.spread_group._FEW", 1)
    monkeypatch.setattr("rebalancer.cost.spread_group._SMALL", 0)
    again = [spread(view, cls["web"]).delta(web, n, web, EVERYWHERE).tolist() for n in range(4)]
    assert again == each
