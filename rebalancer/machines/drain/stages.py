"""The stage of a node's replacement, recorded on the node, so that another process can continue."""

from __future__ import annotations

from collections.abc import Callable

from rebalancer.kube.client import Client
from rebalancer.kube.nodes import NodeView
from rebalancer.node_record.protocol import Write, change_record
from rebalancer.node_record.records import STAGES, Stage


def stage_of(node: NodeView) -> Stage | None:
    """Return the stage of a node; None if there is none, it is malformed, or it belongs to another Node."""
    return STAGES.read(node)


def enter(
    client: Client, name: str, stage: Stage, *, may: Callable[[NodeView, Stage | None], bool]
) -> bool:
    """Write a stage on the Node with its uid, if it ``may`` follow the current one; return whether it is there now.

    Of two concurrent processes one succeeds: the write is guarded by the version that was read.

    Raises:
        ClusterReadError: the node could not be read or written.
    """
    entered = False

    def decide(node: NodeView, before: Stage | None) -> Write[Stage] | None:
        nonlocal entered
        entered = before == stage or may(node, before)
        return Write(stage) if entered else None

    node = change_record(client, name, STAGES, decide, uid=stage.uid)
    return entered and node is not None
