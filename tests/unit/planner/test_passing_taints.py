"""A rule of spread that honours taints, and a node whose taint passes: no pod moves there and back."""

import pytest

from rebalancer.testing.snapshots import ZONE, node, spread, workload
from tests.unit.planner.conftest import plan_of

ONLY = {"strategies": ["topology-spread"]}


def taint(key):
    return {"key": key, "effect": "NoSchedule"}


def pods(where, *, hard, policy):
    rule = spread("web", ZONE, hard=hard, nodeTaintsPolicy=policy)
    return workload("web", where, spec=rule)


THREE_EACH = ["a1", "a1", "a2", "b1", "b1", "b1", "c1", "c1", "c1"]
"""Even as soon as the pods on a1 count."""
PRESSURE, CORDON = "node.kubernetes.io/memory-pressure", "node.kubernetes.io/unschedulable"


def moved(key, where=THREE_EACH, *, hard=True, policy="Honor"):
    """Where pods leave and land while a1 has a taint."""
    nodes = [
        node("a1", "a", taints=[taint(key)]),
        node("a2", "a"),
        node("b1", "b"),
        node("c1", "c"),
    ]
    made = plan_of([*nodes, *pods(where, hard=hard, policy=policy)], **ONLY)
    return [(move.node, move.landings[0].node) for move in made.moves]


@pytest.mark.parametrize("hard", [True, False])
@pytest.mark.parametrize(
    ("key", "policy", "moves"),
    [
        (PRESSURE, "Honor", 0),
        (CORDON, "Honor", 0),
        # No state of the node: it does not pass by itself.
        ("dedicated", "Honor", 1),
        (PRESSURE, "Ignore", 0),
    ],
)
def test_no_pod_moves_for_a_taint_that_passes(key, policy, moves, hard):
    assert len(moved(key, hard=hard, policy=policy)) == moves


@pytest.mark.parametrize("hard", [True, False])
def test_what_is_uneven_with_the_taint_and_without_is_mended(hard):
    where = ["a1", "a2", "b1", "b1", "b1", "b1", "c1", "c1", "c1"]
    [(leaves, lands)] = moved(PRESSURE, where, hard=hard)
    assert (leaves, lands) == ("b1", "a2")
