"""Which nodes can be removed: Cluster Autoscaler's rules of scale-down as a table of small clusters that a person can check."""

import json
from dataclasses import replace

import pytest

from rebalancer.machines.reasons import RemovalCode
from rebalancer.providers.contract import NodeGroup
from rebalancer.snapshot.in_flight import with_requests
from rebalancer.snapshot.requests import EvictionRequest
from rebalancer.testing.snapshots import (
    NOW,
    OLD,
    apart,
    disruption_budget,
    node,
    snapshot_of,
    spread,
    workload,
)
from tests.unit.machines.capacity.conftest import group

_EMPTY_DIR = {"volumes": [{"name": "data", "emptyDir": {}}]}
_FREE = "protect: {singleReplicas: false}"
_HOST_PATH = {"volumes": [{"name": "data", "hostPath": {"path": "/data"}}]}


def _three(objects=(), **of_a):
    """Node a, on which the objects are, and two with room; each has a group of its own but for a and b."""
    return [node("a", **of_a), node("b"), node("c"), *_pads(), *objects]


def _pads():
    """Fill b and c to 60 %: neither can be removed."""
    return [*workload("pad", ["b", "c"], cpu="2400m")]


def _groups(low=0):
    return [group("pool", "a", low=low), group("rest", "b", "c")]


_GANG = {"app": "web", "scheduling.x-k8s.io/pod-group": "web"}


def _on_a(**more):
    return workload("web", ["a", "b", "c"], **more)


@pytest.mark.parametrize(
    ("objects", "code"),
    [
        ([], "Empty"),
        (_on_a(), "Removable"),
        # Utilisation is the larger of cpu and memory, and 50 % is too much, as with Cluster Autoscaler.
        (workload("web", ["a"], cpu="1999m", memory="100Mi"), "NoPlaceToMovePods"),
        (workload("web", ["a"], cpu="2000m", memory="100Mi"), "NotUnderutilized"),
        (workload("web", ["a"], cpu="100m", memory="9Gi"), "NotUnderutilized"),
        (_on_a(kind="ReplicaSet"), "Removable"),
        (_on_a(kind="StatefulSet"), "Removable"),
        # What Cluster Autoscaler's annotation says of a pod.
        (
            _on_a(annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}),
            "BlockedByPod",
        ),
        (
            _on_a(annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "on-completion"}),
            "BlockedByPod",
        ),
        (
            _on_a(annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}),
            "Removable",
        ),
        # A gang leaves as a whole, if all of it may.
        (_on_a(labels=_GANG), "Removable"),
        ([*_on_a(labels=_GANG), disruption_budget("web", "web", allowed=1)], "BlockedByPod"),
        # Local storage.
        (_on_a(spec=_EMPTY_DIR), "BlockedByPod"),
        (_on_a(spec=_HOST_PATH), "BlockedByPod"),
        # PodDisruptionBudgets.
        ([*_on_a(), disruption_budget("web", "web", allowed=0)], "BlockedByPod"),
        ([*_on_a(), disruption_budget("web", "web", allowed=1)], "Removable"),
        # No other node may take the pod.
        (_on_a(spec=apart("web", "kubernetes.io/hostname")), "NoPlaceToMovePods"),
        (workload("web", ["a"], spec={"nodeSelector": {"pool": "a"}}), "NoPlaceToMovePods"),
    ],
)
def test_what_is_on_a_node_decides(machines, objects, code):
    judged = machines.judge(_three(objects), _groups(), _FREE)
    assert judged.codes["a"] == code, judged["a"].message


@pytest.mark.parametrize(
    ("objects", "code"),
    [
        (_on_a(), "BlockedByPod"),
        (
            _on_a(annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}),
            "BlockedByPod",
        ),
        (workload("web", ["a"], cpu="3900m"), "NotUnderutilized"),
    ],
)
@pytest.mark.parametrize("requester", ["acme.example/drains", "rebalancer/moves"])
def test_a_request_for_the_end_of_a_pod_empties_no_node(machines, objects, code, requester):
    read = snapshot_of(_three(objects))
    pod = list(read.pods.name).index("web-0")
    uid = read.pods.uid[pod]
    name = f"rebalancer-{uid}"
    asked = EvictionRequest("default", name, "web-0", uid, requester, False, read.captured_at)
    judged = machines.judge(with_requests(read, [asked]), _groups(), _FREE)
    assert judged.codes["a"] == code, judged["a"].message


