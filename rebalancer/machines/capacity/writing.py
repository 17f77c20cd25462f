"""Read and write the nodes of scale-in one at a time, guarded by the version that was read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

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


def write_state(
    client: Client, name: str, state: ScaleInRecord | None, after: Phase | None
) -> ScaleInRecord | None:
    """Write ``state`` on a node (None: remove it), and cordon or uncordon the node in the same request.

    Return the state that was written (for None the removed one). None is returned if the node is gone, is no longer
    in the phase ``after`` (None: in none), or must not be cordoned. ``leaving`` records who cordoned the node, and
    its uid.

    Raises:
        ClusterReadError: the node could not be read or written, or its record has another format version.
    """
    before: ScaleInRecord | None = None
    written = False

    def decide(node: NodeView, _: ScaleInRecord | None) -> Write[ScaleInRecord] | None:
        nonlocal before, written
        before, written = _standing(node), False
        phase = None if before is None else before.phase
        if phase is not None and state is not None and phase is state.phase is not after:
            # A reply to us was lost.
            written = True
            return None
        if phase is not after or _is_refused(node, before, state):
            return None
        written = True
        if state is not None:
            return _close(node, before, state)
        return Write(None, NodeChange() if before is None else _reopen(node, before))

    node = change_record(client, name, SCALE_INS, decide)
    if node is None or not written:
        return None
    return before if state is None else _standing(node)


def enter_ending(client: Client, name: str, state: ScaleInRecord) -> str | None:
    """Record that the machine of a node is about to be terminated; return why it must not be, or None.

    Only one of two concurrent processes gets None: a second request could decrease the group again.

    Raises:
        ClusterReadError: the node could not be read or written.
    """
    why: str | None = None

    def decide(node: NodeView, _: ScaleInRecord | None) -> Write[ScaleInRecord] | None:
        nonlocal why
        before = SCALE_INS.standing(node)
        why = _not_ours(node, before)
        if why is None and before is not None and before.phase is Phase.ENDING:
            # A reply to us was lost, or another process was faster.
            ours = (before.at, before.by) == (state.at, state.by)
            why = None if ours else f"{before.by} is ending its machine"
            return None
        if why is not None or before is None:
            return None
        return Write(msgspec.structs.replace(before, phase=Phase.ENDING, at=state.at, by=state.by))

    return why if change_record(client, name, SCALE_INS, decide) is not None else "the node is gone"


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


def _not_ours(node: NodeView, state: ScaleInRecord | None) -> str | None:
    if state is None:
        return "another client has taken our annotation away"
    if state.uid != node.uid:
        return "another node has come under its name"
    if not node.unschedulable:
        return "another client has uncordoned it"
    return _veto(node)


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


def _is_refused(node: NodeView, before: ScaleInRecord | None, state: ScaleInRecord | None) -> bool:
    """Return whether a node must not be changed: it must stay open, or its cordon would have no owner."""
    if state is not None:
        # One that was uncordoned meanwhile is not closed again.
        return _veto(node) is not None if before is None else not node.unschedulable
    # Where people or an announcement want it closed, it is opened once they do not: who cordoned it stays known until then.
    return before is not None and before.cordoned and is_nobodys(node, SCALE_IN)


def _close(
    node: NodeView, before: ScaleInRecord | None, state: ScaleInRecord
) -> Write[ScaleInRecord]:
    labels = {EXCLUDE: "true"} if before is None and EXCLUDE not in node.labels else {}
    taints = (*_without_taint(node), _TAINT)
    if before is None:
        state = msgspec.structs.replace(state, uid=node.uid, cordoned=False, excluded=False)
    return Write(state, NodeChange(unschedulable=True, taints=taints, labels=labels))


def _reopen(node: NodeView, state: ScaleInRecord | None) -> NodeChange:
    """Return the change that ends the scale-in of a node: no taint, and no cordon if it is ours alone."""
    owns = Claims() if state is None else SCALE_INS.entry(state).owns
    return replace(let_go(node, SCALE_IN, owns), taints=_without_taint(node))


def _without_taint(node: NodeView) -> tuple[TaintJson, ...]:
    return tuple(taint for taint in node.taints if taint.get("key") != SCALE_IN)
