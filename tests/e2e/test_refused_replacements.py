"""What people get wrong about ``replace --surge``, and what a cloud refuses: nothing is changed, and the message says what to do."""

import json

import pytest

from rebalancer.kube.access import DRAIN_RULES
from tests.aws.cloud import REGION
from tests.aws.fleet import ENABLED
from tests.controlplane import objects, operations
from tests.e2e.machines import fleet_of, surge_arguments, write_policy
from tests.e2e.product import RUN_RULES, grant, rebalancer

RULES = (*RUN_RULES, *DRAIN_RULES)
SIZE = 2
DENIED = (403, "AccessDenied", "User: arn:aws:sts::1:assumed-role/r/s is not authorized")
EXPIRED = (403, "ExpiredToken", "The security token included in the request is expired")
NO_VERSION = (400, "InvalidLaunchTemplateId.VersionNotFound", "Could not find the version 9")
GROUPS = "autoscaling:DescribeAutoScalingGroups"
ROWS = [
    # What is wrong with the policy's provider, with the environment, or how which call is answered; what is said.
    ({"names": ["worker"]}, {}, {}, f"no Auto Scaling group worker in {REGION}: check `names`"),
    ({"tags": ["no-such"]}, {}, {}, "the provider names no group: check what the policy's"),
    ({"region": ""}, {"AWS_REGION": ""}, {}, "no region: set the option `region`, or AWS_REGION"),
    ({}, {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, {}, "name a profile"),
    ({}, {"AWS_PROFILE": "nobody"}, {}, "(nobody) could not be found: check AWS_PROFILE"),
    ({"endpoint": "http://127.0.0.1:9"}, {}, {}, "check the network, the region, and the option"),
    ({}, {}, {GROUPS: EXPIRED}, "is expired: renew the credentials"),
    ({}, {}, {GROUPS: DENIED}, f"{GROUPS}: AccessDenied: "),
    ({}, {}, {"ec2:DescribeInstances": DENIED}, "allow it in the policy of this role"),
    ({}, {}, {"ec2:DescribeLaunchTemplateVersions": NO_VERSION}, "version 9: have the group name"),
]


@pytest.fixture
def fleet(cluster, monkeypatch):
    with fleet_of(cluster, monkeypatch) as made:
        made.add("pool", SIZE, low=1, high=4)
        cluster.apply([objects.deployment("web", 2, cpu="300m", memory="256Mi")])
        operations.wait_pods_ready(cluster.api, 2)
        made.new_version(ImageId="ami-03cf127a")
        yield made


def state(cluster, fleet):
    """Return what a replacement would change."""
    nodes = cluster.api.list_all("/api/v1/nodes")
    pods = [one["metadata"]["uid"] for one in operations.pods(cluster.api)]
    group = fleet.group("pool")
    keys = ("DesiredCapacity", "MaxSize", "SuspendedProcesses", "Tags", "Instances")
    return (
        [(one["metadata"]["uid"], one["metadata"]["annotations"], one["spec"]) for one in nodes],
        sorted(pods),
        json.dumps({key: group[key] for key in keys}, default=str),
    )


def policy_at(fleet, folder, wrong):
    at = {"tags": [ENABLED], "region": REGION, "endpoint": fleet.cloud.url} | wrong
    if "names" in wrong:
        del at["tags"]
    return write_policy(folder, {"aws": at}, {})


def test_what_is_wrong_at_the_cloud_is_said_before_anything_is_changed(cluster, fleet, tmp_path):
    kubeconfig, before = grant(cluster, RULES), state(cluster, fleet)
    # No other profile of the person who runs the tests.
    home = {"HOME": str(tmp_path)}
    for wrong, environ, refuses, words in ROWS:
        arguments = surge_arguments(policy_at(fleet, tmp_path, wrong), kubeconfig)
        fleet.cloud.refuses |= refuses
        done = rebalancer(*arguments, env=home | environ)
        fleet.cloud.refuses.clear()
        assert (done.code, done.out) == (3, ""), (words, done.err)
        assert words in done.err
        assert state(cluster, fleet) == before, words


def test_what_is_wrong_in_the_cluster_or_with_the_order_is_said(cluster, fleet, tmp_path):
    policy = policy_at(fleet, tmp_path, {})
    kubeconfig = grant(cluster, RULES)
    surge = surge_arguments(policy, kubeconfig)
    client = fleet.cloud.client("autoscaling")
    client.update_auto_scaling_group(AutoScalingGroupName="pool", MaxSize=SIZE)
    before = state(cluster, fleet)
    at = f"--kubeconfig={kubeconfig}"
    rows = [
        (surge, 3, "pool has 2 machines, and may have no more"),
        ([*surge, "--context=nope"], 3, "has no context nope"),
        (["replace", "--outdated=template", at], 2, "give --surge, too"),
        (
            ["replace", "--surge=1", "--outdated=template", at],
            2,
            "name one that does in the policy",
        ),
        (["replace", "-l", "pool=old", at], 2, "no node is selected by -l pool=old"),
        (["drain", "nope", at], 2, "there is no node nope"),
        (["uncordon", "nope", at], 2, "node nope is not opened: there is no such node"),
    ]
    for arguments, code, words in rows:
        done = rebalancer(*arguments)
        assert (done.code, done.out) == (code, ""), (arguments, done.err)
        assert words in done.err
    assert state(cluster, fleet) == before
    # Without rights; these are the account's from here on.
    grant(cluster, ())
    for arguments in (surge, ["drain", *fleet.machines("pool"), at], ["uncordon", "nope", at]):
        done = rebalancer(*arguments)
        assert (done.code, done.out) == (3, ""), (arguments, done.err)
        assert "forbidden: our account" in done.err
        assert "Add to its role:" in done.err
    assert state(cluster, fleet) == before