def _prefers_a(weight=100):
    term = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]}
    preferred = [{"weight": weight, "preference": term}]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


_SOFT = {"key": "", "operator": "Exists", "effect": "PreferNoSchedule"}
_CORDON = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}


@pytest.mark.parametrize(
    ("spec", "policy", "code"),
    [
        ({"affinity": _prefers_a()}, "", "Removable"),
        # 100 points x 10: more than any soft taint takes off.
        ({"affinity": _prefers_a()}, "scheduler: {weights: {NodeAffinity: 10}}", "Removable"),
        ({"affinity": _prefers_a(), "tolerations": [_SOFT]}, "", "Removable"),
        ({"affinity": _prefers_a(), "tolerations": [_CORDON]}, "", "Removable"),
        # It tolerates cordon and taint of scale-in, and would come back.
        (
            {"affinity": _prefers_a(), "tolerations": [{"operator": "Exists"}]},
            "",
            "NoPlaceToMovePods",
        ),
    ],
)
def test_preferred_affinity_never_keeps_a_node(machines, spec, policy, code):
    """NodeUnschedulable and TaintToleration filter before anything is scored; Cluster Autoscaler asks filters only."""
    objects = _three(workload("web", ["a"], spec=spec), labels={"pool": "a"})
    judged = machines.judge(objects, _groups(), f"{_FREE}\n{policy}\n")
    assert judged.codes["a"] == code, judged["a"].message


@pytest.mark.parametrize("policy", ["Ignore", "Honor"])
def test_hard_spread_over_hostnames_keeps_a_node_while_it_counts(machines, policy):
    """One pod a node: without a pod node a still counts, and b and c may have one more than it."""
    spec = spread("web", "kubernetes.io/hostname", hard=True, nodeTaintsPolicy=policy)
    judged = machines.judge(_three(_on_a(spec=spec)), _groups(), _FREE)
    assert judged.codes["a"] == "NoPlaceToMovePods", judged["a"].message


def _pod(**metadata):
    return {
        "kind": "Pod",
        "metadata": {
            "name": "x",
            "namespace": "default",
            "uid": "x",
            "creationTimestamp": OLD,
            **metadata,
        },
        "spec": {
            "nodeName": "a",
            "containers": [{"name": "x", "resources": {"requests": {"cpu": "1"}}}],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def _controlled(kind):
    return {
        "ownerReferences": [
            {"apiVersion": "v1", "kind": kind, "name": "o", "uid": "o", "controller": True}
        ]
    }


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ({}, "BlockedByPod"),
        ({**_controlled("Node"), "annotations": {"kubernetes.io/config.mirror": "x"}}, "Empty"),
        (_controlled("DaemonSet"), "Empty"),
        (_controlled("Workflow"), "BlockedByPod"),
        ({**_controlled("ReplicaSet"), "deletionTimestamp": OLD}, "Empty"),
    ],
)
def test_pods_that_belong_to_nodes_or_end_do_not_keep_them(machines, metadata, code):
    assert machines.judge(_three([_pod(**metadata)]), _groups()).codes["a"] == code


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"ready": False}, "Empty"),
        ({"unschedulable": True}, "Empty"),
        ({"labels": {"node-role.kubernetes.io/control-plane": ""}}, "ControlPlane"),
        (
            {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]},
            "CurrentlyBeingDeleted",
        ),
    ],
)
def test_what_a_node_says_of_itself_decides(machines, change, code):
    assert machines.judge(_three(**change), _groups()).codes["a"] == code


def test_a_node_that_is_not_ready_goes_once_its_pods_are_given_up(machines):
    codes = machines.judge(_three(_on_a(), ready=False), _groups()).codes
    assert codes["a"] == "NotReady"
    assert machines.judge(_three(ready=False), _groups()).codes["a"] == "Empty"


def test_of_a_group_that_is_all_but_one_dead_only_as_many_go_as_the_minimum_leaves(machines):
    """No pod needs a place for them, so that none of the living has to be spared for that."""
    objects = [node("a"), *(node(name, ready=False) for name in "bcd")]
    judged = machines.judge(objects, [group("pool", *"abcd", low=2)])
    assert sorted(judged.codes.values()).count("Empty") == 2


