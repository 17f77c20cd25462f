"""A scale-out as data: the increase of each group, and the result for each pending pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rebalancer.machines.capacity.codes import GroupCode, PodCode
from rebalancer.snapshot.columns import Bools


@dataclass(frozen=True, slots=True)
class GroupIncrease:
    """The increase of one group."""

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
    """Inputs about groups other than their sizes, and about pending pods other than their objects."""

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
    """The result of a scale-out for a pending pod."""

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
    """The increases of groups for the pending pods."""

    increases: tuple[GroupIncrease, ...]
    """In the order in which they were chosen; a group may stand in several."""
    pods: tuple[PodVerdict, ...]
    """In the scheduler's order."""

    @property
    def needed(self) -> dict[str, int]:
        """Name of each existing node that has room for a pending pod -> one such pod."""
        return {one.node: one.pod for one in self.pods if one.node and one.group is None}

    def increase_of(self, group: str) -> int:
        """Return the number of nodes to add to a group."""
        return sum(len(one.nodes) for one in self.increases if one.group == group)
