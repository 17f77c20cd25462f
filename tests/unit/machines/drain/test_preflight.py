"""The verdict on a node: what is in the way, by the worst of its pods."""

import pytest

from rebalancer.machines.drain.command import OrderedProtections, ordered_policy
from rebalancer.machines.drain.cordon import as_cordoned, mask_of
from rebalancer.machines.drain.preflight import check, unforeseen, without_budgets
from rebalancer.machines.drain.triage import Orders
from rebalancer.machines.reasons import DrainVerdict
from rebalancer.plan.plan import Method
from rebalancer.planner.methods import with_methods
from rebalancer.planner.plan import Callbacks, plan
from rebalancer.planner.rules import RunRules
from rebalancer.policy.load import load_text
from rebalancer.registry import Registry
from rebalancer.snapshot.owners import HASH
from rebalancer.snapshot.protect import Scope
from rebalancer.testing.snapshots import node, snapshot_of, spread, workload


def budget(name, app, allowed, healthy, desired, expected, **spec):
    return {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": app}}, **spec},
        "status": {
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
        },
    }


def looked(objects, *names, without_landing=False, method="evict"):
    registry = Registry.installed()
    text = f"apiVersion: rebalancer/v1\nkind: Policy\nmethod: {{singleReplicas: {method}}}\n"
    loaded = load_text(text.encode(), "policy", registry)
    snapshot = with_methods(loaded.policy, snapshot_of(objects))
    protections = OrderedProtections(names, Orders())
    rules = RunRules(
        ordered_policy(loaded, registry, names),
        registry,
        Scope(),
        lifted=True,
        protections=protections,
    )
    cordoned = as_cordoned(snapshot, mask_of(snapshot, names))
    problem = rules.problem(without_budgets(cordoned))
    room = plan(problem, rules.settings(), Callbacks()).plan
    pods = protections.triage_pods(cordoned)
    return cordoned, check(cordoned, names, pods, room, without_landing=without_landing)


NODES = [node("n1"), node("n2"), node("n3")]


def test_a_node_whose_pods_all_land_elsewhere_is_drainable():
    _, (n1,) = looked([*NODES, *workload("web", ["n1", "n1", "n2"])], "n1")
    assert n1.verdict is DrainVerdict.DRAINABLE
    assert {one.move.landings[0].node for one in n1.pods} <= {"n2", "n3"}


@pytest.mark.parametrize(
    ("busy", "verdict"), [("n3", DrainVerdict.NO_ROOM), ("n2", DrainVerdict.DRAINABLE)]
)
def test_a_landing_on_a_node_that_karpenter_removes_is_no_room(busy, verdict):
    pool = {"karpenter.sh/nodepool": "p"}
    condition = {"type": "DisruptionReason", "status": "True", "reason": "Underutilized"}
    claim = {
        "kind": "NodeClaim",
        "metadata": {"name": "c", "labels": pool},
        "spec": {},
        "status": {"nodeName": "n2", "conditions": [condition]},
    }
    nodes = [node(name, labels=pool) for name in ("n1", "n2", "n3")]
    pods = [*workload("web", ["n1"], cpu="1"), *workload("busy", [busy], cpu="1")]
    _, (n1,) = looked([*nodes, *pods, claim], "n1")
    assert n1.verdict is verdict


def test_an_empty_node_is_drainable():
    assert [of.verdict for of in looked(NODES, "n1")[1]] == [DrainVerdict.DRAINABLE]


@pytest.mark.parametrize(
    ("budgets", "verdict"),
    [
        ([budget("b", "web", 1, 2, 1, 2)], DrainVerdict.DRAINABLE),
        ([budget("b", "web", 0, 1, 1, 2)], DrainVerdict.BLOCKED),
        ([budget("b", "web", 0, 2, 2, 2)], DrainVerdict.NEVER),
        ([budget("b", "web", 0, 2, 65535, 2)], DrainVerdict.NEVER),
        (
            [budget("a", "web", 1, 2, 1, 2), budget("b", "web", 1, 2, 1, 2)],
            DrainVerdict.MISCONFIGURED,
        ),
    ],
)
def test_budgets_are_judged_by_what_they_will_ever_allow(budgets, verdict):
    _, (n1,) = looked([*NODES, *workload("web", ["n1", "n2"]), *budgets], "n1")
    assert n1.verdict is verdict


