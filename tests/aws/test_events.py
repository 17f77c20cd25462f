"""What messages say of instances: a table of the forms that AWS documents."""

import json

import pytest

from rebalancer.machines.aws.sqs import Hook, UndecodableError, parse
from tests.aws.messages import HEALTH_ARN, event, health, hook, rebalance, spot, state, wrapped


def read(body):
    return [
        (each.id, each.kind, each.instance, each.deadline, each.cancelled)
        for each in parse(json.dumps(body)).events
    ]


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (spot("i-1"), ("i-1/spot/e-1", "spot", "i-1", 1763632920.0, False)),
        (rebalance("i-1"), ("i-1/rebalance/e-1", "rebalance", "i-1", None, False)),
        (state("i-1", "stopping"), ("i-1/shutdown/e-1", "shutdown", "i-1", None, False)),
        (state("i-1", "terminated"), ("i-1/shutdown/e-1", "shutdown", "i-1", None, False)),
        (hook("i-1", "t-1"), ("i-1/hook/t-1", "scale-in", "i-1", None, False)),
        (
            {**hook("i-1", "t-1"), "Origin": "AutoScalingGroup", "Destination": "WarmPool"},
            ("i-1/hook/t-1", "warm-pool", "i-1", None, False),
        ),
        (
            {**hook("i-1", "t-1"), "Origin": "WarmPool", "Destination": "EC2"},
            ("i-1/hook/t-1", "scale-in", "i-1", None, False),
        ),
        (
            event("aws.autoscaling", "EC2 Instance-terminate Lifecycle Action", hook("i-1", "t-1")),
            ("i-1/hook/t-1", "scale-in", "i-1", None, False),
        ),
        (health("i-1"), (f"i-1/{HEALTH_ARN}", "instance-retirement", "i-1", 1763632800.0, False)),
        (
            health("i-1", code="AWS_EC2_SYSTEM_REBOOT_MAINTENANCE_SCHEDULED"),
            (f"i-1/{HEALTH_ARN}", "system-reboot", "i-1", 1763632800.0, False),
        ),
        (
            health("i-1", code="AWS_EC2_INSTANCE_NETWORK_MAINTENANCE_SCHEDULED"),
            (f"i-1/{HEALTH_ARN}", "system-maintenance", "i-1", 1763632800.0, False),
        ),
        (
            health("i-1", statusCode="closed"),
            (f"i-1/{HEALTH_ARN}", "instance-retirement", "i-1", 1763632800.0, True),
        ),
        (
            health("i-1", described="[Canceled] Your instance"),
            (f"i-1/{HEALTH_ARN}", "instance-retirement", "i-1", 1763632800.0, True),
        ),
        (
            health("i-1", startTime=None),
            (f"i-1/{HEALTH_ARN}", "instance-retirement", "i-1", None, False),
        ),
    ],
)
def test_an_event_of_one_instance(body, wanted):
    assert read(body) == [wanted]
    # SNS wraps it, and it stays the same.
    assert read(wrapped(body)) == [wanted]


def test_a_health_event_is_an_interruption_of_each_of_its_instances():
    three = parse(json.dumps(health("i-1", "i-2", "i-3"))).events
    assert [each.instance for each in three] == ["i-1", "i-2", "i-3"]
    assert len({each.id for each in three}) == 3
    assert read(health("i-1", "i-1")) == read(health("i-1"))


def test_a_health_event_may_have_a_window():
    (one,) = parse(json.dumps(health("i-1", endTime="Thu, 20 Nov 2025 12:00:00 GMT"))).events
    assert (one.deadline, one.until) == (1763632800.0, 1763640000.0)


def test_a_hook_knows_what_to_answer():
    (said,) = parse(json.dumps(hook("i-1", "t-1"))).events
    assert said.hook == Hook("workers", "drain", "t-1", "i-1")


@pytest.mark.parametrize(
    "body",
    [
        state("i-1", "running"),
        state("i-1", "pending"),
        health("vol-1"),
        health("i-1", service="RDS"),
        health("i-1", eventTypeCategory="issue"),
        {**hook("i-1", "t-1"), "LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING"},
        event("aws.s3", "Object Created", {}),
    ],
)
def test_what_calls_for_nothing(body):
    said = parse(json.dumps(body))
    assert said.events == ()
    assert not said.is_test


def test_a_test_notification_is_one():
    assert parse(
        '{"Event": "autoscaling:TEST_NOTIFICATION", "Service": "AWS Auto Scaling"}'
    ).is_test


@pytest.mark.parametrize(
    "body",
    [
        "",
        "hello",
        "[]",
        "{}",
        '{"Type": "Notification"}',
        json.dumps(wrapped(wrapped(spot("i-1")))),
        json.dumps({**spot("i-1"), "detail": {}}),
        json.dumps({**spot("i-1"), "detail": None}),
        json.dumps({**spot("i-1"), "id": 7}),
        json.dumps(spot("i-1\nError: forged")),
        json.dumps(health("i-1", startTime="soon")),
        json.dumps(health("i-1", affectedEntities=[{}])),
        json.dumps({**hook("i-1", "t-1"), "LifecycleActionToken": None}),
        "[" * 100_000,
    ],
)
def test_what_cannot_be_understood(body):
    with pytest.raises(UndecodableError):
        parse(body)
