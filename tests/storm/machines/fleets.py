"""Groups of machines as the storm knows them, the same for each provider."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from tests.aws.cloud import REGION, Cloud
from tests.aws.fleet import ENABLED, Fleet
from tests.e2e.machines import Machines

_NOTE = "rebalancer/replace"
"""Tag of a group whose machines are being replaced."""
_MOST_FAILURES = 20
"""Activities of a group that fail: one each time that machines are looked for."""


@dataclass(frozen=True)
class GroupState:
    """What the provider says of a group."""

    minimum: int
    maximum: int
    desired: int
    machines: frozenset[str]
    """Names of its machines, which are those of their nodes."""
    left: tuple[str, ...] = ()
    """What the product has to take back once all is done: its note, what it has suspended, its marks."""


class AnyFleet(Protocol):
    """Groups of machines that become nodes."""

    def add(
        self, name: str, desired: int, *, low: int = ..., high: int = ..., zone: str = ...
    ) -> None:
        """Make a group and its nodes; ``zone``: the letters of its zones."""

    def machines(self, name: str) -> list[str]:
        """Return the names of a group's machines, which are those of their nodes."""

    def renew(self) -> None:
        """Let new machines be of a newer version."""

    def resize(self, name: str, by: int) -> int:
        """Let people change the size of a group; return etcd's revision of that, 0 if it is not in etcd."""

    def exhaust(self, name: str) -> None:
        """Let there be no more machines for a group."""

    def state(self) -> Mapping[str, GroupState]:
        """Return group -> what the provider says of it."""

    def policy(self, tags: Sequence[str]) -> Mapping[str, Any]:
        """Return how a policy names the groups; ``tags``: that they have, too."""

    def free(self) -> list[str]:
        """Remove the note of each group that cannot be taken back, as people have to do; return these groups."""

    def join(self, *, taints: Sequence[Mapping[str, str]] = ()) -> None:
        """Let machines register their nodes, with these taints, and remove the nodes of those that ended."""

    def settle(self) -> None:
        """Wait until machines that were ended are gone, for a while."""

    def close(self) -> None:
        """Remove the groups."""


class CloudFleet(Fleet):
    """Auto Scaling groups of moto."""

    def __init__(self, cloud: Cloud, machines: Machines) -> None:
        super().__init__(cloud, machines)
        cloud.exhausted.clear()
        cloud.activities.clear()

    def renew(self) -> None:
        """Add a version of the launch template."""
        self.new_version(ImageId="ami-03cf127a")

    def resize(self, name: str, by: int) -> int:
        """Set the desired capacity."""
        self.cloud.client("autoscaling").set_desired_capacity(
            AutoScalingGroupName=name, DesiredCapacity=self.sizes[name] + by
        )
        return 0

    def exhaust(self, name: str) -> None:
        """Launches fail from now on."""
        self.cloud.exhausted.add(name)

    def state(self) -> Mapping[str, GroupState]:
        """Return group -> what AWS says of it."""
        return {name: _state(self.group(name)) for name in self.sizes}

    def free(self) -> list[str]:
        """Return no group: each can be taken back."""
        return []

    def join(self, only: str | None = None, taints: Sequence[Mapping[str, str]] = ()) -> None:
        """Let machines register their nodes, and each launch fail for which there is no machine, as often as it is tried."""
        super().join(only, taints)
        for group in self.cloud.exhausted & self.sizes.keys():
            missing = self.sizes[group] - len(self.machines(group))
            failed = self.cloud.activities.setdefault(group, [])
            if missing > 0 and len(failed) < _MOST_FAILURES:
                failed.insert(0, _failed_launch(group))

    def settle(self) -> None:
        """Do nothing: moto ends machines at once."""

    def policy(self, tags: Sequence[str]) -> Mapping[str, Any]:
        """Return the provider of a policy."""
        at_aws = {"region": REGION, "endpoint": self.cloud.url}
        return {"aws": {"tags": [ENABLED, *tags], **at_aws}}


def _failed_launch(group: str) -> dict[str, str]:
    """Return an activity of a group, with the fields of the API reference."""
    message = "We currently do not have sufficient t3.medium capacity in the Availability Zone"
    return {
        "ActivityId": str(uuid.uuid4()),
        "AutoScalingGroupName": group,
        "Description": f"Launching a new EC2 instance.  Status Reason: {message}",
        "Cause": "At ... a user request explicitly set group desired capacity.",
        "StartTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "StatusCode": "Failed",
        "StatusMessage": message,
    }


def _state(group: Mapping[str, Any]) -> GroupState:
    suspended = [f"suspended: {one['ProcessName']}" for one in group["SuspendedProcesses"]]
    noted = [f"a note: {tag['Key']}" for tag in group["Tags"] if tag["Key"] == _NOTE]
    return GroupState(
        minimum=group["MinSize"],
        maximum=group["MaxSize"],
        desired=group["DesiredCapacity"],
        machines=frozenset(one["InstanceId"] for one in group["Instances"]),
        left=(*suspended, *noted),
    )