@pytest.mark.parametrize(
    ("of_budget", "goes"),
    [
        ((0, 1, 1, 2, {}), True),  # IfHealthyBudget: enough are healthy
        ((0, 1, 2, 3, {}), False),
        ((0, 1, 2, 3, {"unhealthyPodEvictionPolicy": "AlwaysAllow"}), True),
    ],
)
def test_a_pod_that_is_not_ready_goes_where_the_api_lets_it(of_budget, goes):
    *numbers, spec = of_budget
    objects = [*NODES, *workload("web", ["n1"]), budget("b", "web", *numbers, **spec)]
    for each in objects:
        if each["kind"] == "Pod":
            each["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    snapshot, checks = looked(objects, "n1")
    assert (checks[0].verdict is DrainVerdict.DRAINABLE) is goes
    assert len(unforeseen(snapshot, checks)) == goes


def zoned(shut):
    """Nodes k1 ... k3 and m1 ... m3, r1 ... r3 of the zones k, m and r; those of ``shut`` are cordoned."""
    names = [f"{zone}{number}" for zone in "kmr" for number in (1, 2, 3)]
    return [node(name, name[0], unschedulable=name[0] in shut) for name in names]


# Closed zones, where the pods are, how many have to be healthy, the node that is drained, whether its pod may go now.
IN_ZONES = {
    "no zone is closed": ("", "k1 m1 r1 r2", 3, "k1", True),
    "those that serve are too few": ("r", "k1 m1 r1 r2", 2, "k1", False),
    "one more serves than is asked for": ("r", "k1 k2 m1 r1 r2", 2, "k1", True),
    "what may not serve leaves": ("r", "k1 m1 r1 r2", 3, "r1", True),
    "none is in the closed zone": ("r", "k1 k2 m1", 2, "k1", True),
}


@pytest.mark.parametrize("case", IN_ZONES)
def test_what_is_healthy_in_a_closed_zone_is_none_that_a_budget_may_count_on(case):
    shut, places, least, drained, goes = IN_ZONES[case]
    of = places.split()
    numbers = (len(of) - least, len(of), least, len(of))
    objects = [*zoned(shut), *workload("web", of), *workload("kept", ["r1", "r2"])]
    _, (check,) = looked([*objects, budget("b", "web", *numbers)], drained)
    (web,) = [one for one in check.pods if one.move is None or "web" in one.move.owner]
    assert web.verdict is (DrainVerdict.DRAINABLE if goes else DrainVerdict.BLOCKED)
    assert ("closed zone" in web.message) is not goes


def single(strategy=None, *, updated=1, ready="True"):
    """The one pod of a Deployment, on n1, in a rollout unless it is updated."""
    objects = workload("web", ["n1"], kind="Deployment")
    for each in objects:
        hashed = {"app": "web", HASH: "abc"}
        if each["kind"] == "Pod":
            each["metadata"]["labels"] = hashed
            each["status"]["conditions"] = [{"type": "Ready", "status": ready}]
        elif each["kind"] == "ReplicaSet":
            each["spec"]["template"]["metadata"]["labels"] = hashed
        elif each["kind"] == "Deployment":
            each["spec"] |= {"strategy": strategy} if strategy else {}
            each["status"] |= {"updatedReplicas": updated}
    return objects


RECREATE = {"type": "Recreate"}
NEVER = budget("b", "web", 0, 1, 1, 1)
GAP = "evicted, with a gap: the only replica of its owner, and no rollout keeps it Ready: "


@pytest.mark.parametrize(
    ("method", "objects", "verdict", "code", "how", "says"),
    [
        ("evict", single(), "drainable", "Ordered", Method.EVICT, ""),
        ("restart", single(), "drainable", "Ordered", Method.RESTART, ""),
        # No Ready pod less: no budget is asked.
        (
            "evict",
            [*single(), NEVER],
            "never-satisfiable",
            "PodDisruptionBudget",
            Method.EVICT,
            None,
        ),
        ("restart", [*single(), NEVER], "drainable", "Ordered", Method.RESTART, ""),
        (
            "restart",
            single(RECREATE),
            "drainable",
            "Ordered",
            Method.EVICT,
            f"{GAP}Deployment/default/web: its strategy is Recreate",
        ),
        (
            "restart",
            [*single(RECREATE), NEVER],
            "never-satisfiable",
            "PodDisruptionBudget",
            Method.EVICT,
            None,
        ),
        # A rollout that is under way is awaited, but where no Ready pod would be lost.
        (
            "restart",
            single(updated=0),
            "waits",
            "Rollout",
            Method.EVICT,
            "it stays until its rollout is at its end: Deployment/default/web: rollout: 0 of 1 updated",
        ),
        ("restart", [*single(updated=0), NEVER], "waits", "Rollout", Method.EVICT, None),
        ("evict", single(updated=0), "drainable", "Ordered", Method.EVICT, ""),
        ("restart", single(updated=0, ready="False"), "drainable", "Ordered", Method.EVICT, ""),
        ("restart", single(RECREATE, updated=0), "drainable", "Ordered", Method.EVICT, None),
    ],
)
def test_a_single_replica_goes_as_the_policy_says(method, objects, verdict, code, how, says):
    _, (n1,) = looked([*NODES, *objects], "n1", method=method)
    (pod,) = n1.pods
    assert (n1.verdict.value, pod.code, pod.method) == (verdict, code, how)
    assert says is None or pod.message == says


@pytest.mark.parametrize("method", [Method.EVICT, Method.RESTART])
def test_what_leaves_without_a_landing_goes_by_the_same_method(method):
    objects = [node("n1"), node("n2", cpu="10m"), *single()]
    snapshot, checks = looked(objects, "n1", without_landing=True, method=method.value)
    assert [(move.landings, move.method) for move in unforeseen(snapshot, checks)] == [((), method)]


@pytest.mark.parametrize(
    ("policy", "verdict"), [("Ignore", DrainVerdict.NO_ROOM), ("Honor", DrainVerdict.DRAINABLE)]
)
def test_hard_spread_over_hostnames_counts_a_cordoned_node_unless_it_honours_taints(
    policy, verdict
):
    """One pod a node: while n1 counts with none, n2 and n3 may have one more than it."""
    spec = spread("web", "kubernetes.io/hostname", hard=True, nodeTaintsPolicy=policy)
    _, (n1,) = looked([*NODES, *workload("web", ["n1", "n2", "n3"], spec=spec)], "n1")
    assert n1.verdict is verdict


def test_pods_are_placed_together_and_who_finds_no_room_is_named():
    objects = [node("n1"), node("n2", cpu="1"), *workload("web", ["n1"] * 3, cpu="400m")]
    snapshot, (n1,) = looked(objects, "n1")
    assert n1.verdict is DrainVerdict.NO_ROOM
    assert [one.code for one in n1.worst] == ["NoRoom"]
    assert unforeseen(snapshot, [n1]) == []
    snapshot, (n1,) = looked(objects, "n1", without_landing=True)
    assert n1.verdict is DrainVerdict.DRAINABLE
    assert [move.landings for move in unforeseen(snapshot, [n1])] == [()]


def test_nodes_that_go_together_take_none_of_each_others_pods():
    objects = [*NODES[:2], node("n3", cpu="100m"), *workload("web", ["n1", "n2"], cpu="500m")]
    _, checks = looked(objects, "n1", "n2")
    assert [of.verdict for of in checks] == [DrainVerdict.NO_ROOM] * 2
    assert [of.verdict for of in looked(objects, "n1")[1]] == [DrainVerdict.DRAINABLE]


def test_rules_count_for_the_room():
    term = {
        "labelSelector": {"matchLabels": {"app": "web"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    objects = [*NODES, *workload("web", ["n1", "n2", "n3"], spec={"affinity": anti})]
    _, (n1,) = looked(objects, "n1")
    assert n1.verdict is DrainVerdict.NO_ROOM


def test_a_node_is_tainted_by_its_cordon():
    snapshot = as_cordoned(snapshot_of(NODES), mask_of(snapshot_of(NODES), ["n2"]))
    assert snapshot.nodes.unschedulable.tolist() == [False, True, False]
    keys = [[t.key for t in snapshot.nodes.taint_sets[i]] for i in snapshot.nodes.taint_set]
    assert keys == [[], ["node.kubernetes.io/unschedulable"], []]


@pytest.mark.parametrize(
    "given", ["protect: {pods: [{namespaces: [shop]}]}", "select: {namespaces: {exclude: [shop]}}"]
)
def test_elsewhere_the_policy_says_which_pods_may_make_room(given):
    objects = [
        *NODES,
        *workload("db", ["n1", "n2"], namespace="shop"),
        *workload("web", ["n1", "n2"]),
    ]
    registry = Registry.installed()
    text = f"apiVersion: rebalancer/v1\nkind: Policy\n{given}\n"
    rules = RunRules(
        ordered_policy(load_text(text.encode(), "policy", registry), registry, ["n1"]),
        registry,
        Scope(),
        lifted=True,
        protections=OrderedProtections(["n1"], Orders()),
    )
    snapshot = snapshot_of(objects)
    movable = rules.problem(snapshot).movable
    refs = {
        (snapshot.classes[cls].namespace, snapshot.nodes.names[node])
        for cls, node in zip(
            snapshot.pods.cls[movable].tolist(), snapshot.pods.node[movable].tolist(), strict=True
        )
    }
    # What was ordered to go goes whatever the policy says.
    assert refs == {("shop", "n1"), ("default", "n1"), ("default", "n2")}


def test_a_node_of_another_operating_system_is_no_place():
    system = "kubernetes.io/os"
    nodes = [node("lin", labels={system: "linux"}), node("win", labels={system: "windows"})]
    _, (lin,) = looked([*nodes, *workload("web", ["lin", "lin"])], "lin")
    assert lin.verdict is DrainVerdict.NO_ROOM
    assert {one.code for one in lin.pods} == {"NoRoom"}
