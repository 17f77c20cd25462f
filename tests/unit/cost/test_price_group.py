"""Prices of nodes: what pods pay, what no node would spare them, and what a move changes."""

import numpy as np
import pytest

from rebalancer.cost.price_group import PriceGroup
from rebalancer.testing.snapshots import node, workload
from tests.unit.cost.small import class_of, classes, move, view_on

N0, N1, N2 = range(3)


@pytest.fixture
def view():
    nodes = [node(name) for name in ("n0", "n1", "n2")]
    return view_on([*nodes, *workload("web", ["n0", "n0", "n1"])])


def group_of(view, price, least):
    return PriceGroup(
        view,
        label="web",
        classes=classes(class_of(view, "web-0")),
        price=np.array(price, float),
        least=least,
        describe=lambda node: f"n{node} costs {price[node]}",
    )


@pytest.mark.parametrize(
    ("price", "least", "potential", "gains", "stuck"),
    [
        # Two pods on n0 pay 1 each, and n2 takes them for nothing.
        ([1, 0, 0], 0.0, 2, [1, 0, 0], None),
        # No node has room: nothing can be fixed, so nothing is left to fix.
        ([1, 0, 0], np.inf, 0, [0, 0, 0], "no better node takes 2 of its pods"),
        # The best node with room costs 0.5: the two pods on n0 pay 0.5 too much, that on n1 nothing.
        ([1, 0.5, 0], 0.5, 1, [1, 0, 0], "no better node takes 1 of its pods"),
        ([0, 0, 1], 0.0, 0, [0, 0, 0], None),
    ],
)
def test_what_its_pods_pay_above_what_they_must(view, price, least, potential, gains, stuck):
    group = group_of(view, price, least)
    assert group.potential() == potential
    assert group.gains().tolist() == gains
    assert group.unsatisfiable() == stuck


def test_a_move_changes_what_its_pod_pays(view):
    group, web = group_of(view, [1, 0, 0], 0.0), class_of(view, "web-0")
    to = classes(N0, N1, N2)
    assert group.delta(web, N0, web, to).tolist() == [0, -1, -1]
    assert group.delta(web, N1, web, to).tolist() == [1, 0, 0]


def test_a_pod_of_another_class_changes_nothing(view):
    group = group_of(view, [1, 0, 0], 0.0)
    other = class_of(view, "web-0") + 1
    assert group.delta(other, N0, other, classes(N1)).tolist() == [0]


def test_where_nothing_can_be_fixed_a_move_to_a_worse_node_still_counts(view):
    group, web = group_of(view, [1, 0, 0], np.inf), class_of(view, "web-0")
    assert group.delta(web, N1, web, classes(N0)).tolist() == [1]
    assert group.delta(web, N0, web, classes(N1)).tolist() == [0], "2 pods had to pay, 1 does"


def test_it_takes_a_move_for_each_pod_that_pays(view):
    group = group_of(view, [1, 0, 0], 0.0)
    assert group.minimum() == 2
    move(view, "web-0", "n2")
    assert (group.minimum(), group.potential()) == (1, 1)


def test_it_says_how_many_pods_do_not_suit_and_where(view):
    group = group_of(view, [1, 0, 0], 0.0)
    assert group.standing() == "2 of 3 not: n0 costs 1"
    assert group.describe(N2) == "web: n2 costs 0"
    move(view, "web-0", "n2")
    move(view, "web-1", "n2")
    assert group.standing() == "all on nodes that suit them"
