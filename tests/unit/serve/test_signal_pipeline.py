"""The threads that listen to sources: opened together or not at all, and which of them hangs."""

import io
from typing import Any

import pytest

from rebalancer.base.environment import Environment, SystemClock
from rebalancer.base.errors import PolicyError
from rebalancer.kube.client import connect
from rebalancer.policy.interruption import InterruptionPolicy
from rebalancer.registry import Registry
from rebalancer.serve.interruptions import ClusterNodes, SignalPipeline
from rebalancer.signals.model import SignalError
from rebalancer.testing.objects import EmbeddedCluster
from tests.unit.commands.serving import like


class HandClock(SystemClock):
    def __init__(self):
        self.ahead = 0.0

    def now(self):
        return super().now() + self.ahead


class Source:
    """A source that receives nothing, or cannot be opened."""

    def __init__(self, *, opens=True):
        self._opens = opens
        self.closed = 0

    def open(self, params, around):
        if not self._opens:
            raise SignalError("queue: there is no such queue")
        return self

    def receive(self, stop):
        stop.wait(20)
        return ()

    def close(self):
        self.closed += 1


@pytest.fixture
def start():
    """Start a pipeline that listens to sources of these names."""
    clock = HandClock()
    environment = Environment(clock, {}, io.StringIO(), io.StringIO())
    at_end: list[Any] = []

    def made(sources):
        registry = like(signals=like(load=sources.__getitem__), steps=Registry.installed().steps)
        policy = like(
            signals=dict.fromkeys(sources),
            interruption=InterruptionPolicy(steps=()),
            node_conditions=False,
        )
        pipeline = SignalPipeline.start(
            environment,
            registry,
            policy,
            client,
            ClusterNodes(),
            kept_in=None,
            lost=lambda: None,
            call_planner=lambda: None,
        )
        at_end.append(pipeline.close)
        return pipeline, clock

    with EmbeddedCluster() as cluster:
        client = connect(kubeconfig=cluster.kubeconfig, environ={})
        yield made
        for close in at_end:
            close()
        client.close()


def test_a_source_that_cannot_be_opened_leaves_no_other_open(start):
    first, last = Source(), Source()
    with pytest.raises(PolicyError, match="signals: queue: there is no such queue"):
        start({"first": first, "wrong": Source(opens=False), "last": last})
    assert (first.closed, last.closed) == (1, 0)


def test_a_source_that_hangs_is_named(start):
    pipeline, clock = start({"queue": Source()})
    assert pipeline.problem() is None
    clock.ahead = 141.0
    problem = pipeline.problem()
    assert problem is not None
    assert problem.startswith("signal source queue has not answered for 14")


def test_what_is_closed_has_closed_its_sources(start):
    sources = {"one": Source(), "other": Source()}
    pipeline, _ = start(sources)
    counts = pipeline.counts()
    assert counts.under_way == {("waiting",): 0, ("under-way",): 0}
    assert counts.failing == {("one",): 0.0, ("other",): 0.0}
    pipeline.close()
    assert [one.closed for one in sources.values()] == [1, 1]
