"""The times of scale-out: small clusters that a person can check."""

from datetime import timedelta
from types import SimpleNamespace

import numpy as np
import pytest

from rebalancer.machines.capacity.codes import GroupCode
from rebalancer.machines.capacity.groups import Groups
from rebalancer.machines.capacity.state import GroupState, GroupStates, ScaleOutTimes
from rebalancer.testing.snapshots import node, snapshot_of, workload
from rebalancer.wire.times import rfc3339
from tests.unit.machines.capacity.conftest import Given, group

_NOW = 1_800_000_000.0


def _times(**options):
    params = {"new_pod_delay": 0, "provision_time": 900, "cool_down": 0, **options}
    return ScaleOutTimes.of(
        SimpleNamespace(**{name: timedelta(seconds=value) for name, value in params.items()})
    )


@pytest.mark.parametrize(
    ("delay", "triggers"), [(0, ["long", "young"]), (30, ["long"]), (240, ["long"]), (241, [])]
)
def test_a_pending_pod_triggers_nothing_before_it_is_as_old_as_new_pod_delay(delay, triggers):
    """One has been pending for four minutes, the other for ten seconds."""
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    pods = [workload(name, [""])[-1] for name in ("long", "young")]
    for pod, age in zip(pods, (240, 10), strict=True):
        pod["metadata"]["creationTimestamp"] = rfc3339(_NOW - age)
        pod["status"]["conditions"] = [unschedulable]
    snapshot = snapshot_of([node("a"), *pods], now=_NOW)
    groups = Groups(snapshot, [group("pool", "a")])
    states = GroupStates(times=_times(new_pod_delay=delay))
    triggering = states.inputs(snapshot, groups, Given(groups.groups)).triggering
    assert triggering is not None
    rows = np.flatnonzero(triggering).tolist()
    assert sorted(snapshot.pods.name[row].removesuffix("-0") for row in rows) == triggers


@pytest.mark.parametrize(
    ("cool_down", "ago", "is_blocked"),
    [(0, 10, False), (600, 10, True), (600, 599, True), (600, 600, False)],
)
def test_a_group_that_was_scaled_out_is_not_again_before_cool_down_is_over(
    cool_down, ago, is_blocked
):
    snapshot = snapshot_of([node("a")])
    groups = Groups(snapshot, [group("pool", "a")])
    earlier = {"pool": GroupState(scaled_out_at=snapshot.captured_at - ago)}
    states = GroupStates(earlier, times=_times(cool_down=cool_down))
    blocked = states.inputs(snapshot, groups, Given(groups.groups)).blocked
    codes = {name: refusal.code for name, refusal in blocked.items()}
    assert codes == ({"pool": GroupCode.COOLDOWN} if is_blocked else {})
