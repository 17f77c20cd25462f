"""What groups say of their own scaling, in the words of Cluster Autoscaler: small clusters that a person can check."""

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import numpy as np
import pytest

from rebalancer.machines.capacity.groups import GroupOptions, Groups, read_options
from rebalancer.machines.capacity.state import GroupState, GroupStates, ScaleOutTimes
from rebalancer.machines.reasons import GroupCode
from rebalancer.testing.snapshots import node, snapshot_of, workload
from rebalancer.wire.times import rfc3339
from tests.unit.machines.capacity.conftest import Given, group

_NOW = 1_800_000_000.0


def _of(made, **options):
    return replace(made, options=options)


@pytest.mark.parametrize(
    ("options", "read"),
    [
        ({}, GroupOptions()),
        ({"scaledownutilizationthreshold": "0.7"}, GroupOptions(threshold=0.7)),
        ({"scaledowngpuutilizationthreshold": "0"}, GroupOptions(gpu_threshold=0.0)),
        ({"scaledownunneededtime": "1h30m"}, GroupOptions(unneeded_for=timedelta(minutes=90))),
        ({"scaledownunreadytime": "0s"}, GroupOptions(unready_for=timedelta(0))),
        ({"maxnodeprovisiontime": "30m"}, GroupOptions(provision_time=timedelta(minutes=30))),
        ({"ignoredaemonsetsutilization": "true"}, GroupOptions(ignores_daemons=True)),
        ({"ignoredaemonsetsutilization": "F"}, GroupOptions()),
    ],
)
def test_options_are_read_as_cluster_autoscaler_writes_them(options, read):
    assert read_options(_of(group("pool"), **options)) == (read, ())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("scaledownutilizationthreshold", "70%"),
        ("scaledownutilizationthreshold", "nan"),
        ("scaledownutilizationthreshold", "-1"),
        ("scaledownunneededtime", "ten minutes"),
        ("scaledownunneededtime", "-1m"),
        ("ignoredaemonsetsutilization", "yes"),
        ("scaledownunneeded", "10m"),
    ],
)
def test_what_cannot_be_read_is_said_and_the_policy_holds(name, text):
    read, (problem,) = read_options(_of(group("pool"), **{name: text}))
    assert read == GroupOptions()
    assert problem.startswith("pool: ")
    assert name in problem


@pytest.mark.parametrize(
    ("used", "threshold", "code"),
    [
        ("1900m", None, "Removable"),
        # Half is too much by the policy, and by an option, as there.
        ("2000m", None, "NotUnderutilized"),
        ("2400m", "0.7", "Removable"),
        ("2000m", "0.5", "NotUnderutilized"),
        ("1900m", "0.5", "Removable"),
        ("100m", "0", "NotUnderutilized"),
    ],
)
def test_a_group_says_how_little_used_its_nodes_must_be(machines, used, threshold, code):
    """Node a of 4 cores; b has room for what is on it."""
    objects = [
        *(node("a"), node("b", cpu="12")),
        *workload("pad", ["b"], cpu="7"),
        *workload("web", ["a", "b"], cpu=used, memory="64Mi"),
    ]
    options = {} if threshold is None else {"scaledownutilizationthreshold": threshold}
    groups = [_of(group("pool", "a"), **options), group("rest", "b")]
    judged = machines.judge(objects, groups, "protect: {singleReplicas: false}\n")
    assert judged["a"].code.value == code


def test_with_0_even_an_empty_node_stays(machines):
    groups = [_of(group("pool", "a"), scaledownutilizationthreshold="0"), group("rest", "b")]
    judged = machines.judge([node("a"), node("b"), *workload("pad", ["b"], cpu="4")], groups)
    assert (judged["a"].code.value, judged["a"].message) == (
        "NotUnderutilized",
        "0% of its cpu is requested, and nodes of its group stay from 0% on",
    )


@pytest.mark.parametrize(
    ("ignores", "share", "code"),
    [("false", 0.725, "NotUnderutilized"), ("true", 0.45, "Removable")],
)
def test_pods_of_daemonsets_may_be_left_out(machines, ignores, share, code):
    """4 cores: the agent asks for 2, and a pod for 0.9; without the agent that is 0.9 of 2."""
    daemon = workload("agent", ["a"], cpu="2", memory="1Mi")
    for item in daemon:
        for reference in item["metadata"].get("ownerReferences", ()):
            reference["kind"] = "DaemonSet"
    objects = [
        node("a"),
        node("b"),
        *daemon[-1:],
        *workload("web", ["a"], cpu="900m", memory="1Mi"),
    ]
    objects += workload("pad", ["b"], cpu="2500m")
    groups = [_of(group("pool", "a"), ignoredaemonsetsutilization=ignores), group("rest", "b")]
    judged = machines.judge(objects, groups, "protect: {singleReplicas: false}\n")
    assert judged["a"].code.value == code
    assert judged["a"].requested["cpu"] == pytest.approx(share)


@pytest.mark.parametrize(("own", "failures"), [({}, 1), ({"maxnodeprovisiontime": "30m"}, 0)])
def test_a_group_says_how_long_its_machines_take(own, failures):
    """A machine was asked for 20 minutes ago, and the policy waits for 15."""
    snapshot = snapshot_of([node("a")])
    groups = Groups(snapshot, [_of(group("pool", "a", desired=2), **own)])
    states = GroupStates(times=ScaleOutTimes())
    since = snapshot.captured_at - 1200
    states.earlier = {"pool": GroupState(scaled_out_at=since, upcoming_since=since)}
    states.inputs(snapshot, groups, Given(groups.groups))
    assert states.groups["pool"].failures == failures


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


def test_what_cannot_be_read_is_warned_of():
    snapshot = snapshot_of([node("a")])
    groups = Groups(snapshot, [_of(group("pool", "a"), maxnodeprovisiontime="soon")])
    (text,) = GroupStates().inputs(snapshot, groups, Given(groups.groups)).notes
    assert text.startswith("pool: the option maxnodeprovisiontime")
