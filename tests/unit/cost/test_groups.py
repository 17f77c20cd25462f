"""Domains: which nodes share one, which do not count, and what is counted in them."""

from typing import Any

import numpy as np
import pytest

from rebalancer.cost.groups import Domains
from rebalancer.cost.term import gains_at
from rebalancer.testing.snapshots import ZONE, node, workload
from tests.unit.planner.conftest import draft_of

NODES = [node("a1", "a"), node("a2", "a"), node("b1", "b"), node("x1")]


@pytest.fixture
def draft():
    return draft_of([*NODES, *workload("web", ["a1", "a1", "b1", "x1"])], strategies=[])


def everywhere(draft):
    return np.ones(len(draft.snapshot.nodes), bool)


def classes(draft):
    return np.unique(draft.snapshot.pods.cls).astype(np.int32)


def test_nodes_without_the_label_are_in_no_domain(draft):
    zones = Domains.of(draft.view, ZONE, everywhere(draft))
    assert list(zones.names) == ["a", "b"]
    assert zones.of_node.tolist() == [0, 0, 1, -1]


def test_nodes_that_do_not_count_take_their_domain_with_them(draft):
    eligible = np.array([True, True, False, True])
    zones = Domains.of(draft.view, ZONE, eligible)
    assert (list(zones.names), zones.of_node.tolist()) == (["a"], [0, 0, -1, -1])


def test_equal_domains_are_made_once(draft):
    assert Domains.of(draft.view, ZONE, everywhere(draft)) is Domains.of(
        draft.view, ZONE, everywhere(draft)
    )


def test_pods_are_counted_where_they_are_now(draft):
    zones = Domains.of(draft.view, ZONE, everywhere(draft))
    mine = classes(draft)
    assert draft.view.state.counts_by(mine, zones.of_node, len(zones.names)).tolist() == [2, 1]
    draft.state.evict(0)
    draft.state.place(0, int(mine[0]), 2)
    assert draft.view.state.counts_by(mine, zones.of_node, len(zones.names)).tolist() == [1, 2]


class Plain:
    """A group that knows its gains of all nodes only."""

    def gains(self):
        return np.array([3.0, 0.0, 1.0, 0.0])


class Quick(Plain):
    def gains_at(self, nodes):
        return nodes * 10.0


def test_a_group_is_asked_in_the_way_that_it_is_fast_in():
    nodes = np.array([2, 0], np.int32)
    plain: Any = Plain()
    quick: Any = Quick()
    assert gains_at(plain, nodes).tolist() == [1.0, 3.0]
    assert gains_at(quick, nodes).tolist() == [20.0, 0.0]
