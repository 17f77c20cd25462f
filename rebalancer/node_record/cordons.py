"""One node that several want cordoned: a drain, scale-in, an interruption, and people with kubectl.

A node has one cordon, and it does not say who set it; the same holds for the label that takes the node out of load
balancers. The record of each of our components says whether it made them. A component that lets go of a node which
another component wants cordoned hands them over to that one, in the same write; so the last component uncordons the
node. If people want the node empty (``rebalancer/leave``, taints, notices) it stays cordoned, and a cordon or label
set by people always stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rebalancer.kube.nodes import NodeChange, NodeView
from rebalancer.node_record.records import CLOSING, EXCLUDE, INTERRUPTIONS, Claims
from rebalancer.signals.notice import NOTICE
from rebalancer.signals.state import STATE
from rebalancer.snapshot.leaving import DRAIN, LEAVE, LEAVING

_WISHES = frozenset({DRAIN, LEAVE, NOTICE, STATE})
"""Annotations that want a node closed, whatever they say."""


def let_go(node: NodeView, holder: str, claims: Claims) -> NodeChange:
    """Return the change by which ``holder`` lets go of its claims: each is undone, handed over, or left as people want it.

    ``holder``: the annotation of the component; this annotation itself is not changed here. ``claims``: which parts
    to let go of.
    """
    cordon, label = NodeChange(), NodeChange()
    if claims.cordon and node.unschedulable:
        cordon = _handed_over(node, holder, Claims(cordon=True))
        opens = cordon == NodeChange() and not is_wanted_closed(node, holder)
        cordon = NodeChange(unschedulable=False) if opens else cordon
    if claims.exclude and EXCLUDE in node.labels:
        label = _handed_over(_with(node, cordon), holder, Claims(exclude=True))
        label = label if label != NodeChange() else NodeChange(labels={EXCLUDE: None})
    return NodeChange(
        unschedulable=cordon.unschedulable,
        annotations={**cordon.annotations, **label.annotations},
        labels=label.labels,
    )


def open_or_hand_over(node: NodeView, holder: str) -> NodeChange:
    """Return the change that lets go of the cordon alone, see :func:`let_go`."""
    return let_go(node, holder, Claims(cordon=True))


def is_nobodys(node: NodeView, holder: str) -> bool:
    """Return whether the cordon would have no owner if ``holder`` gave it up: others want it, but cannot uncordon later."""
    handed = _handed_over(node, holder, Claims(cordon=True))
    return node.unschedulable and handed == NodeChange() and is_wanted_closed(node, holder)


def is_handed_over(node: NodeView, claims: Claims) -> bool:
    """Return whether the record of the node's interruption contains all of these claims."""
    state = INTERRUPTIONS.read(node)
    if state is None:
        return False
    owns = INTERRUPTIONS.entry(state).owns
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


def _handed_over(node: NodeView, holder: str, claims: Claims) -> NodeChange:
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
        entry = form.entry(record)
        if entry.uid == node.uid and _covers(entry.wants, claims):
            yield {form.key: form.encode(form.owning(record, claims))}


def _covers(wants: Claims, claims: Claims) -> bool:
    return wants.cordon >= claims.cordon and wants.exclude >= claims.exclude


def _with(node: NodeView, change: NodeChange) -> NodeView:
    """Return the node with the annotations of ``change``, so that a second change of one record keeps the first."""
    annotations = {**node.annotations}
    annotations.update({key: text for key, text in change.annotations.items() if text is not None})
    return replace(node, annotations=annotations)
