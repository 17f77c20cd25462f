"""A process that is killed at each of its writes, and others that go on: all is done, and the hook continued once."""

import pytest

from rebalancer.base.errors import ClusterReadError
from rebalancer.machines.aws import sqs
from rebalancer.testing.objects import EmbeddedCluster
from tests.aws.story import Machine, listening, monitored, named, queued
from tests.aws.test_steps import function, published, topic
from tests.aws.test_steps import pytestmark as pytestmark  # noqa: PLC0414  # moto's open files
from tests.unit.machines.interruption.scene import (
    built_in,
    soon,
)

ENOUGH = 60
"""Processes; each comes one write further."""


def kills(process, *, after, writes):
    """Let a process die at its next write after so many: before it reaches the API server, or right after."""
    original = process.client.beside
    made = 0

    def beside(stop):
        client = original(stop)
        patch = client.patch

        def counted(*args, **more):
            nonlocal made
            if process.killed.is_set() or (made == writes and not after):
                process.kill()
                raise ClusterReadError("killed")
            answer = patch(*args, **more)
            made += 1
            if made == writes and after:
                process.kill()
                raise ClusterReadError("killed")
            return answer

        client.patch = counted
        return client

    process.client.beside = beside


@pytest.mark.parametrize("after", [False, True], ids=["before-it", "after-it"])
def test_killed_at_each_write_all_is_done_and_the_hook_continued_once(cloud, monkeypatch, after):
    monkeypatch.setattr(sqs, "MAX_RECEIVE", 1.0)
    with EmbeddedCluster() as cluster, monitored() as monitoring:
        machine, queue, (arn, notices) = Machine(cloud, cluster, "n-a"), cloud.queue(), topic(cloud)
        of = {"endpoint": cloud.url}
        steps = named(
            built_in("sns", topic=arn, **of),
            built_in("cordon"),
            built_in("exclude"),
            built_in("deregister", **of),
            built_in("leave"),
            built_in("quarantine", security_groups=(machine.empty,), **of),
            built_in("mute", url=monitoring.url),
            built_in("lambda", function=function(cloud), **of),
            built_in("sns", topic=arn, **of),
        )
        cloud.terminates(machine.instance, "drain", queue)
        killed = 0
        ended = False
        while not ended and killed < ENOUGH:
            with listening(cloud, queue, cluster, steps, start=False) as process:
                kills(process, after=after, writes=int(killed > 0 or after))
                process.start()
                soon(
                    lambda: process.killed.is_set() or bool(process.ended),
                    lambda: str(process.lines),
                )
                ended = bool(process.ended)
            killed += not ended
        assert ended
        assert killed > len(steps) + 4, "each step is written, and what four of them keep"
        assert machine.state["ended"]
        assert machine.statuses == dict.fromkeys([step.name for step in steps], "done")
        machine.assert_out()
    assert cloud.completed == [(machine.instance, "CONTINUE")]
    assert cloud.ours.count("sqs:DeleteMessage") == 1
    assert queued(cloud, queue) == 0
    # What was called but not noted is called once more, with the same id; nothing else is.
    most = 1 if after else 2
    assert len(monitoring.asked) <= most
    assert len({one["id"] for one in cloud.invoked}) == 1
    assert len(cloud.invoked) <= most
    assert 2 <= len(published(cloud, notices)) <= 2 * most


def test_killed_between_the_hook_and_the_message_the_hook_is_continued_once(cloud, monkeypatch):
    monkeypatch.setattr(sqs, "MAX_RECEIVE", 1.0)
    # The second process does not know of the first one's answer: what AWS refuses may be too new, for two minutes.
    monkeypatch.setattr(sqs, "_EARLY", 0.0)
    with EmbeddedCluster() as cluster:
        machine, queue = Machine(cloud, cluster, "n-a"), cloud.queue()
        cloud.terminates(machine.instance, "drain", queue)
        cloud.refuses["sqs:DeleteMessage"] = 403
        with listening(cloud, queue, cluster, [built_in("cordon")]) as first:
            soon(lambda: bool(cloud.completed), lambda: str(first.lines))
        del cloud.refuses["sqs:DeleteMessage"]
        assert queued(cloud, queue) == 1
        with listening(cloud, queue, cluster, [built_in("cordon")]) as second:
            soon(lambda: bool(second.ended), lambda: str(second.lines))
    assert cloud.completed == [(machine.instance, "CONTINUE")]
    assert queued(cloud, queue) == 0
