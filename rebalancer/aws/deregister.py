"""The step ``deregister``: an instance leaves all target groups, on all its ports, and its connections end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, ClassVar

import msgspec
from pydantic import Field

from rebalancer.aws.services import asking, refused
from rebalancer.aws.steps import AwsParams
from rebalancer.base.plain_text import count
from rebalancer.interruption.model import DONE, StepContext, skipped, timed_out
from rebalancer.policy.interruption import StepParams
from rebalancer.signals.model import SignalError, StepOutcome

_LOOK = 2.0
"""Seconds between two looks at targets that are draining."""
_GONE = ("unused",)
"""States of a target that is registered no more."""

Ports = dict[str, list[int]]
"""End of a target group's ARN (``NAME/ID``) -> the instance's ports in it."""


class DeregisterParams(AwsParams):
    """Options of the step deregister."""

    keeps: ClassVar[bool] = True

    wait: bool = Field(
        default=True,
        description="Wait until the targets are drained, for as long as the step may take.",
    )

    def part(self) -> timedelta | float | None:
        """See StepParams."""
        return 0.4


class Deregister:
    """Takes the instance out of all target groups of load balancers, on all ports, and waits until it is drained."""

    Params: ClassVar[type[StepParams]] = DeregisterParams

    def act(self, context: StepContext, params: DeregisterParams) -> StepOutcome:
        """See Step."""
        if not context.instance:
            return skipped("the machine has no name at AWS")
        balancers = params.service("elbv2", context)
        groups = dict(_groups(balancers))
        targets_of = {
            end: _targets(balancers, arn, context.instance) for end, arn in groups.items()
        }
        registered = {end: sorted(targets) for end, targets in targets_of.items() if targets}
        before = _kept(context.left)
        if not registered and not before:
            return skipped("it is in no target group")
        serving = {
            end: ports
            for end, targets in targets_of.items()
            if (ports := sorted(p for p, state in targets.items() if state != "draining"))
        }
        # What an earlier attempt took out is draining now, or gone.
        every = {
            end: sorted({*before.get(end, ()), *serving.get(end, ())})
            for end in (*before, *serving)
        }
        if every != before:
            context.keep(msgspec.json.encode(every).decode())
        for end, ports in serving.items():
            with asking(f"target group {end}: deregister {context.instance}"):
                balancers.deregister_targets(
                    TargetGroupArn=groups[end], Targets=_as_targets(context.instance, ports)
                )
        leaving = [groups[end] for end in registered]
        # Those that others took out count, too: their connections are waited for.
        number = sum(
            len({*every.get(end, ()), *registered.get(end, ())}) for end in {**every, **registered}
        )
        return self._drained(context, balancers, leaving, number) if params.wait else DONE

    def _drained(
        self, context: StepContext, balancers: Any, groups: Sequence[str], number: int
    ) -> StepOutcome:
        """Wait until no target is left, or the step's part of the time is over."""
        while True:
            left = sum(len(_targets(balancers, arn, context.instance)) for arn in groups)
            if not left:
                return StepOutcome(DONE.status, f"{count(number, 'target')} drained")
            if context.stop.wait(_LOOK) is not None:
                return timed_out(f"{count(left, 'target')} still draining")

    def undo(self, context: StepContext, params: DeregisterParams) -> None:
        """See Undoing: what was taken out is registered again."""
        kept = _kept(context.left)
        if not kept:
            return
        balancers = params.service("elbv2", context)
        groups = dict(_groups(balancers))
        for end, ports in kept.items():
            if end not in groups:
                continue  # the target group was deleted meanwhile
            try:
                with asking(f"target group {end}: register {context.instance} again"):
                    balancers.register_targets(
                        TargetGroupArn=groups[end], Targets=_as_targets(context.instance, ports)
                    )
            except SignalError as error:
                # The instance is gone after all, or the group is now: to try again would be for ever.
                if not refused(error, "InvalidTarget", "TargetGroupNotFound"):
                    raise


def _groups(balancers: Any) -> Iterator[tuple[str, str]]:
    """Yield the end of the ARN and the ARN of each target group of instances."""
    with asking("list the target groups"):
        for page in balancers.get_paginator("describe_target_groups").paginate():
            for group in page["TargetGroups"]:
                if group.get("TargetType", "instance") == "instance":
                    arn = group["TargetGroupArn"]
                    yield arn.partition(":targetgroup/")[2], arn


def _targets(balancers: Any, arn: str, instance: str) -> dict[int, str]:
    """Return port -> state of the instance's targets in a group, one for each port that it is registered on."""
    try:
        with asking(f"target group {arn.partition(':targetgroup/')[2]}: read its targets"):
            # Asked for an instance without a port, the service answers for the group's own port alone.
            answer = balancers.describe_target_health(TargetGroupArn=arn)
    except SignalError as error:
        if refused(error, "TargetGroupNotFound"):
            return {}
        raise
    return {
        each["Target"]["Port"]: each["TargetHealth"]["State"]
        for each in answer["TargetHealthDescriptions"]
        if each["Target"]["Id"] == instance and each["TargetHealth"]["State"] not in _GONE
    }


def _kept(text: str) -> Ports:
    return msgspec.json.decode(text, type=Ports) if text else {}


def _as_targets(instance: str, ports: Sequence[int]) -> list[dict[str, Any]]:
    return [{"Id": instance, "Port": port} for port in ports]
