"""Reports of users of other deschedulers, as small clusters whose right answer a person can check.

Those that end with an eviction or with none are in tests/contract/placement_rules.py, on both kinds of clusters.
"""

from rebalancer.plan.plan import Code
from rebalancer.policy.protect import Protect
from rebalancer.testing.snapshots import (
    HOSTNAME,
    ZONE,
    apart,
    disruption_budget,
    node,
    spread,
    workload,
)
from strategies.topology_spread import DefaultConstraint, TopologySpreadParams

RULES = "topologySpreadConstraints"


def zones(*names, **more):
    """One node n-<zone> per zone."""
    return [node(f"n-{name}", name, **more) for name in names]


def pairs(result):
    """What is moved, from where to where it will most probably land."""
    return [(move.node, move.landings[0].node) for move in result.moves]


def codes(result):
    return {skip.code for skip in result.skips}


def test_a_pod_bigger_than_the_threshold_only_moves_the_overload(plan):
    big = workload("big", ["n0", "n0"], cpu="3", kind="ReplicaSet", spec={})
    nodes = [node("n0", cpu="7"), node("n1", cpu="3200m"), node("n2", cpu="3200m")]
    result = plan([*nodes, *big], strategies=["low-utilisation"])
    assert (result.moves, codes(result)) == ((), {Code.OVERLOAD_MOVES})


def test_a_node_with_room_below_the_threshold_is_not_said_to_be_overloaded_by_what_another_rule_refuses(
    plan,
):
    # The machine of n0 has shrunk. On any other node a pod would be the third replica.
    nodes = [node("n0", cpu="1"), node("n1", cpu="4"), node("n2", cpu="4")]
    web = workload("web", ["n0", "n0", "n1", "n1", "n2", "n2"], cpu="500m")
    result = plan([*nodes, *web], strategies=["duplicates", "low-utilisation"])
    assert (result.moves, codes(result)) == ((), {Code.NO_GAIN})
    (message,) = {skip.message for skip in result.skips}
    assert "better for low-utilisation (" in message
    assert message.endswith("worse for duplicates (1 soft)")
    assert len(plan([*nodes, *web], strategies=["low-utilisation"]).moves) == 1


def test_a_move_that_trades_one_rule_for_another_names_both(plan):
    wanted = {"key": "arch", "operator": "In", "values": ["arm64"]}
    preferred = {"weight": 100, "preference": {"matchExpressions": [wanted]}}
    rule = {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}
    nodes = [node("n0", labels={"arch": "amd64"}), node("n1", labels={"arch": "arm64"})]
    web = workload("web", ["n0", "n1"], spec={"affinity": {"nodeAffinity": rule}})
    strategies = ["duplicates", "node-affinity"]
    result = plan([*nodes, *web], strategies=strategies)
    (skip,) = result.skips
    assert (skip.code, skip.pod) == (Code.NO_GAIN, "web-0")
    assert skip.message == (
        "would land on n1 100%: better for node-affinity (1 soft), worse for duplicates (1 soft)"
    )
    assert len(plan([*nodes, *web], strategies=["node-affinity"]).moves) == 1


def test_a_full_preferred_place_is_no_reason_to_move(plan):
    # A vanishing node in the better zone: more than 5 % of the landings there, so nothing moves.
    leaving = node(
        "n-b",
        "b",
        taints=[{"key": "DeletionCandidateOfClusterAutoscaler", "effect": "PreferNoSchedule"}],
    )
    everywhere = {"tolerations": [{"operator": "Exists"}]}
    web = workload("web", ["n-a", "n-a"], spec={**apart("web", weight=100), **everywhere})
    result = plan([node("n-a", "a"), leaving, *web])
    assert result.moves == ()
    assert codes(result) == {Code.LEAVING_NODE}


def test_both_replicas_of_a_critical_workload_in_one_zone(plan):
    dns = workload(
        "coredns",
        ["n-a", "a2"],
        namespace="kube-system",
        labels={"k8s-app": "kube-dns"},
        priority=2_000_000_000,
    )
    nodes = [*zones("a", "b"), node("a2", "a")]
    default = {"labels": {"k8s-app": "kube-dns"}, "topologyKey": ZONE}
    params = TopologySpreadParams(defaults=(DefaultConstraint.model_validate(default),))
    lifted = Protect.model_validate(
        {
            "systemCritical": {
                "except": {"namespaces": ["kube-system"], "labels": {"k8s-app": "kube-dns"}}
            }
        }
    )
    options = {"strategies": ["topology-spread"], "params": {"topology-spread": params}}
    moved = plan([*nodes, *dns], protections=lifted, **options)
    assert [landing for _, landing in pairs(moved)] == ["n-b"]
    kept = plan([*nodes, *dns], **options)
    assert kept.moves == ()
    assert "systemCritical" in kept.skips[0].message
    # With three zones no move of others could even them out.
    kept = plan([*nodes, *zones("c"), *dns], **options)
    assert codes(kept) == set()
    (why,) = kept.before["topology-spread"].unsatisfiable
    assert "2 of 2 pods cannot be moved (systemCritical: system-critical priority" in why


