"""Auto Scaling groups as groups of machines, on moto."""

import io
import json
import re
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError, NoRegionError
from moto import mock_aws
from pydantic import ValidationError

from rebalancer.base.errors import ProviderError, ProviderRefusalError
from rebalancer.machines.aws.groups import (
    ACTIVITIES,
    ACTS,
    CALLS,
    AutoScaling,
    allocatable,
    as_group,
)
from rebalancer.machines.aws.services import ATTEMPTS, asking, did_nothing, service
from rebalancer.providers.contract import GroupSizeError, Guarded, KnownNode, NodeGroup
from rebalancer.signals.model import SignalError
from rebalancer.wire.objects import Taint
from tests.support.contracts import check_provider, check_scaling

_REGION = "eu-west-1"
_MINE = "k8s.io/cluster-autoscaler/mine"
_ENABLED = "k8s.io/cluster-autoscaler/enabled"
_TEMPLATE = "k8s.io/cluster-autoscaler/node-template"


@pytest.fixture
def account(monkeypatch):
    """An account with nothing in it."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        yield Account()


class Account:
    def __init__(self):
        self.autoscaling = boto3.client("autoscaling", _REGION)
        ec2 = boto3.client("ec2", _REGION)
        made = ec2.create_launch_template(
            LaunchTemplateName="workers",
            LaunchTemplateData={"ImageId": "ami-12c6146b", "InstanceType": "m5.large"},
        )
        self.template = made["LaunchTemplate"]["LaunchTemplateId"]

    def add(self, name, desired=0, low=0, high=10, zone="eu-west-1a", **tags):
        mine = {_MINE: "owned", _ENABLED: "true", **tags}
        self.autoscaling.create_auto_scaling_group(
            AutoScalingGroupName=name,
            LaunchTemplate={"LaunchTemplateId": self.template, "Version": "$Latest"},
            MinSize=low,
            MaxSize=high,
            DesiredCapacity=desired,
            AvailabilityZones=[zone],
            Tags=[
                {
                    "Key": key,
                    "Value": value,
                    "PropagateAtLaunch": False,
                    "ResourceId": name,
                    "ResourceType": "auto-scaling-group",
                }
                for key, value in mine.items()
            ],
        )


def _opened(**options):
    plug_in = AutoScaling()
    given = options or {"tags": [_ENABLED, f"{_MINE}=owned"]}
    params = plug_in.Params.model_validate_json(json.dumps(given))
    return plug_in.open(params, {"AWS_REGION": _REGION})


def test_keeps_the_contract_with_live_groups_and_from_nothing(account):
    account.add("live", 2, low=1, high=4)
    account.add("none", zone="eu-west-1b")
    live, none = check_provider(_opened(), [KnownNode("a", "aws:///eu-west-1a/i-1")])
    assert (live.name, live.minimum, live.maximum, live.desired) == ("live", 1, 4, 2)
    assert len(live.instances) == 2
    assert all(re.fullmatch(r"aws:///eu-west-1a/i-[0-9a-f]+", one) for one in live.instances)
    assert (none.instances, none.zones) == ((), ("eu-west-1b",))


def test_a_group_carries_all_of_the_tags(account):
    account.add("both")
    account.add("one", **{_MINE: "another"})
    assert [group.name for group in _opened().groups(())] == ["both"]


def test_groups_by_name_over_many_pages(account):
    names = [f"group-{number:03}" for number in range(103)]
    for name in names:
        account.add(name)
    assert [group.name for group in _opened(names=names[1:]).groups(())] == names[1:]
    assert [group.name for group in _opened().groups(())] == names


def test_a_name_that_is_no_group_is_an_error(account):
    account.add("there")
    with pytest.raises(ProviderError, match="there is no Auto Scaling group gone"):
        _opened(names=["there", "gone"]).groups(())


def test_a_template_is_made_of_the_instance_type_and_of_tags(account):
    account.add(
        "new",
        **{
            f"{_TEMPLATE}/label/pool": "gpu",
            f"{_TEMPLATE}/taint/dedicated": "gpu:NoSchedule",
            f"{_TEMPLATE}/resources/nvidia.com/gpu": "2",
            "eks:nodegroup-name": "gpus",
        },
    )
    machines = _opened()
    (group,) = machines.groups(())
    template = machines.template(group)
    assert template.labels["pool"] == "gpu"
    assert template.labels["eks.amazonaws.com/nodegroup"] == "gpus"
    assert template.labels["node.kubernetes.io/instance-type"] == "m5.large"
    assert template.labels["kubernetes.io/arch"] == "amd64"
    assert template.taints == (Taint(key="dedicated", value="gpu", effect="NoSchedule"),)
    # 2 processors less 6 and 1 %; 3 interfaces of 10 addresses; 8 GiB less 7.5 %, 29 x 11 + 255 and 100 MiB.
    assert template.allocatable == {
        "cpu": "1930m",
        "pods": "29",
        "memory": "6903Mi",
        "nvidia.com/gpu": "2",
    }


def test_a_taint_that_is_none_is_named(account):
    account.add("new", **{f"{_TEMPLATE}/taint/dedicated": "gpu"})
    machines = _opened()
    (group,) = machines.groups(())
    with pytest.raises(ProviderError, match="taint/dedicated: 'gpu' is no VALUE:EFFECT"):
        machines.template(group)


def test_what_was_refused_names_the_call(account, monkeypatch):
    def refuse(*_args, **_more):
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "Describe")

    monkeypatch.setattr(service("autoscaling", _REGION), "get_paginator", refuse)
    with pytest.raises(
        ProviderError, match="autoscaling:DescribeAutoScalingGroups: AccessDenied: no"
    ):
        _opened().groups(())


def test_without_a_region_the_error_says_where_it_is_set():
    expected = pytest.raises(
        SignalError, match=r"no region: set the option `region`, or AWS_REGION"
    )
    with expected, asking("the client of sqs"):
        raise NoRegionError


@pytest.mark.parametrize(
    ("status", "code", "nothing"),
    [
        (403, "AccessDenied", True),
        (400, "ValidationError", True),
        (400, "Throttling", False),
        (400, "RequestLimitExceeded", False),
        (503, "ServiceUnavailable", False),
        (500, "InternalFailure", False),
        (None, "", False),
    ],
)
def test_only_a_refusal_for_good_says_that_nothing_was_done(status, code, nothing):
    error = SignalError("asked")
    if status is not None:
        answer: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
        error.__cause__ = ClientError(answer, "TerminateInstanceInAutoScalingGroup")
    assert did_nothing(error) is nothing


class _Raw(io.BytesIO):
    def stream(self, **_):
        yield self.read()


@pytest.mark.parametrize(("status", "kind"), [(403, ProviderRefusalError), (500, ProviderError)])
def test_a_machine_is_asked_to_end_once(account, monkeypatch, status, kind):
    """A second request could lower the size of the group a second time."""
    account.add("pool", 2)
    machines, sent = _opened(), []
    headers: Any = {}
    (group,) = machines.groups(())
    client = service("autoscaling", _REGION, attempts=1)

    def answered(**_):
        sent.append(1)
        return AWSResponse("https://aws", status, headers, _Raw(b"<a/>"))

    client.meta.events.register_first("before-send", answered)
    try:
        with pytest.raises(ProviderError) as caught:
            machines.terminate(group, group.instances[0])
    finally:
        client.meta.events.unregister("before-send", answered)
    assert type(caught.value) is kind
    assert sent == [1]


def test_half_an_answer_is_an_error_and_its_bytes_are_not_in_the_text(account):
    account.add("pool")
    half = b"<DescribeAutoScalingGroupsResponse><AutoScalingGroups><member><Tags>secret"
    headers: Any = {}
    client = service("autoscaling", _REGION)

    def answered(**_):
        return AWSResponse("https://aws", 200, headers, _Raw(half))

    client.meta.events.register_first("before-send", answered)
    try:
        with pytest.raises(ProviderError, match="the answer cannot be read") as caught:
            _opened().groups(())
    finally:
        client.meta.events.unregister("before-send", answered)
    assert type(caught.value) is ProviderError
    assert "secret" not in str(caught.value)


def _calls(*services):
    """The calls that are made from now on, in IAM's words."""
    made = set()

    def note(model, **_):
        made.add(f"{model.service_model.service_name.replace('-', '')}:{model.name}")

    for name in services:
        for attempts in (ATTEMPTS, 1):
            service(name, _REGION, attempts=attempts).meta.events.register("before-call", note)
    return made


