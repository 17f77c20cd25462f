"""A course on an embedded cluster with steps of the test's own, and a clock that only the test moves."""

import threading
import time
from contextlib import contextmanager
from typing import ClassVar

import msgspec

from rebalancer.base.stop import Stop
from rebalancer.kube.client import connect
from rebalancer.machines.interruption.model import DONE
from rebalancer.machines.interruption.pipeline_run import PipelineContext, PipelineRun, PlannedStep
from rebalancer.machines.interruption.pipeline_runs import PipelineRuns
from rebalancer.machines.interruption.record import KeptOfMachine, KeptTexts
from rebalancer.node_record.conditions import NodeConditions
from rebalancer.policy.interruption import InterruptionPolicy, StepParams
from rebalancer.registry import STEPS
from rebalancer.signals.model import FollowedNodes, Interruption
from rebalancer.signals.state import STATE, encode_state
from rebalancer.wire.objects import Node, NodeSpec, ObjectMeta
from tests.support.clocks import NOON, HandClock

BUSY = 240.0


class Scripted:
    """A step that does what the test says, and counts how often."""

    Params: ClassVar[type[StepParams]] = StepParams

    def __init__(self, name, act=None):
        self.name, self._act = name, act
        self.acted = self.undone = 0
        self.contexts = []

    def act(self, context, params):
        self.acted += 1
        self.contexts.append(context)
        return DONE if self._act is None else self._act(context)

    def undo(self, context, params):
        self.undone += 1


KEPT = ("default", "kept")
"""The ConfigMap in which steps keep what only the product may write."""


class Process:
    """What one process does about interruptions, until it is killed."""

    def __init__(self, cluster, steps, *, clock=None, policy=None, environ=None, conditions=False):
        self.cluster, self.clock = cluster, clock or HandClock()
        cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": KEPT[1]}})
        self.killed = threading.Event()
        self.lines: list[str] = []
        self.events: list[tuple[str, str]] = []
        self.stop = Stop(self.clock, signalled=self.killed)
        self.planned = 0
        self.client = connect(kubeconfig=cluster.kubeconfig, environ={}, stop=self.stop)
        self.pipeline = PipelineContext(
            client=self.client,
            clock=self.clock,
            environ=environ or {},
            stop=self.stop,
            steps=tuple(steps),
            policy=policy or InterruptionPolicy(),
            kept=KeptTexts(KEPT, self.clock.unix),
            sources=frozenset({"test"}),
            plan=self._plan,
            say=self.lines.append,
            write_event=lambda node, text: self.events.append((node, text)),
            conditions=NodeConditions(conditions, self.clock.unix, self.lines.append),
        )
        self.nodes = FollowedNodes(self._every)
        self.pipeline_runs = PipelineRuns(self.pipeline, self.nodes)

    def _plan(self):
        self.planned += 1

    def _every(self):
        return [
            Node(
                metadata=ObjectMeta(
                    name=one["metadata"]["name"],
                    uid=one["metadata"]["uid"],
                    annotations=one["metadata"].get("annotations"),
                ),
                spec=NodeSpec(provider_id=one["spec"].get("providerID", "")),
            )
            for one in self.cluster.objects("Node")
        ]

    def pipeline_run(self, node, *interruptions):
        uid = next((one.metadata.uid for one in self._every() if one.metadata.name == node), "")
        pipeline_run = PipelineRun(self.pipeline, node, uid, "")
        for one in interruptions:
            pipeline_run.take(one)
        return pipeline_run

    def kill(self):
        """End as a process does that is killed: nothing more is written."""
        self.killed.set()


@contextmanager
def process(cluster, steps, **more):
    made = Process(cluster, steps, **more)
    try:
        yield made
    finally:
        made.kill()
        made.pipeline_runs.join(5.0)
        made.client.close()


def node_with(cluster, there, node="n-a"):
    """Return a Node that shows a state as its own."""
    uid = cluster.get("Node", node)["metadata"]["uid"]
    text = encode_state(msgspec.structs.replace(there, uid=uid))
    metadata = {"name": node, "annotations": {STATE: text}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def leave_behind(cluster, there, node="n-a"):
    """Leave a state behind as a process does that is killed: kept, and shown on the node."""
    uid = cluster.get("Node", node)["metadata"]["uid"]
    kept = KeptOfMachine(uid, NOON, state=msgspec.structs.replace(there, uid=uid))
    data = {uid: msgspec.json.encode(kept).decode()}
    cluster.apply(
        node_with(cluster, there, node),
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": KEPT[1]}, "data": data},
    )


def scripted(name, act=None, part=None):
    """Return a step of the test, planned."""
    step = Scripted(name, act)
    return PlannedStep(name, step, StepParams(), part if part is not None else StepParams().part())


def built_in(name, part=False, **options):
    """Return a built-in step, planned."""
    step = STEPS.installed().load(name)
    params = step.Params(**options)
    return PlannedStep(name, step, params, params.part() if part is False else part)


def spot(node="n-a", *, seconds=120.0, id_="e1", **changes):
    """Return an interruption of a node in so many seconds of the hand clock's noon."""
    given = {
        "id": id_,
        "kind": "spot",
        "source": "test",
        "node": node,
        "deadline": None if seconds is None else NOON + seconds,
    }
    return Interruption(**{**given, **changes})


def soon(true, why=str):
    until = time.monotonic() + BUSY
    while not true():
        assert time.monotonic() < until, why()
        time.sleep(0.005)
