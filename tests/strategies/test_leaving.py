"""Nodes that are announced to go, on clusters of two to four nodes."""

import pytest
from pydantic import ValidationError

from rebalancer.plan.plan import Code
from rebalancer.registry import Registry
from rebalancer.testing.contract import check_strategy, sample_snapshots
from rebalancer.testing.snapshots import node, snapshot_of, workload
from strategies.leaving import LeavingParams
from tests.unit.planner.conftest import plan_of

NAME = "leaving"
STRATEGY = Registry.installed().strategy(NAME)
NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z


def leaving(name="n0", *, annotations=None, conditions=(), cordoned=True, **more):
    made = node(name, unschedulable=cordoned, **more)
    made["metadata"]["annotations"] = annotations or {}
    made["status"]["conditions"] += [
        one if isinstance(one, dict) else {"type": one, "status": "True"} for one in conditions
    ]
    return made


def ours(type_, reason="RebalancerDrain"):
    return {"type": type_, "status": "True", "reason": reason}


def plan(objects, **params):
    return plan_of(objects, strategies=[NAME], params={NAME: LeavingParams(**params)})


def pairs(result):
    return [(move.node, move.landings[0].node) for move in result.moves]


WEB = workload("web", ["n0", "n1"])
DRAINS = {"rebalancer/drain": "{}"}
TYPES = ["DrainInProgress", "Drained", "MaintenancePlanned", "MaintenanceInProgress"]


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize(
    "reason",
    ["RebalancerDrain", "RebalancerReplacement", "RebalancerInterruption", "RebalancerScaleIn"],
)
def test_what_ours_say_of_what_they_do_is_no_wish_of_anybodys(type_, reason):
    others = [node("n1"), node("n2"), *WEB]
    said = [ours(type_, reason)]
    assert plan([leaving(conditions=said), *others]).moves == ()
    assert plan([leaving(conditions=said, cordoned=False), *others]).moves == ()
    without = plan([leaving(annotations=DRAINS), *others])
    assert pairs(without) == [("n0", "n2")]
    assert pairs(plan([leaving(annotations=DRAINS, conditions=said), *others])) == pairs(without)
    assert plan([leaving(annotations=DRAINS, conditions=said), *others], drains=False).moves == ()
    # Somebody else's counts beside it, as ever.
    assert pairs(plan([leaving(conditions=[*said, "MaintenancePlanned"]), *others])) == [
        ("n0", "n2")
    ]


@pytest.mark.parametrize(
    "announced",
    [
        {"annotations": {"rebalancer/leave": "now"}},
        {"annotations": {"rebalancer/leave": "now (interruption)"}},
        {"annotations": {"rebalancer/leave": "2027-01-15T08:00:00Z"}},
        {"annotations": {"rebalancer/leave": "2027-01-15T08:59:00Z"}},
        {"annotations": {"rebalancer/leave": "2027-01-15T17:30:00+09:00"}},
        {"annotations": {"rebalancer/drain": "{}"}},
        {"annotations": {"rebalancer/drain": "what?"}},
        {"conditions": ["DrainInProgress"]},
        {"conditions": ["MaintenancePlanned"]},
        {"conditions": ["MaintenanceInProgress"]},
        {"conditions": ["GracefulNodeShutdownInProgress"]},
        {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]},
        {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]},
        {"taints": [{"key": "aws-node-termination-handler/spot-itn", "effect": "NoSchedule"}]},
        {"taints": [{"key": "DeletionCandidateOfClusterAutoscaler", "effect": "PreferNoSchedule"}]},
    ],
    ids=lambda announced: str(next(iter(announced.values()))),
)
def test_pods_leave_a_node_that_is_announced_to_go(announced):
    result = plan([leaving(**announced), node("n1"), node("n2"), *WEB])
    assert pairs(result) == [("n0", "n2")]
    assert result.before[NAME].cost.hard == 1
    assert result.after[NAME].cost.hard == 0
    assert "n0 must be empty: " in result.moves[0].reason


