"""Scale-out by ``serve``, and what ``capacity`` and ``explain pod`` say of it, on a group of machines."""

import io
import json
import threading

from rebalancer.base.environment import Environment
from rebalancer.base.errors import ExitCode
from rebalancer.commands.capacity import capacity
from rebalancer.commands.explain import Explaining, explain_pod
from rebalancer.run.options import RunOptions
from rebalancer.testing.objects import deployment
from tests.unit.commands.scaling import OurClock, grounded
from tests.unit.commands.serving import serving, soon

_STATUS = ("default", "machines")


def _pending_pods(ground):
    """Three pods that want a node each; there is one."""
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": _STATUS[1]}}
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
            ground.cluster, tmp_path, policy=policy, every=0.2, capacity_status=_STATUS
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


def test_capacity_knows_the_back_offs_that_runs_have_left(tmp_path, monkeypatch):
    with grounded(tmp_path, monkeypatch, 1, strategies="scale-out: {}") as ground:
        _pending_pods(ground)
        ground.pool.refuses = "no machines of this kind"
        code, _ = ground.run(capacity_status=_STATUS)
        assert code == 4
        options = _access(ground)

        def codes(**more):
            data = _said(
                ground, lambda e: capacity(RunOptions.of(dry_run=True, **options, **more), e)
            )
            return {one["code"] for one in data["pending"]}

        assert codes() == {"GroupGrows"}
        assert codes(capacity_status=_STATUS) == {"GroupMayNotGrow"}


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
