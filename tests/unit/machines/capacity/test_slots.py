"""Slots that ask for machines, as tables of small clusters that a person can check."""

import pytest

from rebalancer.machines.capacity.of_run import assess
from rebalancer.machines.capacity.report import CapacityReport
from rebalancer.machines.capacity.scale_out_plan import NO_INPUTS, ScaleOutInputs
from rebalancer.planner.findings import policy_warnings
from rebalancer.planner.rules import NO_HISTORY
from rebalancer.providers.contract import NodeTemplate
from rebalancer.testing.snapshots import node, snapshot_of, workload
from rebalancer.wire.objects import Taint
from tests.unit.machines.capacity.conftest import Given, group

_AMOUNTS = {"cpu": "4", "memory": "16Gi", "pods": "110"}


def _assess(
    machines, objects, groups, slots, *, templates=None, inputs=NO_INPUTS
) -> CapacityReport:
    """Assess machines as a run does whose policy has these slots."""
    rules = machines.rules(
        f"strategies: {{slots: {{{slots}}}, scale-out: {{}}}}\nprovider: {{aws: {{}}}}\n"
    )
    return assess(
        rules,
        NO_HISTORY,
        rules.loaded.policy.capacity,
        snapshot_of(objects),
        "pools",
        Given(groups, templates or {}),
        lambda *_: inputs,
    )


def _increases(report):
    return {one.group: len(one.nodes) for one in report.scale_out.increases}


def _full(name, **more):
    return [node(name, **more), *workload(f"on-{name}", [name], cpu="4")]


@pytest.mark.parametrize(
    ("slots", "more"),
    [
        # a is full, b has its 4 cores free.
        ("free: {cpu: 3}, machines: true", 0),
        ("free: {cpu: 3}, count: 2, machines: true", 1),
        ("free: {cpu: 3}, count: 3, machines: true", 2),
        ("free: {cpu: 1}, count: 4, machines: true", 0),
        ("free: {cpu: 1}, count: 6, machines: true", 1),
        # Only where they ask for machines.
        ("free: {cpu: 3}, count: 2", 0),
        ("free: {cpu: 3}, count: 2, machines: true, mode: observe", 0),
    ],
)
def test_groups_grow_for_slots_that_no_node_has(machines, slots, more):
    objects = [*_full("a"), node("b")]
    report = _assess(machines, objects, [group("pool", "a", "b")], slots)
    assert _increases(report) == ({"pool": more} if more else {})


@pytest.mark.parametrize(
    ("count", "removable"), [(1, {"b", "c"}), (2, {"c"}), (3, set()), (4, set())]
)
def test_nodes_that_hold_slots_stay_and_no_more(machines, count, removable):
    """Three empty nodes of 4 cores, beside a full one; the machine of a fourth slot does not come."""
    objects = [*(node(name) for name in "abc"), *_full("z")]
    groups = [group("pool", *"abc", high=3), group("rest", "z", high=1)]
    slots = f"free: {{cpu: 3}}, count: {count}, machines: true"
    report = _assess(machines, objects, groups, slots)
    names = report.snapshot.nodes.names
    assert {names[one.node] for one in report.nodes if one.removable} == removable


def test_a_slot_stands_among_the_pending_pods(machines):
    slots = "free: {cpu: 3}, count: 2, machines: true"
    report = _assess(machines, _full("a"), [group("pool", "a", high=2)], slots)
    names = [report.snapshot.pod_ref(one.pod) for one in report.scale_out.pods]
    codes = [one.code.value for one in report.scale_out.pods]
    assert (names, codes) == (["slots-1", "slots-2"], ["GroupGrows", "NodeGroupMaxSizeReached"])


