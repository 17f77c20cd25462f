"""Which groups are increased for the pending pods: small clusters that a person can check."""

import pytest

from rebalancer.machines.capacity.scale_out_plan import GroupRefusal, ScaleOutInputs
from rebalancer.machines.reasons import GroupCode
from rebalancer.providers.contract import NodeGroup, NodeTemplate
from rebalancer.testing.snapshots import HOSTNAME, ZONE, apart, node, spread, workload
from rebalancer.wire.objects import Taint
from tests.unit.machines.capacity.conftest import group

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
_GPU = Taint(key="gpu", value="yes", effect="NoSchedule")


def _full(name, zone=None, **more):
    """Return a node of four cores with a pod that leaves it nothing."""
    return [node(name, zone, **more), *workload(f"on-{name}", [name], cpu="4", memory="1Gi")]


def _pending_pods(count, name="web", **more):
    return workload(name, [""] * count, **more)


def _template(cpu="4", memory="16Gi", labels=None, taints=()):
    return NodeTemplate(labels or {}, taints, {"cpu": cpu, "memory": memory, "pods": "110"})


def _at_prices(table):
    return f"prices: {{asOf: 2027-01-01, table: {{{table}}}}}\ncapacity: {{expander: price}}"


def test_pods_that_fit_take_their_room_before_a_group_grows(machines):
    planned = machines.scale_out([node("a"), *_pending_pods(5, cpu="1")], [group("pool", "a")])
    assert planned.by == {"pool": 1}
    assert sorted(planned.codes.values()) == ["Fits"] * 4 + ["GroupGrows"]


def test_ten_replicas_of_half_a_core_on_three_nodes_of_two(machines):
    """Article 004: 1 to 10 replicas of 500m and 512Mi. Three nodes take 9 beside what is on them, so one is added."""
    nodes = [node(name, cpu="1930m", memory="3300Mi") for name in "abc"]
    objects = [*nodes, *workload("web", ["a", *[""] * 9], cpu="500m", memory="512Mi")]
    planned = machines.scale_out(objects, [group("pool", *"abc", high=6)])
    assert planned.by == {"pool": 1}
    assert list(planned.codes.values()).count("Fits") == 8


def test_as_many_nodes_as_first_fit_decreasing_takes(machines):
    objects = [
        *_full("a"),
        *_pending_pods(3, "large", cpu="3"),
        *_pending_pods(5, "small", cpu="1"),
    ]
    planned = machines.scale_out(objects, [group("pool", "a")])
    # Three large ones take a node each, with a core left for a small one; two more small ones fit into one more.
    assert planned.by == {"pool": 4}


def test_the_cluster_grows_no_further_than_its_maximum(machines):
    """Two nodes, one upcoming machine that takes a pod, and room for one more node, in whichever group."""
    objects = [*_full("a"), *_full("b"), *_pending_pods(4, cpu="3")]
    groups = [group("one", "a", desired=2), group("two", "b")]
    planned = machines.scale_out(
        objects, groups, "capacity: {maxNodes: 4}\n", inputs=ScaleOutInputs(upcoming={"one": 1})
    )
    assert sum(planned.by.values()) == 1
    assert sorted(planned.codes.values()) == [
        "GroupGrows",
        "NodeGroupMaxSizeReached",
        "NodeGroupMaxSizeReached",
        "NodeUpcoming",
    ]
    refused = next(one for one in planned.scale_out.pods if one.refusals).refusals
    assert {(of.code, of.message) for of in refused} == {
        (GroupCode.CLUSTER_FULL, "the cluster may have 4 nodes")
    }


def test_a_group_grows_no_further_than_its_maximum(machines):
    planned = machines.scale_out(
        [*_full("a"), *_pending_pods(3, cpu="3")], [group("pool", "a", high=2)]
    )
    assert planned.by == {"pool": 1}
    assert list(planned.codes.values()).count("NodeGroupMaxSizeReached") == 2
    (refusal,) = next(one for one in planned.scale_out.pods if one.refusals).refusals
    assert (refusal.code.value, refusal.message) == (
        "MaxSizeReached",
        "it has 1 nodes and may have 2",
    )


def test_machines_on_their_way_count_towards_the_maximum(machines):
    planned = machines.scale_out(
        [*_full("a"), *_pending_pods(1, cpu="3")], [group("pool", "a", high=2, desired=2)]
    )
    assert planned.by == {}


