"""Which groups grow for the pods that wait: small clusters that a person can check."""

import pytest

from rebalancer.capacity.codes import GroupCode
from rebalancer.capacity.growth import Outlook, Refusal
from rebalancer.providers.contract import NodeGroup, NodeTemplate
from rebalancer.testing.workloads import HOSTNAME, ZONE, apart, node, spread, workload
from rebalancer.wire.objects import Taint
from tests.unit.capacity.conftest import group

_GPU = Taint(key="gpu", value="yes", effect="NoSchedule")


def _full(name, zone=None, **more):
    """Return a node of four cores with a pod that leaves it nothing."""
    return [node(name, zone, **more), *workload(f"on-{name}", [name], cpu="4", memory="1Gi")]


def _waiting(count, name="web", **more):
    return workload(name, [""] * count, **more)


def _template(cpu="4", memory="16Gi", labels=None, taints=()):
    return NodeTemplate(labels or {}, taints, {"cpu": cpu, "memory": memory, "pods": "110"})


def test_pods_that_fit_take_their_room_before_a_group_grows(machines):
    grown = machines.grow([node("a"), *_waiting(5, cpu="1")], [group("pool", "a")])
    assert grown.by == {"pool": 1}
    assert sorted(grown.codes.values()) == ["Fits"] * 4 + ["GroupGrows"]


def test_ten_replicas_of_half_a_core_on_three_nodes_of_two(machines):
    """Article 004: 1 to 10 replicas of 500m and 512Mi. Three nodes take 9 beside what is on them, so one is added."""
    nodes = [node(name, cpu="1930m", memory="3300Mi") for name in "abc"]
    objects = [*nodes, *workload("web", ["a", *[""] * 9], cpu="500m", memory="512Mi")]
    grown = machines.grow(objects, [group("pool", *"abc", high=6)])
    assert grown.by == {"pool": 1}
    assert list(grown.codes.values()).count("Fits") == 8


def test_as_many_nodes_as_first_fit_decreasing_takes(machines):
    objects = [*_full("a"), *_waiting(3, "large", cpu="3"), *_waiting(5, "small", cpu="1")]
    grown = machines.grow(objects, [group("pool", "a")])
    # Three large ones take a node each, with a core left for a small one; two more small ones fit into one more.
    assert grown.by == {"pool": 4}


def test_a_group_grows_no_further_than_its_maximum(machines):
    grown = machines.grow([*_full("a"), *_waiting(3, cpu="3")], [group("pool", "a", high=2)])
    assert grown.by == {"pool": 1}
    assert list(grown.codes.values()).count("NodeGroupMaxSizeReached") == 2
    (refusal,) = next(one for one in grown.growth.pods if one.refusals).refusals
    assert (refusal.code.value, refusal.message) == (
        "MaxSizeReached",
        "it has 1 nodes and may have 2",
    )


def test_machines_on_their_way_count_towards_the_maximum(machines):
    grown = machines.grow(
        [*_full("a"), *_waiting(1, cpu="3")], [group("pool", "a", high=2, desired=2)]
    )
    assert grown.by == {}


def test_from_nothing_by_the_providers_template(machines):
    objects = [*_full("a"), *_waiting(2, cpu="3", spec={"nodeSelector": {"pool": "new"}})]
    templates = {"new": _template(labels={"pool": "new"})}
    grown = machines.grow(objects, [group("old", "a"), group("new")], templates=templates)
    assert grown.by == {"new": 2}


def test_a_group_of_which_nothing_is_known_says_so(machines):
    grown = machines.grow([*_full("a"), *_waiting(1, cpu="8")], [group("old", "a"), group("new")])
    codes = {refusal.group: refusal.code.value for refusal in grown["web-0"].refusals}
    assert grown["web-0"].code.value == "NoGroupFits"
    assert codes == {"old": "Filtered", "new": "NoTemplate"}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"nodeSelector": {"pool": "b"}}, "node(s) didn't match Pod's node affinity/selector"),
        ({}, "node(s) had untolerated taint(s)"),
    ],
)
def test_the_scheduler_refuses_new_nodes_as_it_would_live_ones(machines, spec, text):
    templates = {"new": _template(taints=() if spec else (_GPU,))}
    grown = machines.grow(
        [*_full("a"), *_waiting(1, spec=spec)], [group("new")], templates=templates
    )
    assert text in grown["web-0"].refusals[0].message


