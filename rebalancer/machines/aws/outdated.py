"""The template of new instances of an Auto Scaling group, and the instances that differ from it.

Groups name a launch template and a version, or ``$Latest`` and ``$Default``; each instance names the version from which
it was launched. A group with a mixed instances policy may name several templates: an instance of any of them is current. An
image may be given in the template as a parameter of Systems Manager, whose value EC2 returns (``ResolveAlias``): then new
images come without a new version of the template. Sources: the API references of DescribeAutoScalingGroups and
DescribeLaunchTemplateVersions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rebalancer.base.errors import ProviderError

TAG = "rebalancer/replace"
"""The tag on a group that is being replaced; its instances do not get it."""
REPLACES = (
    "autoscaling:CreateOrUpdateTags",
    "autoscaling:DeleteTags",
    "autoscaling:SuspendProcesses",
    "autoscaling:ResumeProcesses",
)
"""The further permissions that the role needs for replacements."""
INSTANCES = "ec2:DescribeInstances"
"""The permissions for reading the launch times of instances, and for comparing images."""
MEDDLING = ("AZRebalance", "AlarmNotification", "InstanceRefresh", "ScheduledActions")
"""Processes of a group that end instances, or set its size, by themselves ("Types of processes", user guide). Those that
keep it alive (Launch, Terminate, HealthCheck, ReplaceUnhealthy) are not suspended."""
_IDS = 100
"""Instances in one DescribeInstances; a filter has at most 200 values."""


def meddling(group: Mapping[str, Any]) -> tuple[str, ...]:
    """Return which processes of :data:`MEDDLING` are not suspended, for a group of DescribeAutoScalingGroups."""
    suspended = {one["ProcessName"] for one in group.get("SuspendedProcesses", ())}
    return tuple(one for one in MEDDLING if one not in suspended)


def differ_by_template(group: Mapping[str, Any], ec2: Callable[[], Any]) -> frozenset[str]:
    """Return the ids of the instances that were not launched from the group's launch template in its current version.

    Raises:
        ProviderError: the group names no template. What boto3 raises passes.
    """
    if configuration := group.get("LaunchConfigurationName"):
        return frozenset(
            one["InstanceId"]
            for one in group.get("Instances", ())
            if one.get("LaunchConfigurationName") != configuration
        )
    new = {
        (one["LaunchTemplateId"], str(one["VersionNumber"])) for one in _new_versions(group, ec2)
    }
    return frozenset(
        one["InstanceId"] for one in group.get("Instances", ()) if _template_of(one) not in new
    )


def differ_by_image(group: Mapping[str, Any], ec2: Callable[[], Any]) -> frozenset[str]:
    """Return the ids of the instances whose image the group does not launch any more, without those whose image is unknown.

    Raises:
        ProviderError: the group names no image. What boto3 raises passes.
    """
    data = [one["LaunchTemplateData"] for one in _new_versions(group, ec2, images=True)]
    new = {str(one["ImageId"]) for one in (*data, *_overrides(group)) if one.get("ImageId")}
    if not new:
        raise ProviderError(
            f"{group['AutoScalingGroupName']}: its launch template names no image: choose by template"
        )
    ids = [one["InstanceId"] for one in group.get("Instances", ())]
    return frozenset(
        one["InstanceId"] for one in describe_instances(ids, ec2) if one["ImageId"] not in new
    )


def _new_versions(
    group: Mapping[str, Any], ec2: Callable[[], Any], *, images: bool = False
) -> Iterator[Mapping[str, Any]]:
    """Yield the versions of launch templates that new instances of a group have; ``images``: with images resolved."""
    specifications = list(_specifications(group))
    if not specifications:
        raise ProviderError(
            f"{group['AutoScalingGroupName']}: it has no launch template, whose image could be compared: choose by template"
        )
    resolves = {"ResolveAlias": True} if images else {}
    for name, version in specifications:
        yield from ec2().describe_launch_template_versions(
            LaunchTemplateId=name, Versions=[version], **resolves
        )["LaunchTemplateVersions"]


def _specifications(group: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """Return (id of a launch template, version as the group names it), each once."""
    mixed = group.get("MixedInstancesPolicy", {}).get("LaunchTemplate", {})
    named = [group.get("LaunchTemplate"), mixed.get("LaunchTemplateSpecification")]
    named += [one.get("LaunchTemplateSpecification") for one in _overrides(group)]
    return sorted(
        {(one["LaunchTemplateId"], one.get("Version") or "$Default") for one in named if one}
    )


def _overrides(group: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    overrides: Iterable[Mapping[str, Any]] = (
        group.get("MixedInstancesPolicy", {}).get("LaunchTemplate", {}).get("Overrides", ())
    )
    return overrides


def _template_of(instance: Mapping[str, Any]) -> tuple[str, str] | None:
    of = instance.get("LaunchTemplate")
    return (of["LaunchTemplateId"], str(of.get("Version", ""))) if of else None


def describe_instances(ids: Sequence[str], ec2: Callable[[], Any]) -> Iterator[Mapping[str, Any]]:
    """Yield instances as EC2 describes them; those that it does not know, or not yet, are left out."""
    for first in range(0, len(ids), _IDS):
        # A list of ids is refused as a whole if one of them is not known yet; a filter is not.
        query = [{"Name": "instance-id", "Values": [*ids[first : first + _IDS]]}]
        for page in ec2().get_paginator("describe_instances").paginate(Filters=query):
            for reservation in page["Reservations"]:
                yield from reservation["Instances"]


def first_launch(instance: Mapping[str, Any]) -> float:
    """Return when an instance of DescribeInstances was first launched, in Unix seconds.

    ``LaunchTime`` is that of its last start. Of the first one "see the attachment time of the primary network
    interface" (API reference, ``Instance``).
    """
    attachments = [
        one["Attachment"]["AttachTime"]
        for one in instance.get("NetworkInterfaces", ())
        if one.get("Attachment", {}).get("DeviceIndex") == 0 and "AttachTime" in one["Attachment"]
    ]
    return float(min(one.timestamp() for one in [instance["LaunchTime"], *attachments]))
