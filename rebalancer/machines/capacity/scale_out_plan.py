"""A scale-out as data: by how many nodes each group is to be increased, and what that does for each pending pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rebalancer.machines.capacity.codes import GroupCode, PodCode
from rebalancer.snapshot.columns import Bools


@dataclass(frozen=True, slots=True)
class GroupIncrease:
    """One group that is to be increased."""

    group: str
    nodes: tuple[str, ...]
    """Names that stand for the new nodes."""
    zones: Mapping[str, int]
    """Zone -> how many of them."""
    pods: int
    waste: float
    """Mean share of cpu and memory of these nodes that no pod requests."""


@dataclass(frozen=True, slots=True)
class GroupRefusal:
    """Why a group does not help a pod."""

    group: str
    code: GroupCode
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleOutInputs:
    """What is known of the groups besides their sizes, and of the pending pods besides their objects."""

    upcoming: Mapping[str, int] = field(default_factory=dict)
    """Group -> machines that were requested, and that are no ready nodes yet."""
    blocked: Mapping[str, GroupRefusal] = field(default_factory=dict)
    """Groups that may not be scaled out now -> why not."""
    triggering: Bools | None = None
    """(P,) pods that may trigger a scale-out; None: all."""
    triggered: Mapping[str, str] = field(default_factory=dict)
    """uid of a pending pod -> the group that was scaled out for it: while its machines are upcoming, no other one is."""


NO_INPUTS = ScaleOutInputs()


@dataclass(frozen=True, slots=True)
class PodVerdict:
    """What scale-out does for a pending pod."""

    pod: int
    code: PodCode
    message: str
    node: str | None = None
    """The node that would take it."""
    group: str | None = None
    """The group of that node, where it is a new or an upcoming one."""
    refusals: tuple[GroupRefusal, ...] = ()
    """Where no group helps it: why not, by group."""


@dataclass(frozen=True, slots=True)
class ScaleOutPlan:
    """What the pending pods need."""

    increases: tuple[GroupIncrease, ...]
    """In the order in which they were chosen; a group may stand in several."""
    pods: tuple[PodVerdict, ...]
    """In the scheduler's order."""

    @property
    def needed(self) -> dict[str, int]:
        """Name of each existing node that has room for a pending pod -> such a pod."""
        return {one.node: one.pod for one in self.pods if one.node and one.group is None}

    def increase_of(self, group: str) -> int:
        """Return by how many nodes a group is to be increased."""
        return sum(len(one.nodes) for one in self.increases if one.group == group)