def test_tolerated_taints_and_what_they_keep_out(machines):
    tolerant = {"tolerations": [{"key": "gpu", "operator": "Exists"}]}
    objects = [
        *_full("a"),
        *_waiting(2, "plain", cpu="1"),
        *_waiting(2, "gpu", cpu="1", spec=tolerant),
    ]
    grown = machines.grow(objects, [group("new")], templates={"new": _template(taints=(_GPU,))})
    assert grown["gpu-0"].group == "new"
    assert grown["plain-0"].code.value == "NoGroupFits"


def test_taints_of_a_state_are_not_those_of_a_new_node(machines):
    taints = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
    objects = [*_full("a", taints=taints, unschedulable=True), *_waiting(1)]
    assert machines.grow(objects, [group("pool", "a")]).by == {"pool": 1}


def test_required_anti_affinity_takes_a_node_each(machines):
    objects = [*_full("a"), *_waiting(3, cpu="100m", spec=apart("web", HOSTNAME))]
    assert machines.grow(objects, [group("pool", "a")]).by == {"pool": 3}


def test_a_spread_over_nodes_counts_only_nodes_that_are_there(machines):
    """Four pods, at most one more on a node than on another: two new nodes hold two each, and no third is opened for it."""
    objects = [
        *_full("a", labels={"pool": "old"}),
        *_waiting(
            4, cpu="2", spec={**spread("web", HOSTNAME, hard=True), "nodeSelector": {"pool": "new"}}
        ),
    ]
    templates = {"new": _template(labels={"pool": "new"})}
    assert machines.grow(objects, [group("new")], templates=templates).by == {"new": 2}


def test_new_nodes_come_in_the_zone_with_the_fewest(machines):
    objects = [*_full("a", "za"), *_full("b", "zb"), *_waiting(3, cpu="3")]
    grown = machines.grow(objects, [group("pool", "a", "b", zones=("za", "zb", "zc"))])
    (step,) = grown.growth.increases
    assert dict(step.zones) == {"za": 1, "zb": 1, "zc": 1}


def test_a_zone_that_a_spread_asks_for_is_reached_through_the_others(machines):
    """The group puts its next two nodes into za, where the spread lets no pod go; the one after these is in zb."""
    objects = [
        *_full("a", "za"),
        *workload("web", ["a"], cpu="0", spec=spread("web", ZONE, hard=True)),
        *_full("b", "zb"),
        *_full("b2", "zb"),
        *workload(
            "more", [""], labels={"app": "web"}, cpu="1", spec=spread("web", ZONE, hard=True)
        ),
    ]
    grown = machines.grow(objects, [group("pool", "a", "b", "b2", zones=("za", "zb"))])
    assert dict(grown.growth.increases[0].zones) == {"za": 2, "zb": 1}
    assert grown["more-0"].group == "pool"


def test_daemonsets_take_their_share_of_new_nodes(machines):
    daemon = workload("agent", ["a"], cpu="1500m")
    for item in daemon:
        for reference in item["metadata"].get("ownerReferences", ()):
            reference["kind"] = "DaemonSet"
    objects = [*_full("a", cpu="6"), *daemon[-1:], *_waiting(2, cpu="3")]
    # 6 cores minus 1.5 of the agent hold one pod of 3.
    assert machines.grow(objects, [group("pool", "a")]).by == {"pool": 2}
    templates = {"new": _template(cpu="6")}
    assert machines.grow(objects, [group("new")], templates=templates).by == {"new": 2}


