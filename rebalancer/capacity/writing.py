"""The nodes of the cluster as scale-in reads and writes them: one at a time, on the version that was read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.base.plain_text import and_more
from rebalancer.kube.client import Client
from rebalancer.kube.node_pods import read_node_pods
from rebalancer.kube.nodes import NodeChange, NodeView, change_node, read_node
from rebalancer.node_record.cordons import open_or_hand_over
from rebalancer.nodes.draining import left_of
from rebalancer.nodes.triage import Orders
from rebalancer.signals.notice import NOTICE
from rebalancer.signals.state import STATE, state_in
from rebalancer.snapshot.leaving import DRAIN, EXCLUDE, KEEPS, LEAVE, LEAVING, is_draining
from rebalancer.wire.scale_in import GOING, KEY, TAINT, Phase, ScaleIn, is_written, scale_in_of

_ALL = Orders(
    force=True,
    delete_emptydir_data=True,
    ignore_daemonsets=True,
    evict_batch=True,
    evict_gangs=True,
)
"""With the machine every pod goes: only those that belong to the node stay to its end."""
_DELAYS = "delay-deletion.cluster-autoscaler.kubernetes.io/"
"""How the annotations begin by which clients delay the end of a machine (Cluster Autoscaler's FAQ)."""
_TAINT = {"key": TAINT.key, "effect": TAINT.effect}


def write_state(
    client: Client, name: str, state: ScaleIn | None, after: Phase | None
) -> ScaleIn | None:
    """Have ``state`` stand on a node, None: nothing; and close or open the node with the same write.

    Return what was written, for None what stood there; None if the node is gone, not at the phase ``after`` any more (None:
    at none), or to be closed while something says that it stays. Who cordoned the node, and which Node it was, is noted in ``leaving``.

    Raises:
        ClusterReadError: it could not be read or written, or what stands there is of another version.
    """
    written: ScaleIn | None = None

    def wanted(node: NodeView) -> NodeChange | None:
        nonlocal written
        before = scale_in_of(node.annotations)
        if before is None and KEY in node.annotations:
            raise ClusterReadError(
                f"node {name}: what stands in its annotation {KEY} cannot be read, and is left as it is; if no newer version of"
                f" this wrote it: rebalancer marks --clear"
            )
        phase = None if before is None else before.phase
        if phase is not None and state is not None and phase is state.phase is not after:
            # A reply to us was lost.
            written = before
            return None
        if phase is not after:
            written = None
            return None
        fresh = before is None or before.phase not in GOING
        if fresh and state is not None and state.phase is Phase.LEAVING and _veto(node) is not None:
            written = None
            return None
        if not fresh and state is not None and state.phase in GOING and not node.unschedulable:
            written = None
            return None
        written = (_with_node(state, node) if fresh else state) if state is not None else before
        value = None if state is None or written is None else written.value
        annotations = {KEY: value}
        if state is not None and state.phase in GOING:
            labels = {EXCLUDE: "true"} if fresh and EXCLUDE not in node.labels else {}
            return NodeChange(
                unschedulable=True, annotations=annotations, taints=_closed(node), labels=labels
            )
        if before is None or before.phase not in GOING:
            return NodeChange(annotations=annotations)
        return _opened(node, before, value)

    return None if change_node(client, name, wanted) is None else written


def enter_ending(client: Client, name: str, state: ScaleIn) -> str | None:
    """Note that the machine of a node is about to be ended; return why it must not be, None once it is noted.

    Of two processes one alone gets None: a second request could make the group smaller a second time.

    Raises:
        ClusterReadError: it could not be read or written.
    """
    why: str | None = None

    def wanted(node: NodeView) -> NodeChange | None:
        nonlocal why
        before = scale_in_of(node.annotations)
        why = _not_ours(node, before)
        if why is None and before is not None and before.phase is Phase.ENDING:
            # A reply to us was lost, or another process was faster.
            ours = (before.at, before.by) == (state.at, state.by)
            why = None if ours else f"{before.by} is ending its machine"
            return None
        if why is not None or before is None:
            return None
        ending = msgspec.structs.replace(before, phase=Phase.ENDING, at=state.at, by=state.by)
        return NodeChange(annotations={KEY: ending.value})

    return why if change_node(client, name, wanted) is not None else "the node is gone"


def clear_state(client: Client, name: str) -> str | None:
    """Remove what scale-in has written on a node, with the cordon if it was ours; return what stays and why, None if nothing does.

    A node whose machine is being terminated stays cordoned: pods that come to it would be lost. So does one of which it cannot be
    read who cordoned it.

    Raises:
        ClusterReadError: it could not be read or written.
    """
    why: str | None = None

    def wanted(node: NodeView) -> NodeChange | None:
        nonlocal why
        state, why = scale_in_of(node.annotations), None
        if state is not None and state.phase is Phase.ENDING and node.unschedulable:
            why = (
                f"node {name}: the termination of its machine was requested at {state.at}; if it stays,"
                f" kubectl uncordon {name}, and then again"
            )
            return None
        keys = (taint.get("key") for taint in node.taints)
        if state is None and node.unschedulable and is_written(node.annotations, keys):
            why = f"node {name}: it stays cordoned, since it cannot be read whether scale-in did that: kubectl uncordon {name}"
        return _opened(node, state)

    change_node(client, name, wanted)
    return why


def left_on(
    client: Client,
    name: str,
    *,
    clock: Callable[[], float],
    version: tuple[int, int],
    ready: bool,
) -> str:
    """Return which pods are still on a node, in words; empty if none is but those that belong to it.

    On a node that is not ``ready`` no pod ever comes to its end. That no pod is left is confirmed by a second read.

    Raises:
        ClusterReadError: they could not be read.
    """
    for _ in range(2):
        left = left_of(read_node_pods(client, [name], clock=clock, version=version), _ALL)
        if not ready:
            left = replace(left, terminating=(), unread=())
        if left:
            break
    return left.text()


def delay_of(client: Client, name: str) -> str | None:
    """Return why the machine of an empty node is not ended yet, in words; None if nothing delays it.

    A client may ask for a delay by an annotation, as of Cluster Autoscaler; and a volume that is still attached could not be
    attached elsewhere for minutes.

    Raises:
        ClusterReadError: the node could not be read.
    """
    node = read_node(client, name)
    if node is None:
        return None
    for key in sorted(node.annotations):
        if key.startswith(_DELAYS):
            return f"it is annotated {key}"
    if node.volumes:
        return f"volumes are attached to it: {and_more(node.volumes, 2)}"
    return None


def _not_ours(node: NodeView, state: ScaleIn | None) -> str | None:
    if state is None or state.phase not in GOING:
        return "another client has taken our annotation away"
    if state.uid != node.uid:
        return "another node has come under its name"
    if not node.unschedulable:
        return "another client has uncordoned it"
    return _veto(node)


def _veto(node: NodeView) -> str | None:
    """Return why the machine of a node must stay, or is another one's matter, in words; None if nothing says so.

    Asked again right before each step that takes away: the run has read the nodes up to minutes before.
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


def _with_node(state: ScaleIn, node: NodeView) -> ScaleIn:
    if state.phase is not Phase.LEAVING:
        return state
    excluded = EXCLUDE not in node.labels
    return msgspec.structs.replace(
        state, uid=node.uid, cordoned=not node.unschedulable, excluded=excluded
    )


def _opened(node: NodeView, state: ScaleIn | None, value: str | None = None) -> NodeChange:
    """Return what ends the scale-in of a node at ``state``: no taint, and no cordon if it was ours and no other one wants it.

    ``value``: what stands in the annotation from then on.
    """
    going = state is not None and state.phase in GOING
    shows = going and state is not None and state.excluded and EXCLUDE in node.labels
    cordon = NodeChange()
    if going and state is not None and state.cordoned:
        cordon = open_or_hand_over(node, KEY)
    stays = node.unschedulable and cordon.unschedulable is None
    return NodeChange(
        unschedulable=cordon.unschedulable,
        annotations={**cordon.annotations, KEY: value},
        taints=_open(node),
        labels={EXCLUDE: None} if shows and not stays else {},
    )


def _closed(node: NodeView) -> tuple[dict[str, object], ...]:
    return (*_open(node), dict(_TAINT))


def _open(node: NodeView) -> tuple[dict[str, object], ...]:
    return tuple(dict(taint) for taint in node.taints if taint.get("key") != KEY)
