"""Limits on all machines of a cluster: small clusters that a person can check."""

import pytest

from rebalancer.machines.capacity.of_run import explain_bounds
from rebalancer.machines.capacity.scale_out_plan import ScaleOutInputs
from rebalancer.machines.reasons import GroupCode
from rebalancer.policy.cluster import GroupBounds
from rebalancer.providers.contract import NodeGroup, NodeTemplate, within
from rebalancer.testing.snapshots import node, workload
from tests.unit.machines.capacity.conftest import group


def _machine(name, cpu="4", memory="16Gi", allocatable=None):
    """Return a node whose machine has so much, of which the system may take a part."""
    made = node(name, cpu=allocatable or cpu, memory=memory)
    made["status"]["capacity"] = {"cpu": cpu, "memory": memory, "pods": "110"}
    return made


def _full(name, **more):
    used = more.get("allocatable") or more.get("cpu", "4")
    return [_machine(name, **more), *workload(f"on-{name}", [name], cpu=used, memory="1Gi")]


def _total(**of):
    bounds = ", ".join(f"{name}: {{{bound}}}" for name, bound in of.items())
    return f"capacity: {{total: {{{bounds}}}}}\n"


@pytest.mark.parametrize(
    ("bounds", "nodes"),
    [
        ({}, 3),
        ({"cpu": "max: 20"}, 3),
        ({"cpu": "max: 19"}, 2),
        ({"cpu": "max: 12"}, 1),
        ({"cpu": "max: 11"}, 0),
        ({"cpu": "max: 4"}, 0),
        ({"memory": "max: 64Gi"}, 2),
        ({"cpu": "max: 100", "memory": "max: 48Gi"}, 1),
        # What no machine has limits nothing.
        ({"nvidia.com/gpu": "max: 1"}, 3),
    ],
)
def test_the_cluster_grows_to_what_it_may_have_in_all(machines, bounds, nodes):
    """Two nodes of 4 cores and 16Gi, both full, and three pods that take a node each."""
    objects = [*_full("a"), *_full("b"), *workload("web", [""] * 3, cpu="3")]
    planned = machines.scale_out(objects, [group("pool", "a", "b")], _total(**bounds))
    assert planned.scale_out.increase_of("pool") == nodes


def test_the_report_names_the_limit_that_holds(machines):
    objects = [*_full("a"), *_full("b"), *workload("web", [""], cpu="3")]
    planned = machines.scale_out(
        objects, [group("pool", "a", "b")], _total(cpu="max: 11", memory="max: 1Ti")
    )
    (refusal,) = planned["web-0"].refusals
    assert planned["web-0"].code.value == "NodeGroupMaxSizeReached"
    assert (refusal.code, refusal.message) == (
        GroupCode.TOTAL_REACHED,
        "of cpu the cluster has 8 and may have 11, and a new node has 4",
    )


@pytest.mark.parametrize("policy", ["capacity: {maxNodes: 2}\n", _total(cpu="max: 11")])
def test_the_limit_is_named_where_the_sizes_of_the_group_are_not_known(machines, policy):
    objects = [*_full("a"), *_full("b"), *workload("web", [""], cpu="3")]
    unknown = NodeGroup(name="pool", instances=("a", "b"))
    (refusal,) = machines.scale_out(objects, [unknown], policy)["web-0"].refusals
    assert refusal.code in (GroupCode.CLUSTER_FULL, GroupCode.TOTAL_REACHED)
    assert "None" not in refusal.message


def test_a_machine_counts_with_what_the_system_takes_of_it(machines):
    """3920m of 4 cores are allocatable: a third node would make 12 cores, not 11.76."""
    objects = [
        *_full("a", allocatable="3920m"),
        *_full("b", allocatable="3920m"),
        *workload("web", [""], cpu="3"),
    ]
    groups = [group("pool", "a", "b")]
    assert machines.scale_out(objects, groups, _total(cpu="max: 11900m")).by == {}
    assert machines.scale_out(objects, groups, _total(cpu="max: 12")).by == {"pool": 1}


def test_upcoming_machines_count_as_a_new_node_would(machines):
    objects = [*_full("a"), *workload("web", [""] * 3, cpu="3")]
    planned = machines.scale_out(
        objects,
        [group("pool", "a", desired=2)],
        _total(cpu="max: 12"),
        inputs=ScaleOutInputs(upcoming={"pool": 1}),
    )
    assert planned.by == {"pool": 1}


def test_machines_of_which_nobody_says_what_they_have_stop_what_is_limited(machines):
    objects = [*_full("a"), *workload("web", [""], cpu="3")]
    groups = [group("dark", desired=1), group("pool", "a")]
    planned = machines.scale_out(objects, groups, _total(cpu="max: 100"))
    assert planned.by == {}
    (refusal,) = [one for one in planned["web-0"].refusals if one.group == "pool"]
    assert "dark" in refusal.message


def test_another_group_whose_machines_are_smaller_helps_instead(machines):
    objects = [*_full("a", cpu="8"), *workload("web", [""], cpu="1")]
    templates = {"small": NodeTemplate({}, (), {"cpu": "2", "memory": "16Gi", "pods": "110"})}
    groups = [group("large", "a"), group("small")]
    policy = "capacity: {expander: most-pods, total: {cpu: {max: 10}}}\n"
    assert machines.scale_out(objects, groups, policy, templates).by == {"small": 1}


