"""Scale-out by ``serve``, and what ``capacity`` and ``explain pod`` say of it, on a group of machines."""

import io
import json
import threading
from dataclasses import replace

import pytest

from rebalancer.base.environment import Environment
from rebalancer.base.errors import ExitCode, PolicyError
from rebalancer.commands.capacity import capacity
from rebalancer.commands.explain import Explaining, explain_pod
from rebalancer.providers.contract import NodeTemplate
from rebalancer.run.options import RunOptions
from rebalancer.testing.objects import deployment
from tests.unit.commands.scaling import OurClock, grounded
from tests.unit.commands.serving import serving, soon

_STATE = ("default", "machines")


def _pending_pods(ground):
    """Three pods that want a node each; there is one."""
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": _STATE[1]}}
    ground.cluster.apply(config_map, deployment("web", 3, cpu="1500m"))
    ground.cluster.settle()


def _said(ground, command):
    out, err = io.StringIO(), io.StringIO()
    clock = OurClock(ground.cluster)
    environment = Environment(clock, {}, out, err, threading.Event())
    assert command(environment) is ExitCode.DONE, err.getvalue()
    return json.loads(out.getvalue())


def _access(ground):
    return {
        "policy_path": str(ground.runner.policy),
        "kubeconfig": str(ground.cluster.kubeconfig),
        "output": "json",
    }


def test_serve_increases_a_group_once_for_the_pending_pods(tmp_path, monkeypatch):
    with grounded(tmp_path, monkeypatch, 1, strategies="scale-out: {}") as ground:
        _pending_pods(ground)
        policy, asked = ground.runner.policy.read_text(), []
        grow = ground.pool.set_size

        def noted(group, desired):
            asked.append(desired)
            grow(group, desired)

        monkeypatch.setattr(ground.pool, "set_size", noted)
        with serving(
            ground.cluster, tmp_path, policy=policy, every=0.2, machine_state=_STATE
        ) as served:
            soon(lambda: bool(asked), served.err.getvalue)
            # Upcoming machines are awaited by the runs that follow.
            served.await_runs(served.health.runs + 3)
            assert asked == [3]
            ground.pool.catch_up()
            soon(lambda: ground.ready("web") == 3, served.err.getvalue)
            served.await_runs(served.health.runs + 3)
            assert served.end() is ExitCode.DONE
        assert (asked, ground.pool.group.desired, len(ground.nodes)) == ([3], 3, 3)
        assert ground.pool.ended == []


def test_serve_is_refused_without_a_place_for_back_offs(tmp_path, monkeypatch):
    with grounded(tmp_path, monkeypatch, 1, strategies="scale-out: {}") as ground:
        policy = ground.runner.policy.read_text()
        with serving(ground.cluster, tmp_path, policy=policy) as served:
            soon(lambda: served.error is not None, served.err.getvalue)
        assert isinstance(served.error, PolicyError)
        assert "scale-out needs --machine-state NAMESPACE/NAME" in str(served.error)


def test_capacity_knows_the_back_offs_that_runs_have_left(tmp_path, monkeypatch):
    with grounded(tmp_path, monkeypatch, 1, strategies="scale-out: {}") as ground:
        _pending_pods(ground)
        ground.pool.refuses = "no machines of this kind"
        code, _ = ground.run(machine_state=_STATE)
        assert code == 4
        options = _access(ground)

        def codes(**more):
            data = _said(
                ground, lambda e: capacity(RunOptions.of(dry_run=True, **options, **more), e)
            )
            return {one["code"] for one in data["pending"]}

        assert codes() == {"GroupGrows"}
        assert codes(machine_state=_STATE) == {"GroupMayNotGrow"}


def test_explain_says_which_group_would_grow_for_a_pod_that_waits(tmp_path, monkeypatch):
    with grounded(tmp_path, monkeypatch, 1, strategies="scale-out: {}") as ground:
        _pending_pods(ground)
        waits, placed = sorted(
            ground.cluster.objects("Pod"), key=lambda pod: "nodeName" in pod["spec"]
        )[1:]

        def machines(pod):
            options = RunOptions.of(dry_run=True, **_access(ground))
            name = pod["metadata"]["name"]
            return _said(ground, lambda e: explain_pod(name, None, Explaining(options, e))).get(
                "machines"
            )

        said = machines(waits)
        assert (said["code"], said["group"]) == ("GroupGrows", "pool")
        assert machines(placed) is None