def test_a_report_makes_no_call_that_writes(account):
    account.add("live", 1)
    account.add("none")
    made = _calls("autoscaling", "ec2")
    check_provider(_opened(), ())
    assert made == set(CALLS)


def test_acts_as_the_contract_says(account):
    account.add("pool", 2, low=1, high=4)
    account.add("other", 1, zone="eu-west-1b")
    made = _calls("autoscaling")
    check_scaling(_opened(), (), "pool")
    assert made == {CALLS[0], ACTIVITIES, *ACTS}


def test_what_moto_lets_through_the_guard_does_not(account):
    """Moto sets sizes above the maximum, and ends machines below the minimum."""
    account.add("pool", 2, low=2, high=2)
    machines = _opened()
    (group,) = machines.groups(())
    guarded = Guarded(machines, ())
    with pytest.raises(GroupSizeError):
        guarded.increase("pool", 3)
    with pytest.raises(GroupSizeError):
        guarded.terminate("pool", group.instances[0], lambda: True)
    assert machines.groups(()) == [group]
    machines.set_size(group, 3)
    machines.terminate(group, group.instances[0])
    machines.terminate(group, group.instances[1])
    assert machines.groups(())[0].desired == 1


def test_instances_that_are_about_to_end_are_no_machines_of_their_group(account):
    """The lifecycle states that moto never shows, as DescribeAutoScalingGroups has them."""
    states = ["InService", "Pending", "Terminating", "Terminating:Wait", "Terminated", "Detaching"]
    states += ["Standby", "EnteringStandby"]
    described = {
        "AutoScalingGroupName": "pool",
        "MinSize": 0,
        "MaxSize": 9,
        "DesiredCapacity": 6,
        "Instances": [
            {"InstanceId": f"i-{n}", "AvailabilityZone": "eu-west-1a", "LifecycleState": state}
            for n, state in enumerate(states)
        ],
    }
    assert [one.rpartition("/")[2] for one in as_group(described).instances] == ["i-0", "i-1"]


