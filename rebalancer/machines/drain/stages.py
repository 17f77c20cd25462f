"""How far the replacement of a node is, written on the node: what a process that was killed has left is gone on with."""

from __future__ import annotations

from collections.abc import Callable

from rebalancer.kube.client import Client
from rebalancer.kube.nodes import NodeView
from rebalancer.node_record.protocol import Write, change_record
from rebalancer.node_record.records import STAGES, Stage


def stage_of(node: NodeView) -> Stage | None:
    """Return how far a node is; None where no replacement has begun, or what is written cannot be read, or is about another."""
    return STAGES.read(node)


def enter(
    client: Client, name: str, stage: Stage, *, may: Callable[[NodeView, Stage | None], bool]
) -> bool:
    """Write a stage on the Node with its uid, if it ``may`` follow the one that is there; return whether it is there now.

    Of two processes that try at once one succeeds: the node is changed on the version that was read.

    Raises:
        ClusterReadError: it could not be read or written.
    """
    entered = False

    def decide(node: NodeView, before: Stage | None) -> Write[Stage] | None:
        nonlocal entered
        entered = before == stage or may(node, before)
        return Write(stage) if entered else None

    node = change_record(client, name, STAGES, decide, uid=stage.uid)
    return entered and node is not None
