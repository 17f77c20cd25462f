"""The source ``sqs``: a queue to which EventBridge and Auto Scaling send announcements about instances.

A message is deleted from the queue only once all of its interruptions are handled. If a process is killed, the next one receives
the message again a minute later. Nothing of AWS is imported before the source is opened.

The formats are those of the user guides: "EC2 Spot Instance Interruption Warning", "EC2 Instance Rebalance
Recommendation", "EC2 Instance State-change Notification", "EC2 Instance-terminate Lifecycle Action" (by EventBridge,
or directly from the hook to the queue), and "AWS Health Event" of the category scheduledChange. Any of them may be
wrapped by SNS.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from pydantic import Field

from rebalancer.base.plain_text import quote_value
from rebalancer.base.stop import CutOffError, Stop, run_abandonable
from rebalancer.machines.aws.services import (
    account_of_queue,
    asking,
    is_refusal,
    region_of_environment,
    region_of_node,
    region_of_queue,
    service,
)
from rebalancer.plan.machines import PipelineOutcome
from rebalancer.policy.interruption import IGNORED_KINDS, WARM_POOL, IgnoredKinds
from rebalancer.policy.values import Params
from rebalancer.signals.model import (
    HEARTBEAT,
    MAX_RECEIVE,
    OVER,
    Interruption,
    SignalError,
    SourceContext,
)
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
"""Part of the code of a Health event -> the code for it in the instance's metadata."""
_OTHER_CODE = "system-maintenance"
_OVER = ("[canceled]", "[cancelled]", "[completed]")


class UndecodableError(Exception):
    """The message has no known format; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Hook:
    """A lifecycle action that waits to be completed."""

    group: str
    name: str
    token: str
    instance: str


@dataclass(frozen=True, slots=True)
class Event:
    """The content of a message about one instance."""

    id: str
    """Id of the event and the instance, which is equal for repeated deliveries."""
    kind: str
    instance: str
    reason: str
    deadline: float | None = None
    """Unix seconds at which the machine ends."""
    until: float | None = None
    """Unix seconds at which the window ends that begins at the deadline."""
    over: float = math.inf
    """Unix seconds after which it no longer applies to the instance."""
    cancelled: bool = False
    hook: Hook | None = None
    account: str = ""
    """The account of the instance; empty if the message does not have it."""
    region: str = ""
    """The region of the instance; empty if the message does not have it."""


@dataclass(frozen=True, slots=True)
class Said:
    """The content of a message of the queue."""

    events: tuple[Event, ...] = ()
    """The events of each instance that it names; none: it requires nothing here."""
    is_test: bool = False
    """Sent by Auto Scaling when a hook is made, and of no use to anybody."""


def parse(body: str) -> Said:
    """Parse a message.

    Raises:
        UndecodableError: the message has no known format.
    """
    try:
        return _parse_message(_object(body))
    except (
        LookupError,
        ValueError,
        TypeError,
        AttributeError,
        RecursionError,
        OverflowError,
    ) as error:
        raise UndecodableError(f"{type(error).__name__}: {error}") from None


def _parse_message(message: dict[str, Any], *, wrapped: bool = False) -> Said:
    if message.get("Type") == "Notification" and not wrapped:
        return _parse_message(_object(message["Message"]), wrapped=True)
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
    return _locate(event, message)


def _locate(event: Event, message: dict[str, Any]) -> Event:
    """Return the event with the account and the region of its instance.

    Health events may also be sent from another region than that of the instance, and from another account.
    """
    detail = message["detail"]
    account = detail.get("affectedAccount") or message.get("account")
    region = detail.get("eventRegion") or message.get("region")
    return replace(event, account=str(account or ""), region=str(region or ""))


def _parse_hook(message: dict[str, Any]) -> tuple[Event, ...]:
    return tuple(_locate(one, message) for one in _lifecycle(message["detail"]))


def _lifecycle(action: dict[str, Any]) -> tuple[Event, ...]:
    if action["LifecycleTransition"] != "autoscaling:EC2_INSTANCE_TERMINATING":
        return ()
    instance, token = _text(action["EC2InstanceId"]), _text(action["LifecycleActionToken"])
    group, name = _text(action["AutoScalingGroupName"]), _text(action["LifecycleHookName"])
    hook = Hook(group, name, token, instance)
    account = str(action.get("AccountId") or "")
    kind, reason = "scale-in", f"leaves group {group}"
    if action.get("Destination") == "WarmPool":
        kind, reason = WARM_POOL, f"goes into the warm pool of group {group}"
    return (Event(f"{instance}/hook/{token}", kind, instance, reason, hook=hook, account=account),)


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
    return tuple(_locate(event, message) for event in events)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable() or not value.strip():
        raise TypeError(f"{value!r} is no name")
    return value


_EVENTS: dict[tuple[object, object], Callable[[dict[str, Any]], tuple[Event, ...]]] = {
    ("aws.ec2", "EC2 Spot Instance Interruption Warning"): _spot,
    ("aws.ec2", "EC2 Instance Rebalance Recommendation"): _rebalance,
    ("aws.ec2", "EC2 Instance State-change Notification"): _state,
    ("aws.autoscaling", "EC2 Instance-terminate Lifecycle Action"): _parse_hook,
    ("aws.health", "AWS Health Event"): _health,
}


_AT_ONCE = 10
"""Messages of one answer: the most that SQS gives."""
_HIDDEN = 60
"""Seconds for which a message that was received is not given to another receiver; renewed while it is in work."""
_MAX_HIDDEN = 3600
_HOOK_EVERY = 1.5 * HEARTBEAT
"""Seconds between two heartbeats of a lifecycle action at least: every second call sends one, also one that is a little early.

