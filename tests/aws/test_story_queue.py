"""Messages of a queue and what becomes of the machines: several of one event, hooks, lead times, and cancellation."""

import math
import threading
from datetime import timedelta
from email.utils import formatdate

import pytest

from rebalancer.machines.aws import sqs
from rebalancer.machines.interruption.model import DONE, fail_step
from rebalancer.policy.interruption import InterruptionPolicy
from rebalancer.testing.objects import EmbeddedCluster, node, pod
from rebalancer.wire.times import rfc3339
from tests.aws.cloud import REGION
from tests.aws.messages import health, spot
from tests.aws.story import Machine, listening, monitored, put, queued
from tests.aws.test_steps import pytestmark as pytestmark  # noqa: PLC0414  # moto's open files
from tests.support.clocks import NOON, HandClock
from tests.unit.machines.interruption.scene import BUSY, built_in, scripted, soon

FORTNIGHT = 14 * 86400


@pytest.fixture
def cluster(monkeypatch):
    monkeypatch.setattr(sqs, "MAX_RECEIVE", 1.0)
    with EmbeddedCluster() as made:
        yield made


def joined(cluster, *instances):
    """Let instances be the nodes node-INSTANCE."""
    for instance in instances:
        made = node(f"node-{instance}")
        made["spec"] = {"providerID": f"aws:///{REGION}a/{instance}"}
        cluster.apply(made)


def cordoned(cluster):
    return {
        one["metadata"]["name"].removeprefix("node-")
        for one in cluster.objects("Node")
        if one["spec"].get("unschedulable")
    }


class Gates:
    """A step that waits, on each node, until the test lets it go on."""

    def __init__(self, *instances, outcome=DONE):
        self._outcome = outcome
        self._open = {one: threading.Event() for one in instances}
        self.reached = {one: threading.Event() for one in instances}

    def __call__(self, context):
        self.reached[context.instance].set()
        context.stop.sooner(math.inf, self._open[context.instance]).wait(math.inf)
        return self._outcome

    def open(self, instance):
        self._open[instance].set()


def test_one_health_event_of_three_instances_is_three_pipelines_and_one_message(cloud, cluster):
    instances = ("i-1", "i-2", "i-3")
    joined(cluster, *instances)
    queue, gates = cloud.queue(), Gates(*instances)
    put(cloud, queue, health(*instances, startTime=formatdate(NOON + 1800)))
    steps = [built_in("cordon"), scripted("gate", gates, part=timedelta(minutes=20))]
    with listening(cloud, queue, cluster, steps) as process:
        for instance in instances:
            assert gates.reached[instance].wait(BUSY), process.lines
        assert cordoned(cluster) == {*instances}
        assert process.pipeline_runs.counts() == {"waiting": 0, "under-way": 3}
        for number, instance in enumerate(instances, 1):
            assert queued(cloud, queue) == 1
            gates.open(instance)
            soon(lambda: len(process.ended) == number, lambda: str(process.lines))  # noqa: B023
        assert queued(cloud, queue) == 0
    assert {one.node for one in process.ended} == {f"node-{one}" for one in instances}


@pytest.mark.parametrize("outcome", [DONE, fail_step("no")], ids=["done", "failed"])
def test_a_hook_hears_heartbeats_while_it_waits_and_is_continued_whatever_came_of_it(
    cloud, cluster, outcome
):
    joined(cluster, "i-1")
    queue, gates, clock = cloud.queue(), Gates("i-1", outcome=outcome), HandClock()
    cloud.terminates("i-1", "drain", queue)
    gate = scripted("gate", gates, part=timedelta(minutes=9))
    with listening(cloud, queue, cluster, [gate], clock=clock) as process:
        assert gates.reached["i-1"].wait(BUSY), process.lines
        for number in (1, 2, 3):
            clock.seconds += 30
            soon(lambda: len(cloud.heartbeats) == number, lambda: str(process.lines))  # noqa: B023
        assert cloud.completed == []
        gates.open("i-1")
        soon(lambda: bool(process.ended), lambda: str(process.lines))
    # Never ABANDON, which would have the group end the instance just so, and no other hook run.
    assert cloud.completed == [("i-1", "CONTINUE")]
    assert set(cloud.heartbeats) == {"i-1"}
    assert queued(cloud, queue) == 0


def blocked(cluster, name="batch"):
    """Have a pod on the node of i-1 that does not leave."""
    cluster.apply(pod(name, nodeName="node-i-1"))
    cluster.settle()


def beats(process, clock, seconds):
    """Let so many seconds pass, with heartbeats of the lifecycle action among them."""
    ends = clock.seconds + seconds
    while clock.seconds < ends:
        heard = len(process.cloud.heartbeats)

        def hears(heard=heard):
            clock.seconds += 2.0
            return len(process.cloud.heartbeats) > heard

        soon(hears, lambda: str(process.lines))


def test_a_machine_is_held_until_its_pods_have_left(cloud, cluster):
    """A batch, a PodDisruptionBudget or a long grace period take longer than announcements without a deadline have."""
    joined(cluster, "i-1")
    blocked(cluster)
    queue, clock, last = cloud.queue(), HandClock(), scripted("last")
    cloud.terminates("i-1", "drain", queue)
    steps = [built_in("cordon"), built_in("leave", part=timedelta(seconds=30)), last]
    with listening(cloud, queue, cluster, steps, clock=clock) as process:
        soon(lambda: cordoned(cluster), lambda: str(process.lines))
        beats(process, clock, 700)
        assert clock.seconds > InterruptionPolicy().without_deadline.total_seconds()
        # A process that takes over holds it, too; it gets the message a minute later.
        process.kill()
    process.listening.join(BUSY)
    with listening(cloud, queue, cluster, steps, clock=clock) as process:
        beats(process, clock, 60)
        assert process.pipeline_runs.needs_planner
        assert cloud.completed == []
        assert queued(cloud, queue) == 1
        cluster.delete("Pod", "batch", "default")

        def ended():
            clock.seconds += 0.1
            return bool(process.ended)

        soon(ended, lambda: str(process.lines))
    assert cloud.completed == [("i-1", "CONTINUE")]
    assert last.step.acted == 1
    assert queued(cloud, queue) == 0