def test_from_nothing_by_the_providers_template(machines):
    objects = [*_full("a"), *_pending_pods(2, cpu="3", spec={"nodeSelector": {"pool": "new"}})]
    templates = {"new": _template(labels={"pool": "new"})}
    planned = machines.scale_out(objects, [group("old", "a"), group("new")], templates=templates)
    assert planned.by == {"new": 2}


def test_a_group_of_which_nothing_is_known_says_so(machines):
    planned = machines.scale_out(
        [*_full("a"), *_pending_pods(1, cpu="8")], [group("old", "a"), group("new")]
    )
    codes = {refusal.group: refusal.code.value for refusal in planned["web-0"].refusals}
    assert planned["web-0"].code.value == "NoGroupFits"
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
    planned = machines.scale_out(
        [*_full("a"), *_pending_pods(1, spec=spec)], [group("new")], templates=templates
    )
    assert text in planned["web-0"].refusals[0].message


def test_tolerated_taints_and_what_they_keep_out(machines):
    tolerant = {"tolerations": [{"key": "gpu", "operator": "Exists"}]}
    objects = [
        *_full("a"),
        *_pending_pods(2, "plain", cpu="1"),
        *_pending_pods(2, "gpu", cpu="1", spec=tolerant),
    ]
    planned = machines.scale_out(
        objects, [group("new")], templates={"new": _template(taints=(_GPU,))}
    )
    assert planned["gpu-0"].group == "new"
    assert planned["plain-0"].code.value == "NoGroupFits"


def test_taints_of_a_state_are_not_those_of_a_new_node(machines):
    taints = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
    objects = [*_full("a", taints=taints, unschedulable=True), *_pending_pods(1)]
    assert machines.scale_out(objects, [group("pool", "a")]).by == {"pool": 1}


def test_required_anti_affinity_takes_a_node_each(machines):
    objects = [*_full("a"), *_pending_pods(3, cpu="100m", spec=apart("web", HOSTNAME))]
    assert machines.scale_out(objects, [group("pool", "a")]).by == {"pool": 3}


def test_a_spread_over_nodes_counts_only_nodes_that_are_there(machines):
    """Four pods, at most one more on a node than on another: two new nodes hold two each, and no third is opened for it."""
    objects = [
        *_full("a", labels={"pool": "old"}),
        *_pending_pods(
            4, cpu="2", spec={**spread("web", HOSTNAME, hard=True), "nodeSelector": {"pool": "new"}}
        ),
    ]
    templates = {"new": _template(labels={"pool": "new"})}
    assert machines.scale_out(objects, [group("new")], templates=templates).by == {"new": 2}


def test_new_nodes_come_in_the_zone_with_the_fewest(machines):
    objects = [*_full("a", "za"), *_full("b", "zb"), *_pending_pods(3, cpu="3")]
    planned = machines.scale_out(objects, [group("pool", "a", "b", zones=("za", "zb", "zc"))])
    (step,) = planned.scale_out.increases
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
    planned = machines.scale_out(objects, [group("pool", "a", "b", "b2", zones=("za", "zb"))])
    assert dict(planned.scale_out.increases[0].zones) == {"za": 2, "zb": 1}
    assert planned["more-0"].group == "pool"


def test_daemonsets_take_their_share_of_new_nodes(machines):
    daemon = workload("agent", ["a"], cpu="1500m")
    for item in daemon:
        for reference in item["metadata"].get("ownerReferences", ()):
            reference["kind"] = "DaemonSet"
    objects = [*_full("a", cpu="6"), *daemon[-1:], *_pending_pods(2, cpu="3")]
    # 6 cores minus 1.5 of the agent hold one pod of 3.
    assert machines.scale_out(objects, [group("pool", "a")]).by == {"pool": 2}
    templates = {"new": _template(cpu="6")}
    assert machines.scale_out(objects, [group("new")], templates=templates).by == {"new": 2}