@pytest.mark.parametrize(
    "more",
    [
        {
            "MixedInstancesPolicy": {
                "LaunchTemplate": {
                    "Overrides": [{"InstanceType": "m5.large", "WeightedCapacity": "2"}]
                }
            }
        },
        {"DesiredCapacityType": "vcpu"},
    ],
)
def test_of_a_group_whose_capacity_counts_no_machines_no_size_is_known(more):
    """Four machines of weight 2 are a capacity of 8: decreased to 4, AWS would terminate two of them."""
    described = {"AutoScalingGroupName": "pool", "MinSize": 0, "MaxSize": 9, "DesiredCapacity": 8}
    assert not as_group({**described, **more}).is_sized
    assert as_group({**described, "DesiredCapacityType": "units"}).is_sized


@pytest.mark.parametrize("options", [{}, {"tags": ["a"], "names": ["b"]}])
def test_either_tags_or_names(options):
    with pytest.raises(ValidationError, match="write tags, or names"):
        AutoScaling.Params.model_validate(options)


@pytest.mark.parametrize(
    ("cpus", "expected"), [(1, "940m"), (2, "1930m"), (4, "3920m"), (8, "7910m"), (96, "95690m")]
)
def test_processors_that_the_system_keeps(cpus, expected):
    described = {"VCpuInfo": {"DefaultVCpus": cpus}, "MemoryInfo": {"SizeInMiB": 8192}}
    assert allocatable(described)["cpu"] == expected