@pytest.mark.parametrize("ends", ["the hook times out", "a deadline comes", "the policy's limit"])
def test_a_machine_that_goes_with_its_pods_is_held_no_longer(cloud, cluster, ends):
    joined(cluster, "i-1")
    blocked(cluster)
    queue, clock = cloud.queue(), HandClock()
    policy = InterruptionPolicy(hold_up_to=timedelta(minutes=20))
    token = cloud.terminates("i-1", "drain", queue)
    steps = [built_in("cordon"), built_in("leave")]
    with listening(cloud, queue, cluster, steps, clock=clock, policy=policy) as process:
        soon(lambda: cordoned(cluster), lambda: str(process.lines))
        beats(process, clock, 620)
        assert process.ended == []
        if ends == "the hook times out":
            del cloud.waiting[token]
        elif ends == "a deadline comes":
            put(cloud, queue, spot("i-1", time=rfc3339(clock.unix())))

        def ended():
            clock.seconds += 2.0
            return bool(process.ended)

        soon(ended, lambda: str(process.lines))
        (machine,) = process.pipeline_runs.report()
    assert machine.result == "incomplete"
    assert "default/batch" in machine.steps["leave"].why
    assert queued(cloud, queue) == 0
    timed_out = ends == "the hook times out"
    assert cloud.completed == ([] if timed_out else [("i-1", "CONTINUE")])


def test_what_is_weeks_off_begins_its_codes_lead_time_before(cloud, cluster):
    codes = {
        "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED": "i-retired",
        "AWS_EC2_SYSTEM_REBOOT_MAINTENANCE_SCHEDULED": "i-rebooted",
        "AWS_EC2_INSTANCE_NETWORK_MAINTENANCE_SCHEDULED": "i-maintained",
    }
    looks = [f"i-look-{number}" for number in range(4)]
    joined(cluster, *codes.values(), *looks)
    policy = InterruptionPolicy(
        lead_times={
            "instance-retirement": timedelta(days=30),
            "system-reboot": timedelta(minutes=15),
        }
    )
    queue, clock = cloud.queue(), HandClock()
    starts = formatdate(NOON + FORTNIGHT)
    for code, instance in codes.items():
        put(cloud, queue, health(instance, code=code, startTime=starts))

    with listening(
        cloud, queue, cluster, [built_in("cordon")], clock=clock, policy=policy
    ) as process:

        def begun_at(seconds, *going):
            """So long before, these have begun, and no other: a Spot interruption shows that all were looked at."""
            clock.seconds = FORTNIGHT - seconds
            look = looks.pop()
            put(cloud, queue, spot(look, time=rfc3339(clock.unix()), id=look))
            wanted = {look, *going}
            soon(lambda: wanted <= cordoned(cluster), lambda: str(process.lines))
            left = cordoned(cluster) - wanted
            assert not {one for one in left if not one.startswith("i-look")}

        soon(lambda: "i-retired" in cordoned(cluster), lambda: str(process.lines))
        soon(lambda: process.pipeline_runs.counts()["waiting"] == 2, lambda: str(process.lines))
        begun_at(3601, "i-retired")
        begun_at(3600, "i-retired", "i-maintained")
        begun_at(901, "i-retired", "i-maintained")
        begun_at(900, "i-retired", "i-maintained", "i-rebooted")
        soon(lambda: queued(cloud, queue) == 0, lambda: str(process.lines))


@pytest.mark.parametrize("halfway", [False, True], ids=["at-its-end", "half-way"])
def test_a_machine_that_stays_gets_back_all_that_was_taken(cloud, cluster, halfway):
    with monitored() as monitoring:
        machine, queue, of = Machine(cloud, cluster, "n-a"), cloud.queue(), {"endpoint": cloud.url}
        gates = Gates(machine.instance)
        lift = {"url": f"{monitoring.url}/lift", "body": {"host": "$instance"}}
        steps = [
            built_in("cordon"),
            built_in("exclude"),
            built_in("deregister", **of),
            built_in("leave"),
            built_in("quarantine", security_groups=(machine.empty,), **of),
            built_in("mute", url=f"{monitoring.url}/mute", lift=lift),
            *([scripted("gate", gates)] if halfway else ()),
        ]
        event = {"startTime": formatdate(NOON + 1800)}
        put(cloud, queue, health(machine.instance, **event))
        with listening(cloud, queue, cluster, steps) as process:
            if halfway:
                assert gates.reached[machine.instance].wait(BUSY), process.lines
            else:
                soon(lambda: bool(process.ended), lambda: str(process.lines))
            machine.assert_out()
            assert queued(cloud, queue) == int(halfway)
            put(cloud, queue, health(machine.instance, statusCode="closed", **event))
            soon(lambda: machine.state == {}, lambda: str(process.lines))
            soon(lambda: queued(cloud, queue) == 0, lambda: str(process.lines))
        machine.assert_untouched()
    assert [path for path, _ in monitoring.asked] == ["/mute", "/lift"]
    assert monitoring.asked[1][1] == {"host": machine.instance}
