"""How many more nodes it takes to hold the pods that leave old ones."""

import pytest

from rebalancer.machines.capacity.packing import Missing, missing_nodes
from rebalancer.machines.drain.preflight import NodeCheck, PodCheck
from rebalancer.machines.drain.triage import Fate
from rebalancer.machines.reasons import DrainVerdict
from rebalancer.plan.plan import Code
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.testing.snapshots import HOSTNAME, apart, node, snapshot_of, workload


@pytest.mark.parametrize(
    ("sizes", "alone", "nodes"),
    [
        ([2], False, 1),
        ([2, 2], False, 1),
        ([3, 2, 1, 2], False, 2),
        ([1, 1, 1, 1], False, 2),  # three pods fit on a node
        ([5], False, 0),
        ([5, 1], False, 0),
        ([1, 1, 1], True, 3),  # the scheduler keeps them apart
    ],
)
def test_missing_nodes_are_counted_by_what_the_scheduler_lets_in(sizes, alone, nodes):
    objects = [node("old", cpu="64"), node("full", cpu="4", pods=3)]
    if alone:
        on = ["old"] * len(sizes)
        objects += workload("set", on, cpu="1", spec=apart("set", HOSTNAME))
    for number, cpu in enumerate([] if alone else sizes):
        objects += workload(f"w{number}", ["old"], cpu=str(cpu))
    snapshot = snapshot_of(objects)
    checks = [
        PodCheck(pod, Fate.EVICT, DrainVerdict.NO_ROOM, Code.NO_ROOM.value, "", full=("full",))
        for pod in range(len(sizes))
    ]
    check = NodeCheck("old", DrainVerdict.NO_ROOM, tuple(checks))
    profile = SchedulerProfile.for_version(snapshot.version)
    assert missing_nodes(snapshot, profile, [check], ["old"]) == Missing(len(sizes), nodes, "full")


def test_nodes_that_leave_are_no_model_for_others():
    snapshot = snapshot_of([node("old"), node("also"), *workload("w", ["old"])])
    full = PodCheck(0, Fate.EVICT, DrainVerdict.NO_ROOM, Code.NO_ROOM.value, "", full=("also",))
    check = NodeCheck("old", DrainVerdict.NO_ROOM, (full,))
    profile = SchedulerProfile.for_version(snapshot.version)
    assert missing_nodes(snapshot, profile, [check], ["old", "also"]) is None
