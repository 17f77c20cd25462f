"""The machine provider ``aws``: Auto Scaling groups, selected by tags or by name.

Calls: DescribeAutoScalingGroups; for groups without a live node DescribeLaunchTemplateVersions and
DescribeInstanceTypes; while machines are missing DescribeScalingActivities; and to act SetDesiredCapacity and
TerminateInstanceInAutoScalingGroup. Of a group only its desired capacity is ever written; and while ``replace`` is at
work on it one tag, and which of its processes are suspended (``rebalancer.machines.aws.outdated``).

The system reserves what EKS's AMIs configure (amazon-eks-ami, ``nodeadm``: kubeReserved): 11 MiB for each pod and
255 MiB, 6, 1, 0.5 and 0.25 % of the processors; 100 MiB are kept spare (evictionHard). An instance has less memory than
its type states: 7.5 % less is Karpenter's default (VM_MEMORY_OVERHEAD_PERCENT).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from pydantic import Field, model_validator

from rebalancer.base.errors import ProviderError, ProviderRefusalError
from rebalancer.machines.aws.outdated import (
    INSTANCES,
    MEDDLING,
    REPLACES,
    TAG,
    describe_instances,
    differ_by_image,
    differ_by_template,
    first_launch,
    meddling,
)
from rebalancer.machines.aws.services import (
    ATTEMPTS,
    asking,
    did_nothing,
    region_of_environment,
    service,
)
from rebalancer.policy.values import ProviderParams
from rebalancer.providers.contract import (
    KnownNode,
    Machines,
    NodeGroup,
    NodeTemplate,
    Outdated,
)
from rebalancer.signals.model import SignalError
from rebalancer.wire.objects import Taint

_OVERHEAD = 0.075
_MIB_OF_POD, _MIB_OF_SYSTEM, _MIB_FREE = 11, 255, 100
_MAX_PODS = {False: 110, True: 250}
"""More than 30 processors -> most pods of a managed node group's nodes ("Choosing an instance type", EKS user guide)."""
_LARGE = 30
_ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}
_GPUS = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu"}


def allocatable(described: Mapping[str, Any]) -> dict[str, str]:
    """Return resource -> quantity, for a node of the type."""
    cpus = int(described["VCpuInfo"]["DefaultVCpus"])
    pods = _pods(described, cpus)
    memory = int(described["MemoryInfo"]["SizeInMiB"] * (1 - _OVERHEAD))
    memory -= _MIB_OF_POD * pods + _MIB_OF_SYSTEM + _MIB_FREE
    amounts = {
        "cpu": f"{1000 * cpus - _reserve_cpu(cpus)}m",
        "memory": f"{max(0, memory)}Mi",
        "pods": str(pods),
    }
    for gpu in described.get("GpuInfo", {}).get("Gpus", ()):
        if (name := _GPUS.get(gpu.get("Manufacturer", ""))) is not None:
            amounts[name] = str(int(amounts.get(name, "0")) + int(gpu.get("Count", 0)))
    return amounts


def capacity_of(described: Mapping[str, Any]) -> dict[str, str]:
    """Return resource -> quantity of a machine of the type."""
    return {
        "cpu": str(described["VCpuInfo"]["DefaultVCpus"]),
        "memory": f"{described['MemoryInfo']['SizeInMiB']}Mi",
    }


def labels_of(described: Mapping[str, Any], region: str) -> dict[str, str]:
    """Return the labels that every node of the type has."""
    kind = str(described["InstanceType"])
    labels = {"kubernetes.io/os": "linux", "node.kubernetes.io/instance-type": kind}
    for one in described.get("ProcessorInfo", {}).get("SupportedArchitectures", ()):
        if one in _ARCHITECTURES:
            labels["kubernetes.io/arch"] = _ARCHITECTURES[one]
    if region:
        labels["topology.kubernetes.io/region"] = region
    return labels