@pytest.mark.parametrize(
    ("policy", "chosen"),
    [
        ("", "small"),
        ("capacity: {expander: most-pods}", "large"),
        ("capacity: {expander: priority, priorities: [^lar, small]}", "large"),
        ("capacity: {expander: priority, priorities: [^sm]}", "small"),
    ],
)
def test_the_expander_chooses_between_groups(machines, policy, chosen):
    """One pod of 1 core for small (1 of 1 core used), three for large (3 of 16)."""
    objects = [*_full("a"), *_waiting(3, cpu="1", memory="4Gi")]
    groups = [group("small", high=1), group("large", high=1)]
    templates = {"small": _template("1", "4Gi"), "large": _template("16", "64Gi")}
    grown = machines.grow(objects, groups, policy, templates)
    assert grown.growth.increases[0].group == chosen


def test_with_priorities_a_group_without_a_match_does_not_grow(machines):
    policy = "capacity: {expander: priority, priorities: [other]}"
    grown = machines.grow([*_full("a"), *_waiting(1)], [group("pool", "a")], policy)
    assert grown.by == {}


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"spec": {"schedulingGates": [{"name": "wait"}]}}, "Rejected"),
        ({"priority": -11}, "Expendable"),
        ({"priority": -10}, "GroupGrows"),
        ({"spec": {"schedulerName": "own"}}, "NotPredictable"),
    ],
)
def test_pods_for_which_nothing_grows(machines, more, code):
    grown = machines.grow([*_full("a"), *_waiting(1, **more)], [group("pool", "a")])
    assert grown["web-0"].code.value == code


def test_without_groups_the_scheduler_s_words_remain(machines):
    grown = machines.grow([*_full("a"), *_waiting(1)])
    assert grown["web-0"].message == "0/1 nodes are available: 1 Insufficient cpu"
    assert grown["web-0"].code.value == "NoGroupFits"


def test_unknown_sizes_set_no_limit(machines):
    unsized = NodeGroup(name="pool", instances=("a",))
    assert machines.grow([*_full("a"), *_waiting(3, cpu="3")], [unsized]).by == {"pool": 3}


@pytest.mark.parametrize("kind", ["DaemonSet", "Node"])
def test_pods_that_each_node_gets_hold_room_on_a_new_one(machines, kind):
    """Cluster Autoscaler counts pods of DaemonSets and mirror pods (``podsExpectedOnFreshNode``)."""
    own = [one for one in workload("own", ["a"], kind=kind, cpu="1") if one["kind"] == "Pod"]
    objects = [node("a"), *own, *workload("on-a", ["a"], cpu="3"), *_waiting(2, cpu="2")]
    assert machines.grow(objects, [group("pool", "a")]).by == {"pool": 2}


def test_nothing_grows_for_a_pod_that_a_daemon_set_has_made_for_a_node(machines):
    agent = [one for one in workload("agent", [""], kind="DaemonSet") if one["kind"] == "Pod"]
    grown = machines.grow([*_full("a"), *agent], [group("pool", "a")])
    assert (grown.by, grown.codes) == ({}, {"agent-0": "BelongsToNode"})


def test_machines_on_their_way_are_filled_before_a_group_grows(machines):
    """Three pods of 3 cores take a node each; one machine is coming, so that two more are asked for."""
    objects = [*_full("a"), *_waiting(3, cpu="3")]
    groups = [group("pool", "a", desired=2)]
    grown = machines.grow(objects, groups, outlook=Outlook(coming={"pool": 1}))
    assert grown.by == {"pool": 2}
    assert sorted(grown.codes.values()) == ["GroupGrows", "GroupGrows", "NodeOnItsWay"]


def test_nothing_grows_twice_for_the_same_pods(machines):
    objects = [*_full("a"), *_waiting(3, cpu="3")]
    groups = [group("pool", "a", desired=4)]
    grown = machines.grow(objects, groups, outlook=Outlook(coming={"pool": 3}))
    assert (grown.by, set(grown.codes.values())) == ({}, {"NodeOnItsWay"})


def test_machines_on_their_way_stand_in_the_size_once(machines):
    """Two machines, one of them coming, at most three: one more, not none and not two."""
    objects = [*_full("a"), *_waiting(4, cpu="3")]
    groups = [group("pool", "a", desired=2, high=3)]
    grown = machines.grow(objects, groups, outlook=Outlook(coming={"pool": 1}))
    assert grown.by == {"pool": 1}
    assert list(grown.codes.values()).count("NodeGroupMaxSizeReached") == 2


