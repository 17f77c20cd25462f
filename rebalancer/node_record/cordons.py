"""One node, several who want it closed: a drain, scale-in, an interruption, and people with kubectl.

A node has one cordon, and it is not written on it whose that is. Each of ours notes in its own annotation whether it was the
one that cordoned. Who lets go of a node that another one of ours wants closed hands the cordon over to that one, in the same
write; so the last of ours opens the node. What people want (``rebalancer/leave``, taints, notices) keeps it closed, and
whatever was cordoned by people stays so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from rebalancer.kube.nodes import NodeChange, NodeView
from rebalancer.signals.notice import NOTICE
from rebalancer.signals.state import STATE, state_in, written
from rebalancer.snapshot.leaving import DRAIN, LEAVE, LEAVING
from rebalancer.wire.scale_in import GOING, scale_in_of
from rebalancer.wire.scale_in import KEY as SCALE_IN

CORDON = "cordon"
"""The step of an interruption that cordons, by its name in the policy."""
OURS = "ours"
"""What this step keeps if it was the one that cordoned."""


def open_or_hand_over(node: NodeView, holder: str) -> NodeChange:
    """Return what lets go of the cordon that ``holder`` has made: it is opened, handed over, or left for what people want.

    ``holder``: the annotation of the one that lets go; what becomes of this annotation is its own matter.
    """
    if not node.unschedulable:
        return NodeChange()
    for key, value in _heirs(node):
        if key != holder:
            return NodeChange(annotations={key: value})
    return NodeChange() if _is_wanted_closed(node, holder) else NodeChange(unschedulable=False)


def is_handed_over(node: NodeView) -> bool:
    """Return whether another one of ours has handed its cordon over to the interruption of a node."""
    state = state_in(node.annotations, node.uid)
    step = None if state is None else state.steps.get(CORDON)
    return step is not None and step.left == OURS


def _heirs(node: NodeView) -> Iterator[tuple[str, str]]:
    """Yield the annotation of each that wants the node closed and can open it later, with the value that says the cordon is its own."""
    drain = _drain(node)
    if drain is not None:
        yield DRAIN, msgspec.json.encode({**drain, "cordoned": True}).decode()
    state = state_in(node.annotations, node.uid)
    if state is not None and CORDON in state.steps:
        step = msgspec.structs.replace(state.steps[CORDON], left=OURS)
        steps = {**state.steps, CORDON: step}
        yield STATE, written(msgspec.structs.replace(state, steps=steps))
    scale_in = scale_in_of(node.annotations)
    if scale_in is not None and scale_in.phase in GOING and scale_in.uid == node.uid:
        yield SCALE_IN, msgspec.structs.replace(scale_in, cordoned=True).value


def _drain(node: NodeView) -> dict[str, Any] | None:
    """Return what a drain has written on this very node; one that gave up keeps its cordon, too."""
    try:
        said = msgspec.json.decode(node.annotations.get(DRAIN, ""), type=dict[str, Any])
    except (ValueError, RecursionError):
        return None
    return said if said.get("uid") == node.uid else None


def _is_wanted_closed(node: NodeView, holder: str) -> bool:
    """Return whether something that cannot open the node later wants it closed: it may have come when it was closed already."""
    keys = {DRAIN, LEAVE, NOTICE, STATE} - {holder}
    if holder == STATE:
        # What announced the machine was withdrawn; the step leave takes its own annotation away by itself.
        keys -= {NOTICE}
    taints = (taint.get("key") for taint in node.taints)
    return any(key in node.annotations for key in keys) or any(
        key in LEAVING.taints for key in taints
    )
