"""The IAM policy in docs/aws.md allows the calls that are made, each in the statement of its feature, and no other."""

import json
import re
from pathlib import Path

import pytest

from rebalancer.machines.aws import sqs
from rebalancer.machines.aws.groups import AutoScaling
from rebalancer.machines.aws.quarantine import Quarantine, QuarantineParams
from rebalancer.machines.aws.steps import Lambda, LambdaParams, Sns, SnsParams
from rebalancer.providers.contract import Guarded
from rebalancer.signals.model import Interruption
from rebalancer.testing.objects import EmbeddedCluster
from tests.aws.cloud import REGION
from tests.aws.fleet import ENABLED, Fleet
from tests.aws.messages import spot
from tests.aws.test_sqs import DONE, Ground
from tests.aws.test_steps import Balanced, Pipeline, deregistration, function, quarantined, topic
from tests.aws.test_steps import pytestmark as pytestmark  # noqa: PLC0414  # moto's open files

DOCS = Path(__file__).resolve().parents[2] / "docs" / "aws.md"


def policies():
    """The statements of both policies in the documentation: of the credentials, and of the queue."""
    texts = re.findall(r"```json\n(\{.*?\n\})\n```", DOCS.read_text(), re.DOTALL)
    ours, of_queue = (json.loads(text)["Statement"] for text in texts)
    return ours, of_queue


def statements():
    """Sid -> actions, of the policy in the documentation."""
    listed, _ = policies()
    assert {statement["Effect"] for statement in listed} == {"Allow"}
    return {statement["Sid"]: statement["Action"] for statement in listed}


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


def acts(machine, step, params):
    pipeline = Pipeline(machine)
    step.act(pipeline.context("step"), params)
    if hasattr(step, "undo"):
        step.undo(pipeline.context("step"), params)


def deregisters(cloud):
    acts(Balanced(cloud).instance, *deregistration(cloud))


def quarantines(cloud):
    instance, empty = quarantined(cloud)
    params = QuarantineParams(security_groups=(empty,), endpoint=cloud.url)
    acts(instance, Quarantine(), params)


def invokes(cloud):
    acts("i-1", Lambda(), LambdaParams(function=function(cloud), endpoint=cloud.url))


def publishes(cloud):
    acts("i-1", Sns(), SnsParams(topic=topic(cloud)[0], endpoint=cloud.url))


def fleet(cloud, act):
    """Let ``act`` do something with a provider of two groups, one of which has no machine."""
    with EmbeddedCluster() as cluster:
        made = Fleet(cloud, cluster)
        made.add("live", 2)
        made.add("none", 0)
        try:
            params = AutoScaling.Params(tags=(ENABLED,), region=REGION, endpoint=cloud.url)
            act(AutoScaling().open(params, {}))
        finally:
            made.close()


def looks(cloud):
    fleet(cloud, lambda machines: [machines.template(group) for group in machines.groups(())])


def grows(cloud):
    fleet(cloud, lambda machines: Guarded(machines, ()).increase("live", 3))


def looks_at_launches(cloud):
    def act(machines):
        (live, _) = machines.groups(())
        machines.launch_failure(live, 0.0)

    fleet(cloud, act)


def gives_up(cloud):
    def act(machines):
        cloud.exhausted.add("live")
        guarded = Guarded(machines, ())
        guarded.increase("live", 3)
        assert guarded.decrease_to_existing("live") == 2

    fleet(cloud, act)


def terminates(cloud):
    def act(machines):
        (live, _) = machines.groups(())
        Guarded(machines, ()).terminate("live", live.instances[0], lambda: True)

    fleet(cloud, act)


def notes(cloud):
    def act(machines):
        (live, _) = machines.groups(())
        machines.write_note(live, "desired=2")
        machines.write_note(live, "")

    fleet(cloud, act)


def suspends(cloud):
    def act(machines):
        (live, _) = machines.groups(())
        machines.suspend(live, live.meddling)
        machines.resume(live, live.meddling)

    fleet(cloud, act)


FEATURES = [
    (notes, {"ReplaceNotes"}, {"autoscaling:DescribeAutoScalingGroups"}),
    (suspends, {"Replace"}, {"autoscaling:DescribeAutoScalingGroups"}),
    (looks, {"ProviderLooks"}, set()),
    (grows, {"ScaleOut"}, {"autoscaling:DescribeAutoScalingGroups"}),
    (looks_at_launches, {"ScaleOutLooks"}, {"autoscaling:DescribeAutoScalingGroups"}),
    (gives_up, {"ScaleOut", "ScaleOutLooks"}, {"autoscaling:DescribeAutoScalingGroups"}),
    (terminates, {"ScaleIn"}, {"autoscaling:DescribeAutoScalingGroups"}),
    (receives, {"SourceSqs", "LifecycleHooks"}, set()),
    (deregisters, {"StepDeregisterLooks", "StepDeregister"}, set()),
    (quarantines, {"StepQuarantineLooks", "StepQuarantine"}, set()),
    (invokes, {"StepLambda"}, set()),
    (publishes, {"StepSns"}, set()),
]


@pytest.mark.parametrize(
    ("act", "sids", "also"), FEATURES, ids=lambda one: getattr(one, "__name__", "")
)
def test_each_statement_allows_exactly_the_calls_of_its_feature(
    cloud, monkeypatch, act, sids, also
):
    """``also``: calls that another statement allows, which the feature needs as well."""
    monkeypatch.setattr(sqs, "MAX_RECEIVE", 1.0)
    act(cloud)
    allowed = {action for sid in sids for action in statements()[sid]}
    assert set(cloud.ours) == allowed | also


def test_what_changes_something_is_limited_to_resources_of_the_cluster():
    listed, of_queue = policies()
    looks = ("Describe", "Get", "List")
    for statement in listed:
        names = [action.partition(":")[2] for action in statement["Action"]]
        if all(name.startswith(looks) for name in names):
            continue
        resources = statement["Resource"]
        resources = [resources] if isinstance(resources, str) else resources
        asked = {key for of in statement.get("Condition", {}).values() for key in of}
        bound = {key for key in asked if key.startswith("aws:ResourceTag/") or key == "ec2:Vpc"}
        assert bound or not any("*" in each[-2:] for each in resources), names
        assert not any(each.endswith(":security-group/*") for each in resources)
    for statement in of_queue:
        assert statement["Condition"]
        assert statement["Effect"] == "Deny" or "AWS" not in statement["Principal"]


def test_a_machine_that_changed_its_group_meanwhile_is_not_ended(cloud):
    """The call names the instance alone: it would shrink the group that it is in now."""

    def act(machines):
        (live, _) = machines.groups(())
        client, names = cloud.client("autoscaling"), [live.instances[0].rpartition("/")[2]]
        client.detach_instances(
            AutoScalingGroupName="live", InstanceIds=names, ShouldDecrementDesiredCapacity=True
        )
        client.attach_instances(AutoScalingGroupName="none", InstanceIds=names)
        assert not Guarded(machines, ()).terminate("live", live.instances[0], lambda: True)

    fleet(cloud, act)
    assert "autoscaling:TerminateInstanceInAutoScalingGroup" not in cloud.ours


def test_no_statement_is_there_for_nothing_and_no_action_twice():
    listed = statements()
    assert set(listed) == {sid for _, sids, _ in FEATURES for sid in sids}
    actions = [action for one in listed.values() for action in one]
    assert len(actions) == len(set(actions))
    assert set().union(*(also for *_, also in FEATURES)) <= set(actions)
