"""What machine a spread rule lacks: zones that minDomains, the policy or an earlier run say should exist."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.machines.capacity.report import _spread_over, find_missing
from rebalancer.planner.draft import Draft
from rebalancer.planner.rules import NO_HISTORY, History
from rebalancer.testing.snapshots import node, snapshot_of, spread, workload
from tests.support.worlds import read_rules

NODES = [node(f"{zone}{i}", zone) for zone in "ab" for i in range(3)]


def missing(spec, policy="", history=NO_HISTORY, on=("a0", "a1", "a2", "b0", "b1", "b2")):
    rules = read_rules(policy + "\nstrategies: {topology-spread: {}}")
    objects = NODES + workload("web", list(on), spec=spec, cpu="700m", memory="1Gi")
    problem = rules.problem(snapshot_of(objects), history)
    return find_missing(Draft(problem, rules.settings(history)))


@pytest.mark.parametrize(
    ("spec", "policy", "zones", "expected"),
    [
        (spread("web", hard=True, minDomains=3), "", (), [((), 1, 2, 2)]),
        (spread("web", hard=True, minDomains=4), "", (), [((), 2, 1, 2)]),
        (spread("web", hard=True, minDomains=2), "", (), []),
        (spread("web", hard=True), "", (), []),
        (spread("web", hard=True), "zones: [a, b, c]", (), [(("c",), 1, 2, 2)]),
        (spread("web"), "zones: [a, b, c]", (), [(("c",), 1, 2, 2)]),
        (spread("web", hard=True), "", ("a", "b", "c"), [(("c",), 1, 2, 2)]),
        (spread("web", hard=True), "zones: [a, b]", (), []),
        # What would hold with an empty zone, too, lacks none.
        (spread("web", hard=True, max_skew=3), "zones: [a, b, c]", (), []),
        ({}, "zones: [a, b, c]", (), []),
    ],
)
def test_what_a_rule_lacks(spec, policy, zones, expected):
    made = missing(spec, policy, History(zones=zones))
    assert [(one.domains, one.nodes, one.pods, one.moves) for one in made] == expected
    for one in made:
        assert (one.cpu, one.memory) == (700, 1 << 30)
        assert f"{one.pods * 700}m cpu and {one.pods * 1024}Mi memory" in str(one)


def test_the_line_names_the_machine():
    (one,) = missing(spread("web", hard=True, minDomains=3))
    assert str(one) == (
        "Deployment/default/web over topology.kubernetes.io/zone (hard): 2 domains of minDomains 3 have nodes. It takes"
        " a node in another one (topology.kubernetes.io/zone) with 1400m cpu and 2048Mi memory free, for 2 pods; then"
        " 2 moves repair it"
    )


@given(
    counts=st.lists(st.integers(0, 5), min_size=1, max_size=3),
    new=st.integers(1, 2),
    max_skew=st.integers(1, 3),
)
def test_the_moves_are_as_few_as_can_be(counts, new, max_skew):
    every = np.array([*counts, *([0] * new)])
    total = int(every.sum())
    ends = (
        end
        for end in itertools.product(range(total + 1), repeat=len(every))
        if sum(end) == total and max(end) - min(end) <= max_skew
    )
    fewest = min(int(np.maximum(0, every - end).sum()) for end in ends)
    assert _spread_over(every, max_skew, new)[1] == fewest
