"""The strategy scale-out: scale up groups for pending pods, before the plan is made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rebalancer.base.errors import ClusterReadError, ProviderError, ProviderRefusalError
from rebalancer.base.plain_text import count
from rebalancer.machines.capacity.scale_out_plan import CLUSTER_LIMITS, ScaleOutPlan
from rebalancer.machines.capacity.scaling import Scaler
from rebalancer.machines.capacity.state import (
    REFUSED,
    note_decrease,
    note_failure,
    note_request,
    note_scale_out,
)
from rebalancer.machines.reasons import GroupCode, ScaleOutCode
from rebalancer.plan.machines import ActStatus, MachineAct
from rebalancer.providers.contract import NodeGroup


@dataclass(frozen=True, slots=True)
class GroupResize:
    """A group whose size is to be increased."""

    group: NodeGroup
    to: int
    """Machines that it is to have, at most its maximum."""
    pods: int


def group_resizes(plan: ScaleOutPlan, groups: tuple[NodeGroup, ...]) -> list[GroupResize]:
    """Return the groups to scale up, by name, once each; groups with unknown sizes are omitted."""
    resizes: list[GroupResize] = []
    for group in groups:
        more = plan.increase_of(group.name)
        if not more or group.desired is None or group.maximum is None:
            continue
        pods = sum(one.pods for one in plan.increases if one.group == group.name)
        resizes.append(GroupResize(group, min(group.desired + more, group.maximum), pods))
    return [one for one in resizes if one.to > (one.group.desired or 0)]


class GroupScaleOut(Scaler):
    """Scales up groups."""

    def before(self) -> Iterator[MachineAct]:
        """Scale up groups first, because machines take minutes to start."""
        report = self._context.report
        unprovisioned = self._context.group_states.find_unprovisioned(report.snapshot.captured_at)
        for group in report.groups.groups:
            existing = max(group.minimum or 0, len(group.instances))
            if group.name in unprovisioned and (group.desired or 0) > existing:
                yield self._decrease(group)
        for one in group_resizes(report.scale_out, report.groups.groups):
            yield self._increase(one)
        held: dict[str, tuple[ScaleOutCode, str]] = {}
        for refusal in (refusal for pod in report.scale_out.pods for refusal in pod.refusals):
            if refusal.group in report.inputs.blocked or refusal.code is GroupCode.NO_HELP:
                held.setdefault(refusal.group, (ScaleOutCode.BLOCKED, refusal.message))
            elif refusal.code in CLUSTER_LIMITS:
                held.setdefault(refusal.group, (ScaleOutCode.LIMITED, refusal.message))
        for name, (code, why) in sorted(held.items()):
            yield self._act(code, ActStatus.WAITS, name, why)

    def _increase(self, one: GroupResize) -> MachineAct:
        context, name = self._context, one.group.name
        text = f"{one.group.desired} -> {one.to} machines (max {one.group.maximum}) for {count(one.pods, 'pod')}"
        if context.suspended is not None:
            text = f"{text}; {context.suspended}"
            return self._act(ScaleOutCode.SCALED_OUT, ActStatus.PLANNED, name, text)
        states = context.group_states
        before = states.groups[name]
        # Kept first: the next look may be answered with the size of before, and must not ask for less.
        states.groups[name] = note_request(before, one.to, context.now())
        try:
            self._keep_groups()
        except ClusterReadError:
            states.groups[name] = before
            raise
        try:
            asked = context.guarded.increase(name, one.to)
        except ProviderError as error:
            asked_before = (
                before if isinstance(error, ProviderRefusalError) else states.groups[name]
            )
            states.groups[name] = note_failure(asked_before, REFUSED, str(error), context.now())
            return self._act(ScaleOutCode.FAILED, ActStatus.FAILED, name, f"{text}: {error}")
        states.groups[name] = note_scale_out(states.groups[name], context.now())
        if not asked:
            text += "; as many were requested meanwhile"
        return self._act(ScaleOutCode.SCALED_OUT, ActStatus.DONE, name, text)

    def _decrease(self, group: NodeGroup) -> MachineAct:
        """Give up machines that were not provisioned, so that they do not start after others took their pods."""
        context, name, existing = self._context, group.name, len(group.instances)
        states = context.group_states
        state, size = states.groups[name], None
        text = f"{group.desired} machines were requested, and {existing} exist: {state.why}"
        if context.suspended is not None:
            text = f"{text}; {context.suspended}"
            return self._act(ScaleOutCode.DECREASED, ActStatus.PLANNED, name, text)
        try:
            # Noted first: after a kill, a group that has all of its machines would pass for a success, without a back-off.
            states.groups[name] = note_decrease(state)
            self._keep_groups()
            size = context.guarded.decrease_to_existing(name)
        except ProviderError as error:
            return self._act(ScaleOutCode.FAILED, ActStatus.FAILED, name, f"{text}: {error}")
        finally:
            if size is None:
                states.groups[name] = state
        if size is None:
            text += "; machines are being launched, or have come meanwhile"
            return self._act(ScaleOutCode.DECREASED, ActStatus.WAITS, name, text)
        text = f"{group.desired} -> {size} machines: {state.why}"
        return self._act(ScaleOutCode.DECREASED, ActStatus.DONE, name, text)

    def _keep_groups(self) -> None:
        """Store the state of groups before a request.

        Otherwise back-offs could be lost, and a group would be scaled up and down in turns.

        Raises:
            ClusterReadError: it could not be stored.
        """
        try:
            self._context.keep_groups()
        except ClusterReadError as error:
            raise ClusterReadError(
                f"the state of groups could not be kept, so that no group is resized: {error}"
            ) from error

    def _act(self, code: ScaleOutCode, status: ActStatus, group: str, text: str) -> MachineAct:
        return MachineAct(
            strategy=self._context.strategy,
            code=code.value,
            status=status,
            group=group,
            message=text,
        )
