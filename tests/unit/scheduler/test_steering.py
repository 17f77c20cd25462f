"""The fewest marks: small tables by hand, then against every set of nodes that could be marked."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings

from rebalancer.scheduler.steering import NEVER, Steering
from tests.unit.scheduler.random_worlds import clusters, namespaces
from tests.unit.scheduler.worlds import World, node, pod

WEIGHTS = {"TaintToleration": 3}
SOFT = {"key": "soft", "value": "", "effect": "PreferNoSchedule"}


def steering(
    others: list[int], taints: list[int], *, weight: int = 3, tolerated: bool = False
) -> Steering:
    """Return the steering over nodes 0, 1, ... whose other scores and soft taints are given."""
    counts = np.array(taints)
    most = max(1, *taints)
    total = np.array(others) + weight * (100 - 100 * counts // most)
    weights = {"TaintToleration": weight}
    nodes = np.arange(len(others), dtype=np.int32)
    return Steering(nodes, total, counts, weights, tolerated=tolerated)


@pytest.mark.parametrize(
    ("others", "taints", "expected"),
    [
        # The best wins as it is; each of the others needs marks on those above it.
        ([50, 40, 30], [0, 0, 0], {0: [], 1: [0], 2: [0, 1]}),
        # Equal scores are drawn by lot: to be sure, the other one is marked.
        ([50, 50, 30], [0, 0, 0], {0: [1], 1: [0], 2: [0, 1]}),
        # 300 points are not enough, 301 would be needed; with a difference of 299 they are.
        ([350, 50], [0, 0], {0: [], 1: None}),
        ([349, 50], [0, 0], {0: [], 1: [0]}),
        # A soft taint of another's on node 2: scores 350, 340, 30. A mark on it would make 2 the largest count,
        # and leave the others 300 and marked nodes 150.
        ([50, 40, 30], [0, 0, 1], {0: [], 1: [0], 2: None}),
        # Node 1 has another's taint. Marking node 0 makes them equal in taints, and node 1 is 10 behind.
        ([60, 50, 0], [0, 1, 0], {0: [], 1: None, 2: [0]}),
        # Both carry another's taint: the mark on node 0 raises the largest count to 2. 160 + 0 is below 50 + 150.
        ([160, 50], [1, 1], {0: [], 1: [0]}),
        ([260, 50], [1, 1], {0: [], 1: None}),
        ([7], [0], {0: []}),
    ],
)
def test_nodes_to_mark(others, taints, expected):
    steered = steering(others, taints)
    marked = {
        place: steered.to_mark(place).tolist() if steered.marks[place] != NEVER else None
        for place in range(len(others))
    }
    assert marked == expected
    assert all(
        nodes is None or len(nodes) == steered.marks[place] for place, nodes in marked.items()
    )


@pytest.mark.parametrize(("weight", "tolerated"), [(0, False), (3, True)])
def test_marks_do_nothing_where_they_are_not_scored_or_tolerated(weight, tolerated):
    steered = steering([50, 40, 30], [0, 0, 0], weight=weight, tolerated=tolerated)
    assert steered.marks.tolist() == [0, NEVER, NEVER]


def test_no_feasible_node_needs_nothing():
    nothing = np.zeros(0, np.int64)
    assert (
        len(Steering(np.zeros(0, np.int32), nothing, nothing, WEIGHTS, tolerated=False).marks) == 0
    )


def test_a_mark_sends_a_pod_elsewhere_and_a_toleration_does_not_care():
    everything = [{"operator": "Exists"}]
    pods = [
        pod("old", on="b", requests={"cpu": "5"}),
        pod("p", requests={"cpu": "1"}),
        pod("q", requests={"cpu": "1"}, tolerations=everything),
    ]
    world = World([node("a"), node("b"), node("c", taints=[SOFT])], pods)
    assert world.landings("p") == {"a": 1.0}
    with world.model.marking(world.rows(["a"])):
        assert world.landings("p") == {"b": 1.0}
        assert world.scores("p", "TaintToleration") == {"a": 0, "b": 300, "c": 0}
        assert world.scores("q", "TaintToleration") == {"a": 300, "b": 300, "c": 300}
    assert world.landings("p") == {"a": 1.0}


@settings(max_examples=20, deadline=None)
@given(clusters(least=2, most=6))
def test_the_chosen_node_wins_for_sure_and_no_smaller_set_makes_it(made):
    nodes, standing, new = made
    world = World(nodes, [*standing, new], namespaces=namespaces())
    cls = world.cls("new")
    steered = world.model.steering(world.state, cls)
    assert steered is not None
    fewest = dict.fromkeys(steered.nodes.tolist(), NEVER)
    for size in range(len(steered.nodes)):
        for marked in combinations(steered.nodes.tolist(), size):
            with world.model.marking(np.array(marked, np.int32)):
                landing = world.model.predict(world.state, cls).nodes.tolist()
            if len(landing) == 1:
                fewest[landing[0]] = min(fewest[landing[0]], size)
    assert dict(zip(steered.nodes.tolist(), steered.marks.tolist(), strict=True)) == fewest
    for place, chosen in enumerate(steered.nodes.tolist()):
        if steered.marks[place] != NEVER:
            with world.model.marking(steered.to_mark(place)):
                assert world.model.predict(world.state, cls).nodes.tolist() == [chosen]
