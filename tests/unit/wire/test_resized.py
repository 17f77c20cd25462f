"""What counts of a pod that was resized in place: as kube-scheduler counts it, from JSON and from protobuf."""

import json
from copy import deepcopy
from typing import Any

import pytest

from rebalancer.planner.plan import plan
from rebalancer.planner.settings import Settings
from rebalancer.testing.snapshots import node, workload
from rebalancer.wire.pods import decode_page
from rebalancer.wire.protobuf.pods import pod_records
from rebalancer.wire.protobuf.schema import message
from tests.unit.planner.conftest import problem_of
from tests.unit.wire.protobuf_bytes import encoded, field

INFEASIBLE, DEFERRED = ("PodResizePending", "Infeasible"), ("PodResizePending", "Deferred")
READY = [{"type": "Ready", "status": "True"}]
RUNS = ("PodResizeInProgress", "")
ROWS = [
    # spec, in effect, allocated, condition, generation -> what counts
    ("4", "1", "1", INFEASIBLE, 2, "1"),
    ("4", "1", "2", INFEASIBLE, 2, "2"),
    ("4", "1", "1", INFEASIBLE, 0, "1"),
    # It waits for room, is under way, or the kubelet has not answered yet.
    ("4", "1", "1", DEFERRED, 2, "4"),
    ("4", "1", "4", RUNS, 2, "4"),
    ("4", "1", "1", None, 2, "4"),
    # Downwards: what is still in effect counts.
    ("1", "4", "1", RUNS, 2, "4"),
    ("1", "1", "1", None, 2, "1"),
    # Nothing was resized, or nothing is known of it.
    ("4", "1", "1", INFEASIBLE, 1, "4"),
    ("4", None, None, INFEASIBLE, 2, "4"),
    ("4", "lots", "1", INFEASIBLE, 2, "4"),
    # The same in other words.
    ("1", "1000m", "1", None, 2, "1"),
]


def requests(cpu: str | None) -> dict[str, Any]:
    return {"requests": {"cpu": cpu}} if cpu else {}


def in_json(spec, actual, allocated, condition, generation):
    status = {"name": "main", "ready": True, "resources": requests(actual)}
    if allocated:
        status["allocatedResources"] = {"cpu": allocated}
    conditions = (
        [{"type": condition[0], "status": "True", "reason": condition[1]}] if condition else []
    )
    return {
        "metadata": {"name": "a", "namespace": "b", "generation": generation},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "resources": requests(spec)}]},
        "status": {
            "phase": "Running",
            "conditions": conditions,
            "containerStatuses": [status] if actual else [],
        },
    }


def quantities(cpu):
    return encoded("ResourceRequirements", requests={"cpu": message("Quantity")(string=cpu)})


def in_protobuf(spec, actual, allocated, condition, generation):
    status = {"name": "main", "ready": True}
    if actual:
        status["resources"] = quantities(actual)
    if allocated:
        status["allocatedResources"] = [field(1, b"cpu") + field(2, field(1, allocated.encode()))]
    conditions = (
        [{"type": condition[0], "status": "True", "reason": condition[1]}] if condition else []
    )
    pod = encoded(
        "Pod",
        metadata={"name": "a", "namespace": "b", "generation": generation},
        spec={"nodeName": "n1", "containers": [{"name": "main", "resources": quantities(spec)}]},
        status={"phase": "Running", "conditions": conditions, "containerStatuses": [status]},
    )
    return field(2, pod)


@pytest.mark.parametrize("row", ROWS)
def test_what_a_node_counts_of_a_resized_pod(row):
    *given, counts = row
    page, _ = decode_page(json.dumps({"items": [in_json(*given)]}).encode())
    for record in (*page, *pod_records(in_protobuf(*given))):
        _, spec = record.spec()
        (container,) = spec.containers
        assert container.resources is not None
        assert container.resources.requests == {"cpu": counts}


def test_pods_that_count_differently_are_of_different_classes():
    same = [in_json("4", "1", "1", condition, 2) for condition in (INFEASIBLE, DEFERRED)]
    page, _ = decode_page(json.dumps({"items": same}).encode())
    assert len({record.key for record in page}) == 2


def test_a_resize_of_the_whole_pod_counts_as_one_of_a_container():
    pod = in_json("1", None, None, INFEASIBLE, 2)
    pod["spec"]["resources"] = requests("9")
    pod["status"]["resources"] = requests("2")
    page, _ = decode_page(json.dumps({"items": [pod]}).encode())
    (record,) = page
    whole = record.spec()[1].resources
    assert whole is not None
    assert whole.requests == {"cpu": "2"}


def test_a_tenant_that_asks_for_a_thousand_processors_moves_no_pod_of_another():
    nodes = [node(f"n{i}", cpu="8") for i in range(4)]
    theirs = workload("theirs", ["n0", "n0", "n1", "n2"], namespace="theirs", cpu="1")
    mine = deepcopy(workload("mine", ["n0"], namespace="mine", cpu="100m"))
    pod = mine[-1]
    pod["spec"]["containers"] = deepcopy(pod["spec"]["containers"])
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1000"
    pod["status"]["containerStatuses"] = [
        {"name": "main", "ready": True, "resources": requests("100m")}
    ]
    moved = {}
    for reason in ("Infeasible", "Deferred"):
        pending = {"type": "PodResizePending", "status": "True", "reason": reason}
        asked = {**pod, "status": {**pod["status"], "conditions": [*READY, pending]}}
        objects = [*nodes, *theirs, *mine[:-1], asked]
        made = plan(problem_of(objects, strategies=("low-utilisation",)), Settings()).plan
        moved[reason] = {move.namespace for move in made.moves}
    # A node defers only what it could hold: that much is the resize's, on the scheduler's word.
    assert moved == {"Infeasible": set(), "Deferred": {"theirs"}}