# -- a size that the provider shows late -----------------------------------------------------------


@pytest.mark.parametrize("seconds", [5.0, 55.0, 150.0])
@pytest.mark.parametrize("fewer", [1, 3])
def test_no_smaller_size_is_asked_for_than_before(tmp_path, monkeypatch, seconds, fewer):
    """The provider answers with the size of before, and some of the pods are gone: AWS would end machines of its choice."""
    with grounded(tmp_path, monkeypatch, 1, high=20, strategies="scale-out: {}") as ground:
        _pending_pods(ground)
        asked, late = [], ground.pool.group
        set_size = ground.pool.set_size

        def note(group, desired):
            asked.append(desired)
            set_size(group, desired)

        monkeypatch.setattr(ground.pool, "set_size", note)
        ground.tick(machine_state=_STATE)
        assert asked == [3]
        monkeypatch.setattr(ground.pool, "groups", lambda _: [late])
        monkeypatch.setattr(ground.pool, "catch_up", lambda: None)
        ground.cluster.apply(deployment("web", 3 - fewer, cpu="1500m"))
        ground.cluster.settle()
        for _ in range(4):
            ground.tick(seconds, machine_state=_STATE)
        assert asked == [3]
        # More pods are helped by what goes beyond that size.
        ground.cluster.apply(deployment("web", 5, cpu="1500m"))
        ground.cluster.settle()
        ground.tick(seconds, machine_state=_STATE)
        assert asked == [3, 5]


# -- machines that come and are of no use ----------------------------------------------------------

_ZONE, _TYPE = "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type"
_TICKS = (*[120.0] * 25, *[600.0] * 13)
"""Three hours, in which runs are rarer once back-offs are longer than the pause between them."""


def _relabel(ground, monkeypatch, labels):
    """Give each machine that joins the labels that ``labels()`` returns then; return the names of all that ever were."""
    seen, catch_up = set(ground.nodes), ground.pool.catch_up

    def label():
        catch_up()
        for name in set(ground.nodes) - seen:
            seen.add(name)
            manifest = {"metadata": {"name": name, "labels": labels()}}
            ground.cluster.apply({"apiVersion": "v1", "kind": "Node", **manifest})

    monkeypatch.setattr(ground.pool, "catch_up", label)
    return seen


def _fill(ground, *zones):
    """Leave no room on the machines that are there, which are in these zones."""
    for name, zone in zip(ground.nodes, zones, strict=True):
        manifest = {"metadata": {"name": name, "labels": {_ZONE: zone, _TYPE: "large"}}}
        ground.cluster.apply({"apiVersion": "v1", "kind": "Node", **manifest})
        full = deployment(f"full-{name}", 1, cpu="1500m")
        full["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": name}
        ground.cluster.apply(full)
    ground.cluster.settle()


def _wanting(replicas, **spec):
    wants = deployment("wants", replicas, cpu="1500m")
    wants["spec"]["template"]["spec"].update(spec)
    return wants


_SPREAD = {
    "maxSkew": 1,
    "topologyKey": _ZONE,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "wants"}},
}
_BOTH = "scale-out: {}, scale-in: {}"