def _pods(described: Mapping[str, Any], cpus: int) -> int:
    """Return the maximum number of pods: all addresses except the first of each interface, plus two host-network pods."""
    network = described.get("NetworkInfo", {})
    interfaces = int(network.get("MaximumNetworkInterfaces", 0))
    addresses = int(network.get("Ipv4AddressesPerInterface", 0))
    most = _MAX_PODS[cpus > _LARGE]
    return min(most, interfaces * (addresses - 1) + 2) if interfaces and addresses else most


def _reserve_cpu(cpus: int) -> int:
    """Return the reserved millicores: 6 % of the first core, 1 % of the second, 0.5 % of two more, then 0.25 %."""
    shares = [60, 10, 5, 5][:cpus]
    return int(sum(shares) + 2.5 * max(0, cpus - 4))


CALLS = (
    "autoscaling:DescribeAutoScalingGroups",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeLaunchTemplateVersions",
)
"""The permissions that the role needs for reports, by their names in IAM."""
ACTIVITIES = "autoscaling:DescribeScalingActivities"
"""The further permissions for seeing failed launches, and launches in progress."""
ACTS = (
    "autoscaling:SetDesiredCapacity",
    "autoscaling:TerminateInstanceInAutoScalingGroup",
)
"""The further permissions for adding and removing machines."""
_TEMPLATE = "k8s.io/cluster-autoscaler/node-template/"
_NAMES = 50
"""Most names in one DescribeAutoScalingGroups (its API reference)."""
_LAUNCHING = "Launching"
"""How the descriptions of activities begin that launch an instance."""
_FAILED = ("Failed", "Cancelled")
"""Status codes of activities that brought nothing; ``Successful`` ones have, and all others may (``Activity`` in the API reference)."""
_INTO_POOL = "into warm pool"
"""In the descriptions of launches whose instances do not count in the group."""
_INSTANCE = re.compile(r"\bi-[0-9a-f]+")
_GOING = ("Terminat", "Detach", "Warmed", "Standby", "EnteringStandby")
"""How the lifecycle states of instances begin that do not count in the desired capacity, or will not for long."""


class AutoScalingParams(ProviderParams):
    """Options of the provider aws."""

    acts: ClassVar[bool] = True

    tags: tuple[str, ...] = Field(
        default=(),
        description="KEY or KEY=VALUE of tags, all of which a group carries, as in Cluster Autoscaler's asg:tag=.",
    )
    names: tuple[str, ...] = Field(
        default=(), description="Names of the Auto Scaling groups, in the place of tags."
    )
    region: str = Field(
        default="", description="Region; absent: as the environment or the instance says."
    )
    endpoint: str = Field(default="", description="Address in the place of AWS's own.")

    @model_validator(mode="after")
    def _one_way(self) -> AutoScalingParams:
        if bool(self.tags) == bool(self.names):
            raise ValueError("write tags, or names")
        return self


class AutoScaling:
    """Auto Scaling groups of AWS."""

    Params = AutoScalingParams

    def open(self, params: Any, environ: Mapping[str, str]) -> Machines:
        """Return the Auto Scaling groups for these options; no request is sent."""
        region = params.region or region_of_environment(environ)
        return AutoScalingGroups(params, region)


