"""The records of components that cordon nodes: a drain, a replacement, scale-in, an interruption.

A node has one cordon, which does not name its owner; the same is true of the label that removes the node from load
balancers. The record of each of our components stores whether it set them. A component that releases a node which
another component wants cordoned hands them over to that component, in the same write; so the last component uncordons
the node. If people want the node empty (``rebalancer/leave``, taints, notices) it is not uncordoned, and a cordon or
label set by people is never removed.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from rebalancer.kube.client import Client
from rebalancer.kube.nodes import NodeChange, NodeView
from rebalancer.node_record.protocol import (
    EXCLUDE,
    Claims,
    Form,
    NodeTask,
    TaskPhase,
    Write,
    change_record,
)
from rebalancer.signals.notice import NOTICE
from rebalancer.signals.state import STATE, PipelineState
from rebalancer.signals.state import encode_state as state_written
from rebalancer.signals.state import read as state_read
from rebalancer.snapshot.leaving import DRAIN, LEAVE, LEAVING
from rebalancer.wire.marks import SCALE_IN, Phase, ScaleInRecord
from rebalancer.wire.times import rfc3339

CORDON, EXCLUDES = "cordon", "exclude"
"""The steps of an interruption that close the node, by their names in the policy."""
OURS = "ours"
"""The text that these steps keep if they made the change themselves."""
T = TypeVar("T", bound=msgspec.Struct)


class ReplacePhase(enum.StrEnum):
    """The phase of a node's replacement."""

    WAITING = "waiting"
    """Cordoned, and its turn has not come."""
    EMPTYING = "emptying"
    EMPTY = "empty"
    REMOVING = "removing"
    """The command that removes the machine was called, and has not confirmed it."""
    DONE = "done"


BUSY = frozenset({ReplacePhase.EMPTYING, ReplacePhase.EMPTY, ReplacePhase.REMOVING})
"""Phases of nodes that count as unavailable."""


class Stage(msgspec.Struct, frozen=True):
    """How far the replacement of a node is."""

    phase: ReplacePhase
    by: str
    """The process that has brought it there."""
    at: float
    """Start of the stage, in Unix seconds."""
    uid: str = ""
    """Uid of the Node."""


