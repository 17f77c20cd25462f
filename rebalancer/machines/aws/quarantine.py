"""The step ``quarantine``: replace an instance's security groups by groups without inbound rules."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from pydantic import Field

from rebalancer.base.plain_text import count
from rebalancer.machines.aws.services import asking, is_refusal
from rebalancer.machines.aws.steps import AwsParams
from rebalancer.machines.interruption.model import DONE, StepContext, skip_step
from rebalancer.plan.machines import StepOutcome
from rebalancer.policy.interruption import StepParams
from rebalancer.signals.model import SignalError

Groups = dict[str, list[str]]
"""Network interface -> its security groups."""
_ENDS = frozenset({"shutting-down", "terminated"})
"""States of an instance that does not come back."""


class _Kept(msgspec.Struct, frozen=True):
    """The stored data of an instance: its interfaces' original groups and the replacements."""

    before: Groups = {}
    given: list[str] = []


class _Seen(msgspec.Struct, frozen=True):
    interfaces: Groups
    state: str


class QuarantineParams(AwsParams):
    """Options of the step quarantine."""

    keeps: ClassVar[bool] = True

    security_groups: tuple[str, ...] = Field(
        min_length=1,
        max_length=5,
        description="Ids of the security groups that each network interface gets.",
    )


class Quarantine:
    """Replaces the security groups of all network interfaces of the instance; undo restores the original ones."""

    Params: ClassVar[type[StepParams]] = QuarantineParams

    def act(self, context: StepContext, params: QuarantineParams) -> StepOutcome:
        """Replace the security groups."""
        if not context.instance:
            return skip_step("the machine has no name at AWS")
        compute = params.service("ec2", context)
        wanted = sorted(params.security_groups)
        seen = _look(compute, context.instance)
        if seen.state in _ENDS:
            return skip_step(f"the instance is {seen.state}")
        now, kept = seen.interfaces, _decode_groups(context.left)
        others = {one: groups for one, groups in now.items() if groups != wanted}
        # A first attempt may have got as far as some of them: these are remembered as they were before it.
        after = _Kept({**others, **kept.before}, wanted)
        if others and after != kept:
            context.keep(msgspec.json.encode(after).decode())
        for one in others:
            _set(compute, one, wanted)
        return StepOutcome(DONE.status, f"{count(len(now), 'network interface')} in quarantine")

    def undo(self, context: StepContext, params: QuarantineParams) -> None:
        """Restore the original groups; changes that people made since are kept."""
        kept = _decode_groups(context.left)
        if not kept.before:
            return
        compute = params.service("ec2", context)
        try:
            seen = _look(compute, context.instance)
        except SignalError as error:
            if is_refusal(error, "InvalidInstanceID.NotFound"):
                return  # it is gone after all: to try again would be for ever
            raise
        if seen.state in _ENDS:
            return
        for one, groups in kept.before.items():
            if seen.interfaces.get(one) == kept.given:
                _set(compute, one, groups)


def _look(compute: Any, instance: str) -> _Seen:
    with asking(f"instance {instance}: read its network interfaces"):
        answer = compute.describe_instances(InstanceIds=[instance])
    machines = [
        machine for reservation in answer["Reservations"] for machine in reservation["Instances"]
    ]
    interfaces = {
        interface["NetworkInterfaceId"]: sorted(group["GroupId"] for group in interface["Groups"])
        for machine in machines
        for interface in machine.get("NetworkInterfaces", ())
    }
    return _Seen(interfaces, machines[0]["State"]["Name"] if machines else "terminated")


def _set(compute: Any, interface: str, groups: list[str]) -> None:
    with asking(f"network interface {interface}: set its security groups"):
        compute.modify_network_interface_attribute(NetworkInterfaceId=interface, Groups=groups)


def _decode_groups(text: str) -> _Kept:
    return msgspec.json.decode(text, type=_Kept) if text else _Kept()