The shortest time-out of an action is 30 s.
"""
_EARLY = 120.0
"""Seconds from the first refusal of a lifecycle action within which it may still begin: a new one is not known at once everywhere."""
_FIRST_RETRY = 5
"""Seconds until a message comes again whose lifecycle action was refused; the pauses double, up to :data:`_HIDDEN`."""
_REMEMBERED = 10_000
"""Interruptions that are done: their messages may be delivered once more."""


class SqsParams(Params):
    """Options of the source sqs."""

    queue: str = Field(
        min_length=1,
        pattern="^https?://",
        description="URL of the queue, for these messages alone.",
    )
    region: str = Field(
        default="", description="Its region. Absent: that in the URL, or else of AWS_REGION."
    )
    endpoint: str = Field(
        default="", description="An address in the place of those of SQS and Auto Scaling."
    )
    others: Literal["leave", "delete"] = Field(
        default="leave",
        description="What becomes of messages that call for nothing here: of machines that are no nodes of the"
        " cluster (their lifecycle actions are continued with delete), and of other events.",
    )
    accounts: tuple[Annotated[str, Field(pattern=r"^\d{12}$")], ...] = Field(
        default=(),
        description="Accounts of AWS whose machines are meant; messages of others are not of this cluster. Absent: that"
        " in the queue's URL.",
    )
    ignore_kinds: IgnoredKinds = IGNORED_KINDS


class SqsSource:
    """A queue of SQS with events of EventBridge and Auto Scaling: Spot, rebalance, state, Health, lifecycle hooks."""

    Params: ClassVar[type[Params]] = SqsParams

    def open(self, params: SqsParams, surroundings: SourceContext) -> SqsReceiver:
        """Return a receiver of the queue's messages."""
        region = (
            params.region
            or region_of_queue(params.queue)
            or region_of_environment(surroundings.environ)
        )
        queue = service("sqs", region, params.endpoint, waits=MAX_RECEIVE)
        groups = service("autoscaling", region, params.endpoint)
        return SqsReceiver(params, surroundings, queue, groups)


