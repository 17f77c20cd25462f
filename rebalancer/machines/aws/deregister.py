"""The step ``deregister``: remove an instance from all target groups, on all ports, and wait until it is drained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar

import msgspec
from pydantic import Field

from rebalancer.base.plain_text import count
from rebalancer.machines.aws.services import asking, did_nothing, is_refusal
from rebalancer.machines.aws.steps import AwsParams
from rebalancer.machines.interruption.model import (
    DONE,
    StepContext,
    fail_step,
    skip_step,
    time_out_step,
)
from rebalancer.plan.machines import StepOutcome
from rebalancer.policy.interruption import StepParams
from rebalancer.signals.model import SignalError

_POLL_INTERVAL = 2.0
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
        """Return the step's default part of the available time."""
        return 0.4


class Deregister:
    """Removes the instance from all target groups of load balancers, on all ports, and waits until it is drained."""

    Params: ClassVar[type[StepParams]] = DeregisterParams

    def __init__(self) -> None:
        self._members: dict[str, frozenset[str]] = {}
        """ARN of a target group -> the instances that were in it when it was looked at last, for any machine."""

    def act(self, context: StepContext, params: DeregisterParams) -> StepOutcome:
        """Deregister from one group after the other, so that even a short time helps for some groups."""
        if not context.instance:
            return skip_step("the machine has no name at AWS")
        balancers = params.service("elbv2", context)
        leaving = _Leaving(context, balancers)
        with asking("list the target groups"):
            groups = dict(_groups(balancers))
        if (why := self._leave_groups(context, leaving, groups)) is not None:
            return why
        if not leaving.groups and not context.left:
            return skip_step("it is in no target group")
        return self._await_drained(context, balancers, leaving) if params.wait else DONE

    def _leave_groups(
        self, context: StepContext, leaving: _Leaving, groups: Mapping[str, str]
    ) -> StepOutcome | None:
        """Deregister from all target groups; return None, or the outcome if some remain. Late answers are retried."""
        left = sorted(
            groups,
            key=lambda end: context.instance not in self._members.get(groups[end], frozenset()),
        )
        refusals: list[str] = []
        while left:
            again: list[str] = []
            for number, end in enumerate(left):
                if context.stop.reason() is not None:
                    return time_out_step(
                        f"{len(left) - number + len(again)} target groups not looked at"
                    )
                try:
                    self._members[groups[end]] = leaving.leave(end, groups[end])
                except SignalError as error:
                    if did_nothing(error):
                        refusals.append(str(error))
                    else:
                        again.append(end)
            left = again
            if left and context.stop.wait(_POLL_INTERVAL) is not None:
                return time_out_step(
                    f"{count(len(left), 'target group')} could not be read or changed"
                )
        return fail_step("; ".join(refusals)) if refusals else None

    def _await_drained(
        self, context: StepContext, balancers: Any, leaving: _Leaving
    ) -> StepOutcome:
        """Wait until no target is left, or the step's part of the time is over."""
        # No more than one look a second, however many target groups there are.
        pause = max(_POLL_INTERVAL, len(leaving.groups) * _POLL_INTERVAL / 2)
        while True:
            left = sum(
                len(_ports(_targets(balancers, arn), context.instance)) for arn in leaving.groups
            )
            if not left:
                return StepOutcome(DONE.status, f"{count(leaving.number(), 'target')} drained")
            if context.stop.wait(pause) is not None:
                return time_out_step(f"{count(left, 'target')} still draining")

    def undo(self, context: StepContext, params: DeregisterParams) -> None:
        """Register the instance again where this step deregistered it."""
        kept = _decode_ports(context.left)
        if not kept:
            return
        balancers = params.service("elbv2", context)
        with asking("list the target groups"):
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
                if not is_refusal(error, "InvalidTarget", "TargetGroupNotFound"):
                    raise


class _Leaving:
    """One instance being removed from its target groups, and the data that the step stores about it."""

    def __init__(self, context: StepContext, balancers: Any) -> None:
        self._context, self._balancers = context, balancers
        self._decode_ports = _decode_ports(context.left)
        self._registered: dict[str, set[int]] = {}
        """End of the ARN -> ports that were registered, or are draining."""
        self.groups: dict[str, None] = {}
        """ARNs of the target groups that the instance is in."""

    def leave(self, end: str, arn: str) -> frozenset[str]:
        """Deregister the instance from a target group; return the instances that were in it.

        Raises:
            SignalError: the request failed.
        """
        instance = self._context.instance
        targets = _targets(self._balancers, arn)
        states = _ports(targets, instance)
        if states:
            self.groups[arn] = None
            self._registered[end] = set(states)
        serving = sorted(port for port, state in states.items() if state != "draining")
        if serving:
            self._keep(end, serving)
            with asking(f"target group {end}: deregister {instance}"):
                self._balancers.deregister_targets(
                    TargetGroupArn=arn, Targets=_as_targets(instance, serving)
                )
        return frozenset(each["Target"]["Id"] for each in targets)

    def number(self) -> int:
        """Return the number of targets, including those that an earlier attempt or others deregistered."""
        ends = {*self._decode_ports, *self._registered}
        return sum(
            len({*self._decode_ports.get(end, ()), *self._registered.get(end, ())}) for end in ends
        )

    def _keep(self, end: str, ports: Sequence[int]) -> None:
        """Store the ports to register again, before they are deregistered."""
        every = {**self._decode_ports, end: sorted({*self._decode_ports.get(end, ()), *ports})}
        if every != self._decode_ports:
            self._context.keep(msgspec.json.encode(every).decode())
            self._decode_ports = every


def _groups(balancers: Any) -> Iterator[tuple[str, str]]:
    """Yield (end of the ARN, ARN) of each target group of instances."""
    for page in balancers.get_paginator("describe_target_groups").paginate():
        for group in page["TargetGroups"]:
            if group.get("TargetType", "instance") == "instance":
                arn = group["TargetGroupArn"]
                yield arn.partition(":targetgroup/")[2], arn


def _targets(balancers: Any, arn: str) -> Sequence[Mapping[str, Any]]:
    """Return the registered or draining targets of a group, one per port."""
    try:
        with asking(f"target group {arn.partition(':targetgroup/')[2]}: read its targets"):
            # Asked for an instance without a port, the service answers for the group's own port alone.
            answer = balancers.describe_target_health(TargetGroupArn=arn)
    except SignalError as error:
        if is_refusal(error, "TargetGroupNotFound"):
            return ()
        raise
    every = answer["TargetHealthDescriptions"]
    return [each for each in every if each["TargetHealth"]["State"] not in _GONE]


def _ports(targets: Sequence[Mapping[str, Any]], instance: str) -> dict[int, str]:
    return {
        each["Target"]["Port"]: each["TargetHealth"]["State"]
        for each in targets
        if each["Target"]["Id"] == instance
    }


def _decode_ports(text: str) -> Ports:
    return msgspec.json.decode(text, type=Ports) if text else {}


def _as_targets(instance: str, ports: Sequence[int]) -> list[dict[str, Any]]:
    return [{"Id": instance, "Port": port} for port in ports]
