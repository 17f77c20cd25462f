"""Parse messages of a queue about instances: events of EventBridge, and Auto Scaling's own notifications.

The formats are those of the user guides: "EC2 Spot Instance Interruption Warning", "EC2 Instance Rebalance
Recommendation", "EC2 Instance State-change Notification", "EC2 Instance-terminate Lifecycle Action" (by EventBridge,
or directly from the hook to the queue), and "AWS Health Event" of the category scheduledChange. Any of them may be
wrapped by SNS.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from rebalancer.signals.model import OVER
from rebalancer.wire.times import unix_seconds

_SPOT_SECONDS = 120.0
"""From a Spot interruption's warning to the interruption."""
_GOING = ("stopping", "stopped", "shutting-down", "terminated")
"""States from which an instance does not come back as it was."""
_REBALANCE_LASTS = 3600.0
"""Seconds after which a recommendation is of no more use."""
_CODES = (
    ("INSTANCE_RETIREMENT", "instance-retirement"),
    ("INSTANCE_STOP", "instance-stop"),
    ("INSTANCE_REBOOT", "instance-reboot"),
    ("SYSTEM_REBOOT", "system-reboot"),
)
"""What stands in the code of a Health event -> the code that the instance's metadata has for it."""
_OTHER_CODE = "system-maintenance"
_OVER = ("[canceled]", "[cancelled]", "[completed]")


class UndecodableError(Exception):
    """The message has no known format; says why."""


@dataclass(frozen=True, slots=True)
class Hook:
    """A lifecycle action that waits to be completed."""

    group: str
    name: str
    token: str
    instance: str


@dataclass(frozen=True, slots=True)
class Event:
    """What a message says about one instance."""

    id: str
    """Of the event and the instance: the same however often it is delivered."""
    kind: str
    instance: str
    reason: str
    deadline: float | None = None
    """Unix seconds."""
    until: float | None = None
    """Unix seconds at which the window ends that begins at the deadline."""
    over: float = math.inf
    """Unix seconds after which it says nothing of the instance any more."""
    cancelled: bool = False
    hook: Hook | None = None
    account: str = ""
    """Of the instance; empty: the message does not say it."""
    region: str = ""
    """Of the instance; empty: the message does not say it."""


@dataclass(frozen=True, slots=True)
class Said:
    """The content of a message."""

    events: tuple[Event, ...] = ()
    """Of each instance that it names; none: it calls for nothing here."""
    is_test: bool = False
    """Sent by Auto Scaling when a hook is made, and of no use to anybody."""


def parse(body: str) -> Said:
    """Parse a message.

    Raises:
        UndecodableError: the message has no known format.
    """
    try:
        return _said(_object(body))
    except (
        LookupError,
        ValueError,
        TypeError,
        AttributeError,
        RecursionError,
        OverflowError,
    ) as error:
        raise UndecodableError(f"{type(error).__name__}: {error}") from None


def _said(message: dict[str, Any], *, wrapped: bool = False) -> Said:
    if message.get("Type") == "Notification" and not wrapped:
        return _said(_object(message["Message"]), wrapped=True)
    if message.get("Event") == "autoscaling:TEST_NOTIFICATION":
        return Said(is_test=True)
    if "LifecycleTransition" in message:
        return Said(_lifecycle(message))
    if "source" not in message or "detail-type" not in message:
        raise ValueError("it is no event of EventBridge, and no notification of a lifecycle hook")
    parser = _EVENTS.get((message["source"], message["detail-type"]))
    return Said() if parser is None else Said(parser(message))


def _object(text: str) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any])
    return decoded


def _spot(message: dict[str, Any]) -> tuple[Event, ...]:
    detail = message["detail"]
    warned = unix_seconds(message.get("time"))
    event = _of(message, "spot", _text(detail.get("instance-action", "terminate")))
    return (replace(event, deadline=warned + _SPOT_SECONDS if warned else None),)


