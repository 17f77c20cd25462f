"""Read and write the nodes of scale-in one at a time, guarded by the version that was read."""

from __future__ import annotations

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.nodes import NodeView
from rebalancer.node_record.protocol import Claims, TaskPhase, Write, change_record
from rebalancer.node_record.records import SCALE_INS
from rebalancer.node_record.tasks import Entered, Process, enter, give_back, is_opened
from rebalancer.signals.notice import NOTICE
from rebalancer.signals.state import STATE, state_in
from rebalancer.snapshot.leaving import DRAIN, KEEPS, LEAVE, LEAVING, is_draining
from rebalancer.wire.marks import SCALE_IN, TAINT, Phase, ScaleInRecord, is_of_open_node, is_written


def change_state(
    client: Client, name: str, state: ScaleInRecord | None, after: Phase | None
) -> Entered[ScaleInRecord]:
    """Write ``state`` on a node (None: remove it), and close or open the node in the same request.

    The newest version of the node must be in the phase ``after`` (None: in none). So of two processes only one ends a
    machine: a second request could decrease the group again.

    Raises:
        ClusterReadError: the node could not be read or written, or its record has another format version.
    """

    def may(_: NodeView, before: ScaleInRecord | None) -> str | None:
        is_after = after is (None if before is None else before.phase)
        return None if is_after else _describe_change(before)

    if state is None:
        # Who cancels has asked the provider, if anybody has.
        return give_back(client, name, PROCESS, may, stays=True)
    return enter(client, name, PROCESS, lambda _: state, may)


def clear_state(client: Client, name: str) -> str | None:
    """Remove the scale-in record of a node, and our cordon; return what is kept and why, or None.

    A node whose machine is being terminated is not uncordoned, because new pods on it would be lost. Neither is a node if
    it is unknown who cordoned it.

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
        owns = Claims() if state is None else SCALE_INS.task(state).owns
        return Write(None, PROCESS.reopen(node, owns))

    change_record(client, name, SCALE_INS, decide)
    return why


def _veto(node: NodeView) -> str | None:
    """Return why the machine of a node must not be ended, or is another process's responsibility; None if nothing forbids it.

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


def _describe_change(before: ScaleInRecord | None) -> str:
    if before is None:
        return "another client has taken our annotation away"
    if before.phase is Phase.ENDING:
        return f"{before.by} is ending its machine"
    return "another client has changed what stands on it"


def _may_close(node: NodeView, before: ScaleInRecord | None) -> str | None:
    # One that was uncordoned meanwhile is not closed again.
    return _veto(node) if before is None else is_opened(node, before)


def _may_end(node: NodeView, before: ScaleInRecord | None) -> str | None:
    if before is not None and before.uid != node.uid:
        return "another node has come under its name"
    return is_opened(node, before) or _veto(node)


PROCESS = Process(
    SCALE_INS,
    _standing,
    guards={
        TaskPhase.EMPTYING: _may_close,
        TaskPhase.EMPTY: is_opened,
        TaskPhase.ENDING: _may_end,
    },
    taint={"key": TAINT.key, "effect": TAINT.effect},
)