def test_a_barred_group_does_not_grow_and_says_why(machines):
    barred = {"pool": Refusal("pool", GroupCode.BACKS_OFF, "tried again later")}
    objects, groups = [*_full("a"), *_waiting(1, cpu="3")], [group("pool", "a")]
    grown = machines.grow(objects, groups, outlook=Outlook(barred=barred))
    assert (grown.by, grown.codes) == ({}, {"web-0": "GroupMayNotGrow"})
    assert grown["web-0"].refusals == (barred["pool"],)


def test_another_group_grows_in_the_place_of_a_barred_one(machines):
    barred = {"first": Refusal("first", GroupCode.BACKS_OFF, "tried again later")}
    objects = [*_full("a"), *_waiting(1, cpu="3")]
    templates = {name: _template() for name in ("first", "second")}
    groups = [group("first"), group("second")]
    assert machines.grow(objects, groups, templates=templates).by == {"first": 1}
    grown = machines.grow(objects, groups, templates=templates, outlook=Outlook(barred=barred))
    assert grown.by == {"second": 1}


def test_a_pod_for_which_nothing_has_to_grow_yet(machines):
    objects = [*_full("a"), *_waiting(2, cpu="3")]
    grown = machines.grow(objects, [group("pool", "a")], asking=["web-1"])
    assert grown.codes == {"web-0": "TooYoung", "web-1": "GroupGrows"}
    assert grown.by == {"pool": 1}


def test_alike_groups_share_the_new_nodes_the_smallest_first(machines):
    """Five nodes of groups with 0, 1 and 3: three for the first and two for the second make 3, 3 and 3."""
    objects = [*_full("a"), *_waiting(5, cpu="3")]
    zones = {name: _template(labels={ZONE: name}) for name in ("za", "zb", "zc")}
    groups = [group("za", desired=0), group("zb", desired=1), group("zc", desired=3)]
    assert machines.grow(objects, groups, templates=zones).by == {"za": 3, "zb": 2}


@pytest.mark.parametrize(
    "other",
    [
        _template(labels={"disk": "ssd"}),
        _template(cpu="4500m"),
        _template(taints=(Taint(key="x", value="", effect="PreferNoSchedule"),)),
    ],
)
def test_groups_that_differ_share_nothing(machines, other):
    objects = [*_full("a"), *_waiting(2, cpu="3", memory="12Gi")]
    templates = {"one": _template(), "other": other}
    grown = machines.grow(objects, [group("one"), group("other")], templates=templates)
    assert len(grown.by) == 1


def test_alike_groups_share_within_their_maximum(machines):
    objects = [*_full("a"), *_waiting(4, cpu="3")]
    templates = {"one": _template(), "two": _template()}
    groups = [group("one", high=1), group("two", high=5)]
    assert machines.grow(objects, groups, templates=templates).by == {"one": 1, "two": 3}


def test_a_pod_that_only_one_zone_takes_is_not_shared_away(machines):
    objects = [*_full("a"), *_waiting(2, cpu="3", spec={"nodeSelector": {ZONE: "za"}})]
    templates = {name: _template(labels={ZONE: name}) for name in ("za", "zb")}
    grown = machines.grow(objects, [group("za"), group("zb")], templates=templates)
    assert grown.by == {"za": 2}


def test_a_pod_for_which_a_group_has_grown_does_not_ask_again_while_its_machine_comes(machines):
    """A group has grown for b by one machine, which by itself the larger a would be given."""
    objects = [*_full("x"), *_waiting(1, "a", cpu="3"), *_waiting(1, "b", cpu="2")]
    groups = [group("pool", "x", desired=2)]
    outlook = Outlook(coming={"pool": 1}, promised={"default/b-0": "pool"})
    grown = machines.grow(objects, groups, outlook=outlook)
    assert grown.codes == {"a-0": "GroupGrows", "b-0": "NodeOnItsWay"}
    gone = Outlook(promised=outlook.promised)
    assert machines.grow(objects, [group("pool", "x")], outlook=gone).by == {"pool": 2}
