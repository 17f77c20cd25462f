"""Show the records on a node to other clients, by the node lifecycle conditions (KEP-5683).

The conditions are computed from the records alone: any process, after any kill, brings them to the same state. They are
never read back, with one exception: that a drain has emptied the node outlasts its record, until the node is uncordoned.

===========================  ==========================================================================
MaintenancePlanned           the machine will end: announced, being replaced, or removed by scale-in
DrainInProgress              its pods are being moved
Drained                      they have left, and the node is closed
MaintenanceInProgress        the end of its machine was requested, or may come at any time
===========================  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from rebalancer.base.errors import ClusterReadError
from rebalancer.base.plain_text import printable
from rebalancer.kube.client import Client
from rebalancer.kube.failures import ForbiddenError
from rebalancer.kube.nodes import ConditionJson, NodeView, change_conditions
from rebalancer.node_record.protocol import TaskPhase
from rebalancer.node_record.records import (
    DRAINS,
    INTERRUPTIONS,
    SCALE_INS,
    Order,
    ReplacePhase,
    empty_record,
)
from rebalancer.node_record.tasks import conditions_of
from rebalancer.signals.state import PipelineState
from rebalancer.snapshot.leaving import DRAIN
from rebalancer.wire.marks import Lifecycle, LifecycleReason, is_ours
from rebalancer.wire.times import rfc3339, unix_seconds

_MAX_MESSAGE = 500
"""Characters: the reason of an order may be any text."""
_HEARTBEAT = 240.0
"""Seconds after which a condition that is still true is confirmed; the kubelet confirms its own every five minutes."""


class DueCondition(NamedTuple):
    """A condition that is due, with the status True."""

    type: Lifecycle
    reason: LifecycleReason
    message: str


def conditions_due(node: NodeView, now: float) -> list[DueCondition]:
    """Return the conditions that the records on a node call for at ``now`` (Unix seconds), a drain's first.

    A node that one component has emptied is not drained while another one still moves pods.
    """
    due = [*_of_drain(node), *_of_interruption(node, now), *_of_scale_in(node)]
    draining = any(one.type is Lifecycle.DRAINING for one in due)
    return [one for one in due if not (draining and one.type is Lifecycle.DRAINED)]


def _of_drain(node: NodeView) -> Iterator[DueCondition]:
    order = DRAINS.read(node)
    if order is None or not node.unschedulable:
        return
    task = DRAINS.task(order)
    reason = LifecycleReason.REPLACEMENT if task.ends else LifecycleReason.DRAIN
    message = _describe_order(order, task.phase)
    yield from (DueCondition(one, reason, message) for one in conditions_of(task))


def _describe_order(order: Order, phase: TaskPhase | None) -> str:
    stage = order.stage
    if stage is not None and stage.phase is not ReplacePhase.WAITING:
        return f"replaced by {stage.by}: {stage.phase} since {rfc3339(stage.at)}"
    what: dict[TaskPhase | None, str] = {
        TaskPhase.WAITING: "replaced",
        TaskPhase.EMPTY: "emptied",
    }
    return f"{what.get(phase, 'drained')} by {order.by} since {order.at}: {order.why}"


def _of_interruption(node: NodeView, now: float) -> Iterator[DueCondition]:
    state = INTERRUPTIONS.read(node)
    if state is None:
        return
    goes = state.ended and any(
        one.held or one.deadline is None or one.deadline <= now for one in state.causes
    )
    for one in conditions_of(INTERRUPTIONS.task(state)):
        shown = Lifecycle.MAINTAINED if goes and one is Lifecycle.PLANNED else one
        yield DueCondition(shown, LifecycleReason.INTERRUPTION, _describe_cause(state))


def _describe_cause(state: PipelineState) -> str:
    first = min(state.causes, key=lambda one: one.deadline or float("inf"))
    when = "" if first.deadline is None else f", goes at {rfc3339(first.deadline)}"
    why = f": {first.reason}" if first.reason else ""
    return f"{first.kind}, announced by {first.source}{when}{why}"


def _of_scale_in(node: NodeView) -> Iterator[DueCondition]:
    state = SCALE_INS.read(node)
    if state is None or not node.unschedulable:
        return
    message = f"removed from its group by {state.by}: unneeded since {state.since}"
    for one in conditions_of(SCALE_INS.task(state)):
        yield DueCondition(one, LifecycleReason.SCALE_IN, message)


def _after_drain(node: NodeView, by: str, now: float) -> list[DueCondition] | None:
    """Return what is due once the drain ``by`` has emptied a node and taken its record away; None if it is not its."""
    order = DRAINS.read(node)
    if order is None or order.ended or order.by != by:
        return None
    left = {key: text for key, text in node.annotations.items() if key != DRAIN}
    if order.stage is not None:
        left[DRAIN] = DRAINS.encode(empty_record(order))
    due = conditions_due(replace(node, annotations=left), now)
    if node.unschedulable and not any(one.type in _OF_DRAINS for one in due):
        message = f"emptied by {by} at {rfc3339(now)}: {order.why}"
        due.append(DueCondition(Lifecycle.DRAINED, LifecycleReason.DRAIN, message))
    return due


_OF_DRAINS = (Lifecycle.DRAINING, Lifecycle.DRAINED)


class _Standing(NamedTuple):
    status: str
    reason: str
    heartbeat: float
    """Unix seconds."""

    @classmethod
    def of(cls, node: NodeView, type_: str) -> _Standing | None:
        """Return the condition of a type; None if the node has none."""
        for one in node.conditions:
            if one.get("type") == type_:
                heartbeat = unix_seconds(one.get("lastHeartbeatTime"))
                return cls(str(one.get("status")), str(one.get("reason", "")), heartbeat)
        return None


def _change(
    type_: Lifecycle, standing: _Standing | None, due: Sequence[DueCondition], now: float
) -> ConditionJson | None:
    """Return the patch of one condition, which nobody else has set; None if it is as it should be."""
    holds = standing is not None and standing.status == "True"
    if not due:
        return None if standing is None else {"$patch": "delete", "type": type_.value}
    at = rfc3339(now)
    if holds and standing is not None and any(one.reason == standing.reason for one in due):
        # Who was first stays named, until what it does has ended.
        old = abs(now - standing.heartbeat) > _HEARTBEAT
        return {"type": type_.value, "lastHeartbeatTime": at} if old else None
    first = due[0]
    change: dict[str, Any] = {
        "type": type_.value,
        "status": "True",
        "reason": first.reason.value,
        "message": printable(first.message)[:_MAX_MESSAGE],
        "lastHeartbeatTime": at,
    }
    return change if holds else {**change, "lastTransitionTime": at}


@dataclass(slots=True)
class NodeConditions:
    """Writes the conditions; a failure is a warning, and ends nothing. Thread-safe.

    A condition of one of these types that somebody else has set, by whatever status, is left as it is: its writer may
    set it again at any time, and two of them would overwrite each other for ever.
    """

    on: bool
    """Whether the policy, or a flag, enables them; else nothing is read or written."""
    unix: Callable[[], float]
    """Returns the time in Unix seconds."""
    warn: Callable[[str], None]
    _said: set[str] = field(default_factory=set)
    """Warnings that were given: each once."""
    _denied: bool = False

    def show(self, client: Client, name: str, *, emptied_by: str = "") -> None:
        """Set the conditions of the Node ``name`` according to its records.

        ``emptied_by``: the drain that has just emptied the node, and removes its record next. The node gets the condition
        Drained then, unless another drain has taken it over.
        """
        if not self.on or self._denied:
            return
        try:
            change_conditions(client, name, lambda node: self._changes(node, emptied_by))
        except ForbiddenError as error:
            self._denied = True
            self._warn(f"conditions are not set on nodes: {error}")
        except ClusterReadError as error:
            if client.stop.reason() is None:
                self._warn(f"the conditions of node {name} could not be set: {error}")

    def _changes(self, node: NodeView, emptied_by: str) -> list[ConditionJson]:
        now = self.unix()
        due = _after_drain(node, emptied_by, now) if emptied_by else None
        if due is None:
            due = conditions_due(node, now)
        by_type: Mapping[Lifecycle, list[DueCondition]] = {
            type_: [one for one in due if one.type is type_] for type_ in Lifecycle
        }
        changes: list[ConditionJson] = []
        for type_, wanted in by_type.items():
            standing = _Standing.of(node, type_)
            if standing is not None and not is_ours(type_, standing.reason):
                self._note_foreign(node.name, type_, standing, wanted)
            elif not (type_ is Lifecycle.DRAINED and _stays_drained(node, standing, by_type)):
                change = _change(type_, standing, wanted, now)
                changes += [] if change is None else [change]
        return changes

    def _note_foreign(
        self, node: str, type_: Lifecycle, standing: _Standing, wanted: Sequence[DueCondition]
    ) -> None:
        if wanted:
            self._warn(
                f"node {node}: its condition {type_} ({standing.status}, {printable(standing.reason) or 'no reason'})"
                " is somebody else's, and stays as it is"
            )

    def _warn(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self.warn(text)


def _stays_drained(
    node: NodeView, standing: _Standing | None, due: Mapping[Lifecycle, Sequence[DueCondition]]
) -> bool:
    """Return whether a drain has emptied the node, taken its record away, and nothing has happened since."""
    return (
        standing is not None
        and (standing.status, standing.reason) == ("True", LifecycleReason.DRAIN)
        and node.unschedulable
        and not due[Lifecycle.DRAINED]
        and not due[Lifecycle.DRAINING]
        and DRAINS.read(node) is None
    )