@pytest.mark.parametrize(
    ("policy", "pods", "chosen"),
    [
        ("", 2, "small"),
        ("capacity: {expander: most-pods}", 3, "large"),
        ("capacity: {expander: priority, priorities: [^lar, small]}", 2, "large"),
        ("capacity: {expander: priority, priorities: [^sm]}", 3, "small"),
        (_at_prices("small: 0.5, large: 1.2"), 2, "small"),
        (_at_prices("small: 0.5, large: 0.9"), 2, "large"),
        # 0.5 for a pod, and 0.4 for each of three.
        (_at_prices("small: 0.5, large: 1.2"), 3, "large"),
        (_at_prices("large: 100"), 2, "large"),
    ],
)
def test_the_expander_chooses_between_groups(machines, policy, pods, chosen):
    """Two pods of 1 core for small (all of two nodes used), all for large (2 or 3 of 16)."""
    objects = [*_full("a"), *_pending_pods(pods, cpu="1", memory="4Gi")]
    groups = [group("small", high=2), group("large", high=1)]
    templates = {
        "small": _template("1", "4Gi", {INSTANCE_TYPE: "small"}),
        "large": _template("16", "64Gi", {INSTANCE_TYPE: "large"}),
    }
    planned = machines.scale_out(objects, groups, policy, templates)
    assert planned.scale_out.increases[0].group == chosen


@pytest.mark.parametrize(
    ("chain", "chosen"),
    [
        # a: 2 nodes of 2 cores, all used. b, c: 1 node of 8 cores, half used; c costs less than b.
        ("least-waste", "a"),
        ("least-nodes", "b"),
        ("[least-nodes, price]", "c"),
        ("[most-pods, least-nodes, price]", "c"),
        ("[most-pods, least-nodes]", "b"),
        ("[most-pods, least-waste, least-nodes]", "a"),
        ("[price]", "a"),
        ("[priority, price]", "c"),
        ("[priority, least-waste]", "b"),
    ],
)
def test_each_expander_narrows_what_the_one_before_it_leaves(machines, chain, chosen):
    """Four pods of a core, and groups of two sizes."""
    objects = [*_full("old"), *_pending_pods(4, cpu="1", memory="1Gi")]
    groups = [group(name) for name in "abc"]
    templates = {
        "a": _template("2", "2Gi", {INSTANCE_TYPE: "a", "hourly": "0.1"}),
        "b": _template("8", "8Gi", {INSTANCE_TYPE: "b", "hourly": "0.9"}),
        "c": _template("8", "8Gi", {INSTANCE_TYPE: "c", "hourly": "0.8"}),
    }
    named = ", priorities: [b|c]" if "priority" in chain else ""
    policy = f"prices: {{label: hourly}}\ncapacity: {{expander: {chain}{named}}}"
    planned = machines.scale_out(objects, groups, policy, templates)
    assert planned.scale_out.increases[0].group == chosen


def test_lots_are_drawn_among_equals_from_the_seed(machines):
    objects = [*_full("old"), *_pending_pods(1, cpu="1")]
    groups = [group(name) for name in "abcd"]
    templates = {
        name: _template("4" if name != "d" else "32", labels={"of": name}) for name in "abcd"
    }

    def drawn(seed):
        inputs = ScaleOutInputs(seed=str(seed))
        policy = "capacity: {expander: [least-waste, random]}"
        planned = machines.scale_out(objects, groups, policy, templates, inputs)
        return planned.scale_out.increases[0].group

    chosen = [drawn(seed) for seed in range(24)]
    assert set(chosen) == {"a", "b", "c"}
    assert chosen == [drawn(seed) for seed in range(24)]


@pytest.mark.parametrize(
    ("chain", "text"),
    [
        ("[price, least-waste, price]", "stands twice"),
        ("[random, price]", "nothing may come after it"),
        ("[]", "at least one"),
        ("[least-wast]", "least-waste"),
        ("least-wast", "least-waste"),
    ],
)
def test_chains_that_choose_nothing_are_refused(machines, chain, text):
    with pytest.raises(Exception, match=text):
        machines.rules(f"capacity: {{expander: {chain}}}")


@pytest.mark.parametrize(("other", "by"), [("0.1", {"one": 1, "two": 1}), ("0.2", {"one": 2})])
def test_similar_groups_share_new_nodes_only_at_the_same_price(machines, other, by):
    objects = [*_full("a"), *_pending_pods(2, cpu="3")]
    templates = {
        name: _template(labels={"hourly": price})
        for name, price in (("one", "0.1"), ("two", other))
    }
    policy = "prices: {label: hourly}\ncapacity: {expander: price}"
    assert machines.scale_out(objects, [group("one"), group("two")], policy, templates).by == by