def test_gpus_that_no_node_has_yet_are_limited(machines):
    """The group has GPUs besides, which nobody asks for: its machines count all the same."""
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "110", "nvidia.com/gpu": "4"}
    objects = [*_full("a"), *workload("web", [""] * 3, cpu="3")]
    planned = machines.scale_out(
        objects,
        [group("gpu"), group("old", "a", high=1)],
        _total(**{"nvidia.com/gpu": "max: 8"}),
        {"gpu": NodeTemplate({}, (), amounts)},
    )
    assert planned.by == {"gpu": 2}


@pytest.mark.parametrize(
    ("bounds", "removable"),
    [
        ({}, 3),
        ({"cpu": "min: 4"}, 3),
        ({"cpu": "min: 5"}, 2),
        ({"cpu": "min: 9"}, 1),
        ({"cpu": "min: 13"}, 0),
        ({"cpu": "min: 100"}, 0),
        ({"memory": "min: 49Gi"}, 0),
        ({"memory": "min: 48Gi"}, 1),
    ],
)
def test_the_cluster_shrinks_to_what_it_must_have_in_all(machines, bounds, removable):
    """Three empty nodes of 4 cores and 16Gi beside a full one."""
    objects = [*(_machine(name) for name in "abc"), *_full("z")]
    groups = [group("pool", *"abc"), group("rest", "z")]
    codes = machines.judge(objects, groups, _total(**bounds)).codes
    assert [codes[name] for name in "abc"].count("Empty") == removable
    held = [code for name, code in codes.items() if name != "z" and code != "Empty"]
    assert held == ["MinimalResourceLimitExceeded"] * (3 - removable)


def test_the_report_names_the_minimum_that_holds(machines):
    objects = [_machine(name) for name in "ab"]
    judged = machines.judge(objects, [group("pool", *"ab")], _total(memory="min: 20Gi"))
    assert (
        judged["a"].message
        == "of memory the cluster has 32Gi and needs 20Gi, and this node has 16Gi"
    )


def test_a_node_that_goes_already_does_not_count_as_there(machines):
    taint = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}
    going = node("a", taints=[taint])
    judged = machines.judge([going, _machine("b")], [group("pool", *"ab")], _total(cpu="min: 4"))
    assert judged.codes == {"a": "CurrentlyBeingDeleted", "b": "MinimalResourceLimitExceeded"}


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ("capacity: {total: {cpus: {max: 4}}}", "nothing that machines have"),
        ("capacity: {total: {cpu: {}}}", "write min, max or both"),
        ("capacity: {total: {cpu: {min: 8, max: 4}}}", "min 8 is more than max 4"),
        ("capacity: {total: {cpu: {max: 0}}}", "not more than nothing"),
    ],
)
def test_bounds_that_say_nothing_are_refused(machines, policy, text):
    with pytest.raises(Exception, match=text):
        machines.rules(policy)


@pytest.mark.parametrize(
    ("bounds", "increase", "removable"),
    [
        ("", 3, 2),
        ("pool: {max: 4}", 1, 2),
        ("pool: {min: 2}", 3, 1),
        ("pool: {min: 3, max: 3}", 0, 0),
        ("other: {min: 3, max: 3}", 3, 2),
        # The provider's own sizes are 0 and 10.
        ("pool: {min: 0, max: 99}", 3, 2),
    ],
)
def test_a_group_is_scaled_between_the_sizes_of_the_policy(machines, bounds, increase, removable):
    """Three nodes: all full and three pods that wait, or two of them empty."""
    policy, groups = f"capacity: {{groups: {{{bounds}}}}}\n", [group("pool", *"abc")]
    full = [one for name in "abc" for one in _full(name)]
    waiting = machines.look([*full, *workload("web", [""] * 3, cpu="3")], groups, policy)
    assert waiting.scale_out.increase_of("pool") == increase
    idle = machines.look([_machine("a"), _machine("b"), *_full("c")], groups, policy)
    assert list(idle.codes.values()).count("Empty") == removable


def test_bounds_that_do_not_hold_are_said():
    groups = [
        group("a", low=1, high=3),
        group("b", low=0, high=5),
        NodeGroup(name="c", instances=()),
    ]
    bounds = {
        "a": GroupBounds(min=0, max=9),
        "b": GroupBounds(min=1, max=5),
        "c": GroupBounds(max=2),
        "d": GroupBounds(max=2),
    }
    held = [within(one, bounds[one.name]) for one in groups]
    said = [text.partition(",")[0] for text in explain_bounds(bounds, held)]
    assert said == [
        "capacity.groups.a.min is 0",
        "capacity.groups.a.max is 9",
        "capacity.groups.c: the sizes of the group are not known",
        "capacity.groups.d: the provider has no such group",
    ]


@pytest.mark.parametrize(
    ("bounds", "text"), [("{min: 3, max: 2}", "min 3 is more than max 2"), ("{}", "write min")]
)
def test_sizes_that_leave_no_room_are_refused(machines, bounds, text):
    with pytest.raises(Exception, match=text):
        machines.rules(f"capacity: {{groups: {{pool: {bounds}}}}}")
