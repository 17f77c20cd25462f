"""Moves of pods with responders: the method in the plan, and what requests of earlier runs take from its budgets."""

from dataclasses import replace

import pytest

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.plan.plan import Method
from rebalancer.planner.planning import make_plan
from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Budgets
from rebalancer.policy.values import Limit
from rebalancer.snapshot.in_flight import as_ended, with_requests
from rebalancer.snapshot.requests import REQUESTER, EvictionRequest
from rebalancer.testing.snapshots import node, snapshot_of, workload
from tests.unit.planner.conftest import plan_of, rechecked
from tests.unit.planner.test_karpenter import rules

NODES = ("n0", "n1", "n2", "n3")
RESPONDERS = {"evictionResponders": [{"name": "acme.example/mover", "priority": 10000}]}
NOW = 1_800_000_000


def request_for(snapshot, pod):
    """An open request of ours for the first pod of this name."""
    row = [snapshot.pods.name[row] for row in range(len(snapshot.pods))].index(pod)
    namespace = snapshot.classes[snapshot.pods.cls[row]].namespace
    uid = snapshot.pods.uid[row]
    return EvictionRequest(
        namespace, f"r-{uid}", pod, uid, REQUESTER, withdrawn=False, asked_at=NOW
    )


def crowded(*names, **more):
    return [each for name in names for each in workload(name, ["n0", "n0"], **more)]


def planned(snapshot, *, in_flight=5):
    budgets = Budgets(in_flight=Limit.parse(in_flight))
    return plan_of(snapshot, strategies=["duplicates"], settings=Settings(budgets=budgets))


def of_nodes(*objects):
    return snapshot_of([*(node(name) for name in NODES), *objects])


@pytest.mark.parametrize(
    ("spec", "asks", "method"),
    [
        (RESPONDERS, True, Method.REQUEST),
        # The policy does not say so, or the API is not served.
        (RESPONDERS, False, Method.EVICT),
        ({}, True, Method.EVICT),
        ({"evictionResponders": []}, True, Method.EVICT),
        # The API refuses requests for such pods, also for those that move alone.
        ({**RESPONDERS, "schedulingGroup": {"podGroupName": "ring"}}, True, Method.EVICT),
    ],
)
def test_pods_with_responders_are_asked_for_where_runs_may(spec, asks, method):
    ring = {
        "kind": "PodGroup",
        "apiVersion": "scheduling.k8s.io/v1alpha3",
        "metadata": {"name": "ring", "namespace": "default"},
        "spec": {"schedulingPolicy": {"basic": {}}},
    }
    snapshot = of_nodes(*crowded("web", spec=spec), ring)
    (move,) = planned(with_requests(snapshot, ()) if asks else snapshot).moves
    assert move.method is method
    assert ("acme.example/mover" in move.reason) == (method is Method.REQUEST)


def test_a_move_whose_method_has_changed_is_dropped():
    snapshot = of_nodes(*crowded("web", spec=RESPONDERS))
    (move,) = planned(with_requests(snapshot, ())).moves
    ((_, why),) = rechecked(snapshot, [move], strategies=["duplicates"])
    assert "request" in why
    ((_, fine),) = rechecked(with_requests(snapshot, ()), [move], strategies=["duplicates"])
    assert fine is None


def test_what_is_asked_for_and_its_siblings_stay():
    snapshot = of_nodes(*crowded("web", "api"))
    asked = with_requests(snapshot, [request_for(snapshot, "web-0")])
    moves = planned(asked).moves
    assert [move.owner for move in moves] == ["Deployment/default/api"]


def test_nothing_else_moves_for_what_the_end_of_the_pod_will_mend():
    others = {"a": "n1", "b": "n2", "c": "n3"}
    hot = [each for name in others for each in workload(name, ["n0", others[name]], cpu="1")]
    snapshot = of_nodes(*hot)
    options = {"strategies": ["low-utilisation"], "settings": Settings()}
    (move,) = plan_of(snapshot, **options).moves
    asked = with_requests(snapshot, [request_for(snapshot, move.pod)])
    assert plan_of(as_ended(asked), **options).moves == ()