_SHARED = {"one": 2, "two": 2}
_ALONE = {"one": 4}


@pytest.mark.parametrize(
    ("balance", "one", "two", "by"),
    [
        ("", {}, {}, _SHARED),
        ("", {"rack": "1"}, {"rack": "2"}, _ALONE),
        ("ignoreLabels: [rack]", {"rack": "1"}, {"rack": "2"}, _SHARED),
        ("ignoreLabels: [rack]", {"rack": "1"}, {}, _SHARED),
        ("ignoreLabels: [rack]", {"rack": "1", "disk": "fast"}, {"rack": "2"}, _ALONE),
        # Only these count, and a group without one is similar to none.
        ("labels: [pool]", {"pool": "a", "rack": "1"}, {"pool": "a", "rack": "2"}, _SHARED),
        ("labels: [pool]", {"pool": "a"}, {"pool": "b"}, _ALONE),
        ("labels: [pool]", {}, {}, _ALONE),
        ("labels: [pool, rack]", {"pool": "a", "rack": "1"}, {"pool": "a"}, _ALONE),
    ],
)
def test_labels_say_which_groups_share_new_nodes(machines, balance, one, two, by):
    """Four pods that take a node each, and two groups of equal machines."""
    objects = [*_full("a"), *_pending_pods(4, cpu="3")]
    templates = {"one": _template(labels=one), "two": _template(labels=two)}
    policy = f"capacity: {{balance: {{{balance}}}}}"
    assert machines.scale_out(objects, [group("one"), group("two")], policy, templates).by == by


def test_groups_of_different_machines_share_by_a_label_where_that_takes_as_few_nodes(machines):
    """By the label alone both are similar; pods of 5 cores fit on large machines only, and two of 4 on one of these."""
    templates = {
        "large": _template("8", labels={"pool": "a"}),
        "small": _template("4", labels={"pool": "a"}),
    }
    policy = "capacity: {expander: least-nodes, balance: {labels: [pool]}}"
    groups = [group("large"), group("small")]

    def by(cpu):
        objects = [*_full("a"), *_pending_pods(2, cpu=cpu)]
        return machines.scale_out(objects, groups, policy, templates).by

    assert by("5") == {"large": 2}
    assert by("4") == {"large": 1}


def test_labels_and_labels_to_ignore_exclude_each_other(machines):
    with pytest.raises(Exception, match="leave out ignoreLabels"):
        machines.rules("capacity: {balance: {labels: [pool], ignoreLabels: [rack]}}")


def test_with_priorities_a_group_without_a_match_does_not_grow(machines):
    policy = "capacity: {expander: priority, priorities: [other]}"
    planned = machines.scale_out([*_full("a"), *_pending_pods(1)], [group("pool", "a")], policy)
    assert planned.by == {}


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
    planned = machines.scale_out([*_full("a"), *_pending_pods(1, **more)], [group("pool", "a")])
    assert planned["web-0"].code.value == code


_ONE_GPU = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}


@pytest.mark.parametrize(
    ("amounts", "used", "by", "code"),
    [
        # A group says that its machines have two: three pods take two of them.
        ({"nvidia.com/gpu": "2"}, False, {"gpu": 2}, "GroupGrows"),
        # No label or tag names it: a DeviceClass may stand behind it.
        ({}, False, {}, "NotPredictable"),
        ({"nvidia.com/gpu": "0"}, False, {}, "NotPredictable"),
        ({"amd.com/gpu": "2"}, False, {}, "NotPredictable"),
        # A pod has one on a node that offers none: one does.
        ({"nvidia.com/gpu": "2"}, True, {}, "NotPredictable"),
    ],
)
def test_a_group_from_zero_brings_what_no_node_has(machines, amounts, used, by, code):
    objects = [node("a"), *workload("train", [""] * 3, spec=_ONE_GPU)]
    objects += workload("served", ["a"], spec=_ONE_GPU) if used else []
    given = NodeTemplate({}, (), {"cpu": "4", "memory": "16Gi", "pods": "110", **amounts})
    groups = [group("gpu"), group("plain", "a")]
    planned = machines.scale_out(objects, groups, "", {"gpu": given})
    assert planned.by == by
    assert planned["train-0"].code.value == code