class AutoScalingGroups:
    """The groups of one account and region. Results are cached until :meth:`groups` is called again."""

    def __init__(self, params: AutoScalingParams, region: str) -> None:
        self._params, self._region = params, region
        self._known: dict[str, Mapping[str, Any]] = {}
        self._launched: dict[str, float] = {}

    def groups(self, nodes: Sequence[KnownNode]) -> Sequence[NodeGroup]:  # noqa: ARG002
        """Return the selected groups by name."""
        self._known = {
            group["AutoScalingGroupName"]: group
            for query in self._queries()
            for group in self._describe_groups(query)
        }
        missing = sorted(set(self._params.names) - self._known.keys())
        if missing:
            where = f" in {self._region}" if self._region else ""
            raise ProviderError(
                f"there is no Auto Scaling group {', '.join(missing)}{where}:"
                " check `names` of the provider aws in the policy, the region and the account"
            )
        return [as_group(self._known[name]) for name in sorted(self._known)]

    def group_named(self, name: str, nodes: Sequence[KnownNode]) -> NodeGroup | None:  # noqa: ARG002
        """Return the group of this name if it has the selected tags; else None."""
        if self._params.names and name not in self._params.names:
            return None
        # To make a client may take seconds, and before the request that comes next nothing is waited for.
        self._client("autoscaling", attempts=1)
        for group in self._describe_groups({"AutoScalingGroupNames": [name]}):
            tags = {tag["Key"]: tag.get("Value", "") for tag in group.get("Tags", ())}
            if all(_carries(tags, tag) for tag in self._params.tags):
                self._known[name] = group
                return as_group(group)
        return None

    def template(self, group: NodeGroup) -> NodeTemplate | None:
        """Return a template from the tags of Cluster Autoscaler and the launch template's instance type."""
        known = self._known.get(group.name)
        if known is None or (kind := self._instance_type(known)) is None:
            return None
        with _asking(CALLS[1]):
            described = self._client("ec2").describe_instance_types(InstanceTypes=[kind])
        (of,) = described["InstanceTypes"]
        tags = {tag["Key"]: tag.get("Value", "") for tag in known.get("Tags", ())}
        labels = labels_of(of, self._region)
        if name := tags.get("eks:nodegroup-name"):
            labels["eks.amazonaws.com/nodegroup"] = name
        return NodeTemplate(
            labels | dict(_below(tags, "label/")),
            tuple(_taints(group.name, tags)),
            allocatable(of) | dict(_below(tags, "resources/")),
            capacity_of(of) | dict(_below(tags, "resources/")),
        )

    def launch_failure(self, group: NodeGroup, since: float) -> str | None:
        """Return why the latest failed launch since ``since`` has failed; None if none has."""
        for one in self._launches(group):
            if one["StartTime"].timestamp() < since:
                break
            if one["StatusCode"] == "Failed":
                return " ".join(one.get("StatusMessage", "").split()) or "AWS does not say why"
        return None

    def is_launching(self, group: NodeGroup) -> bool:
        """Return whether a launch is in progress, or was successful, whose instance is not in the group yet.

        The group may be listed later than its activities. An instance has left it again if a newer activity names it.
        """
        known = {one.rpartition("/")[2] for one in group.instances}
        for one in self._activities(group):
            text = one.get("Description", "")
            instances = set(_INSTANCE.findall(text))
            if not _is_launch(one) or _INTO_POOL in text:
                known |= instances
            elif one["StatusCode"] not in _FAILED and known.isdisjoint(instances):
                return True
        return False

    def set_size(self, group: NodeGroup, desired: int) -> None:
        """Set the desired capacity; the group's own cool-down is ignored."""
        client = self._client("autoscaling")
        with _asking(f"{group.name}: {ACTS[0]}"):
            client.set_desired_capacity(
                AutoScalingGroupName=group.name, DesiredCapacity=desired, HonorCooldown=False
            )

    def terminate(self, group: NodeGroup, instance: str) -> None:
        """Terminate an instance and decrease the desired capacity. Lifecycle hooks run as usual.

        The request is not repeated after a lost response: a second one could decrease the desired capacity again.
        """
        client = self._client("autoscaling", attempts=1)
        with _asking(f"{group.name}: {ACTS[1]} {instance}"):
            client.terminate_instance_in_auto_scaling_group(
                InstanceId=instance.rpartition("/")[2], ShouldDecrementDesiredCapacity=True
            )

    def find_outdated(self, group: NodeGroup, by: Outdated) -> frozenset[str]:
        """Return the instances whose template's version, or image, is not that of the group's template.

        The group is judged as it was read last.
        """
        known = self._known.get(group.name)
        if known is None:
            raise ProviderError(f"{group.name}: it was not read")
        judge, call = {
            Outdated.TEMPLATE: (differ_by_template, CALLS[2]),
            Outdated.IMAGE: (differ_by_image, f"{CALLS[2]}, {INSTANCES}"),
        }[by]
        with _asking(f"{group.name}: {call}"):
            ids = judge(known, lambda: self._client("ec2"))
        return frozenset(one for one in group.instances if one.rpartition("/")[2] in ids)

    def find_launches(self, group: NodeGroup) -> Mapping[str, float]:
        """Return when each instance was first launched. Each time is read only once."""
        ids = {one: one.rpartition("/")[2] for one in group.instances}
        unknown = sorted(set(ids.values()) - self._launched.keys())
        with _asking(f"{group.name}: {INSTANCES}"):
            for one in describe_instances(unknown, lambda: self._client("ec2")):
                self._launched[one["InstanceId"]] = first_launch(one)
        return {one: self._launched[name] for one, name in ids.items() if name in self._launched}

    def write_note(self, group: NodeGroup, note: str) -> None:
        """Write the tag of a replacement, which the group's instances do not get, or delete it."""
        tag = {"ResourceId": group.name, "ResourceType": "auto-scaling-group", "Key": TAG}
        client = self._client("autoscaling")
        if note:
            with _asking(f"{group.name}: {REPLACES[0]}"):
                client.create_or_update_tags(
                    Tags=[{**tag, "Value": note, "PropagateAtLaunch": False}]
                )
            return
        with _asking(f"{group.name}: {REPLACES[1]}"):
            client.delete_tags(Tags=[tag])

    def suspend(self, group: NodeGroup, processes: Sequence[str]) -> None:
        """Suspend processes of a group; named one by one, since no name means all."""
        client = self._client("autoscaling")
        if processes:
            with _asking(f"{group.name}: {REPLACES[2]}"):
                client.suspend_processes(
                    AutoScalingGroupName=group.name, ScalingProcesses=[*processes]
                )

    def resume(self, group: NodeGroup, processes: Sequence[str]) -> None:
        """Resume processes of a group; named one by one, since no name means all, and none that is never suspended here."""
        client = self._client("autoscaling")
        if processes := [one for one in processes if one in MEDDLING]:
            with _asking(f"{group.name}: {REPLACES[3]}"):
                client.resume_processes(
                    AutoScalingGroupName=group.name, ScalingProcesses=[*processes]
                )

    def _launches(self, group: NodeGroup) -> list[Mapping[str, Any]]:
        """Return the launches among a group's last 100 activities, newest first."""
        return [one for one in self._activities(group) if _is_launch(one)]

    def _activities(self, group: NodeGroup) -> Sequence[Mapping[str, Any]]:
        """Return a group's last 100 activities, newest first as AWS lists them."""
        with _asking(f"{group.name}: {ACTIVITIES}"):
            described = self._client("autoscaling").describe_scaling_activities(
                AutoScalingGroupName=group.name
            )
        activities: Sequence[Mapping[str, Any]] = described["Activities"]
        return activities

    def _describe_groups(self, query: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        client = self._client("autoscaling")
        with _asking(CALLS[0]):
            pages = client.get_paginator("describe_auto_scaling_groups").paginate(**query)
            return [group for page in pages for group in page["AutoScalingGroups"]]

    def _queries(self) -> Iterator[dict[str, Any]]:
        if not self._params.names:
            yield {"Filters": [_filter(tag) for tag in self._params.tags]}
            return
        names = sorted(set(self._params.names))
        for first in range(0, len(names), _NAMES):
            yield {"AutoScalingGroupNames": names[first : first + _NAMES]}

    def _instance_type(self, group: Mapping[str, Any]) -> str | None:
        """Return the instance type of a group, the first if there are several; None if unknown.

        Cluster Autoscaler also uses the first.
        """
        mixed = group.get("MixedInstancesPolicy", {}).get("LaunchTemplate", {})
        for override in mixed.get("Overrides", ()):
            if kind := override.get("InstanceType"):
                return str(kind)
        named = group.get("LaunchTemplate") or mixed.get("LaunchTemplateSpecification")
        if not named:
            return None
        with _asking(CALLS[2]):
            versions = self._client("ec2").describe_launch_template_versions(
                LaunchTemplateId=named["LaunchTemplateId"],
                Versions=[named.get("Version") or "$Default"],
            )["LaunchTemplateVersions"]
        data: Mapping[str, Any] = versions[0]["LaunchTemplateData"] if versions else {}
        return data.get("InstanceType")

    def _client(self, name: str, attempts: int = ATTEMPTS) -> Any:
        with _asking(f"the client of {name}"):
            return service(name, self._region, self._params.endpoint, attempts=attempts)


def _is_launch(activity: Mapping[str, Any]) -> bool:
    return str(activity.get("Description", "")).startswith(_LAUNCHING)


def _filter(tag: str) -> dict[str, Any]:
    key, equals, value = tag.partition("=")
    if equals:
        return {"Name": f"tag:{key}", "Values": [value]}
    return {"Name": "tag-key", "Values": [key]}


def _carries(tags: Mapping[str, str], tag: str) -> bool:
    key, equals, value = tag.partition("=")
    return key in tags and (not equals or tags[key] == value)


def as_group(group: Mapping[str, Any]) -> NodeGroup:
    """Convert a group of DescribeAutoScalingGroups, without terminating instances.

    If its capacity does not count machines, its sizes are unknown.
    """
    sized = not _is_weighted(group)
    tags = {tag["Key"]: tag.get("Value", "") for tag in group.get("Tags", ())}
    return NodeGroup(
        name=group["AutoScalingGroupName"],
        instances=tuple(
            sorted(
                f"aws:///{one['AvailabilityZone']}/{one['InstanceId']}"
                for one in group.get("Instances", ())
                if not one["LifecycleState"].startswith(_GOING)
            )
        ),
        minimum=group["MinSize"] if sized else None,
        maximum=group["MaxSize"] if sized else None,
        desired=group["DesiredCapacity"] if sized else None,
        zones=tuple(sorted(group.get("AvailabilityZones", ()))),
        suspended=_explain_suspension(group),
        note=tags.get(TAG, ""),
        meddling=meddling(group),
        options=dict(_below(tags, "autoscaling-options/")),
    )


def _explain_suspension(group: Mapping[str, Any]) -> str:
    """Return why a group launches no instances (its process Launch is suspended); empty if it does."""
    for one in group.get("SuspendedProcesses", ()):
        if one["ProcessName"] == "Launch":
            reason = " ".join(one.get("SuspensionReason", "").split())
            return f"its process Launch is suspended{reason and f': {reason}'}"
    return ""


def _is_weighted(group: Mapping[str, Any]) -> bool:
    """Return whether capacity is counted in units of instance types ("instance weights", "attribute-based selection")."""
    mixed = group.get("MixedInstancesPolicy", {}).get("LaunchTemplate", {})
    weighted = any("WeightedCapacity" in one for one in mixed.get("Overrides", ()))
    return weighted or group.get("DesiredCapacityType", "units") not in ("", "units")


def _below(tags: Mapping[str, str], part: str) -> Iterator[tuple[str, str]]:
    prefix = _TEMPLATE + part
    for key in sorted(tags):
        if key.startswith(prefix):
            yield key.removeprefix(prefix), tags[key]


def _taints(group: str, tags: Mapping[str, str]) -> Iterable[Taint]:
    for key, text in _below(tags, "taint/"):
        value, colon, effect = text.rpartition(":")
        if not colon or not effect:
            raise ProviderError(f"{group}: tag {_TEMPLATE}taint/{key}: {text!r} is no VALUE:EFFECT")
        yield Taint(key=key, value=value, effect=effect)


@contextmanager
def _asking(what: str) -> Iterator[None]:
    try:
        with asking(what):
            yield
    except SignalError as error:
        kind = ProviderRefusalError if did_nothing(error) else ProviderError
        raise kind(f"the provider aws: {error}") from error