@pytest.mark.parametrize(
    ("spec", "replicas", "strategies", "zones", "most"),
    [
        # One pod, a machine each time.
        ({"nodeSelector": {_TYPE: "large"}}, 1, _BOTH, "aa", 3),
        # At first one for each pod, and for zone-a in its turn; then one at a time.
        ({"nodeSelector": {_ZONE: "zone-b"}}, 2, _BOTH, "ab", 4 + 1 + 2),
        # One has a place in zone-a, and the next one needs zone-b.
        ({"topologySpreadConstraints": [_SPREAD]}, 3, "scale-out: {}", "ab", 3 + 2),
    ],
)
def test_machines_of_no_use_are_not_asked_for_without_end(
    tmp_path, monkeypatch, spec, replicas, strategies, zones, most
):
    """No capacity in one of two zones, or a mixed group that brings another type: all machines come in zone-a, as small ones."""
    with grounded(tmp_path, monkeypatch, 2, high=30, low=1, strategies=strategies) as ground:
        ground.pool.group = replace(ground.pool.group, zones=("zone-a", "zone-b"))
        _fill(ground, *(f"zone-{zone}" for zone in zones))
        seen = _relabel(ground, monkeypatch, lambda: {_ZONE: "zone-a", _TYPE: "small"})
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": _STATE[1]}}
        ground.cluster.apply(config_map, _wanting(replicas, **spec))
        ground.cluster.settle()
        acts = []
        for seconds in _TICKS:
            acts += ground.tick(seconds, machine_state=_STATE)
        assert len(seen) - 2 <= most
        assert ("GroupMayNotGrow", "", "waits") in acts
        data = _said(
            ground,
            lambda e: capacity(
                RunOptions.of(dry_run=True, machine_state=_STATE, **_access(ground)), e
            ),
        )
        refusals = [of for one in data["pending"] for of in one["refusals"]]
        assert {of["code"] for of in refusals} == {"DidNotHelp"}
        assert all("new machines" in of["message"] for of in refusals)
        reasons = {one["reason"] for one in ground.cluster.objects("Event")}
        assert "ScaleUpDidNotHelp" in reasons


def test_a_group_from_zero_that_is_not_what_its_template_says(tmp_path, monkeypatch):
    """Its machines are smaller; once they are gone again, only the template says what a new one would be."""
    with grounded(tmp_path, monkeypatch, 0, high=30, strategies=_BOTH, cpu="1") as ground:
        big = NodeTemplate({}, (), {"cpu": "4", "memory": "8Gi", "pods": "110"})
        monkeypatch.setattr(ground.pool, "template", lambda _: big)
        seen = _relabel(ground, monkeypatch, dict)
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": _STATE[1]}}
        ground.cluster.apply(config_map, _wanting(1))
        ground.cluster.settle()
        for seconds in _TICKS:
            ground.tick(seconds, machine_state=_STATE)
        assert len(seen) <= 3


def test_a_machine_that_comes_where_it_was_wanted_ends_the_back_off(tmp_path, monkeypatch):
    with grounded(tmp_path, monkeypatch, 2, high=30, strategies="scale-out: {}") as ground:
        ground.pool.group = replace(ground.pool.group, zones=("zone-a", "zone-b"))
        _fill(ground, "zone-a", "zone-a")
        come = ["zone-a"]
        seen = _relabel(ground, monkeypatch, lambda: {_ZONE: come[0]})
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": _STATE[1]}}
        ground.cluster.apply(config_map, _wanting(3, nodeSelector={_ZONE: "zone-b"}))
        ground.cluster.settle()
        for _ in range(10):
            ground.tick(machine_state=_STATE)
        bought = 2 + 4 + 1
        assert len(seen) == bought
        # Pods that any zone suits are helped all the while.
        ground.cluster.apply(deployment("other", 3, cpu="1500m"))
        ground.cluster.settle()
        ground.tick(machine_state=_STATE)
        assert ground.ready("other") == 3
        assert len(seen) == bought
        come[0] = "zone-b"
        for _ in range(35):
            ground.tick(machine_state=_STATE)
        assert ground.ready("wants") == 3
        assert len(seen) <= bought + 5


def test_machines_whose_room_others_took_are_asked_for_again(tmp_path, monkeypatch):
    """A machine of the right kind came, and another pod was faster: that is no failure of the group."""
    with grounded(tmp_path, monkeypatch, 1, high=30, strategies="scale-out: {}") as ground:
        _pending_pods(ground)
        for round_ in range(4):
            ground.tick(machine_state=_STATE)
            faster = deployment(f"faster-{round_}", 2, cpu="1500m")
            faster["spec"]["template"]["spec"]["priority"] = 1000
            ground.cluster.apply(faster)
            ground.pool.catch_up()
            ground.cluster.settle()
        for _ in range(3):
            ground.tick(machine_state=_STATE)
        assert ground.ready("web") == 3
