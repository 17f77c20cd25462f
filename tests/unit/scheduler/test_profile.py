from __future__ import annotations

import pytest

from rebalancer.scheduler.profile import DEFAULT_WEIGHTS, SchedulerProfile
from rebalancer.wire.objects import TopologySpreadConstraint
from tests.unit.scheduler.worlds import World, node, pod, spread


@pytest.mark.parametrize(
    ("version", "modelled", "noted"),
    [
        ((1, 34), (1, 34), False),
        ((1, 36), (1, 36), False),
        ((1, 28), (1, 34), True),
        ((1, 37), (1, 37), False),
        ((1, 38), (1, 38), False),
        ((1, 39), (1, 38), True),
        ((2, 0), (1, 38), True),
    ],
)
def test_the_nearest_known_version_is_modelled_and_noted(version, modelled, noted):
    profile = SchedulerProfile.for_version(version)
    assert profile.version == modelled
    assert bool(profile.note) is noted


@pytest.mark.parametrize(
    ("nodes", "percentage", "expected"),
    [
        (10, None, 10),
        (99, None, 99),
        (100, None, 100),
        (500, None, 230),
        (1000, None, 420),
        (5000, None, 500),
        (6000, None, 300),
        (15000, None, 750),
        (1000, 40, 400),
        (1000, 100, 1000),
        (6000, 40, 2400),
        (120, 1, 100),
    ],
)
def test_so_many_feasible_nodes_end_the_search(nodes, percentage, expected):
    profile = SchedulerProfile.for_version((1, 36), percentage_of_nodes_to_score=percentage)
    assert profile.nodes_to_find(nodes) == expected


def test_weights_are_merged_over_the_defaults_and_zero_silences_a_plugin():
    world = World(
        [node("a"), node("b")],
        [pod("p", requests={"cpu": "1"})],
        profile={"weights": {"TaintToleration": 0, "NodeResourcesFit": 5}},
    )
    scores = world.evaluate("p").scores
    assert "TaintToleration" not in scores
    assert scores["NodeResourcesFit"].tolist() == [5 * 94, 5 * 94]
    assert DEFAULT_WEIGHTS["NodeResourcesFit"] == 1


def test_an_unknown_setting_is_an_error():
    with pytest.raises(TypeError):
        SchedulerProfile.for_version((1, 36), percentage=5)


def test_default_constraints_of_a_list_need_all_keys_and_may_be_hard():
    service = {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": {"foo": ""}}}
    constraint = TopologySpreadConstraint(
        max_skew=1, topology_key="rack", when_unsatisfiable="DoNotSchedule"
    )
    nodes = [node("a", labels={"rack": "1"}), node("b", labels={"rack": "2"}), node("c")]
    old = pod("old", on="a", labels={"foo": ""})
    world = World(
        nodes,
        [
            old,
            pod("p", labels={"foo": ""}),
            pod("own", labels={"foo": ""}, **spread(9, "rack", "DoNotSchedule", None)),
        ],
        profile={"default_constraints": (constraint,)},
        services=[service],
    )
    assert world.feasible("p") == ["b"]
    # A pod that declares anything at all is left alone by the defaults.
    assert world.feasible("own") == ["a", "b"]
