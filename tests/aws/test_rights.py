"""The IAM policy in docs/aws.md allows the calls that are made, and no other."""

import json
import re
from pathlib import Path

from rebalancer.aws import sqs
from rebalancer.aws.invoke import Lambda, LambdaParams
from rebalancer.aws.publish import Sns, SnsParams
from rebalancer.aws.quarantine import Quarantine, QuarantineParams
from rebalancer.signals.model import Interruption
from tests.aws.messages import spot
from tests.aws.test_sqs import DONE, Ground
from tests.aws.test_steps import Balanced, Pipeline, deregistration, function, quarantined, topic
from tests.aws.test_steps import pytestmark as pytestmark  # noqa: PLC0414  # moto's open files

DOCS = Path(__file__).resolve().parents[2] / "docs" / "aws.md"


def documented():
    """The actions of the policy in the documentation."""
    (policy,) = re.findall(r"```json\n(\{.*?\n\})\n```", DOCS.read_text(), re.DOTALL)
    statements = json.loads(policy)["Statement"]
    assert {statement["Effect"] for statement in statements} == {"Allow"}
    return [action for statement in statements for action in statement["Action"]]


def receives(cloud):
    ground = Ground(cloud)
    ground.send(spot("i-2", time="2020-01-01T00:00:00Z"))
    cloud.terminates("i-1", "drain", ground.url)
    said_lines: list[Interruption] = []
    while len(said_lines) < 2:
        said_lines += ground.receive()
    ground.unix.ahead += 50
    for one in said_lines:
        ground.receiver.heartbeat(one)
        ground.receiver.done(one, DONE)


def acts(cloud):
    balanced = Balanced(cloud)
    instance, empty = quarantined(cloud)
    given = {"endpoint": cloud.url}
    steps = (
        (balanced.instance, *deregistration(cloud)),
        (instance, Quarantine(), QuarantineParams(security_groups=(empty,), **given)),
        (instance, Lambda(), LambdaParams(function=function(cloud), **given)),
        (instance, Sns(), SnsParams(topic=topic(cloud)[0], **given)),
    )
    for machine, step, params in steps:
        pipeline = Pipeline(machine)
        step.act(pipeline.context("step"), params)
        if hasattr(step, "undo"):
            step.undo(pipeline.context("step"), params)


def test_the_documented_policy_allows_exactly_the_calls_that_are_made(cloud, monkeypatch):
    monkeypatch.setattr(sqs, "LONGEST_RECEIVE", 1.0)
    receives(cloud)
    acts(cloud)
    actions = documented()
    assert sorted(actions) == sorted(set(actions))
    assert set(cloud.ours) == set(actions)
