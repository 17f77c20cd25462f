from __future__ import annotations

import numpy as np
import pytest

from rebalancer.scheduler.search_order import search_order
from rebalancer.scheduler.topology import HOSTNAME, ZONE
from tests.unit.scheduler.worlds import Json, World, node, pod, snapshot, spread

REGION = "topology.kubernetes.io/region"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"


def test_the_best_nodes_share_the_probability_in_order():
    world = World([node("c"), node("a"), node("b")], [pod("old", on="b"), pod("p")])
    assert list(world.landings("p").items()) == [("a", 0.5), ("c", 0.5)]


def test_one_feasible_node_takes_all_and_none_takes_nothing():
    nodes = [node("a", labels={"disk": "ssd"}), node("b")]
    world = World(
        nodes, [pod("p", nodeSelector={"disk": "ssd"}), pod("q", nodeSelector={"disk": "x"})]
    )
    assert world.landings("p") == {"a": 1.0}
    assert world.landings("q") == {}


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"schedulerName": "other"}, "scheduled by other"),
        (
            {"resourceClaims": [{"name": "gpu"}]},
            (
                "resource claims (dynamic resource allocation): "
                "the snapshot holds no ResourceClaims, ResourceClaimTemplates, ResourceSlices, DeviceClasses"
            ),
        ),
        (
            {"schedulingGroup": {"podGroupName": "g"}},
            "the scheduler places the pods of PodGroup g together",
        ),
        (
            {"volumes": [{"name": "v", "ephemeral": {}}]},
            "a generic ephemeral volume gets its claim with the pod",
        ),
    ],
)
def test_what_is_not_modelled_is_named_and_every_feasible_node_is_equally_likely(spec, reason):
    world = World([node("a"), node("b"), node("c", unschedulable=True)], [pod("p", **spec)])
    prediction = world.model.predict(world.state, world.cls("p"))
    assert prediction.unmodelled == (reason,)
    assert world.landings("p") == {"a": 0.5, "b": 0.5}


def test_the_victim_holds_resources_and_affinity_but_not_spread():
    labels = {"app": "x"}
    full = {"cpu": "6"}
    victim = pod(
        "p",
        on="a",
        labels=labels,
        requests=full,
        **spread(1, HOSTNAME, "DoNotSchedule", {"matchLabels": labels}),
    )
    world = World([node("a"), node("b")], [victim, pod("other", on="b", labels=labels)])
    assert world.feasible("p") == ["b"]  # as one more pod: a is full, b would be 2 to 1
    world.state.evict(world.row("p"))
    assert world.feasible("p") == []  # a is still full, and b would now be 2 to 0
    world.state.reap()
    assert world.feasible("p") == ["a"]


def zone_of(name: str, zones: dict[str, str], key: str = ZONE) -> Json:
    return node(name, labels={key: zones[name]} if name in zones else {})


def test_the_search_goes_round_the_zones():
    zones = {"n0": "z1", "n1": "z1", "n2": "z2", "n3": "z1", "n4": "z3"}
    made = snapshot([zone_of(f"n{i}", zones) for i in range(6)], [])
    names = [made.nodes.names[i] for i in search_order(made.nodes)]
    assert names == ["n0", "n2", "n4", "n5", "n1", "n3"]


def test_deprecated_zone_labels_and_regions_make_zones_too():
    made = snapshot(
        [
            node("n0", labels={BETA_ZONE: "z1"}),
            node("n1", labels={ZONE: "z1"}),
            node("n2", labels={ZONE: "z1", REGION: "r"}),
            node("n3", labels={ZONE: "z2", BETA_ZONE: "z1"}),
        ],
        [],
    )
    names = [made.nodes.names[i] for i in search_order(made.nodes)]
    assert names == ["n0", "n2", "n1", "n3"]


@pytest.mark.parametrize("count", [100, 130, 250])
def test_probabilities_sum_to_one_in_a_sampled_cluster(count):
    nodes = [
        node(f"n{i:03d}", labels={ZONE: f"z{i % 3}"}, cpu=f"{4 + i % 5}", taints=_slow(i))
        for i in range(count)
    ]
    labels = {"app": "x"}
    wanted = spread(1, ZONE, "ScheduleAnyway", {"matchLabels": labels})
    old = [pod(f"old{i}", on=f"n{i:03d}", labels=labels) for i in range(0, 30, 3)]
    world = World(nodes, [*old, pod("p", labels=labels, requests={"cpu": "1"}, **wanted)])
    prediction = world.model.predict(world.state, world.cls("p"))
    assert prediction.probability.sum() == pytest.approx(1)
    assert (np.diff(prediction.probability) <= 1e-9).all()
    assert len(set(prediction.nodes.tolist())) == len(prediction.nodes)
    # Zone z0 holds all the others: no landing there.
    assert all(int(world.snapshot.nodes.names[n][1:]) % 3 for n in prediction.nodes)


def _slow(index: int) -> list[Json]:
    return [{"key": "slow", "effect": "PreferNoSchedule"}] if index % 7 == 0 else []


def test_one_outstanding_node_wins_only_when_the_search_meets_it():
    nodes = [node(f"n{i:03d}") for i in range(200)]
    busy = [pod(f"old{i}", on=f"n{i:03d}", requests={"cpu": "5"}) for i in range(1, 200)]
    world = World(nodes, [*busy, pod("p", requests={"cpu": "1"})])
    size = world.model.profile.nodes_to_find(200)
    landings = world.landings("p")
    assert next(iter(landings)) == "n000"
    assert landings["n000"] == pytest.approx(size / 200)