def test_machines_that_come_take_pods_for_what_no_node_has(machines):
    objects = [node("a"), *workload("train", [""] * 2, spec=_ONE_GPU)]
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "110", "nvidia.com/gpu": "2"}
    planned = machines.scale_out(
        objects,
        [group("gpu", desired=1)],
        "",
        {"gpu": NodeTemplate({}, (), amounts)},
        inputs=ScaleOutInputs(upcoming={"gpu": 1}),
    )
    assert (planned.by, planned["train-0"].code.value) == ({}, "NodeUpcoming")


def test_without_groups_the_scheduler_s_words_remain(machines):
    planned = machines.scale_out([*_full("a"), *_pending_pods(1)])
    assert planned["web-0"].message == "0/1 nodes are available: 1 Insufficient cpu"
    assert planned["web-0"].code.value == "NoGroupFits"


def test_unknown_sizes_set_no_limit(machines):
    unsized = NodeGroup(name="pool", instances=("a",))
    assert machines.scale_out([*_full("a"), *_pending_pods(3, cpu="3")], [unsized]).by == {
        "pool": 3
    }


@pytest.mark.parametrize("kind", ["DaemonSet", "Node"])
def test_pods_that_each_node_gets_hold_room_on_a_new_one(machines, kind):
    """Cluster Autoscaler counts pods of DaemonSets and mirror pods (``podsExpectedOnFreshNode``)."""
    own = [one for one in workload("own", ["a"], kind=kind, cpu="1") if one["kind"] == "Pod"]
    objects = [node("a"), *own, *workload("on-a", ["a"], cpu="3"), *_pending_pods(2, cpu="2")]
    assert machines.scale_out(objects, [group("pool", "a")]).by == {"pool": 2}


def test_nothing_grows_for_a_pod_that_a_daemon_set_has_made_for_a_node(machines):
    agent = [one for one in workload("agent", [""], kind="DaemonSet") if one["kind"] == "Pod"]
    planned = machines.scale_out([*_full("a"), *agent], [group("pool", "a")])
    assert (planned.by, planned.codes) == ({}, {"agent-0": "BelongsToNode"})


def _agent_that_waits_for(name, cpu="3"):
    """A pod as the DaemonSet controller makes it: it names its node, and nothing has placed it yet."""
    field_of_name = {"key": "metadata.name", "operator": "In", "values": [name]}
    term = {"nodeSelectorTerms": [{"matchFields": [field_of_name]}]}
    rule = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}
    made = workload("agent", [""], kind="DaemonSet", cpu=cpu, spec={"affinity": rule})
    return [one for one in made if one["kind"] == "Pod"]


def test_a_daemon_set_s_pod_that_waits_fits_on_its_own_node_only(machines):
    full, free = [*_full("a")], node("b")
    planned = machines.scale_out([*full, free, *_agent_that_waits_for("a")], [group("pool", "a")])
    assert (planned.by, planned.codes) == ({}, {"agent-0": "BelongsToNode"})
    words = "1 Insufficient cpu, 1 node(s) didn't satisfy plugin(s) [NodeAffinity]"
    assert planned["agent-0"].message == f"0/2 nodes are available: {words}"
    planned = machines.scale_out([*full, free, *_agent_that_waits_for("b")], [group("pool", "a")])
    assert planned.codes == {"agent-0": "Fits"}
    assert planned["agent-0"].message.startswith("b has room for it")


def test_no_empty_machine_is_kept_for_a_pod_that_can_never_go_there(machines):
    groups = [group("pool", "a", "b", low=0)]
    judged = machines.judge([*_full("a"), node("b"), *_agent_that_waits_for("a")], groups)
    assert judged["b"].code.value == "Empty"


def test_machines_on_their_way_are_filled_before_a_group_grows(machines):
    """Three pods of 3 cores take a node each; one machine is upcoming, so that two more are asked for."""
    objects = [*_full("a"), *_pending_pods(3, cpu="3")]
    groups = [group("pool", "a", desired=2)]
    planned = machines.scale_out(objects, groups, inputs=ScaleOutInputs(upcoming={"pool": 1}))
    assert planned.by == {"pool": 2}
    assert sorted(planned.codes.values()) == ["GroupGrows", "GroupGrows", "NodeUpcoming"]