@pytest.mark.parametrize(("open_", "waves"), [(0, 2), (1, 4), (2, None)])
def test_open_requests_take_their_part_of_every_wave(open_, waves):
    names = [f"web-{number}" for number in range(4)]
    busy = [each for number in range(open_) for each in workload(f"busy-{number}", ["n1"])]
    snapshot = of_nodes(*crowded(*names), *busy)
    asked = [request_for(snapshot, f"busy-{number}-0") for number in range(open_)]
    plan = planned(with_requests(snapshot, asked), in_flight=2)
    assert max((move.wave for move in plan.moves), default=None) == waves


def test_requests_in_one_namespace_hold_up_others_by_half_at_most():
    busy = [
        each
        for number in range(4)
        for each in workload(f"busy-{number}", ["n1"], namespace="tenant")
    ]
    snapshot = of_nodes(*crowded("web", "api"), *busy)
    asked = [request_for(snapshot, f"busy-{number}-0") for number in range(4)]
    assert len(planned(with_requests(snapshot, asked), in_flight=2).moves) == 2


def test_old_requests_of_others_hold_nobody_up():
    names = [f"busy-{number}" for number in range(4)]
    busy = [one for name in names for ns in "ts" for one in workload(name, ["n1"], namespace=ns)]
    snapshot = of_nodes(*crowded("web", "api"), *busy)
    old = [
        EvictionRequest(
            snapshot.classes[cls].namespace, "x", pod, uid, "acme.example/x", False, NOW - 601
        )
        for pod, uid, cls in zip(
            snapshot.pods.name, snapshot.pods.uid, snapshot.pods.cls.tolist(), strict=True
        )
        if pod.startswith("busy")
    ]
    assert len(old) == 8
    assert planned(with_requests(snapshot, old)).moves == planned(snapshot).moves


def test_requests_in_one_namespace_leave_half_of_a_node_to_others():
    names = [f"busy-{number}" for number in range(5)]
    busy = [one for name in names for one in workload(name, ["n0"], namespace="tenant")]
    snapshot = of_nodes(*crowded("web", "api"), *busy)
    asked = with_requests(snapshot, [request_for(snapshot, f"{name}-0") for name in names])
    budgets = Budgets(in_flight=Limit.parse(20), per_node=Limit.parse(5))
    plan = plan_of(asked, strategies=["duplicates"], settings=Settings(budgets=budgets))
    assert [(move.node, move.wave) for move in plan.moves] == [("n0", 1), ("n0", 1)]


@pytest.mark.parametrize(("ordered", "left"), [((), 1), (("n0",), 2)])
def test_for_a_command_that_empties_nodes_a_pod_that_is_asked_for_is_there(ordered, left):
    snapshot = of_nodes(*crowded("web"))
    asked = with_requests(snapshot, [request_for(snapshot, "web-0")])
    made = replace(rules(), ordered=frozenset(ordered))
    planned = make_plan(made, asked, Timings(SystemClock()))
    assert int(planned.snapshot.pods.living.sum()) == left


@pytest.mark.parametrize(("asked", "why"), [(False, None), (True, "protected now: ownerUnsettled")])
def test_between_waves_the_requests_of_this_run_count(asked, why):
    policy = (
        "strategies: {duplicates: {}}\nprotect: {minPodAge: 0s}\nmethod: {evictionRequests: 1h}"
    )
    on = ["n0", "n0", "n0"]
    snapshot = with_requests(of_nodes(*workload("web", on, spec=RESPONDERS)), ())
    planned = make_plan(rules(policy), snapshot, Timings(SystemClock()))
    first, *left = planned.plan.moves
    later = of_nodes(*workload("web", [*on, "n1"], spec=RESPONDERS))
    judged = planned.revalidate(later, left, 0.0, [first] if asked else [])
    assert [said for _, said in judged] == [why]


def test_plans_are_as_before_where_no_pod_is_asked_for():
    snapshot = of_nodes(*crowded("web", "api"))
    assert planned(with_requests(snapshot, ())).moves == planned(snapshot).moves
    assert replace(with_requests(snapshot, ()), eviction_requests=None) == snapshot
