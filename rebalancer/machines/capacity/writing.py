"""Read and write the nodes of scale-in one at a time, guarded by the version that was read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.node_pods import read_node_pods
from rebalancer.kube.nodes import NodeChange, NodeView, TaintJson
from rebalancer.machines.drain.draining import list_remaining
from rebalancer.machines.drain.triage import Orders
from rebalancer.node_record.protocol import EXCLUDE, Claims, Write, change_record
from rebalancer.node_record.records import SCALE_INS, is_nobodys, let_go
from rebalancer.signals.notice import NOTICE
from rebalancer.signals.state import STATE, state_in
from rebalancer.snapshot.leaving import DRAIN, KEEPS, LEAVE, LEAVING, is_draining
from rebalancer.wire.marks import SCALE_IN, TAINT, Phase, ScaleInRecord, is_of_open_node, is_written

_ALL = Orders(
    force=True,
    delete_emptydir_data=True,
    ignore_daemonsets=True,
    evict_batch=True,
    evict_gangs=True,
)
"""With the machine every pod goes: only those that belong to the node stay to its end."""
_TAINT = {"key": TAINT.key, "effect": TAINT.effect}


class StateChange(NamedTuple):
    """What became of a change of a node."""

    record: ScaleInRecord | None = None
    """The record that stands on the node now; None: there is none."""
    why_not: str | None = None
    """Why nothing was changed; None: it was."""


def change_state(
    client: Client, name: str, state: ScaleInRecord | None, after: Phase | None
) -> StateChange:
    """Write ``state`` on a node (None: remove it), and close or open the node in the same request.

    It is judged by the newest version of the node, which must be in the phase ``after`` (None: in none), by the guard
    of the phase to come. So of two processes only one ends a machine: a second request could decrease the group again.
    Who has cordoned the node, and its uid, is recorded when it is closed.

    Raises:
        ClusterReadError: the node could not be read or written, or its record has another format version.
    """
    change = StateChange()

    def decide(node: NodeView, _: ScaleInRecord | None) -> Write[ScaleInRecord] | None:
        nonlocal change
        before = _standing(node)
        if before is not None and state is not None and _says_the_same(before, state):
            # A reply to us was lost.
            change = StateChange(before)
            return None
        phase = None if before is None else before.phase
        coming = None if state is None else state.phase
        why = _describe_change(before) if phase is not after else _GUARDS[coming](node, before)
        change = StateChange(before, why)
        if why is not None:
            return None
        if state is None:
            return Write(None, NodeChange() if before is None else _reopen(node, before))
        return _close(node, before, state)

    node = change_record(client, name, SCALE_INS, decide)
    if node is None:
        return StateChange(why_not="the node is gone")
    return change if change.why_not is not None else StateChange(_standing(node))


def clear_state(client: Client, name: str) -> str | None:
    """Remove the scale-in record of a node, and our cordon; return what stays and why, or None.

    A node whose machine is being terminated stays cordoned, because new pods on it would be lost. So does a node of
    which it is unknown who cordoned it.

    Raises:
        ClusterReadError: the node could not be read or written.
    """
    why: str | None = None

    def decide(node: NodeView, _: ScaleInRecord | None) -> Write[ScaleInRecord] | None:
        nonlocal why
        state, why = SCALE_INS.standing(node), None
        if state is not None and state.phase is Phase.ENDING and node.unschedulable:
            why = (
                f"node {name}: the termination of its machine was requested at {state.at}; if it stays,"
                f" kubectl uncordon {name}, and then again"
            )
            return None
        keys = (taint.get("key") for taint in node.taints)
        if state is None and node.unschedulable and is_written(node.annotations, keys):
            why = f"node {name}: it stays cordoned, since it cannot be read whether scale-in did that: kubectl uncordon {name}"
        return Write(None, _reopen(node, state))

    change_record(client, name, SCALE_INS, decide)
    return why


def describe_remaining(
    client: Client,
    name: str,
    *,
    clock: Callable[[], float],
    version: tuple[int, int],
    ready: bool,
) -> str:
    """Describe the pods that still block the termination; empty if all pods are bound to the node.

    On a node that is not ``ready`` no pod ever finishes terminating. That no pod is left is confirmed by a second
    read.

    Raises:
        ClusterReadError: the pods could not be read.
    """
    for _ in range(2):
        left = list_remaining(read_node_pods(client, [name], clock=clock, version=version), _ALL)
        if not ready:
            left = replace(left, terminating=(), unread=())
        if left:
            break
    return left.text()


def _veto(node: NodeView) -> str | None:
    """Return why the machine of a node must stay, or is another process's responsibility; None if nothing forbids it.

    Checked directly before each step that removes something: the run may have read the nodes minutes ago.
    """
    for key, value in KEEPS.items():
        if node.annotations.get(key) == value:
            return f'it is annotated {key}: "{value}"'
    record = state_in(node.annotations, node.uid)
    interrupted = STATE in node.annotations and (record is None or not record.ended)
    at_work = {
        DRAIN: is_draining(node.annotations.get(DRAIN)),
        LEAVE: LEAVE in node.annotations,
        NOTICE: NOTICE in node.annotations,
        STATE: interrupted,
    }
    for key, holds in at_work.items():
        if holds:
            return f"it is annotated {key}"
    taints = (taint.get("key") for taint in node.taints)
    return next((f"it is tainted {key}" for key in taints if key in LEAVING.taints), None)


def _standing(node: NodeView) -> ScaleInRecord | None:
    """Return the scale-in record of a node; None if there is none.

    Raises:
        ClusterReadError: the record is malformed.
    """
    state = SCALE_INS.standing(node)
    text = node.annotations.get(SCALE_IN)
    if state is None and text is not None and not is_of_open_node(text):
        raise ClusterReadError(
            f"node {node.name}: what stands in its annotation {SCALE_IN} cannot be read, and is left as it is; if no newer version of"
            f" this wrote it: rebalancer marks --clear"
        )
    return state


def _says_the_same(before: ScaleInRecord, state: ScaleInRecord) -> bool:
    """Return whether a record is one that we have written, whatever the node owes to it by now."""
    owns = {"uid": before.uid, "cordoned": before.cordoned, "excluded": before.excluded}
    return before == msgspec.structs.replace(state, **owns)


def _describe_change(before: ScaleInRecord | None) -> str:
    if before is None:
        return "another client has taken our annotation away"
    if before.phase is Phase.ENDING:
        return f"{before.by} is ending its machine"
    return "another client has changed what stands on it"


_OPENED = "another client has uncordoned it"


def _may_close(node: NodeView, before: ScaleInRecord | None) -> str | None:
    if before is None:
        return _veto(node)
    # One that was uncordoned meanwhile is not closed again.
    return None if node.unschedulable else _OPENED


def _may_end(node: NodeView, before: ScaleInRecord | None) -> str | None:
    if before is not None and before.uid != node.uid:
        return "another node has come under its name"
    return _veto(node) if node.unschedulable else _OPENED


def _may_open(node: NodeView, before: ScaleInRecord | None) -> str | None:
    # Where people or an announcement want it closed, it is opened once they do not: who cordoned it stays known until then.
    held = before is not None and before.cordoned and is_nobodys(node, SCALE_IN)
    return "something else on it wants it closed" if held else None


_GUARDS: Mapping[Phase | None, Callable[[NodeView, ScaleInRecord | None], str | None]] = {
    Phase.LEAVING: _may_close,
    Phase.ENDING: _may_end,
    None: _may_open,
}
"""Phase to come, None: none -> what says why a node must not enter it; None if it may."""


def _close(
    node: NodeView, before: ScaleInRecord | None, state: ScaleInRecord
) -> Write[ScaleInRecord]:
    if before is not None:
        # It is closed; what was handed over to it meanwhile stays its own.
        owns = {"uid": before.uid, "cordoned": before.cordoned, "excluded": before.excluded}
        return Write(msgspec.structs.replace(state, **owns))
    fresh = msgspec.structs.replace(state, uid=node.uid, cordoned=False, excluded=False)
    labels = {EXCLUDE: "true"} if EXCLUDE not in node.labels else {}
    taints = (*_without_taint(node), _TAINT)
    return Write(fresh, NodeChange(unschedulable=True, taints=taints, labels=labels))


def _reopen(node: NodeView, state: ScaleInRecord | None) -> NodeChange:
    """Return the change that ends the scale-in of a node: no taint, and no cordon if it is ours alone."""
    owns = Claims() if state is None else SCALE_INS.entry(state).owns
    return replace(let_go(node, SCALE_IN, owns), taints=_without_taint(node))


def _without_taint(node: NodeView) -> tuple[TaintJson, ...]:
    return tuple(taint for taint in node.taints if taint.get("key") != SCALE_IN)
