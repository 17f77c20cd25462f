"""Which of many groups need no closer look, by the extremes of their counts."""

import pytest

from rebalancer.cost.domain_term import satisfied
from rebalancer.cost.groups import Domains
from rebalancer.cost.spread_group import SpreadGroup
from rebalancer.testing.snapshots import ZONE, node, workload
from tests.unit.cost.small import cap, class_of, classes, view_on


class Unknown:
    """A group that does not know."""


@pytest.fixture
def view():
    nodes = [node("a1", "a"), node("a2", "a"), node("b1", "b"), node("x1")]
    pods = [*workload("web", ["a1", "a1", "b1"]), *workload("db", ["a1", "b1", "x1"])]
    return view_on([*nodes, *pods])


def spread(view, pod, max_skew):
    eligible = view.snapshot.nodes.labels.column(ZONE) >= 0
    mine = classes(class_of(view, pod))
    return SpreadGroup(
        view,
        label=pod,
        domains=Domains.of(view, ZONE, eligible),
        counted=mine,
        movers=mine,
        max_skew=max_skew,
    )


def test_only_groups_that_surely_hold_are_satisfied(view):
    groups = [
        cap(view, "web-0", 2),  # at most 2 on a node: a1 has 2
        cap(view, "web-0", 1),
        cap(view, "db-0", 1),
        spread(view, "web-0", 1),  # 2 in a, 1 in b
        spread(view, "db-0", 1),  # 1 in a, 1 in b; that on x1 is in no zone
        Unknown(),
    ]
    assert satisfied(view, groups).tolist() == [True, False, True, True, True, False]


def test_an_empty_domain_counts_as_the_least(view):
    eligible = view.snapshot.nodes.labels.column(ZONE) >= 0
    lonely = view_on([node("a1", "a"), node("b1", "b"), *workload("web", ["a1", "a1"])])
    assert eligible.sum() == 3
    assert satisfied(lonely, [spread(lonely, "web-0", 1)]).tolist() == [False]
    assert satisfied(lonely, [spread(lonely, "web-0", 2)]).tolist() == [True]


def test_of_no_group_nothing_is_said(view):
    assert satisfied(view, []).tolist() == []
