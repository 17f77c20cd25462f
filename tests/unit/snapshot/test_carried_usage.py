"""Between waves pods move, and what was measured before moves with them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.snapshot.measured import carry_usage, with_usage_of
from rebalancer.snapshot.model import Snapshot, Usage
from rebalancer.snapshot.state import ClusterState
from rebalancer.testing.snapshots import snapshot_of
from tests.unit.snapshot.measurements import (
    MIB,
    NOW,
    node,
    node_metrics,
    pod,
    pod_metrics,
    replica_set,
)

NODES = ("n1", "n2", "n3")
APPS = ("api", "web")
USED = {"api": 7, "web": 40}
"""Millicores of each pod of an app; as many MiB."""


def measured_nodes() -> list[dict[str, Any]]:
    return [node_metrics(name, "1", "1Gi") for name in NODES]


def measured_pod(name: str, app: str) -> dict[str, Any]:
    return pod_metrics(name, (f"{USED[app]}m", f"{USED[app]}Mi"))


def first_of(pods: list[dict[str, Any]]) -> Snapshot:
    """Three nodes, all measured, and these pods, all measured."""
    apps = [(p["metadata"]["name"], p["metadata"]["labels"]["app"]) for p in pods]
    measured = [measured_pod(*of) for of in apps]
    nodes = [node(name) for name in NODES]
    return snapshot_of([*nodes, *measured_nodes(), *pods, *measured], now=NOW)


def later_of(pods: list[dict[str, Any]], nodes: list[dict[str, Any]] | None = None) -> Snapshot:
    """What is seen later: without metrics."""
    nodes = [node(name) for name in NODES] if nodes is None else nodes
    return snapshot_of([*nodes, *pods], now=NOW + 60)


def carried(first: Snapshot, later: Snapshot) -> Usage:
    usage = carry_usage(first, later)
    assert usage is not None
    return usage


def test_what_was_not_measured_is_not_carried():
    first = later_of([pod("a", "web", "n1")])
    assert carry_usage(first, first) is None
    assert with_usage_of(first, first).usage is None


def test_a_moved_pod_takes_its_use_along():
    stays = pod("a", "web", "n1")
    first = first_of([stays, pod("b", "web", "n1")])
    # It comes back under another name and uid, as every replacement does.
    usage = carried(first, later_of([stays, pod("b2", "web", "n3", age=0)]))
    assert usage.nodes[0].tolist() == [960, 1000, 1040]
    assert usage.nodes[1].tolist() == [984 * MIB, 1024 * MIB, 1064 * MIB]
    assert usage.known.all()
    assert usage.at == NOW - 30


def test_a_victim_uses_its_node_until_it_is_gone():
    first = first_of([pod("a", "web", "n1")])
    both = [pod("a", "web", "n1", going=True), pod("a2", "web", "n2", age=0)]
    later = with_usage_of(first, later_of(both))
    assert later.usage is not None
    assert later.usage.nodes[0].tolist() == [1000, 1040, 1000]
    # Once it is gone, as those count who judge nodes:
    assert ClusterState(later).lasting_usage[0].tolist() == [960, 1040, 1000]


def test_pods_that_wait_for_a_node_use_none():
    first = first_of([pod("a", "web", "n1"), pod("b", "web")])
    usage = carried(first, later_of([pod("a", "web"), pod("b", "web", "n2")]))
    assert usage.nodes[0].tolist() == [960, 1040, 1000]


@pytest.mark.parametrize(
    "fresh", [node("n2", NOW + 30), node("n4", NOW - 86400)], ids=["same name", "new name"]
)
def test_of_nodes_that_are_new_nothing_is_known(fresh):
    first = first_of([pod("a", "web", "n1"), pod("b", "web", "n2")])
    later = later_of(
        [pod("a", "web", "n1"), pod("b", "web", fresh["metadata"]["name"])],
        [node("n1"), node("n3"), fresh],
    )
    usage = carried(first, later)
    known = dict(zip(later.nodes.names, usage.known.tolist(), strict=True))
    used = dict(zip(later.nodes.names, usage.nodes[0].tolist(), strict=True))
    name = fresh["metadata"]["name"]
    assert known == {"n1": True, "n3": True, name: False}
    assert used == {"n1": 1000, "n3": 1000, name: 0}


def test_of_a_node_that_was_not_known_nothing_is_known_later():
    nodes = [node(name) for name in NODES]
    web = pod("a", "web", "n1")
    first = snapshot_of([*nodes, node_metrics("n2", "1"), web, measured_pod("a", "web")], now=NOW)
    usage = carried(first, later_of([pod("a2", "web", "n3")]))
    assert usage.known.tolist() == [False, True, False]
    assert usage.nodes[0].tolist() == [0, 1000, 0]


def test_a_pod_whose_labels_were_changed_uses_what_it_used():
    first = first_of([pod("a", "web", "n1"), pod("b", "web", "n2")])
    changed = pod("a", "web", "n1", labels={"quarantined": "yes"})
    usage = carried(first, later_of([changed, pod("b", "web", "n2")]))
    assert usage.nodes[0].tolist() == [1000, 1000, 1000]


def test_a_pod_of_a_class_that_was_not_there_uses_what_it_requests():
    first = first_of([pod("a", "web", "n1")])
    usage = carried(first, later_of([pod("a", "web", "n1"), pod("c", "new", "n2", cpu="300m")]))
    assert usage.nodes[0].tolist() == [1000, 1300, 1000]


def test_a_replacement_of_another_shape_uses_what_it_replaced():
    nodes = [node(name) for name in NODES]
    rules = [*nodes, replica_set("web", "200m")]
    before = [pod("a", "web", "n1"), pod("b", "web", "n1")]
    measured = [measured_pod("a", "web"), measured_pod("b", "web")]
    first = snapshot_of([*rules, *before, *measured_nodes(), *measured], now=NOW)
    after = [pod("a", "web", "n1"), pod("b2", "web", "n2", cpu="200m")]
    usage = carried(first, snapshot_of([*rules, *after], now=NOW))
    assert usage.nodes[0].tolist() == [960, 1040, 1000]


PLACED = st.tuples(st.sampled_from(APPS), st.sampled_from((*NODES, "")), st.booleans())


def pods_of(placed: list[tuple[str, str, bool]]) -> list[dict[str, Any]]:
    return [
        pod(f"p{number}", app, where, labels={"odd": "1"} if odd else {})
        for number, (app, where, odd) in enumerate(placed)
    ]


@settings(max_examples=30, deadline=None)
@given(st.lists(PLACED, max_size=8), st.booleans())
def test_where_nothing_moved_nothing_changes(placed, templates):
    rules = [replica_set(app, "200m") for app in APPS] if templates else []
    pods = [*pods_of(placed), pod("new", "web", "n1", cpu="200m")]
    measured = [measured_pod(f"p{n}", app) for n, (app, _, _) in enumerate(placed)]
    world = [*(node(name) for name in NODES), *rules, *pods]
    first = snapshot_of([*world, *measured_nodes(), *measured], now=NOW)
    usage, same = first.usage, carried(first, snapshot_of(world, now=NOW + 600))
    assert usage is not None
    assert same.at == usage.at
    for name in ("nodes", "known", "classes"):
        np.testing.assert_array_equal(getattr(same, name), getattr(usage, name))


@settings(max_examples=30, deadline=None)
@given(st.lists(PLACED, min_size=1, max_size=8), st.data())
def test_what_leaves_one_node_arrives_at_another(placed, data):
    """Whatever moves, and however often: the sum over the nodes and the pods that wait stays."""
    first = first_of(pods_of(placed))
    for _ in range(2):
        to = data.draw(st.lists(st.sampled_from((*NODES, "")), min_size=len(placed)))
        moved = [(app, to[n], odd) for n, (app, _, odd) in enumerate(placed)]
        later = later_of(pods_of(moved))
        usage = carried(first, later)
        change = dict.fromkeys((*NODES, ""), 0)
        for (app, before, _), (_, after, _) in zip(placed, moved, strict=True):
            change[before] -= USED[app]
            change[after] += USED[app]
        assert usage.nodes[0].tolist() == [1000 + change[name] for name in NODES]
