"""The strategy scale-out: groups grow for pods that no node takes, before the plan is made."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from rebalancer.base.errors import ProviderError
from rebalancer.base.plain_text import count
from rebalancer.capacity.backoff import REFUSED
from rebalancer.capacity.growth import Growth
from rebalancer.capacity.scaling import ScalerContext
from rebalancer.plan.machines import ActStatus, MachineAct
from rebalancer.providers.contract import NodeGroup


class ScaleOutCode(enum.StrEnum):
    """What scale-out does to groups; the names of Cluster Autoscaler's events. Stable: users alert on them."""

    GROWS = "ScaledUpGroup"
    """The group grows for pods that wait."""
    FAILED = "FailedToScaleUpGroup"
    """The provider did not take the request; it is tried again after a back-off."""
    WAITS = "GroupMayNotGrow"
    """It would grow, but it failed to, or has just grown."""


@dataclass(frozen=True, slots=True)
class GroupGrowth:
    """A group that is to grow."""

    group: NodeGroup
    to: int
    """Machines that it is to have, at most its maximum."""
    pods: int


def group_growths(growth: Growth, groups: tuple[NodeGroup, ...]) -> list[GroupGrowth]:
    """Return the groups that grow, by name; each stands there once. Those whose sizes are not known are left out."""
    grows: list[GroupGrowth] = []
    for group in groups:
        more = growth.by(group.name)
        if not more or group.desired is None or group.maximum is None:
            continue
        pods = sum(one.pods for one in growth.increases if one.group == group.name)
        grows.append(GroupGrowth(group, min(group.desired + more, group.maximum), pods))
    return [one for one in grows if one.to > (one.group.desired or 0)]


class ScaleOut:
    """See Scaler."""

    def __init__(self, context: ScalerContext) -> None:
        self._context = context

    def before(self) -> Iterator[MachineAct]:
        """See Scaler: nodes take minutes to come, so that groups grow first."""
        report = self._context.report
        for one in group_growths(report.growth, report.groups.groups):
            yield self._grown(one)
        barred: dict[str, str] = {}
        for pod in report.growth.pods:
            for refusal in pod.refusals:
                if refusal.group in report.outlook.barred:
                    barred.setdefault(refusal.group, refusal.message)
        for group, why in sorted(barred.items()):
            yield self._act(ScaleOutCode.WAITS, ActStatus.WAITS, group, why)

    def after(self) -> Iterator[MachineAct]:
        """See Scaler."""
        return iter(())

    def _grown(self, one: GroupGrowth) -> MachineAct:
        context, name = self._context, one.group.name
        text = f"{one.group.desired} -> {one.to} machines (max {one.group.maximum}) for {count(one.pods, 'pod')}"
        if context.suspended is not None:
            text = f"{text}; {context.suspended}"
            return self._act(ScaleOutCode.GROWS, ActStatus.PLANNED, name, text)
        try:
            asked = context.guarded.grow(name, one.to)
        except ProviderError as error:
            context.memories.has_failed(name, REFUSED, str(error), context.now())
            return self._act(ScaleOutCode.FAILED, ActStatus.FAILED, name, f"{text}: {error}")
        context.memories.has_grown(name, context.now())
        if not asked:
            text += "; as many were asked for meanwhile"
        return self._act(ScaleOutCode.GROWS, ActStatus.DONE, name, text)

    def _act(self, code: ScaleOutCode, status: ActStatus, group: str, text: str) -> MachineAct:
        return MachineAct(
            strategy=self._context.strategy,
            code=code.value,
            status=status,
            group=group,
            message=text,
        )
