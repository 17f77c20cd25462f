"""Pods that another scheduler has placed, as that of Fargate does: only it knows which nodes suit them."""

from dataclasses import replace

import pytest

from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.testing.snapshots import ZONE, node, spread, workload
from strategies.placement import PlacementParams
from tests.unit.planner.conftest import plan_of

ONE_POD = {"key": "compute-type", "value": "serverless", "effect": "NoSchedule"}
PARAMS = {"placement": PlacementParams.model_validate({"avoid": {"pool": "single"}})}
PREFERS = {
    "weight": 100,
    "preference": {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["many"]}]},
}
RULES = {
    "taints": {},
    "placement": {},
    "low-utilisation": {},
    "node-affinity": {
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [PREFERS]}}
    },
}


def cluster(scheduler, strategy):
    """Two nodes made for one pod each, full of it, and two others."""
    single = [
        node(f"single{i}", labels={"pool": "single"}, taints=[ONE_POD], cpu="1", memory="2Gi")
        for i in range(2)
    ]
    many = [node(f"many{i}", labels={"pool": "many"}) for i in range(2)]
    spec = {**RULES[strategy], "schedulerName": scheduler}
    alone = workload("alone", ["single0", "single1"], cpu="900m", memory="1Gi", spec=spec)
    return [*single, *many, *alone, *workload("web", ["many0", "many1"])]


@pytest.mark.parametrize("strategy", RULES)
@pytest.mark.parametrize(
    ("scheduler", "judged"), [("serverless", False), ("default-scheduler", True)]
)
def test_pods_of_schedulers_without_a_profile_are_not_judged_by_their_nodes(
    strategy, scheduler, judged
):
    plan = plan_of(cluster(scheduler, strategy), strategies=[strategy], params=PARAMS)
    assert bool(plan.before[strategy].violated) is judged
    assert bool(plan.moves) is judged
    assert bool(plan.skips) is False


def daemons(*nodes):
    pods = [of for of in workload("log", nodes, cpu="50m") if of["kind"] == "Pod"]
    for pod in pods:
        pod["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    return pods


def apart(kind):
    term = {"labelSelector": {"matchLabels": {"app": "alone"}}, "topologyKey": ZONE}
    of = [term] if kind.startswith("required") else [{"weight": 100, "podAffinityTerm": term}]
    return {"affinity": {"podAntiAffinity": {kind: of}}}


@pytest.mark.parametrize(
    ("strategy", "rule"),
    [
        ("topology-spread", spread("alone", ZONE, hard=True)),
        ("topology-spread", spread("alone", ZONE)),
        ("anti-affinity", apart("requiredDuringSchedulingIgnoredDuringExecution")),
        ("anti-affinity", apart("preferredDuringSchedulingIgnoredDuringExecution")),
    ],
)
@pytest.mark.parametrize(
    ("scheduler", "beside", "counts"),
    [
        ("serverless", [], False),
        # A pod that shares its node is not of those for which nodes are made.
        ("serverless", workload("web", ["east0"], cpu="50m"), True),
        # No DaemonSet has pods on such nodes: a machine that one pod fills is a machine.
        ("batch", daemons("east0"), True),
        ("default-scheduler", [], True),
    ],
)
def test_rules_of_pods_that_get_nodes_for_themselves_are_not_unmet(
    strategy, rule, scheduler, beside, counts
):
    nodes = [node(f"east{i}", "east", cpu="1") for i in range(3)]
    alone = workload(
        "alone", [of["metadata"]["name"] for of in nodes], spec={**rule, "schedulerName": scheduler}
    )
    plan = plan_of([*nodes, node("west0", "west"), *alone, *beside], strategies=[strategy])
    assert bool(plan.before[strategy].violated) is counts
    assert bool(plan.moves) is (scheduler == "default-scheduler")


def test_with_a_profile_they_are():
    default = SchedulerProfile.for_version((1, 36))
    profile = replace(default, others=(replace(default, scheduler_name="second"),))
    plan = plan_of(cluster("second", "taints"), strategies=["taints"], profile=profile)
    assert len(plan.moves) == 2


def test_a_node_with_other_pods_counts_for_low_utilisation():
    objects = cluster("serverless", "low-utilisation")
    beside = workload(
        "beside", ["single0"], cpu="50m", spec={"tolerations": [{"operator": "Exists"}]}
    )
    plan = plan_of([*objects, *beside], strategies=["low-utilisation"])
    assert plan.before["low-utilisation"].violated == 1