def _scale_in(phase, **more):
    state = {"phase": phase, "since": NOW, "at": NOW, "uid": "u", **more}
    return {"rebalancer/scale-in": json.dumps(state)}


def test_where_not_all_can_go_those_do_that_could_before(machines):
    """As Cluster Autoscaler's earlier candidates: nodes that are alike would change places, and none get to its time."""
    for noted in "abc":
        objects = [node(name) for name in "abc"]
        uid = objects["abc".index(noted)]["metadata"]["uid"] = f"uid-of-{noted}"
        judged = machines.look(objects, [group("pool", *"abc", low=2)], unneeded=[uid])
        assert [name for name, code in judged.codes.items() if code == "Empty"] == [noted]


def _leaving(objects, name):
    """Close a node as scale-in does."""
    (of,) = [
        one for one in objects if one["metadata"].get("name") == name and one["kind"] == "Node"
    ]
    of["metadata"]["annotations"] = _scale_in("leaving", cordoned=True)
    of["spec"]["unschedulable"] = True
    of["spec"]["taints"] = [
        {"key": "rebalancer/scale-in", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
    ]
    return objects


def test_a_node_that_is_being_emptied_goes_on_as_long_as_it_could_go(machines):
    for objects, code in (
        (_on_a(), "Removable"),
        ([*_on_a(), disruption_budget("web", "web", allowed=0)], "Removable"),
        ([*_on_a(), *workload("new", [""], cpu="3")], "NeededByPendingPod"),
        ([*_on_a(), *workload("new", [""], cpu="100m")], "Removable"),
        (_on_a(spec=_EMPTY_DIR), "BlockedByPod"),
    ):
        judged = machines.look(_leaving(_three(objects), "a"), _groups(), _FREE)
        assert judged.codes["a"] == code, judged["a"].message


def test_a_node_that_is_given_back_is_room_for_the_pods_that_wait(machines):
    objects = _leaving(_three(workload("new", [""], cpu="3")), "a")
    seen = machines.look(objects, _groups())
    assert seen.codes["a"] == "NeededByPendingPod"
    assert [one.code for one in seen.scale_out.pods] == ["Fits"]
    assert seen.scale_out.increases == ()


def test_an_annotation_keeps_a_node(machines):
    objects = _three()
    objects[0]["metadata"]["annotations"] = {
        "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"
    }
    judged = machines.judge(objects, _groups())
    assert judged.codes["a"] == "ScaleDownDisabled"
    assert "scale-down-disabled" in judged["a"].message


def test_a_group_does_not_fall_below_its_minimum(machines):
    assert machines.judge(_three(), _groups(low=1)).codes["a"] == "NodeGroupMinSizeReached"


def test_a_machine_that_the_provider_cannot_end_now_keeps_its_node(machines):
    pool = replace(group("pool", *"abc"), held={"a": "the Cluster is paused"})
    judged = machines.judge(_three(), [pool])
    assert judged.codes["a"] == "HeldByProvider"
    assert judged["a"].message == "the Cluster is paused"
    assert "HeldByProvider" not in {judged.codes[name] for name in "bc"}


def test_machines_that_do_not_exist_are_none_to_spare(machines):
    """Four are desired, three exist, three are needed."""
    judged = machines.judge(
        [node(name) for name in "abc"], [group("pool", *"abc", low=3, desired=4)]
    )
    assert set(judged.codes.values()) == {"NodeGroupMinSizeReached"}
    assert judged["a"].message == "pool has 3 nodes and needs 3"


def test_of_several_that_could_go_only_as_many_do_as_the_minimum_leaves(machines):
    objects = [*(node(name) for name in "abcd"), *workload("web", ["a", "b"], cpu="100m")]
    judged = machines.judge(objects, [group("pool", *"abcd", low=3)])
    assert sorted(judged.codes.values()) == ["Empty", *["NodeGroupMinSizeReached"] * 3]


def test_where_a_small_group_keeps_its_nodes_those_of_others_may_go(machines):
    """Together only two of the three fit away: the one that is kept for its group makes room for another."""
    objects = [node("a"), node("b"), node("c"), *workload("web", ["a", "b", "c"], cpu="1900m")]
    judged = machines.judge(objects, [group("one", "a", "b", low=2), group("other", "c")])
    assert judged.codes == {
        "a": "NodeGroupMinSizeReached",
        "b": "NodeGroupMinSizeReached",
        "c": "Removable",
    }


def test_a_node_in_no_group_stays_only_where_a_provider_was_asked(machines):
    assert machines.judge(_three(), []).codes["a"] == "NotInGroup"
    assert machines.judge(_three(), [], has_provider=False).codes["a"] == "Empty"


def test_sizes_that_are_not_known_are_not_judged(machines):
    assert (
        machines.judge(_three(), [NodeGroup(name="pool", instances=("a",))]).codes["a"] == "Empty"
    )


def test_of_nodes_with_gpus_only_these_count(machines):
    objects = _three(
        [
            *workload("web", ["a"], cpu="3000m", replicas=2),
            *workload(
                "net",
                ["b"],
                spec={
                    "containers": [
                        {"name": "x", "resources": {"requests": {"nvidia.com/gpu": "1"}}}
                    ]
                },
            ),
        ]
    )
    objects[0]["status"]["allocatable"]["nvidia.com/gpu"] = "4"
    judged = machines.judge(objects, _groups())
    assert judged.codes["a"] != "NotUnderutilized"
    assert dict(judged["a"].requested) == {"nvidia.com/gpu": 0.0}


def test_each_pod_that_stays_is_named(machines):
    objects = _three([*_on_a(spec=_EMPTY_DIR), _pod()])
    judged = machines.judge(objects, _groups())
    names = {judged.snapshot.pod_ref(one.pod): one.message for one in judged["a"].pods}
    assert set(names) == {"default/web-0", "default/x"}
    assert names["default/web-0"].startswith("localStorage")


def test_nodes_go_only_together_with_those_that_leave_room_for_them(machines):
    """Each of two half-full nodes could be removed alone, for the other has room; not both."""
    objects = [node("a"), node("b"), *workload("web", ["a", "b"], cpu="1900m")]
    codes = machines.judge(objects, [group("pool", "a", "b")]).codes
    assert sorted(codes.values()) == ["NoPlaceToMovePods", "Removable"]


_DUPLICATES = "strategies: {duplicates: {}}"


def test_a_node_that_only_a_rule_of_the_policy_keeps_is_named_so(machines):
    objects = [*(node(name) for name in "abc"), *workload("web", ["a", "b", "c"])]
    with_rule = machines.judge(objects, policy=_DUPLICATES, has_provider=False)
    # Three replicas, one per node: the rule keeps all; the scheduler's own would put them on one.
    assert sorted(with_rule.codes.values()) == [
        "NoPlaceToMovePods",
        "PolicyRuleWouldBreak",
        "PolicyRuleWouldBreak",
    ]
    (kept,) = [one for one in with_rule.standings if one.code is RemovalCode.NO_PLACE]
    # Without the two others it has no place, and alone it would have one: the reason names its state.
    assert kept.message.startswith("without the 2 nodes that only rules keep, too: ")
    without = machines.judge(objects, has_provider=False)
    assert sorted(without.codes.values()) == ["NoPlaceToMovePods", "Removable", "Removable"]


@pytest.mark.parametrize(
    ("on", "policy", "kept"),
    [
        (["a", "a", "b", "b"], "strategies: {topology-spread: {}}", True),
        # No strategy spreads, so no run refills the zone.
        (["a", "a", "b", "b"], "strategies: {duplicates: {}}", False),
        (["a", "a", "b", "b"], "strategies: {topology-spread: {mode: observe}}", False),
        # It has pods, and its empty node goes as that of any other zone.
        (["a", "b", "c"], "strategies: {topology-spread: {}}", False),
    ],
)
def test_a_zone_that_is_back_keeps_its_nodes_while_runs_refill_it(machines, on, policy, kept):
    nodes = [node("a", "za"), node("b", "zb"), node("c", "zc"), node("d", "zc")]
    objects = [*nodes, *workload("web", on, cpu="1", spec=spread("web"))]
    judged = machines.judge(objects, policy=policy, has_provider=False)
    assert judged.codes["d"] == ("ZoneIsBack" if kept else "Empty")
    if kept:
        assert judged.codes["c"] == "ZoneIsBack"
        assert judged["d"].message.startswith("runs refill zc, which Deployment/default/web")


def test_a_minimum_holds_also_for_nodes_that_a_rule_of_the_policy_keeps(machines):
    objects = [*(node(name) for name in "abcd"), *workload("web", ["a", "b", "c"])]
    judged = machines.judge(objects, [group("pool", *"abcd", low=2)], _DUPLICATES)
    assert judged.codes["d"] == "Empty"
    assert list(judged.codes.values()).count("PolicyRuleWouldBreak") == 1
    assert "NodeGroupMinSizeReached" in judged.codes.values()


def test_a_node_stays_for_a_pending_pod_that_fits_on_it(machines):
    objects = [*(node(name) for name in "ab"), *workload("full", ["b"], cpu="4")]
    judged = machines.judge([*objects, *workload("new", [""], cpu="3")], has_provider=False)
    assert judged.codes == {"a": "NeededByPendingPod", "b": "NotUnderutilized"}
    assert judged["a"].message == "default/new-0 is pending, and fits on it"
    assert machines.judge(objects, has_provider=False).codes["a"] == "Empty"


@pytest.mark.parametrize(
    ("more", "wanted", "gone"),
    [
        # One slot: the first of two empty nodes holds it. Two: both.
        ("steer: marks", 1, ["b"]),
        ("steer: marks", 2, []),
        # What only observes keeps nothing.
        ("steer: off", 2, ["a", "b"]),
    ],
)
def test_nodes_that_hold_slots_stay_as_many_as_are_asked_for(machines, more, wanted, gone):
    objects = [*(node(name) for name in "abc"), *workload("full", ["c"], cpu="4")]
    policy = f"{more}\nstrategies: {{slots: {{free: {{cpu: 3}}, count: {wanted}}}}}"
    judged = machines.judge(objects, policy=policy, has_provider=False)
    assert [name for name, code in judged.codes.items() if code == "Empty"] == gone
    kept = {judged[name].message for name, code in judged.codes.items() if code != "Empty"}
    assert ("kept free for pods to come" in kept) is (len(gone) < 2)


def test_of_equal_nodes_those_go_of_the_zone_that_has_the_most(machines):
    """By name all nodes of one zone would go, and with them the group's place there."""
    nodes = [node("a1", "a"), node("a2", "a"), node("b1", "b"), node("b2", "b"), node("b3", "b")]
    judged = machines.judge(nodes, [group("pool", "a1", "a2", "b1", "b2", "b3", low=2)])
    gone = [name for name, code in judged.codes.items() if code == "Empty"]
    assert gone == ["a1", "b1", "b2"]


def test_the_select_of_the_strategy_says_which_nodes_may_go(machines):
    objects = [node("a", labels={"pool": "batch"}), node("b", labels={"pool": "web"})]
    policy = (
        "provider: {aws: {names: [pool]}}\n"
        "strategies: {remove: {strategy: scale-in, select: {nodes: {pool: batch}}}}\n"
    )
    judged = machines.look(objects, [group("pool", "a", "b")], policy)
    assert judged.codes == {"a": "Empty", "b": "NotSelected"}
    assert judged["b"].message == "the strategy's select leaves it out"


@pytest.mark.parametrize(
    ("prices", "removable"),
    [
        ("", ["b"]),
        ("prices: {label: hourly}", ["a"]),
        ("prices: {label: hourly, leastSaving: 0.1}", ["a"]),
        ("prices: {label: hourly, leastSaving: 0.2}", []),
        ("prices: {label: none}", []),
    ],
)
def test_the_node_that_saves_most_money_is_removed(machines, prices, removable):
    """The pods of a or those of b have room on c, not both; b has fewer."""
    nodes = [
        node(name, labels={"hourly": hourly})
        for name, hourly in (("a", "0.6"), ("b", "0.1"), ("c", "0.1"))
    ]
    pods = [
        *workload("pad", ["c", "c"], cpu="1100m"),
        *workload("four", ["a"] * 4, cpu="400m"),
        *workload("two", ["b"] * 2, cpu="800m"),
    ]
    judged = machines.look([*nodes, *pods], _groups(), f"capacity: {{under: 50%}}\n{prices}\n")
    assert [name for name, code in judged.codes.items() if code == "Removable"] == removable
