"""Scale-in under random courses: pods come and go, requests fail, runs are killed after any of their writes."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rebalancer.kube.nodes import change_node
from rebalancer.machines.drain.remaining import describe_remaining
from rebalancer.testing.objects import deployment, pod
from tests.support.killing import Killed
from tests.unit.commands.scaling import TICK, grounded

_LOW, _SIZE = 1, 3
_LATE = "late"
_OPTIONS = "unneededFor: 4m, coolDownAfterGrowth: 0s, coolDownAfterFailure: 1m, giveUpAfter: 6m"
_SETTLED = 40
"""Ticks after which nothing may be under way any more: an end that is lost, a node that is not empty, one at a time."""


@dataclass(frozen=True)
class Step:
    """What happens before a run, and to it."""

    replicas: int | None
    """Of the workload from now on; None: as before."""
    provider: str
    """``well``, ``refuses``, or a reply that is lost after the request was ``done`` or ``ignored``."""
    killed_after: int | None
    """Writes on nodes and requests to end a machine, the last of which the run survives by nothing."""
    uncordons: bool
    late: bool = False
    """A pod is bound to a closed node just before its pods are listed: the scheduler had chosen it before."""


_STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from([None, None, None, 0, 1, 3, 6, 9]),
        st.sampled_from(["well", "well", "well", "refuses", "done", "ignored"]),
        st.sampled_from([None, None, 1, 2, 3]),
        st.sampled_from([False] * 7 + [True]),
        st.booleans(),
    ),
    min_size=8,
    max_size=16,
)


class Course:
    """Runs on one cluster; what must hold is looked at whenever a machine is ended."""

    def __init__(self, ground, patch):
        self.ground, self.left, self.late = ground, None, False
        terminate = ground.pool.terminate

        def ended(group, instance):
            if ground.pool.refuses is None and ground.pool.lost != "ignored":
                self._may_end(instance)
            terminate(group, instance)
            self._counted()

        def changed(*args):
            try:
                return change_node(*args)
            finally:
                self._counted()

        def bound(client, name, **more):
            if self.late:
                self.late = False
                ground.cluster.apply(pod(_LATE, nodeName=name))
            return describe_remaining(client, name, **more)

        patch.setattr("rebalancer.machines.capacity.scale_in.describe_remaining", bound)
        patch.setattr(ground.pool, "terminate", ended)
        patch.setattr("rebalancer.node_record.protocol.change_node", changed)

    def _may_end(self, node):
        pool = self.ground.pool
        assert pool.group.desired > _LOW
        assert node in pool.group.instances
        assert self.ground.closed(node)
        on = [one for one in self._pods() if one["spec"].get("nodeName") == node]
        assert on == []

    def _pods(self):
        return self.ground.cluster.objects("Pod")

    def _counted(self):
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                raise Killed

    def going(self):
        return [state for name in self.ground.nodes if (state := self.ground.state(name))]

    def step(self, step):
        ground, pool = self.ground, self.ground.pool
        if step.replicas is not None:
            ground.cluster.apply(deployment("web", step.replicas, cpu="500m"))
        if step.uncordons:
            ground.cluster.cordon(ground.nodes, on=False)
        if any(one["metadata"]["name"] == _LATE for one in self._pods()):
            ground.cluster.delete("Pod", _LATE, grace=0)
        self.late = step.late
        ground.cluster.advance(TICK)
        pool.catch_up()
        ground.cluster.settle()
        pool.refuses = "AccessDenied" if step.provider == "refuses" else None
        pool.lost = step.provider if step.provider in ("done", "ignored") else None
        self.left = step.killed_after
        try:
            code, _ = ground.run()
            assert code in (0, 4)
        except Killed:
            ground.runner.restart()
        finally:
            self.left = None
        ground.cluster.settle()
        assert pool.group.desired >= _LOW
        # A machine less was asked for at most once for each that has ended.
        assert pool.group.desired == _SIZE - len(pool.ended)
        assert len(pool.ended) == len(set(pool.ended))


_WELL = Step(None, "well", None, uncordons=False)
_LATE_EACH_TIME = [Step(0, "well", None, uncordons=False, late=True)] * 6
"""Every node is empty, but a pod comes to each just before its machine would be terminated: hardly ever drawn by chance."""


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(_STEPS)
@example(_LATE_EACH_TIME)
def test_no_machine_with_pods_ends_and_each_node_is_ended_or_opened(steps):
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory() as folder,
        grounded(Path(folder), patch, _SIZE, low=_LOW, options=_OPTIONS) as ground,
    ):
        ground.cluster.apply(deployment("web", 3, cpu="500m"))
        ground.cluster.settle()
        course = Course(ground, patch)
        for step in steps:
            course.step(step)
        for _ in range(_SETTLED):
            course.step(_WELL)
            if not course.going():
                break
        assert course.going() == []
        assert all(ground.is_open(name) for name in ground.nodes)
        wanted = ground.cluster.get("Deployment", "web")["spec"]["replicas"]
        room = 4 * len(ground.nodes)
        assert ground.ready("web") == min(wanted, room)
