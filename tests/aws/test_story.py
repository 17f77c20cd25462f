"""Article 002 whole: ``serve`` hears of a Spot interruption by a queue, and all is done within two minutes."""

import threading

import pytest

from rebalancer.embedded.apiserver.store import EmbeddedClock
from rebalancer.embedded.engine import Durations
from rebalancer.machines.interruption.steps import pods
from rebalancer.testing.objects import EmbeddedCluster, deployment
from rebalancer.wire.times import rfc3339
from tests.aws.cloud import REGION, in_the_cloud
from tests.aws.messages import spot
from tests.aws.story import Machine, SlowClock, monitored, put, queued
from tests.aws.test_steps import function, published, topic
from tests.aws.test_steps import pytestmark as pytestmark  # noqa: PLC0414  # moto's open files
from tests.unit.commands.serving import serving, soon

POLICY = """
apiVersion: rebalancer/v1
kind: Policy
protect: {{minPodAge: 0s}}
budgets: {{perNode: 30, perOwner: 100%, inFlight: 100%, perRun: 100%, perHour: 100%}}
strategies: {{leaving: {{}}}}
signals:
  sqs: {{queue: {queue}, region: {region}, endpoint: {url}}}
interruption:
  steps:
    - {{step: sns, topic: {topic}, endpoint: {url}}}
    - cordon
    - exclude
    - {{step: deregister, endpoint: {url}}}
    - leave
    - {{step: lambda, function: {hanging}, endpoint: {url}, within: 12s}}
    - {{step: quarantine, securityGroups: [{empty}], endpoint: {url}}}
    - {{step: mute, url: {monitoring}/mute}}
    - {{step: lambda, function: {handler}, endpoint: {url}}}
    - {{step: sns, topic: {topic}, endpoint: {url}}}
"""
HANGS = "lambda"
KEPT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}}
STEPS = (
    "sns",
    "cordon",
    "exclude",
    "deregister",
    "leave",
    HANGS,
    "quarantine",
    "mute",
    "lambda-2",
    "sns-2",
)


@pytest.fixture(scope="module")
def clock():
    return SlowClock()


@pytest.fixture(scope="module")
def region(clock):
    with in_the_cloud(clock.now) as made:
        yield made


def test_within_two_minutes_all_is_done_but_the_step_that_hangs(
    cloud, clock, tmp_path, monkeypatch
):
    monkeypatch.setattr(pods, "_POLL_INTERVAL", 0.02)
    timings = Durations(start_up=0.005, shutdown=0.005, node_start_up=0.005)
    cluster = EmbeddedCluster(EmbeddedClock(clock.unix(), clock.unix), timings=timings)
    with monitored() as monitoring, cluster:
        machine = Machine(cloud, cluster, "n-a")
        cluster.apply(deployment("web", 3), KEPT)
        cluster.settle()
        cluster.add_node("n-b")
        cluster.settle()
        assert {pod["spec"]["nodeName"] for pod in cluster.objects("Pod")} == {"n-a"}
        queue, (arn, notices) = cloud.queue(), topic(cloud)
        hanging, handler = function(cloud), function(cloud)
        given = {"topic": arn, "hanging": hanging, "handler": handler, "empty": machine.empty}
        policy = POLICY.format(
            queue=queue, region=REGION, url=cloud.url, monitoring=monitoring.url, **given
        )
        cloud.drains = 30.0
        cloud.held[f"lambda:InvokeFunction {hanging}"] = threading.Event()
        with serving(
            cluster, tmp_path, policy=policy, clock=clock, machine_state=("default", "kept")
        ) as served:
            served.await_runs(1)
            warned = clock.unix()
            put(cloud, queue, spot(machine.instance, time=rfc3339(warned)))

            # Targets that drain are waited for.
            soon(lambda: set(machine.targets().values()) == {"draining"}, served.err.getvalue)
            assert machine.statuses["deregister"] == "running"
            clock.ahead += 30
            # The planner has moved the pods, before the hanging step: only its part of the time is lost.
            soon(lambda: "lambda:InvokeFunction" in cloud.calls, served.err.getvalue)
            assert machine.statuses == {
                **dict.fromkeys(STEPS[: STEPS.index(HANGS)], "done"),
                HANGS: "running",
            }
            assert {pod["spec"]["nodeName"] for pod in cluster.objects("Pod")} == {"n-b"}
            assert queued(cloud, queue) == 1
            clock.ahead += 12

            soon(lambda: bool(machine.state.get("ended")), served.err.getvalue)
            soon(lambda: queued(cloud, queue) == 0, served.err.getvalue)
        assert machine.statuses == {**dict.fromkeys(STEPS, "done"), HANGS: "timed-out"}
        machine.assert_out()
        took = machine.state["ended"] - warned
        assert 30 + 12 < took < 120
    assert [path for path, _ in monitoring.asked] == ["/mute"]
    assert monitoring.asked[0][1]["instance"] == machine.instance
    assert [one["instance-id"] for one in cloud.invoked] == [machine.instance]
    first, last = sorted(published(cloud, notices), key=lambda each: len(each[1]))
    assert first[0] == last[0] == "n-a: spot"
    assert f"Instance: {machine.instance}" in first[1]
    assert "Steps:" not in first[1]
    assert "lambda      timed-out: it did not end in its 12 s" in last[1]
    assert "deregister  done: 3 targets drained" in last[1]