@pytest.mark.parametrize("closed", ["cordoned", "not ready"])
def test_a_node_that_takes_no_pods_holds_no_slot(machines, closed):
    taints = [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    cordoned = closed == "cordoned"
    other = node("b", ready=cordoned, unschedulable=cordoned, taints=[] if cordoned else taints)
    groups = [group("pool", "a", "b")]
    report = _assess(machines, [*_full("a"), other], groups, "free: {cpu: 3}, machines: true")
    assert _increases(report) == {"pool": 1}


def test_a_new_node_has_the_labels_that_are_asked_for_and_its_taints_hinder_nothing(machines):
    """What the slots are for tolerates the taint of their nodes, or it could not be there."""
    groups = [group("gpu"), group("plain", "a")]
    taints = (Taint(key="dedicated", value="gpu", effect="NoSchedule"),)
    amounts = {**_AMOUNTS, "nvidia.com/gpu": "8"}
    templates = {"gpu": NodeTemplate({"pool": "gpu"}, taints, amounts)}
    for nodes, increases in (("{pool: gpu}", {"gpu": 1}), ("{pool: other}", {})):
        slots = f"free: {{nvidia.com/gpu: 8}}, nodes: {nodes}, machines: true"
        report = _assess(machines, [node("a")], groups, slots, templates=templates)
        assert _increases(report) == increases


@pytest.mark.parametrize(
    ("nodes", "increases"), [("", {"linux": 1}), ("nodes: {pool: glass}, ", {"windows": 1})]
)
def test_a_machine_for_a_slot_is_of_linux_unless_its_nodes_are_not(machines, nodes, increases):
    system = {"linux": {}, "windows": {"pool": "glass"}}
    templates = {
        name: NodeTemplate({"kubernetes.io/os": name, **more}, (), _AMOUNTS)
        for name, more in system.items()
    }
    labels = {"kubernetes.io/os": "windows", "pool": "glass"}
    objects = [*_full("a", labels={"kubernetes.io/os": "linux"}), *_full("w", labels=labels)]
    groups = [group("linux", "a"), group("windows", "w")]
    slots = f"free: {{cpu: 3}}, {nodes}machines: true"
    report = _assess(machines, objects, groups, slots, templates=templates)
    assert _increases(report) == increases
    # An empty node of the other system is no slot.
    other = "windows" if "linux" in increases else "linux"
    report = _assess(
        machines,
        [*objects, node("z", labels={**system[other], "kubernetes.io/os": other})],
        groups,
        slots,
        templates=templates,
    )
    assert _increases(report) == increases


def test_each_zone_gets_what_it_lacks(machines):
    """Zone z1 has no room, z2 has."""
    objects = [*_full("a", zone="z1"), node("b", "z2")]
    slots = "free: {cpu: 3}, per: topology.kubernetes.io/zone, machines: true"
    groups = [group("one", "a"), group("two", "b")]
    assert _increases(_assess(machines, objects, groups, slots)) == {"one": 1}


def test_machines_that_come_are_slots_and_pods_that_wait_are_first(machines):
    slots, groups = "free: {cpu: 3}, machines: true", [group("pool", "a", desired=2)]
    coming = ScaleOutInputs(upcoming={"pool": 1})
    report = _assess(machines, _full("a"), groups, slots, inputs=coming)
    assert (_increases(report), [one.code.value for one in report.scale_out.pods]) == (
        {},
        ["NodeUpcoming"],
    )
    objects = [*_full("a"), *workload("web", [""], cpu="3", priority=-5)]
    report = _assess(machines, objects, groups, slots, inputs=coming)
    assert [one.code.value for one in report.scale_out.pods] == ["NodeUpcoming", "GroupGrows"]


def test_slots_that_ask_for_machines_need_scale_out_and_no_marks(machines):
    def said(policy):
        rules = machines.rules(policy)
        given = policy_warnings(rules.loaded.policy, snapshot_of([node("a")]), rules.registry, 1)
        return [one for one in given if "slots" in one]

    asks = "slots: {free: {cpu: 3}, machines: true}"
    provider = "provider: {aws: {}}\n"
    assert said(f"{provider}strategies: {{{asks}, scale-out: {{}}}}\n") == []
    assert "no scale-out of the policy adds any" in said(f"strategies: {{{asks}}}\n")[0]
    assert "only observes without steer" in said("strategies: {slots: {free: {cpu: 3}}}\n")[0]