def test_nothing_grows_twice_for_the_same_pods(machines):
    objects = [*_full("a"), *_pending_pods(3, cpu="3")]
    groups = [group("pool", "a", desired=4)]
    planned = machines.scale_out(objects, groups, inputs=ScaleOutInputs(upcoming={"pool": 3}))
    assert (planned.by, set(planned.codes.values())) == ({}, {"NodeUpcoming"})


def test_machines_on_their_way_stand_in_the_size_once(machines):
    """Two machines, one of them upcoming, at most three: one more, not none and not two."""
    objects = [*_full("a"), *_pending_pods(4, cpu="3")]
    groups = [group("pool", "a", desired=2, high=3)]
    planned = machines.scale_out(objects, groups, inputs=ScaleOutInputs(upcoming={"pool": 1}))
    assert planned.by == {"pool": 1}
    assert list(planned.codes.values()).count("NodeGroupMaxSizeReached") == 2


def test_a_barred_group_does_not_grow_and_says_why(machines):
    blocked = {"pool": GroupRefusal("pool", GroupCode.BACKOFF, "tried again later")}
    objects, groups = [*_full("a"), *_pending_pods(1, cpu="3")], [group("pool", "a")]
    planned = machines.scale_out(objects, groups, inputs=ScaleOutInputs(blocked=blocked))
    assert (planned.by, planned.codes) == ({}, {"web-0": "GroupMayNotGrow"})
    assert planned["web-0"].refusals == (blocked["pool"],)


def test_another_group_grows_in_the_place_of_a_barred_one(machines):
    blocked = {"first": GroupRefusal("first", GroupCode.BACKOFF, "tried again later")}
    objects = [*_full("a"), *_pending_pods(1, cpu="3")]
    templates = {name: _template() for name in ("first", "second")}
    groups = [group("first"), group("second")]
    assert machines.scale_out(objects, groups, templates=templates).by == {"first": 1}
    planned = machines.scale_out(
        objects, groups, templates=templates, inputs=ScaleOutInputs(blocked=blocked)
    )
    assert planned.by == {"second": 1}


def test_a_pod_for_which_nothing_has_to_grow_yet(machines):
    objects = [*_full("a"), *_pending_pods(2, cpu="3")]
    planned = machines.scale_out(objects, [group("pool", "a")], triggering=["web-1"])
    assert planned.codes == {"web-0": "TooYoung", "web-1": "GroupGrows"}
    assert planned.by == {"pool": 1}


def test_alike_groups_share_the_new_nodes_the_smallest_first(machines):
    """Five nodes of groups with 0, 1 and 3: three for the first and two for the second make 3, 3 and 3."""
    objects = [*_full("a"), *_pending_pods(5, cpu="3")]
    zones = {name: _template(labels={ZONE: name}) for name in ("za", "zb", "zc")}
    groups = [group("za", desired=0), group("zb", desired=1), group("zc", desired=3)]
    assert machines.scale_out(objects, groups, templates=zones).by == {"za": 3, "zb": 2}


@pytest.mark.parametrize(
    "other",
    [
        _template(labels={"disk": "ssd"}),
        _template(cpu="4500m"),
        _template(taints=(Taint(key="x", value="", effect="PreferNoSchedule"),)),
    ],
)
def test_groups_that_differ_share_nothing(machines, other):
    objects = [*_full("a"), *_pending_pods(2, cpu="3", memory="12Gi")]
    templates = {"one": _template(), "other": other}
    planned = machines.scale_out(objects, [group("one"), group("other")], templates=templates)
    assert len(planned.by) == 1


def test_alike_groups_share_within_their_maximum(machines):
    objects = [*_full("a"), *_pending_pods(4, cpu="3")]
    templates = {"one": _template(), "two": _template()}
    groups = [group("one", high=1), group("two", high=5)]
    assert machines.scale_out(objects, groups, templates=templates).by == {"one": 1, "two": 3}


def test_a_pod_that_only_one_zone_takes_is_not_shared_away(machines):
    objects = [*_full("a"), *_pending_pods(2, cpu="3", spec={"nodeSelector": {ZONE: "za"}})]
    templates = {name: _template(labels={ZONE: name}) for name in ("za", "zb")}
    planned = machines.scale_out(objects, [group("za"), group("zb")], templates=templates)
    assert planned.by == {"za": 2}