@pytest.mark.parametrize(
    "announced",
    [
        {},
        {"annotations": {"rebalancer/leave": "2027-01-15T09:01:00Z"}},
        {"annotations": {"rebalancer/leave": "soon"}},
        {"annotations": {"rebalancer/drain": "{}"}, "cordoned": False},
        {"annotations": {"rebalancer/drain": '{"by":"me","why":"","at":"","ended":true}'}},
        {
            "annotations": {
                "rebalancer/drain": '{"by":"me","why":"","at":"","ended":true,"excluded":true,"empty":true}'
            }
        },
        {"conditions": ["MemoryPressure"]},
        {"taints": [{"key": "team", "effect": "NoSchedule"}]},
    ],
    ids=str,
)
def test_pods_stay_where_nothing_is_announced_or_it_is_too_early(announced):
    result = plan([leaving(**announced), node("n1"), node("n2"), *WEB])
    assert result.moves == ()
    assert result.before[NAME].cost.hard == 0


def test_the_policy_names_nodes_or_selects_them():
    objects = [node(f"n{i}", labels={"pool": "old" if i < 2 else "new"}) for i in range(3)]
    objects[0]["spec"]["unschedulable"] = objects[1]["spec"]["unschedulable"] = True
    objects += workload("web", ["n0", "n1"])
    assert pairs(plan(objects, nodes=["n0"])) == [("n0", "n2")]
    assert sorted(pairs(plan(objects, selector="pool=old"))) == [("n0", "n2"), ("n1", "n2")]
    assert any("no node n9" in warning for warning in plan(objects, nodes=["n9"]).warnings)


def test_each_source_can_be_left_out():
    announced = {"rebalancer/drain": "{}"}
    assert plan([leaving(annotations=announced), node("n1"), *WEB], drains=False).moves == ()
    objects = [leaving(conditions=["DrainInProgress"]), node("n1"), *WEB]
    assert plan(objects, conditions=[]).moves == ()
    taint = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
    assert plan([leaving(taints=[taint]), node("n1"), *WEB], taints=[]).moves == ()


def test_a_node_that_still_takes_pods_is_named():
    result = plan([leaving(annotations={"rebalancer/leave": "now"}, cordoned=False), *WEB])
    assert result.moves == ()
    assert any("takes new pods: cordon it" in warning for warning in result.warnings)


def test_a_time_that_is_not_understood_is_named():
    result = plan([leaving(annotations={"rebalancer/leave": "soon"}), node("n1"), *WEB])
    assert any("write a RFC 3339 time, or now" in warning for warning in result.warnings)


def test_no_pod_lands_on_another_node_that_leaves():
    announced = {"rebalancer/leave": "now"}
    objects = [
        leaving("n0", annotations=announced),
        leaving("n1", annotations=announced, cordoned=False),
        *workload("web", ["n0", "n0"]),
    ]
    result = plan(objects)
    assert result.moves == ()
    # No node that stays could ever take them.
    assert result.before[NAME].unsatisfiable
    objects.append(node("n2", cpu="150m"))
    assert len(plan(objects).moves) + len(plan(objects).skips) >= 2
    assert {skip.code for skip in plan(objects).skips} <= {Code.NO_ROOM, Code.LEAVING_NODE}


def test_who_finds_no_room_together_with_the_others_stays_and_is_named():
    objects = [leaving(annotations={"rebalancer/leave": "now"}), node("n1", cpu="1")]
    result = plan([*objects, *workload("web", ["n0"] * 3, cpu="400m")])
    assert pairs(result) == [("n0", "n1")] * 2
    assert [skip.code for skip in result.skips] == [Code.NO_ROOM]


def test_another_strategy_moves_no_pod_onto_a_node_that_the_policy_wants_empty():
    objects = [node("n0"), node("n1"), *workload("web", ["n1", "n1"])]
    made = plan_of(
        objects, strategies=["duplicates", NAME], params={NAME: LeavingParams(nodes=("n0",))}
    )
    assert made.moves == ()


def test_the_selector_is_checked_when_the_policy_is_read():
    with pytest.raises(ValidationError, match="selector"):
        LeavingParams.model_validate({"selector": "a=("})


@pytest.mark.parametrize(
    "params",
    [
        LeavingParams(),
        LeavingParams(nodes=("n0", "n3")),
        LeavingParams.model_validate({"selector": "kubernetes.io/hostname"}),
    ],
    ids=["default", "named", "all"],
)
def test_it_keeps_the_contract(params):
    drained = [leaving(annotations={"rebalancer/leave": "now"}), node("n1"), node("n2"), *WEB]
    check_strategy(STRATEGY, params, snapshots=[*sample_snapshots(), snapshot_of(drained)])
