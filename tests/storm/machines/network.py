"""Load balancers and firewalls of one machine at moto: what stands there before, and what stands there now."""

from dataclasses import dataclass, field
from typing import Any

from tests.aws.cloud import Cloud

PORT = 8080
_OTHERS = 7
"""Target groups of others in the account, whose names come after that of the machine's own."""


@dataclass(frozen=True)
class Standing:
    """What AWS says of a machine: in which target groups it is, and which security groups its interfaces have."""

    targets: frozenset[tuple[str, str]] = frozenset()
    """(ARN, port)."""
    firewalls: dict[str, frozenset[str]] = field(default_factory=dict)
    """Network interface -> security groups."""


class Network:
    """A machine in a target group, behind a security group; others' target groups, a database's security group."""

    def __init__(self, cloud: Cloud, instance: str) -> None:
        self._balancers: Any = cloud.client("elbv2")
        self._compute: Any = cloud.client("ec2")
        self.instance = instance
        described = self._compute.describe_instances(InstanceIds=[instance])
        machine = described["Reservations"][0]["Instances"][0]
        self._vpc, suffix = machine["VpcId"], instance[-8:]
        self.own = self._target_group(f"app-{suffix}")
        self.others = [self._target_group(f"b{number}-{suffix}") for number in range(_OTHERS)]
        self.empty, self.database = (
            self._compute.create_security_group(
                GroupName=f"{name}-{suffix}", Description=name, VpcId=self._vpc
            )["GroupId"]
            for name in ("empty", "database")
        )
        self._balancers.register_targets(
            TargetGroupArn=self.own, Targets=[{"Id": instance, "Port": PORT}]
        )
        self.before = self.now()

    def now(self) -> Standing:
        """Return what AWS says now."""
        targets = {
            (arn, str(each["Target"]["Port"]))
            for arn in (self.own, *self.others)
            for each in self._balancers.describe_target_health(TargetGroupArn=arn)[
                "TargetHealthDescriptions"
            ]
            if each["Target"]["Id"] == self.instance
        }
        described = self._compute.describe_instances(InstanceIds=[self.instance])
        machine = described["Reservations"][0]["Instances"][0]
        firewalls = {
            one["NetworkInterfaceId"]: frozenset(group["GroupId"] for group in one["Groups"])
            for one in machine["NetworkInterfaces"]
        }
        return Standing(frozenset(targets), firewalls)

    def close(self) -> None:
        """Remove the target groups: the product looks at all of the account."""
        for arn in (self.own, *self.others):
            self._balancers.delete_target_group(TargetGroupArn=arn)

    def _target_group(self, name: str) -> str:
        made = self._balancers.create_target_group(
            Name=name, Protocol="HTTP", Port=80, VpcId=self._vpc, TargetType="instance"
        )
        return str(made["TargetGroups"][0]["TargetGroupArn"])
