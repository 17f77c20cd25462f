"""Where the pod of a restart lands, with the old one still running, on clusters that a person can check."""

import pytest

from rebalancer.plan.plan import Code, Method
from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Budgets
from rebalancer.policy.protect import Protect
from rebalancer.policy.values import Limit
from rebalancer.snapshot.owners import HASH, with_restarts
from rebalancer.testing.snapshots import HOSTNAME, disruption_budget, node, snapshot_of, workload
from strategies.slots import SlotsParams
from tests.strategies.pod_states import ago, condition
from tests.unit.planner.test_allowance import rolled_out

POOL = {"nodeSelector": {"pool": "web"}}
NODES = [node("n-a", "a"), node("n-b", "b", labels={"pool": "web"})]


def web(spec, kind="Deployment"):
    """One pod on n-a, which its node selector forbids."""
    objects = workload("web", ["n-a"], kind=kind, cpu="1", spec={**POOL, **spec})
    for one in objects:
        if one["kind"] == "Pod":
            one["metadata"]["labels"] = {**one["metadata"]["labels"], HASH: "abc"}
    return objects


def restarted(plan, objects, **options):
    return plan(with_restarts(snapshot_of(objects)), strategies=["node-affinity"], **options)


def apart(key, match_label_keys=()):
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}}
    if match_label_keys:
        term["matchLabelKeys"] = list(match_label_keys)
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"affinity": {"podAntiAffinity": rule}}


def test_the_move_of_a_single_replica_is_a_restart(plan):
    result = restarted(plan, [*NODES, *web({})])
    (move,) = result.moves
    assert (move.method, move.node, move.landings[0].node) == (Method.RESTART, "n-a", "n-b")
    assert move.reason.endswith("by a restart of the rollout")


def test_room_is_counted_beside_workloads_that_restart(plan):
    snapshot = with_restarts(snapshot_of([*NODES, *web({})]))
    asked = {"slots": SlotsParams.model_validate({"free": {"cpu": "2"}})}
    result = plan(snapshot, strategies=["slots"], params=asked)
    assert (result.moves, result.after["slots"].violated) == ((), 0)


def test_a_budget_that_allows_nothing_loses_nothing_by_a_restart(plan):
    closed = disruption_budget("one", "web", allowed=0, healthy=1)
    (move,) = restarted(plan, [*NODES, *web({}), closed]).moves
    assert move.budgets == ()


@pytest.mark.parametrize(
    ("spec", "lands"),
    [
        (apart(HOSTNAME), True),
        # Only one region: the old pod is in it as long as the new one is not Ready.
        (apart("region"), False),
        # The new pod minds those of its own template only.
        (apart("region", [HASH]), True),
    ],
)
def test_anti_affinity_to_its_own_class_holds_against_the_old_pod(plan, spec, lands):
    region = {"region": "r"}
    nodes = [node("n-a", "a", labels=region), node("n-b", "b", labels={**region, "pool": "web"})]
    result = restarted(plan, [*nodes, *web(spec)])
    assert [move.landings[0].node for move in result.moves] == ["n-b"] * lands
    assert {skip.code for skip in result.skips} == (set() if lands else {Code.NO_ROOM})


def test_the_old_pod_counts_in_a_spread_while_the_new_one_is_placed(plan):
    # Each zone has one pod with the label, the old pod among them. A third may go to b only if a counts one.
    rule = {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"tier": "front"}},
                "nodeAffinityPolicy": "Ignore",
            }
        ]
    }
    objects = web(rule)
    for one in objects:
        template = one if one["kind"] == "Pod" else one["spec"]["template"]
        template["metadata"]["labels"] = {**template["metadata"]["labels"], "tier": "front"}
    other = workload("other", ["n-b"], labels={"app": "other", "tier": "front"}, spec=POOL)
    (move,) = restarted(plan, [*NODES, *objects, *other]).moves
    assert move.landings[0].node == "n-b"
    # As an eviction it would not: with the old pod gone from a, b would hold two more than a.
    evicted = plan(
        [*NODES, *objects, *other],
        strategies=["node-affinity"],
        protections=Protect(single_replicas=False),
    )
    assert evicted.moves == ()


def test_the_old_pod_holds_its_room(plan):
    # The label has come to n-a's twin of 1 CPU: there is room for one pod on each.
    nodes = [node("n-a", "a", cpu="1"), node("n-b", "b", cpu="1", labels={"pool": "web"})]
    full = workload("full", ["n-b"], cpu="500m", spec=POOL)
    assert restarted(plan, [*nodes, *web({}), *full]).moves == ()


@pytest.mark.parametrize(("pods", "moves"), [(1, 0), (2, 1)])
def test_a_restart_that_is_not_at_its_end_is_in_flight(plan, pods, moves):
    # slow-0 is of the newer template, and not Ready: an earlier run's restart, or the rollout of many replicas.
    slow = rolled_out(workload("slow", ["n-b"] * (pods + 1), replicas=pods), 1)
    for one in slow:
        if one["metadata"]["name"] == "slow-0" and one["kind"] == "Pod":
            one["metadata"]["creationTimestamp"] = ago(hours=1 / 60)
            one["status"]["conditions"] = [condition("Ready", "False", hours=1 / 60)]
    settings = Settings(budgets=Budgets(in_flight=Limit.parse(1)))
    result = restarted(plan, [*NODES, *web({}), *slow], settings=settings)
    assert len(result.moves) == moves
    assert {skip.code for skip in result.skips} == ({Code.BUDGET} if not moves else set())


@pytest.mark.parametrize("lifted", [False, True])
def test_what_cannot_surge_says_so_unless_the_protection_is_lifted(plan, lifted):
    result = restarted(
        plan, [*NODES, *web({}, kind="ReplicaSet")], protections=Protect(single_replicas=not lifted)
    )
    assert [move.method for move in result.moves] == [Method.EVICT] * lifted
    assert [skip.code for skip in result.skips] == [Code.CANNOT_SURGE] * (not lifted)
