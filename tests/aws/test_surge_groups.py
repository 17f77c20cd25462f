"""``replace --surge`` over several groups, and of groups with other sources of machines than one launch template."""

from contextlib import contextmanager

import pytest

from rebalancer.machines.aws.outdated import TAG
from tests.aws.test_steps import pytestmark as pytestmark  # noqa: PLC0414  # moto's open files
from tests.aws.test_surge import SIZE, grounded
from tests.aws.test_surge import short_pauses as short_pauses  # noqa: PLC0414  # a fixture

GROUPS = ("last", "later", "pool")
"""In the order in which they are replaced."""


@contextmanager
def several(cloud, folder):
    """Two groups of one machine before the one of four, all of an old version."""
    with grounded(cloud, folder) as ground:
        for name in GROUPS[:2]:
            ground.fleet.add(name, 1, low=1)
        ground.new = ground.fleet.new_version(ImageId="ami-1234abcd")
        ground.cluster.settle()
        yield ground


def newer(ground):
    """Return the groups all of whose machines are of the new version, and that nothing is left on."""
    return [
        name
        for name in GROUPS
        if {one["LaunchTemplate"]["Version"] for one in ground.fleet.group(name)["Instances"]}
        == {str(ground.new)}
        and TAG not in {tag["Key"] for tag in ground.fleet.group(name)["Tags"]}
    ]


def test_one_that_is_stopped_says_which_groups_are_left_and_the_next_one_goes_on(cloud, tmp_path):
    with several(cloud, tmp_path) as ground:
        done = ground.replace(until="begun    later")
        assert done.code == 4
        assert "later is not restored: call this again to go on, or with --take-back" in done.out
        assert (
            f"{SIZE} old nodes of pool: its replacement was not begun; call this again" in done.out
        )
        assert newer(ground) == ["last"]
        again = ground.replace()
        assert again.code == 0, again.err + again.out
        assert "call this again" not in again.out
        assert newer(ground) == [*GROUPS]


def test_what_is_half_done_comes_first(cloud, tmp_path):
    with several(cloud, tmp_path) as ground:
        assert ground.replace(until="begun    later").code == 4
        ground.new = ground.fleet.new_version(ImageId="ami-5678abcd")
        stopped = ground.replace(until="begun    last")
        assert "restored later" in stopped.err
        # What waits for its turn with a note of an earlier call is named, too.
        assert "last is not restored" in stopped.out
        assert ground.replace().code == 0
        assert newer(ground) == [*GROUPS]


def test_a_group_that_is_taken_back_leaves_those_after_it_and_says_so(cloud, tmp_path):
    with several(cloud, tmp_path) as ground:
        cloud.exhausted.add("later")
        ground.fleet.fails(
            "later", "We currently do not have sufficient t3.medium capacity", after=60
        )
        done = ground.replace()
        assert done.code == 4
        assert "sufficient t3.medium capacity" in done.report["ended"]
        assert (
            f"{SIZE} old nodes of pool: its replacement was not begun; call this again" in done.out
        )
        assert "is not restored" not in done.out
        assert newer(ground) == ["last"]
        assert TAG not in {tag["Key"] for tag in ground.fleet.group("later")["Tags"]}
        cloud.exhausted.clear()
        cloud.activities.clear()
        assert ground.replace().code == 0
        assert newer(ground) == [*GROUPS]


def mixed(ground, **override):
    """Let the group have a mixed instances policy: its template, and another type of instance beside it."""
    template = ground.fleet.group("pool")["LaunchTemplate"]["LaunchTemplateId"]
    specification = {"LaunchTemplateId": template, "Version": "$Latest"}
    types = [{"InstanceType": "t3.medium"}, {"InstanceType": "t3.large", **override}]
    return {
        "MixedInstancesPolicy": {
            "LaunchTemplate": {"LaunchTemplateSpecification": specification, "Overrides": types}
        }
    }


def test_machines_of_a_mixed_instances_policy_are_replaced(cloud, tmp_path):
    with grounded(cloud, tmp_path, zones="a") as ground:
        ground.fleet.add("mixed", 2, source=mixed(ground))
        new = ground.fleet.new_version(ImageId="ami-1234abcd")
        before = ground.fleet.group("mixed")["MixedInstancesPolicy"]
        done = ground.replace(selector="group=mixed")
        assert done.code == 0, done.err + done.out
        group = ground.fleet.group("mixed")
        versions = [one["LaunchTemplate"]["Version"] for one in group["Instances"]]
        assert versions == [str(new)] * 2
        assert group["MixedInstancesPolicy"] == before
        assert len(ground.ended) == 2
        assert "no node is old" in ground.replace(selector="group=mixed").out


def test_a_group_whose_capacity_is_weighted_is_refused(cloud, tmp_path):
    with grounded(cloud, tmp_path, zones="a") as ground:
        ground.fleet.add("mixed", 2, source=mixed(ground, WeightedCapacity="2"))
        ground.fleet.new_version(ImageId="ami-1234abcd")
        done = ground.replace(selector="group=mixed")
        assert done.code == 3
        assert "mixed: its size is not known, or counts no machines" in done.err
        assert ground.ended == []


@pytest.mark.parametrize("outdated", ["template", "image"])
def test_a_launch_configuration_is_compared_by_its_name(cloud, tmp_path, outdated):
    with grounded(cloud, tmp_path, zones="a") as ground:
        scaling = cloud.client("autoscaling")
        for name in ("one", "two"):
            scaling.create_launch_configuration(
                LaunchConfigurationName=name, ImageId="ami-12c6146b", InstanceType="t3.medium"
            )
        ground.fleet.add("configured", 2, source={"LaunchConfigurationName": "one"})
        assert ground.replace(selector="group=configured").code == 0
        assert ground.ended == []
        scaling.update_auto_scaling_group(
            AutoScalingGroupName="configured", LaunchConfigurationName="two"
        )
        done = ground.replace(selector="group=configured", outdated=outdated)
        if outdated == "image":
            assert done.code == 3
            assert "configured: it has no launch template" in done.err
            assert "choose by template" in done.err
            assert ground.ended == []
            return
        assert done.code == 0, done.err + done.out
        instances = ground.fleet.group("configured")["Instances"]
        assert [one["LaunchConfigurationName"] for one in instances] == ["two"] * 2
        assert len(ground.ended) == 2