def test_a_pod_for_which_a_group_has_grown_does_not_ask_again_while_its_machine_comes(machines):
    """A group has planned for b by one machine, which by itself the larger a would be given."""
    objects = [*_full("x"), *_pending_pods(1, "a", cpu="3"), *_pending_pods(1, "b", cpu="2")]
    groups = [group("pool", "x", desired=2)]
    inputs = ScaleOutInputs(upcoming={"pool": 1}, triggered={"default/b-0": "pool"})
    planned = machines.scale_out(objects, groups, inputs=inputs)
    assert planned.codes == {"a-0": "GroupGrows", "b-0": "NodeUpcoming"}
    gone = ScaleOutInputs(triggered=inputs.triggered)
    assert machines.scale_out(objects, [group("pool", "x")], inputs=gone).by == {"pool": 2}


def test_a_node_is_left_out_whose_pods_fit_where_another_group_has_to_grow(machines):
    """The small group wastes less for two pods, but a third pod needs a large node, which has room for all."""
    objects = [
        *_full("a"),
        *_pending_pods(2, cpu="1", memory="4Gi"),
        *_pending_pods(1, "gpu", cpu="1", memory="4Gi", spec={"nodeSelector": {"pool": "large"}}),
    ]
    templates = {
        "small": _template("1", "4Gi"),
        "large": _template("16", "64Gi", {"pool": "large"}),
    }
    planned = machines.scale_out(objects, [group("small"), group("large")], templates=templates)
    assert planned.by == {"large": 1}
    assert {one.group for one in planned.scale_out.pods} == {"large"}
    (step,) = planned.scale_out.increases
    assert (step.pods, round(step.waste, 4)) == (3, 1 - 3 / 16)


def test_a_room_that_was_spared_is_for_those_that_are_left(machines):
    """At most two machines: without the node that is left out there is one for the pod that had none."""
    objects = [
        *_full("a"),
        *_pending_pods(2, "one", cpu="3", memory="1Gi"),
        *_pending_pods(1, "gpu", cpu="1", spec={"nodeSelector": {"pool": "large"}}),
    ]
    templates = {"small": _template("3"), "large": _template("16", labels={"pool": "large"})}
    groups = [group("small", high=1), group("large", high=1)]
    planned = machines.scale_out(objects, groups, templates=templates)
    assert set(planned.codes.values()) == {"GroupGrows"}


def test_of_a_group_in_several_zones_only_the_last_node_is_left_out(machines):
    """The first node is in za, where no pod has to be; without it the second would be in za itself."""
    objects = [
        *_full("a", "za"),
        *workload("web", ["a"], cpu="0", spec=spread("web", ZONE, hard=True)),
        *_full("b", "zb"),
        *_full("b2", "zb"),
        *workload(
            "more", [""], labels={"app": "web"}, cpu="1", spec=spread("web", ZONE, hard=True)
        ),
    ]
    planned = machines.scale_out(objects, [group("pool", "a", "b", "b2", zones=("za", "zb"))])
    assert dict(planned.scale_out.increases[0].zones) == {"za": 2, "zb": 1}


OS = "kubernetes.io/os"


@pytest.mark.parametrize("spec", [{"os": {"name": "linux"}}, {}], ids=["spec", "ready-pods"])
def test_nodes_and_groups_of_another_operating_system_are_no_room(machines, spec):
    nodes = [*_full("lin", labels={OS: "linux"}), node("win", labels={OS: "windows"})]
    web = workload("web", ["lin", "", ""], cpu="100m", memory="1Mi", spec=spec)
    groups = [group("windows"), group("linux")]
    templates = {
        "windows": _template(labels={OS: "windows"}),
        "linux": _template(labels={OS: "linux"}),
    }
    planned = machines.scale_out([*nodes, *web], groups, templates=templates)
    assert planned.by == {"linux": 1}
    planned = machines.scale_out([*nodes, *web], groups[:1], templates=templates)
    assert planned.codes == {"web-1": "NoGroupFits", "web-2": "NoGroupFits"}
    assert "win has room for it, but is of another operating system" in planned["web-1"].message
    assert planned["web-1"].refusals[0].message == (
        "a new node would be of another operating system than it runs on"
    )
