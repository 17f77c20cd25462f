"""Plans for pods with resource claims: devices are kept, made room for, and counted by whole gangs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rebalancer.plan.plan import Plan
from rebalancer.planner.settings import Settings
from rebalancer.policy.protect import Protect
from rebalancer.testing.snapshots import HOSTNAME, Manifest, node, workload
from tests.unit.planner.conftest import plan_of
from tests.unit.planner.room.test_plan import GANG, waiting

DRIVER = "gpu.example.com"
MARKS = Settings(steer=True)
CLAIM: Manifest = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}


def with_devices(numbers: Mapping[str, int], *groups: Sequence[Manifest]) -> list[Manifest]:
    """Return nodes with so many devices, and workloads; each pod on a node that claims has one of them."""
    objects = [node(name, cpu="8") for name in numbers]
    objects += [item for group in groups for item in group]
    free = {name: [f"gpu-{place}" for place in range(number)] for name, number in numbers.items()}
    claims = [
        _claim(pod, free[where].pop(0))
        for pod in objects
        if pod["kind"] == "Pod"
        and "resourceClaims" in pod["spec"]
        and (where := pod["spec"]["nodeName"])
    ]
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1}}
    template = {
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one", "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    device_class = {
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": {"selectors": [selector]},
    }
    slices = [_slice(name, number) for name, number in numbers.items()]
    return [*objects, *claims, template, device_class, *slices]


def _claim(pod: Manifest, device: str) -> Manifest:
    where, meta = pod["spec"]["nodeName"], pod["metadata"]
    owner = {"kind": "Pod", "name": meta["name"], "uid": meta["uid"], "controller": True}
    result = {"request": "r", "driver": DRIVER, "pool": where, "device": device}
    return {
        "kind": "ResourceClaim",
        "metadata": {
            "name": f"of-{meta['name']}",
            "namespace": "default",
            "ownerReferences": [owner],
        },
        "status": {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "uid": meta["uid"]}],
        },
    }


def _slice(name: str, number: int) -> Manifest:
    return {
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": DRIVER,
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{place}"} for place in range(number)],
        },
    }


def shown(plan: Plan) -> list[tuple[str, list[str]]]:
    return [(move.node, [landing.node for landing in move.landings]) for move in plan.moves]


def test_replicas_spread_to_nodes_with_a_device_that_is_left():
    web = workload("web", ["a", "a", "a"], spec=CLAIM)
    other = workload("other", ["c"], spec=CLAIM)
    made = plan_of(
        with_devices({"a": 3, "b": 1, "c": 1, "d": 0}, web, other), strategies=["duplicates"]
    )
    assert shown(made) == [("a", ["b"])]


def test_no_more_replicas_move_than_there_are_devices():
    web = workload("web", ["a", "a", "a", "a"], spec=CLAIM)
    made = plan_of(with_devices({"a": 4, "b": 1}, web), strategies=["duplicates"])
    assert shown(made) == [("a", ["b"])]


def test_a_move_makes_a_device_free_for_a_pod_that_waits():
    here = {**CLAIM, "nodeSelector": {HOSTNAME: "a"}}
    objects = with_devices(
        {"a": 1, "b": 1}, workload("small", ["a"], spec=CLAIM), waiting("big", spec=here)
    )
    made = plan_of(
        objects,
        settings=MARKS,
        strategies=["make-room"],
        protections=Protect(single_replicas=False),
    )
    assert shown(made) == [("a", ["b"])]
    assert made.moves[0].makes_way_for == "default/big-0"


def test_without_another_device_nothing_makes_room():
    here = {**CLAIM, "nodeSelector": {HOSTNAME: "a"}}
    objects = with_devices(
        {"a": 1, "b": 0}, workload("small", ["a"], spec=CLAIM), waiting("big", spec=here)
    )
    made = plan_of(
        objects,
        settings=MARKS,
        strategies=["make-room"],
        protections=Protect(single_replicas=False),
    )
    assert made.moves == ()


def test_a_gang_is_let_in_only_if_there_are_devices_for_all_of_it():
    def room_for(pods: int) -> Plan:
        moving = workload("moving", ["a", "b"], spec=CLAIM)
        here = {**CLAIM, "nodeSelector": {"pool": "left"}}
        objects = with_devices(
            {"a": 1, "b": 1, "c": 2}, moving, waiting("big", pods, spec=here, labels=GANG)
        )
        for one in objects:
            if one["kind"] == "Node":
                left = one["metadata"]["name"] != "c"
                one["metadata"]["labels"]["pool"] = "left" if left else "right"
        return plan_of(objects, settings=MARKS, strategies=["make-room"])

    assert shown(room_for(2)) == [("a", ["c"]), ("b", ["c"])]
    assert room_for(3).moves == ()