@pytest.mark.parametrize(
    ("status", "description", "launching"),
    [
        ("InProgress", "Launching a new EC2 instance", True),
        ("WaitingForInstanceId", "Launching a new EC2 instance", True),
        ("PreInService", "Launching a new EC2 instance: i-0fedcba9", True),
        ("MidLifecycleAction", "Launching a new EC2 instance: i-0123abcd", False),
        ("InProgress", "Terminating EC2 instance: i-0fedcba9", False),
        ("Successful", "Launching a new EC2 instance: i-0fedcba9", True),
        ("Successful", "Launching a new EC2 instance: i-0123abcd", False),
        ("Successful", "Launching a new EC2 instance into warm pool: i-0fedcba9", False),
        ("Successful", "Launching a new EC2 instance from warm pool: i-0fedcba9", True),
        ("Failed", "Launching a new EC2 instance", False),
        ("Cancelled", "Launching a new EC2 instance", False),
    ],
)
def test_which_launches_are_in_progress(cloud, status, description, launching):
    """The status codes of Activity in the API reference; the list of a group's machines may be later than its activities."""
    assert _is_launching(cloud, (status, description)) is launching


@pytest.mark.parametrize(
    "left",
    [
        "Terminating EC2 instance: i-0fedcba9",
        "Detaching EC2 instance: i-0fedcba9",
        "Moving EC2 instance to Standby: i-0fedcba9",
    ],
)
@pytest.mark.parametrize("status", ["InProgress", "Successful"])
def test_a_machine_that_was_launched_and_has_left_does_not_come(cloud, left, status):
    launched = ("Successful", "Launching a new EC2 instance: i-0fedcba9")
    assert not _is_launching(cloud, (status, left), launched)
    assert _is_launching(cloud, launched, (status, left)), "it was launched after that"


def _is_launching(cloud, *activities):
    """Return the answer for a group of one machine with these activities, the newest first."""
    cloud.activities["launching"] = [
        {
            "ActivityId": str(number),
            "AutoScalingGroupName": "launching",
            "Cause": "",
            "Description": description,
            "StartTime": "2026-11-20T00:00:00Z",
            "StatusCode": status,
        }
        for number, (status, description) in enumerate(activities)
    ]
    params = AutoScaling.Params(names=("launching",), region=_REGION, endpoint=cloud.url)
    machines = AutoScaling().open(params, {})
    group = NodeGroup(name="launching", instances=("aws:///eu-west-1a/i-0123abcd",))
    return machines.is_launching(group)


def test_a_suspended_launch_is_named_with_its_reason():
    """Moto gives no reason; AWS does (SuspendedProcess in the API reference)."""
    described = {"AutoScalingGroupName": "pool", "MinSize": 0, "MaxSize": 9, "DesiredCapacity": 8}
    suspended = {"ProcessName": "Launch", "SuspensionReason": "User suspended at 2026-11-20"}
    assert as_group({**described, "SuspendedProcesses": [suspended]}).suspended == (
        "its process Launch is suspended: User suspended at 2026-11-20"
    )
    other = {**suspended, "ProcessName": "AZRebalance"}
    assert as_group({**described, "SuspendedProcesses": [other]}).suspended == ""


def test_options_of_one_group_are_its_tags():
    prefix = "k8s.io/cluster-autoscaler/node-template/"
    described = {
        "AutoScalingGroupName": "pool",
        "MinSize": 0,
        "MaxSize": 3,
        "DesiredCapacity": 1,
        "Tags": [
            {"Key": f"{prefix}autoscaling-options/scaledownunneededtime", "Value": "1h"},
            {"Key": f"{prefix}label/pool", "Value": "a"},
        ],
    }
    assert as_group(described).options == {"scaledownunneededtime": "1h"}
