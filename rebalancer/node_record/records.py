"""The records of components that cordon nodes: a drain, a replacement, scale-in, an interruption."""

from __future__ import annotations

import enum
from typing import Any, TypeVar

import msgspec

from rebalancer.node_record.protocol import Claims, Entry, Form
from rebalancer.signals.state import STATE, State
from rebalancer.signals.state import read as state_read
from rebalancer.signals.state import written as state_written
from rebalancer.snapshot.leaving import DRAIN
from rebalancer.wire.scale_in import GOING, ScaleIn
from rebalancer.wire.scale_in import KEY as SCALE_IN
from rebalancer.wire.times import rfc3339

STAGE = "rebalancer/replace"
"""Annotation of a node that is being replaced."""
CORDON, EXCLUDES = "cordon", "exclude"
"""The steps of an interruption that close the node, by their names in the policy."""
OURS = "ours"
"""What these steps keep if the change was their own."""
_CLOSES = Claims(cordon=True)
T = TypeVar("T", bound=msgspec.Struct)


class Order(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of the annotation ``rebalancer/drain``, from which the next drain continues."""

    by: str
    """The process that drains: its pod, or host and number."""
    why: str
    at: str
    """RFC 3339 time since when."""
    uid: str = ""
    """Of the Node: written on another one of its name, nothing of this holds."""
    until: str = ""
    """RFC 3339 time of the deadline; empty: none."""
    cordoned: bool = False
    """Whether a drain has cordoned the node, and not another client before it."""
    ended: bool = False
    """The drain gave up, cleanly: the next one starts from the beginning."""


class ReplacePhase(enum.StrEnum):
    """The phase of a node's replacement."""

    WAITING = "waiting"
    """Cordoned, and its turn has not come."""
    EMPTYING = "emptying"
    EMPTY = "empty"
    REMOVING = "removing"
    """What removes the machine was called, and has not said that it did."""
    DONE = "done"


BUSY = frozenset({ReplacePhase.EMPTYING, ReplacePhase.EMPTY, ReplacePhase.REMOVING})
"""Phases of nodes that count as unavailable."""


class Stage(msgspec.Struct, frozen=True):
    """The content of the annotation ``rebalancer/replace``; the drain's record holds the cordon."""

    phase: ReplacePhase
    by: str
    """The process that has brought it there."""
    at: float
    """Unix seconds."""
    uid: str = ""
    """Of the Node: written on another one of its name, it counts for nothing."""


def _order_entry(order: Order) -> Entry:
    owns = Claims(cordon=order.cordoned)
    return Entry(order.by, order.why, order.until, order.uid, _CLOSES, owns)


def _stage_entry(stage: Stage) -> Entry:
    return Entry(stage.by, f"it is replaced: {stage.phase}", uid=stage.uid)


def _scale_in_entry(state: ScaleIn) -> Entry:
    if state.phase not in GOING:
        return Entry(state.by, state.why or state.phase, uid=state.uid)
    owns = Claims(cordon=state.cordoned, exclude=state.excluded)
    # Load balancers leave the node out for as long as it goes.
    wants = Claims(cordon=True, exclude=True)
    return Entry(state.by, state.why or state.phase, "", state.uid, wants, owns)


def _state_entry(state: State) -> Entry:
    cause = state.causes[0] if state.causes else None
    wants = Claims(CORDON in state.steps, EXCLUDES in state.steps)
    owns = Claims(*(_is_kept(state, step) for step in (CORDON, EXCLUDES)))
    if cause is None:
        return Entry("", uid=state.uid, wants=wants, owns=owns)
    until = "" if cause.deadline is None else rfc3339(cause.deadline)
    return Entry(cause.source, cause.reason or cause.kind, until, state.uid, wants, owns)


def _is_kept(state: State, step: str) -> bool:
    return step in state.steps and state.steps[step].left == OURS


def _owning_order(order: Order, claims: Claims) -> Order:
    return msgspec.structs.replace(order, cordoned=order.cordoned or claims.cordon)


def _owning_scale_in(state: ScaleIn, claims: Claims) -> ScaleIn:
    return msgspec.structs.replace(
        state,
        cordoned=state.cordoned or claims.cordon,
        excluded=state.excluded or claims.exclude,
    )


def _owning_state(state: State, claims: Claims) -> State:
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


DRAINS = Form(DRAIN, lambda text: _decode(text, Order), _encode, _order_entry, _owning_order)
STAGES = Form(
    STAGE, lambda text: _decode(text, Stage), _encode, _stage_entry, lambda stage, _: stage
)
SCALE_INS = Form(
    SCALE_IN,
    lambda text: _decode(text, ScaleIn),
    _encode,
    _scale_in_entry,
    _owning_scale_in,
)
INTERRUPTIONS = Form(STATE, state_read, state_written, _state_entry, _owning_state)
CLOSING: tuple[Form[Any], ...] = (DRAINS, INTERRUPTIONS, SCALE_INS)
"""Those who close nodes: what one lets go, the first that wants it gets."""