class Order(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of the annotation ``rebalancer/drain``, from which the next drain or replacement continues."""

    by: str
    """The process that drains: its pod, or host and number."""
    why: str
    at: str
    """RFC 3339 time since when."""
    uid: str = ""
    """Of the Node: on another Node with the same name the record is ignored."""
    until: str = ""
    """RFC 3339 time of the deadline; empty: none."""
    cordoned: bool = False
    """Whether a drain has cordoned the node, and not another client before it."""
    ended: bool = False
    """The drain gave up, cleanly: the next one starts from the beginning."""
    replaces: bool = False
    """Whether the machine is to be replaced when its turn comes."""
    excludes: bool = False
    """Whether load balancers are to leave the node out for as long as it is closed."""
    excluded: bool = False
    """Whether a drain has labelled it so, and not another client before it."""
    empty: bool = False
    """The drain has ended because the node is empty; what the record owns must still be removed when the node is opened."""
    stage: Stage | None = None
    """How far the replacement is; None: there is none, or its turn has not come."""


_OF_STAGES = {
    ReplacePhase.WAITING: TaskPhase.WAITING,
    ReplacePhase.EMPTYING: TaskPhase.EMPTYING,
    ReplacePhase.EMPTY: TaskPhase.EMPTY,
    ReplacePhase.REMOVING: TaskPhase.ENDING,
    ReplacePhase.DONE: TaskPhase.DONE,
}


def _phase_of_order(order: Order) -> TaskPhase:
    stage = TaskPhase.WAITING if order.stage is None else _OF_STAGES[order.stage.phase]
    if order.ended and stage not in (TaskPhase.ENDING, TaskPhase.DONE):
        return TaskPhase.EMPTY if order.empty else TaskPhase.OVER
    return TaskPhase.EMPTYING if stage is TaskPhase.WAITING and not order.replaces else stage


def _task_of_order(order: Order) -> NodeTask:
    wants = Claims(cordon=True, exclude=order.excludes)
    stage, phase = order.stage, _phase_of_order(order)
    if stage is not None and stage.phase is ReplacePhase.WAITING:
        stage = None
    by = order.by if stage is None else stage.by
    ends = stage is not None or (order.replaces and not order.ended)
    return NodeTask(by, order.why, order.until, order.uid, wants, _claims_of(order), phase, ends)


def _task_of_scale_in(state: ScaleInRecord) -> NodeTask:
    # Load balancers leave the node out for as long as it goes.
    wants, phase = Claims(cordon=True, exclude=True), TaskPhase.ENDING
    if state.phase is Phase.LEAVING:
        phase = TaskPhase.EMPTY if state.empty else TaskPhase.EMPTYING
    why = state.why or state.phase
    return NodeTask(state.by, why, "", state.uid, wants, _claims_of(state), phase, ends=True)


def _claims_of(record: Order | ScaleInRecord) -> Claims:
    return Claims(cordon=record.cordoned, exclude=record.excluded)


_EMPTYING_STEPS = ("leave", "escalate")
"""The steps of an interruption that move pods, by their names in the policy."""


def _phase_of_state(state: PipelineState) -> TaskPhase | None:
    if not (state.begun and state.causes and (state.steps or not state.ended)):
        return None  # nothing stands, or it was withdrawn
    steps = state.steps.items()
    moved = [step for name, step in steps if name.partition("-")[0] in _EMPTYING_STEPS]
    if moved and moved[-1].outcome.is_good:
        return TaskPhase.EMPTY
    return TaskPhase.EMPTYING if moved and not state.ended else TaskPhase.WAITING


def _task_of_state(state: PipelineState) -> NodeTask:
    wants = Claims(CORDON in state.steps, EXCLUDES in state.steps)
    owns = Claims(*(_is_kept(state, step) for step in (CORDON, EXCLUDES)))
    by = why = until = ""
    if state.causes:
        cause = state.causes[0]
        by, why = cause.source, cause.reason or cause.kind
        until = "" if cause.deadline is None else rfc3339(cause.deadline)
    return NodeTask(by, why, until, state.uid, wants, owns, _phase_of_state(state), ends=True)


def _is_kept(state: PipelineState, step: str) -> bool:
    return step in state.steps and state.steps[step].left == OURS


C = TypeVar("C", Order, ScaleInRecord)


def claiming(record: C, claims: Claims) -> C:
    """Return a record that owns exactly these claims."""
    return msgspec.structs.replace(record, cordoned=claims.cordon, excluded=claims.exclude)


def _owning(record: C, claims: Claims) -> C:
    return msgspec.structs.replace(
        record,
        cordoned=record.cordoned or claims.cordon,
        excluded=record.excluded or claims.exclude,
    )


def _owning_state(state: PipelineState, claims: Claims) -> PipelineState:
    steps = dict(state.steps)
    for step, made in ((CORDON, claims.cordon), (EXCLUDES, claims.exclude)):
        if made and step in steps:
            steps[step] = msgspec.structs.replace(steps[step], left=OURS)
    return msgspec.structs.replace(state, steps=steps)


def _decode(text: str, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(text, type=kind)
    except (ValueError, RecursionError):
        return None


def _encode(record: msgspec.Struct) -> str:
    return msgspec.json.encode(record).decode()


def _join_stage(order: Order | None, text: str) -> Order | None:
    """Return the record with a stage that the version before wrote beside it."""
    stage = _decode(text, Stage)
    if stage is None or (order is not None and order.uid != stage.uid):
        return order
    return at_stage(order, stage) if order is None or order.stage is None else order


def at_stage(standing: Order | None, stage: Stage) -> Order:
    """Return the record with a stage; if there is no record any more, a new one that owns nothing."""
    lost = Order(stage.by, "it is replaced", rfc3339(stage.at), stage.uid, ended=True, empty=True)
    return msgspec.structs.replace(standing or lost, stage=stage)


DRAINS = Form(
    DRAIN,
    lambda text: _decode(text, Order),
    _encode,
    _task_of_order,
    _owning,
    former="rebalancer/replace",
    join=_join_stage,
)
SCALE_INS = Form(
    SCALE_IN,
    lambda text: _decode(text, ScaleInRecord),
    _encode,
    _task_of_scale_in,
    _owning,
)
INTERRUPTIONS = Form(STATE, state_read, state_written, _task_of_state, _owning_state)
CLOSING: tuple[Form[Any], ...] = (DRAINS, INTERRUPTIONS, SCALE_INS)
"""The components that cordon nodes: what one of them releases is handed to the first that wants it."""


_WISHES = frozenset({DRAIN, LEAVE, NOTICE, STATE})
"""Annotations that want a node closed, whatever they say."""


def let_go(node: NodeView, holder: str, claims: Claims) -> NodeChange:
    """Return the change by which ``holder`` releases its claims: each is undone, handed over, or left as people want it.

    ``holder``: the annotation of the component; this annotation itself is not changed here. ``claims``: which parts
    to release.
    """
    cordon, label = NodeChange(), NodeChange()
    if claims.cordon and node.unschedulable:
        cordon = _hand_over(node, holder, Claims(cordon=True))
        opens = cordon == NodeChange() and not is_wanted_closed(node, holder)
        cordon = NodeChange(unschedulable=False) if opens else cordon
    if claims.exclude and EXCLUDE in node.labels:
        label = _hand_over(_with(node, cordon), holder, Claims(exclude=True))
        label = label if label != NodeChange() else NodeChange(labels={EXCLUDE: None})
    return NodeChange(
        unschedulable=cordon.unschedulable,
        annotations={**cordon.annotations, **label.annotations},
        labels=label.labels,
    )


def is_nobodys(node: NodeView, holder: str) -> bool:
    """Return whether the cordon would have no owner if ``holder`` gave it up: others want it, but cannot uncordon later."""
    handed = _hand_over(node, holder, Claims(cordon=True))
    return node.unschedulable and handed == NodeChange() and is_wanted_closed(node, holder)


def is_handed_over(node: NodeView, claims: Claims) -> bool:
    """Return whether the record of the node's interruption contains all of these claims."""
    state = INTERRUPTIONS.read(node)
    if state is None:
        return False
    owns = INTERRUPTIONS.task(state).owns
    return owns.cordon >= claims.cordon and owns.exclude >= claims.exclude


def is_wanted_closed(node: NodeView, holder: str) -> bool:
    """Return whether something that cannot uncordon the node later wants it cordoned.

    Such a claim does not show in the cordon if the node was cordoned already.
    """
    # What announced the machine was withdrawn; the step leave takes its own annotation away by itself.
    keys = _WISHES - {holder} - ({NOTICE} if holder == STATE else set())
    taints = (taint.get("key") for taint in node.taints)
    return any(key in node.annotations for key in keys) or any(
        key in LEAVING.taints for key in taints
    )


def _hand_over(node: NodeView, holder: str, claims: Claims) -> NodeChange:
    """Return the change that makes another component own these claims; an empty change if none can.

    The other component must want them, and be able to undo them later.
    """
    return next(
        (NodeChange(annotations=heir) for heir in _heirs(node, holder, claims)), NodeChange()
    )


def _heirs(node: NodeView, holder: str, claims: Claims) -> Iterator[dict[str, str]]:
    for form in CLOSING:
        record = form.read(node)
        if record is None or form.key == holder:
            continue
        task = form.task(record)
        if task.uid == node.uid and _covers(task.wants, claims):
            yield {form.key: form.encode(form.owning(record, claims))}


def _covers(wants: Claims, claims: Claims) -> bool:
    return wants.cordon >= claims.cordon and wants.exclude >= claims.exclude


def _with(node: NodeView, change: NodeChange) -> NodeView:
    """Return the node with the annotations of ``change``, so that a second change of one record keeps the first."""
    annotations = {**node.annotations}
    annotations.update({key: text for key, text in change.annotations.items() if text is not None})
    return replace(node, annotations=annotations)


def take_back_label(client: Client, name: str) -> None:
    """Remove the label of a drain that has ended, and its record, from the Node ``name`` if that is not cordoned.

    A label that another of our components wants is handed over; a label that existed before the drain is kept.

    Raises:
        ClusterReadError: the node could not be read or written.
    """

    def decide(node: NodeView, order: Order | None) -> Write[Order] | None:
        if node.unschedulable or order is None or not (order.ended and order.excluded):
            return None
        left = None if order.stage is None else msgspec.structs.replace(order, excluded=False)
        return Write(left, let_go(node, DRAINS.key, Claims(exclude=True)))

    change_record(client, name, DRAINS, decide)


def empty_record(order: Order) -> Order:
    """Return the record of a drain that has emptied its node."""
    return msgspec.structs.replace(order, ended=True, empty=True)


def stage_of(order: Order | None) -> Stage | None:
    """Return how far the replacement of a node is, by its record; None if there is none."""
    return None if order is None else order.stage
