"""Slots on clusters of two to four nodes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rebalancer.planner.settings import Settings
from rebalancer.registry import Registry
from rebalancer.testing.contract import check_strategy, view_of
from rebalancer.testing.snapshots import ZONE, node, snapshot_of, workload
from strategies.slots import SlotsParams
from tests.unit.planner.conftest import plan_of, rechecked

NAME = "slots"
MARKS = Settings(steer=True)


def params(**given_params):
    return SlotsParams.model_validate(given_params)


def plan(objects, strategies=(NAME,), **given_params):
    options = {NAME: params(**given_params)}
    return plan_of(objects, settings=MARKS, strategies=list(strategies), params=options)


def pairs(result):
    return [(move.node, move.landings[0].node) for move in result.moves]


def three_nodes(*, cpu="8"):
    """Three nodes of 8 CPUs with 4 in use on each, by two pods of 1 and one of 2."""
    return [
        *(node(f"n{i}", cpu=cpu) for i in range(3)),
        *workload("ones", ["n0", "n0", "n1", "n1", "n2", "n2"], cpu="1"),
        *workload("twos", ["n0", "n1", "n2"], cpu="2"),
    ]


def test_a_slot_is_made_by_the_fewest_moves():
    result = plan(three_nodes(), free={"cpu": "6"})
    (move,) = result.moves
    assert move.pod.startswith("twos")
    assert move.landings[0].node != move.node
    assert result.before[NAME].violated == 1
    assert result.after[NAME].violated == 0
    assert result.lower_bound == 1
    assert move.unit == f"slots: a slot of cpu 6 on {move.node}"
    assert move.gain.soft == 1


@pytest.mark.parametrize("count", [1, 2, 3])
def test_where_there_are_enough_nothing_moves(count):
    assert not plan(three_nodes(), free={"cpu": 4}, count=count).moves


def test_all_moves_for_a_slot_are_one_unit():
    result = plan(three_nodes(), free={"cpu": "7"})
    assert len(result.moves) == 2
    assert len({move.unit for move in result.moves}) == 1
    assert [move.gain.soft for move in sorted(result.moves, key=lambda m: m.gain.soft)] == [0, 1]
    # One of them is protected meanwhile: neither goes.
    objects = three_nodes()
    first = result.moves[0]
    for one in objects:
        if one["kind"] == "Pod" and one["metadata"]["name"] == first.pod:
            one["metadata"]["annotations"] = {"rebalancer/evict": "false"}
    settled = rechecked(
        objects,
        result.moves,
        settings=MARKS,
        strategies=[NAME],
        params={NAME: params(free={"cpu": "7"})},
    )
    assert None not in [why for _, why in settled]


def test_a_node_with_twice_as_much_holds_two_and_each_zone_has_its_own():
    nodes = [
        node("a0", cpu="8", labels={ZONE: "a"}),
        node("a1", cpu="4", labels={ZONE: "a"}),
        node("b0", cpu="4", labels={ZONE: "b"}),
        node("b1", cpu="4", labels={ZONE: "b"}),
    ]
    pods = workload("web", ["a1", "b0", "b1"], cpu="2")
    assert not plan([*nodes, *pods], free={"cpu": "4"}, count=2).moves
    (move,) = plan([*nodes, *pods], free={"cpu": "4"}, per=ZONE).moves
    assert move.node in ("b0", "b1")
    # The replacement would fill zone a no less: there, one slot of two may go.
    result = plan([*nodes, *pods], free={"cpu": "4"}, count=2, per=ZONE)
    assert result.after[NAME].violated == 1


def test_nodes_that_take_no_pods_hold_no_slot_and_labels_choose():
    empty = {**node("off", cpu="8"), "spec": {"unschedulable": True}}
    objects = [empty, *three_nodes()]
    assert len(plan(objects, free={"cpu": "6"}).moves) == 1
    assert not plan([node("on", cpu="8"), *three_nodes()], free={"cpu": "6"}).moves
    objects = [node("on", cpu="8", labels={"pool": "x"}), *three_nodes()]
    result = plan(objects, free={"cpu": "6"}, nodes={"pool": "y"})
    assert not result.moves
    assert result.after[NAME].violated == 1
    assert any("slots: no room for a slot of cpu 6" in text for text in result.warnings)


OS = "kubernetes.io/os"


@pytest.mark.parametrize(
    ("asked", "missing"),
    [
        ({}, 1),
        ({"count": 2}, 2),
        ({"per": "pool"}, 2),
        ({"nodes": {"pool": "mixed"}}, 1),
        # What the labels name counts, and so do nodes of which all that are selected are of another system.
        ({"nodes": {"pool": "win"}}, 0),
        ({"nodes": {OS: "windows"}}, 0),
        ({"nodes": {"matchExpressions": [{"key": OS, "operator": "Exists"}]}}, 0),
        ({"per": OS}, 1),
    ],
)
def test_a_node_of_another_system_is_no_slot_unless_labels_say_so(asked, missing):
    """The node of Linux is full, those of Windows are empty, and no pod asks for a system."""
    objects = [
        node("penguin", cpu="4", labels={OS: "linux", "pool": "mixed"}),
        node("glass", cpu="4", labels={OS: "windows", "pool": "mixed"}),
        node("pane", cpu="4", labels={OS: "windows", "pool": "win"}),
        *workload("batch", ["penguin"], cpu="4"),
    ]
    result = plan(objects, free={"cpu": "2"}, **asked)
    assert (result.after[NAME].violated, result.moves) == (missing, ())


def test_a_node_without_the_label_of_its_system_holds_a_slot():
    objects = [node("bare", cpu="4"), node("glass", cpu="1", labels={OS: "windows"})]
    assert plan(objects, free={"cpu": "2"}).after[NAME].violated == 0


def test_what_cannot_be_free_moves_nothing_and_says_what_is_short():
    for free, text in (
        ({"cpu": "9"}, "were all pods gone: cpu 1"),
        ({"example.com/none": 1}, "no node"),
    ):
        result = plan([*three_nodes()], free=free)
        assert not result.moves
        (note,) = [one for one in result.warnings if one.startswith("slots:")]
        assert text in note
        assert [rule.rule for rule in result.unmet] == [
            f"there is no room for a slot of {name} {amount}" for name, amount in free.items()
        ]


def test_a_slot_may_be_of_a_resource_that_no_pod_asks_for_yet():
    objects = [*three_nodes(), node("gpu", cpu="8"), *workload("full", ["gpu"] * 2, cpu="3")]
    (gpu,) = [one for one in objects if one["metadata"]["name"] == "gpu"]
    gpu["status"]["allocatable"] |= {"example.com/gpu": "4", "hugepages-2Mi": "0"}
    free = {"cpu": "3", "example.com/gpu": 2}
    (move,) = plan(objects, free=free).moves
    assert (move.node, move.landings[0].node) == ("gpu", "n0")
    assert not plan(objects, free={**free, "cpu": "2"}).moves
    # Of four there are two slots, and not three.
    result = plan(objects, free={"cpu": "500m", "example.com/gpu": 2}, count=3)
    assert (result.after[NAME].violated, result.moves) == (1, ())


def test_pods_of_a_higher_priority_stay():
    objects = [
        *(node(f"n{i}", cpu="8") for i in range(2)),
        *workload("high", ["n0", "n1"], cpu="4", priority=1000),
    ]
    assert not plan(objects, free={"cpu": "8"}).moves
    assert len(plan(objects, free={"cpu": "8"}, priority=1000).moves) == 1


def test_low_utilisation_fills_no_slot():
    objects = [
        *(node(f"n{i}", cpu="8") for i in range(3)),
        *workload("web", ["n0"] * 6 + ["n1"] * 6, cpu="1"),
    ]
    even = plan_of(objects, settings=MARKS, strategies=["low-utilisation"])
    assert {move.landings[0].node for move in even.moves} == {"n2"}
    both = plan(objects, [NAME, "low-utilisation"], free={"cpu": "8"})
    assert not both.moves
    # Half a node of it may be filled.
    some = plan(objects, [NAME, "low-utilisation"], free={"cpu": "6"})
    assert len(some.moves) == 2


@pytest.mark.parametrize(
    "wrong", [{}, {"free": {"cpu": "0"}}, {"free": {"cpu": "4x"}}, {"free": {"cpu": 1}, "count": 0}]
)
def test_wrong_options_are_refused(wrong):
    with pytest.raises(ValidationError):
        params(**wrong)


def test_it_keeps_the_contract():
    check_strategy(Registry.installed().strategy(NAME), params(free={"cpu": "2"}, per=ZONE))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_difference_is_that_of_the_potential(data):
    size = data.draw(st.integers(2, 4))
    zones = [data.draw(st.sampled_from("ab")) for _ in range(size)]
    objects = [node(f"n{i}", cpu="4", labels={ZONE: zone}) for i, zone in enumerate(zones)]
    for number in range(data.draw(st.integers(1, 4))):
        on = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=2))
        cpu = data.draw(st.sampled_from(["500m", "1", "2"]))
        objects += workload(f"w{number}", [f"n{i}" for i in on], cpu=cpu)
    view = view_of(snapshot_of(objects))
    wanted = params(
        free={"cpu": data.draw(st.sampled_from(["1", "2", "4"]))},
        count=data.draw(st.integers(1, 3)),
        per=data.draw(st.sampled_from([None, ZONE])),
    )
    (term,) = Registry.installed().strategy(NAME).terms(view, wanted)
    pod = data.draw(st.integers(0, len(view.snapshot.pods) - 1))
    cls, source = int(view.snapshot.pods.cls[pod]), int(view.snapshot.pods.node[pod])
    replacement = view.snapshot.classes[cls].replacement
    before = term.potential()
    changes = term.delta(cls, source, replacement, np.arange(size, dtype=np.int32))
    view.state.evict(pod)
    for on in range(size):
        view.state.place(pod, replacement, on)
        assert term.potential() - before == changes[on]
        view.state.unplace(pod)