@dataclass(slots=True)
class _Held:
    """A received message that is not deleted yet."""

    name: str
    """The message's id, the same at each delivery."""
    receipt: str
    """Of the last delivery."""
    ids: Mapping[str, Hook | None]
    """Of the interruptions that it announces -> the lifecycle action that waits for one."""
    waits_for: set[str]
    """Those that are not done."""
    hidden_until: float
    """Unix seconds."""
    others: bool
    """Whether it also names machines of other clusters, so that it must not be deleted from the queue."""
    hook_heard: float = 0.0
    """Unix seconds of the last heartbeat."""

    @property
    def hooks(self) -> list[Hook]:
        """The lifecycle actions in the message that wait to be completed."""
        return [hook for hook in self.ids.values() if hook is not None]


class SqsReceiver:
    """Receives messages, and deletes them when all of their interruptions are done. Thread-safe except ``receive``."""

    def __init__(
        self, params: SqsParams, surroundings: SourceContext, queue: Any, groups: Any
    ) -> None:
        self._params, self._around = params, surroundings
        self._queue, self._groups = queue, groups
        self._accounts = params.accounts or account_of_queue(params.queue)
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}
        self._done: dict[tuple[str, bool], None] = {}
        """Ids of interruptions, and whether they were cancelled; the latest last."""
        self._named: dict[str, None] = {}
        """Messages that cannot be parsed, and were reported."""
        self._complaints: list[str] = []
        self._timed_out: dict[str, None] = {}
        """Tokens of lifecycle actions that have ended without us."""
        self._refused: dict[str, float] = {}
        """Tokens of lifecycle actions that no call has known yet -> Unix seconds of the first refusal."""
        self._accepted: dict[str, None] = {}
        """Tokens of those that a call has known: a refusal after that is their end."""
        self._let_loose: list[Interruption] = []
        """Messages whose machines are no longer held, and that were not reported."""

    # -- receiving ---------------------------------------------------------------------------------

    def receive(self, stop: Stop) -> Sequence[Interruption]:
        """Wait for messages and return their interruptions, see :meth:`Receiver.receive`."""
        if self._complaints:
            complaints, self._complaints = self._complaints, []
            raise SignalError("; ".join(complaints))
        with self._lock:
            loose, self._let_loose = self._let_loose, []
        return loose or [one for message in self._receive(stop) for one in self._take(message)]

    def _receive(self, stop: Stop) -> Sequence[Mapping[str, Any]]:
        def ask() -> Sequence[Mapping[str, Any]]:
            with asking(f"queue {self._params.queue}: receive messages"):
                answer = self._queue.receive_message(
                    QueueUrl=self._params.queue,
                    MaxNumberOfMessages=_AT_ONCE,
                    WaitTimeSeconds=int(MAX_RECEIVE),
                    VisibilityTimeout=_HIDDEN,
                )
            messages: Sequence[Mapping[str, Any]] = answer.get("Messages", ())
            return messages

        # A long poll cannot be cut off: it is left behind, and what it still gets is for the next receiver.
        try:
            return run_abandonable(ask, stop.reason, self._give_back)
        except CutOffError:
            return ()

    def _give_back(self, messages: Sequence[Mapping[str, Any]]) -> None:
        for message in messages:
            # Not given back, it comes by itself a minute later.
            with suppress(SignalError):
                self._hide(message["ReceiptHandle"], 0)

    def _take(self, message: Mapping[str, Any]) -> list[Interruption]:
        """Return the interruptions in a message; without any, the message is deleted or left in the queue."""
        name, receipt = message["MessageId"], message["ReceiptHandle"]
        try:
            said = parse(message.get("Body", ""))
        except UndecodableError as error:
            self._complain(name, str(error))
            return []
        of_nodes = [
            (event, one) for event in said.events if (one := self._of_node(event)) is not None
        ]
        now, ignored = self._around.unix(), self._params.ignore_kinds
        interruptions = [
            one for event, one in of_nodes if event.kind not in ignored and now < event.over
        ]
        ours = {one.id for one in interruptions}
        # What says nothing to anyone: old messages of our nodes, and kinds that the policy ignores.
        useless = not ours and 0 < len(of_nodes) == len(said.events)
        hooks = {event.id: event.hook for event in said.events}
        if said.is_test or useless or (not ours and self._params.others == "delete"):
            waiting = [hook for hook in hooks.values() if hook is not None]
            self._attempt(lambda: self._finish(receipt, waiting))
            return []
        if not ours:
            return []
        with self._lock:
            undone = [one for one in interruptions if (one.id, one.cancelled) not in self._done]
            before = self._held.get(name)
            held = self._held[name] = _Held(
                name,
                receipt,
                {one: hooks[one] for one in ours},
                {one.id for one in undone},
                self._around.unix() + _HIDDEN,
                others=len(ours) < len(hooks) and self._params.others == "leave",
                hook_heard=0.0 if before is None else before.hook_heard,
            )
        if not undone:
            # All was done before: only the message was left, or was delivered twice.
            self._attempt(lambda: self._let_go(held))
        return undone

    def _of_node(self, event: Event) -> Interruption | None:
        """Return the interruption that an event means for a node of the cluster; None without such a node."""
        node = self._around.nodes.node_of("", "", event.instance)
        if node is None or not self._is_of_its_place(event, node.spec.provider_id):
            return None
        return Interruption(
            id=event.id,
            kind=event.kind,
            source=self._around.name,
            instance=event.instance,
            node=node.metadata.name,
            uid=node.metadata.uid,
            provider_id=node.spec.provider_id,
            deadline=event.deadline,
            until=event.until,
            held=event.hook is not None and event.hook.token not in self._timed_out,
            reason=event.reason,
            cancelled=event.cancelled,
        )

    def _is_of_its_place(self, event: Event, provider_id: str) -> bool:
        """Return whether the event's account and region, if given, match the node's machine."""
        regions = (region_of_node(provider_id) or event.region, "")
        accounts = (*(self._accounts or (event.account,)), "")
        return event.region in regions and event.account in accounts

    def _complain(self, name: str, why: str) -> None:
        """Report a message that cannot be parsed, once; it is not deleted from the queue."""
        if name in self._named:
            return
        self._named[name] = None
        _shorten(self._named)
        self._complaints.append(
            f"queue {self._params.queue}: message {name} cannot be understood and is left there: {quote_value(why)}"
        )

    def _attempt(self, act: Callable[[], None]) -> None:
        """Run a cleanup; a failure is reported with the next call, and retried at the next delivery."""
        try:
            act()
        except SignalError as error:
            self._complaints.append(str(error))

    # -- while it is in work, and at the end -------------------------------------------------------

    def heartbeat(self, interruption: Interruption) -> None:
        """Extend the visibility of the message and the time-out of its hooks."""
        now = self._around.unix()
        with self._lock:
            of_it = [held for held in self._held.values() if interruption.id in held.waits_for]
        for held in of_it:
            # The hook first: without it the machine ends, while a message that is not hidden only comes once more.
            hook = held.ids[interruption.id]
            if hook is not None and now - held.hook_heard >= _HOOK_EVERY:
                self._hold_hook(hook, interruption)
                held.hook_heard = now
            self._stay_hidden(held, interruption, now)

    def _stay_hidden(self, held: _Held, interruption: Interruption, now: float) -> None:
        left = 0.0 if interruption.deadline is None else interruption.deadline - now
        # Where there is much time there need not be many calls, and another process may take over later.
        seconds = int(min(max(left / 10, _HIDDEN), _MAX_HIDDEN))
        if held.hidden_until - now > seconds / 2:
            return
        self._hide(held.receipt, seconds)
        held.hidden_until = now + seconds

    def _hide(self, receipt: str, seconds: int) -> None:
        try:
            with asking(f"queue {self._params.queue}: keep a message hidden"):
                self._queue.change_message_visibility(
                    QueueUrl=self._params.queue, ReceiptHandle=receipt, VisibilityTimeout=seconds
                )
        except SignalError as error:
            # It was hidden too long, 12 hours in all, or is visible already: it is delivered again, and known by its id.
            if not is_refusal(error, "InvalidParameterValue", "MessageNotInflight", *_GONE):
                raise

    def _hold_hook(self, hook: Hook, interruption: Interruption) -> None:
        if hook.token in self._timed_out:
            return
        try:
            with asking(
                f"lifecycle hook {hook.name} of {hook.group}: heartbeat for {hook.instance}"
            ):
                self._groups.record_lifecycle_action_heartbeat(**_action(hook))
        except SignalError as error:
            if not is_refusal(error, "ValidationError"):
                raise
            # It has timed out: the group did not wait. The node is emptied for as long as it is there.
            if self._has_ended(hook):
                with self._lock:
                    self._let_loose.append(replace(interruption, held=False))
        else:
            self._note_accepted(hook)

    def _note_accepted(self, hook: Hook) -> None:
        with self._lock:
            self._accepted[hook.token] = None
            _shorten(self._accepted)
            self._refused.pop(hook.token, None)

    def _has_ended(self, hook: Hook) -> bool:
        """Return whether a lifecycle action that was refused now has ended; it may be too new to be known."""
        with self._lock:
            first = self._refused.setdefault(hook.token, self._around.unix())
            _shorten(self._refused)
            is_new = hook.token not in self._accepted and hook.token not in self._timed_out
            if is_new and self._around.unix() - first < _EARLY:
                return False
            self._timed_out[hook.token] = None
            _shorten(self._timed_out)
            return True

    def done(self, interruption: Interruption, outcome: PipelineOutcome) -> None:  # noqa: ARG002
        """Delete the message and complete its hooks once all of its interruptions are done."""
        with self._lock:
            self._done[interruption.id, interruption.cancelled] = None
            _shorten(self._done)
            of_it = [held for held in self._held.values() if interruption.id in held.ids]
            for held in of_it:
                held.waits_for.discard(interruption.id)
            over = [held for held in of_it if not held.waits_for]
        for held in over:
            self._let_go(held)

    def _let_go(self, held: _Held) -> None:
        if held.others:
            self._continue(held.receipt, held.hooks)
        else:
            self._finish(held.receipt, held.hooks)
        with self._lock:
            self._held.pop(held.name, None)

    def _finish(self, receipt: str, hooks: Iterable[Hook]) -> None:
        """Complete the hooks, then delete the message: a deleted message could not be retried."""
        if not self._continue(receipt, hooks):
            return
        try:
            with asking(f"queue {self._params.queue}: delete a message"):
                self._queue.delete_message(QueueUrl=self._params.queue, ReceiptHandle=receipt)
        except SignalError as error:
            if not is_refusal(error, *_GONE):
                raise

    def _continue(self, receipt: str, hooks: Iterable[Hook]) -> bool:
        """Complete the hooks; return False if one may be too new to be known: the message comes again soon, and it is retried."""
        early = [hook for hook in hooks if not self._complete(hook)]
        if early:
            with self._lock:
                first = min(self._refused.get(hook.token, math.inf) for hook in early)
            waited = int(min(self._around.unix() - first, _HIDDEN))
            self._hide(receipt, max(_FIRST_RETRY, waited))
        return not early

    def _complete(self, hook: Hook) -> bool:
        """Complete a hook; return whether it waits no more: also one that was completed before, or has timed out."""
        try:
            with asking(f"lifecycle hook {hook.name} of {hook.group}: continue {hook.instance}"):
                self._groups.complete_lifecycle_action(
                    **_action(hook), LifecycleActionResult="CONTINUE"
                )
        except SignalError as error:
            if not is_refusal(error, "ValidationError"):
                raise
            return self._has_ended(hook)
        self._note_accepted(hook)
        return True

    def close(self) -> None:
        """Do nothing: there is no open connection."""
        # The clients' connections are shared, and end with the process.


_GONE = ("ReceiptHandleIsInvalid", "AWS.SimpleQueueService.ReceiptHandleIsInvalid")


def _action(hook: Hook) -> dict[str, str]:
    return {
        "AutoScalingGroupName": hook.group,
        "LifecycleHookName": hook.name,
        "LifecycleActionToken": hook.token,
        "InstanceId": hook.instance,
    }


def _shorten(remembered: dict[Any, Any]) -> None:
    while len(remembered) > _REMEMBERED:
        del remembered[next(iter(remembered))]