def test_what_keeps_both_replicas_in_one_zone_of_three_is_named(plan):
    nodes = [*zones("a", "b", "c"), node("a2", "a")]
    web = workload("web", ["n-a", "a2"], spec=spread("web"))
    budget = disruption_budget("web", "web", allowed=0, healthy=2)
    # One that allows a disruption once another pod is Ready only waits.
    (rule,) = plan([*nodes, *web, budget]).unmet
    assert rule.why == "default/web allows no disruption (2 healthy, 2 desired)"
    budget["status"]["expectedPods"] = 2
    (why,) = plan([*nodes, *web, budget]).before["topology-spread"].unsatisfiable
    assert "2 of 2 pods cannot be moved (default/web " in why


def test_the_reason_names_the_soft_rule_that_is_broken_not_the_hard_one_that_holds(plan):
    # At most two per node, which holds; preferably even over the zones, which does not.
    cap = spread("web", HOSTNAME, hard=True, max_skew=2, minDomains=100)
    both = {"topologySpreadConstraints": [*cap[RULES], *spread("web")[RULES]]}
    nodes = [node("a1", "a"), node("a2", "a"), node("b1", "b"), node("b2", "b")]
    result = plan([*nodes, *workload("web", ["a1", "a1", "a2", "b1"], spec=both)])
    assert pairs(result) == [("a1", "b2")]
    assert "over topology.kubernetes.io/zone (soft)" in result.moves[0].reason


def test_steps_of_a_workflow_stay_where_they_are(plan):
    steps = workload("step", ["n0", "n0"], kind="StatefulSet", spec={"restartPolicy": "Never"})
    for pod in steps[1:]:
        pod["metadata"]["ownerReferences"][0].update(
            kind="Workflow", apiVersion="argoproj.io/v1alpha1"
        )
    result = plan([node("n0"), node("n1"), *steps[1:]], strategies=["duplicates"])
    assert result.moves == ()
    assert codes(result) == {Code.NOT_RECREATED}
    assert "restartPolicy Never" in result.skips[0].message


def test_of_pods_that_cannot_be_predicted_no_node_is_said_to_take_none(plan):
    asks = {"requests": {"example.com/fpga": "1"}, "limits": {"example.com/fpga": "1"}}
    spec = {**spread("web", hard=True), "containers": [{"name": "c", "resources": asks}]}
    nodes = [node("a", "a"), node("b", "b")]
    result = plan([*nodes, *workload("web", ["a", "a", "a"], spec=spec)])
    assert result.moves == ()
    (rule,) = result.after["topology-spread"].unsatisfiable
    assert "where its pods may go is not known (a DeviceClass may stand behind example.com" in rule


def test_a_spread_whose_pods_with_volumes_leave_or_may_not_move_ends_no_plan(plan):
    """One pod of a StatefulSet terminates, the others are held by their volumes."""
    within = {"key": ZONE, "operator": "In", "values": ["a"]}
    term = {"required": {"nodeSelectorTerms": [{"matchExpressions": [within]}]}}
    objects = workload("db", ["n-a"] * 3, kind="StatefulSet", spec=spread("db", hard=True))
    pods = [one for one in objects if one["kind"] == "Pod"]
    pods[0]["metadata"] |= {
        "deletionTimestamp": "2027-01-15T07:59:50Z",
        "deletionGracePeriodSeconds": 30,
    }
    for pod in pods:
        name = pod["metadata"]["name"]
        pod["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]
        objects += [
            {
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"volumeName": name, "accessModes": ["ReadWriteOnce"]},
            },
            {
                "kind": "PersistentVolume",
                "metadata": {"name": name},
                "spec": {"accessModes": ["ReadWriteOnce"], "nodeAffinity": term},
                "status": {"phase": "Bound"},
            },
        ]
    protections = Protect(volumes=False, single_replicas=False)
    result = plan(
        [*zones("a", "b"), *objects], strategies=["topology-spread"], protections=protections
    )
    assert result.moves == ()
    (why,) = result.before["topology-spread"].unsatisfiable
    assert why.endswith("no node of b takes another of its pods")
