"""How far the replacement of a node is, written on the node: what a process that was killed has left is gone on with."""

from __future__ import annotations

import enum
from collections.abc import Callable

import msgspec

from rebalancer.kube.client import Client
from rebalancer.kube.nodes import NodeChange, NodeView, change_node

STAGE = "rebalancer/replace"
"""Annotation of a node that is being replaced."""


class ReplacePhase(enum.StrEnum):
    """How far a node is."""

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
    """What the annotation says."""

    phase: ReplacePhase
    by: str
    """The process that has brought it there."""
    at: float
    """Unix seconds."""
    uid: str = ""
    """Of the Node: written on another one of its name, it counts for nothing."""


def stage_of(node: NodeView) -> Stage | None:
    """Return how far a node is; None where no replacement has begun, or what is written cannot be read, or is about another."""
    stage = node.annotated(STAGE, Stage)
    return None if stage is None or stage.uid not in ("", node.uid) else stage


def enter(
    client: Client, name: str, stage: Stage, *, may: Callable[[NodeView, Stage | None], bool]
) -> bool:
    """Write a stage on the Node with its uid, if it ``may`` follow the one that is there; return whether it is there now.

    Of two processes that try at once one succeeds: the node is changed on the version that was read.

    Raises:
        ClusterReadError: it could not be read or written.
    """
    entered = False

    def wanted(node: NodeView) -> NodeChange | None:
        nonlocal entered
        before = stage_of(node)
        entered = node.uid == stage.uid and (before == stage or may(node, before))
        if before == stage or not entered:
            return None
        return NodeChange(annotations={STAGE: msgspec.json.encode(stage).decode()})

    node = change_node(client, name, wanted)
    return entered and node is not None
