"""What groups say of their own scaling, in the words of Cluster Autoscaler: small clusters that a person can check."""

from dataclasses import replace
from datetime import timedelta

import pytest

from rebalancer.machines.capacity.groups import GroupOptions, Groups, read_options
from rebalancer.machines.capacity.state import GroupState, GroupStates, ScaleOutTimes
from rebalancer.testing.snapshots import node, snapshot_of, workload
from tests.unit.machines.capacity.conftest import Given, group


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


def test_what_cannot_be_read_is_warned_of():
    warned: list[str] = []
    snapshot = snapshot_of([node("a")])
    groups = Groups(snapshot, [_of(group("pool", "a"), maxnodeprovisiontime="soon")])
    GroupStates(warn=warned.append).inputs(snapshot, groups, Given(groups.groups))
    (text,) = warned
    assert text.startswith("pool: the option maxnodeprovisiontime")
