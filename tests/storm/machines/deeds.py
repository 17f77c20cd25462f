"""What was done to groups and their machines, in words that hold for each provider, from the log of who carried it out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tests.storm.machines.cloud import Call

OTHERS = "others"
"""Who has done it, if it was not the product."""
GROUP = "group"
"""Label of a node: the name of its group."""


@dataclass(frozen=True)
class Deed:
    """One change of a group, or of a machine."""

    at: float
    """Unix seconds at which it was asked for."""
    what: Literal["ends", "lets go", "resizes", "notes", "limits"]
    """A machine is ended with its group smaller by one, or let go by its hook; a group gets a size, a note, other limits."""
    group: str = ""
    machine: str = ""
    """Its name, which is that of its node."""
    size: int = 0
    by: str = ""
    """Which release has done it, or `OTHERS`."""


_WHAT: Mapping[str, Literal["ends", "lets go", "resizes", "notes", "limits"]] = {
    "autoscaling:TerminateInstanceInAutoScalingGroup": "ends",
    "autoscaling:CompleteLifecycleAction": "lets go",
    "autoscaling:SetDesiredCapacity": "resizes",
    "autoscaling:CreateOrUpdateTags": "notes",
    "autoscaling:UpdateAutoScalingGroup": "limits",
}


def deeds_of_calls(calls: Sequence[Call], group_of: Callable[[str, float], str]) -> Iterator[Deed]:
    """Yield what the cloud has carried out; ``group_of``: the group of a machine at a time."""
    for call in calls:
        what, form = _WHAT.get(call.name), call.form
        if what is None or not call.done:
            continue
        machine = form.get("InstanceId", "")
        named = form.get("AutoScalingGroupName") or form.get("Tags.member.1.ResourceId", "")
        yield Deed(
            call.at,
            what,
            group_of(machine, call.at) if what in ("ends", "lets go") else named,
            machine if what in ("ends", "lets go") else "",
            int(form.get("DesiredCapacity", 0)),
            call.by,
        )


def group_in(node: Mapping[str, Any]) -> str:
    """Return the group that a node's label names; empty if it has none."""
    return str((node["metadata"].get("labels") or {}).get(GROUP, ""))