def _rebalance(message: dict[str, Any]) -> tuple[Event, ...]:
    event = _of(message, "rebalance", "rebalance recommendation")
    return (_lasting(event, message, _REBALANCE_LASTS),)


def _state(message: dict[str, Any]) -> tuple[Event, ...]:
    state = message["detail"]["state"]
    # An instance that was stopped may have been started again since.
    event = _of(message, "shutdown", _text(state))
    return (_lasting(event, message, OVER),) if state in _GOING else ()


def _lasting(event: Event, message: dict[str, Any], seconds: float) -> Event:
    sent = unix_seconds(message.get("time"))
    return replace(event, over=sent + seconds) if sent else event


def _of(message: dict[str, Any], kind: str, reason: str) -> Event:
    instance = _text(message["detail"]["instance-id"])
    event = Event(f"{instance}/{kind}/{_text(message['id'])}", kind, instance, reason)
    return _placed(event, message)


def _placed(event: Event, message: dict[str, Any]) -> Event:
    """Return the event with the account and the region of its instance.

    Health events may also be sent from another region than that of the instance, and from another account.
    """
    detail = message["detail"]
    account = detail.get("affectedAccount") or message.get("account")
    region = detail.get("eventRegion") or message.get("region")
    return replace(event, account=str(account or ""), region=str(region or ""))


def _hooked(message: dict[str, Any]) -> tuple[Event, ...]:
    return tuple(_placed(one, message) for one in _lifecycle(message["detail"]))


def _lifecycle(action: dict[str, Any]) -> tuple[Event, ...]:
    if action["LifecycleTransition"] != "autoscaling:EC2_INSTANCE_TERMINATING":
        return ()
    instance, token = _text(action["EC2InstanceId"]), _text(action["LifecycleActionToken"])
    group, name = _text(action["AutoScalingGroupName"]), _text(action["LifecycleHookName"])
    hook = Hook(group, name, token, instance)
    account = str(action.get("AccountId") or "")
    reason = f"leaves group {group}"
    return (
        Event(f"{instance}/hook/{token}", "scale-in", instance, reason, hook=hook, account=account),
    )


def _health(message: dict[str, Any]) -> tuple[Event, ...]:
    detail = message["detail"]
    if detail.get("service") != "EC2" or detail.get("eventTypeCategory") != "scheduledChange":
        return ()
    code, arn = _text(detail["eventTypeCode"]), _text(detail["eventArn"])
    described = " ".join(
        str(each.get("latestDescription", "")) for each in detail.get("eventDescription") or ()
    )
    over = detail.get("statusCode") == "closed" or described.lower().startswith(_OVER)
    starts, ends = detail.get("startTime"), detail.get("endTime")
    kind = next((kind for part, kind in _CODES if part in code), _OTHER_CODE)
    deadline = parsedate_to_datetime(starts).timestamp() if starts else None
    until = parsedate_to_datetime(ends).timestamp() if ends else None
    # One event may name several instances: each is an interruption of its own.
    instances = {_text(entity["entityValue"]): None for entity in detail["affectedEntities"]}
    events = (
        Event(
            f"{instance}/{arn.rpartition('/')[2]}",
            kind,
            instance,
            code,
            deadline,
            until,
            cancelled=over,
        )
        for instance in instances
        if instance.startswith("i-")
    )
    return tuple(_placed(event, message) for event in events)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable() or not value.strip():
        raise TypeError(f"{value!r} is no name")
    return value


_EVENTS: dict[tuple[object, object], Callable[[dict[str, Any]], tuple[Event, ...]]] = {
    ("aws.ec2", "EC2 Spot Instance Interruption Warning"): _spot,
    ("aws.ec2", "EC2 Instance Rebalance Recommendation"): _rebalance,
    ("aws.ec2", "EC2 Instance State-change Notification"): _state,
    ("aws.autoscaling", "EC2 Instance-terminate Lifecycle Action"): _hooked,
    ("aws.health", "AWS Health Event"): _health,
}
