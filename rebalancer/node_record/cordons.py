"""One node, several who want it closed: a drain, scale-in, an interruption, and people with kubectl.

A node has one cordon, and it is not written on it whose that is; nor is it with the label that takes it out of load balancers.
The record of each of ours says whether it was the one that made them. Who lets go of a node that another one of ours wants
closed hands them over to that one, in the same write; so the last of ours opens the node. What people want
(``rebalancer/leave``, taints, notices) keeps it closed, and whatever was cordoned or labelled by people stays so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rebalancer.kube.nodes import NodeChange, NodeView
from rebalancer.node_record.protocol import EXCLUDE, Claims
from rebalancer.node_record.records import CLOSING, INTERRUPTIONS
from rebalancer.signals.notice import NOTICE
from rebalancer.signals.state import STATE
from rebalancer.snapshot.leaving import DRAIN, LEAVE, LEAVING

_WISHES = frozenset({DRAIN, LEAVE, NOTICE, STATE})
"""Annotations that want a node closed, whatever they say."""


def let_go(node: NodeView, holder: str, claims: Claims) -> NodeChange:
    """Return what lets go of what ``holder`` has made of a node: each is undone, handed over, or left for what people want.

    ``holder``: the annotation of the one that lets go; what becomes of this annotation is its own matter.
    ``claims``: what of it is let go.
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
    """Return what lets go of the cordon alone, see :func:`let_go`."""
    return let_go(node, holder, Claims(cordon=True))


def is_nobodys(node: NodeView, holder: str) -> bool:
    """Return whether the cordon would have no owner if ``holder`` gave it up now: others want it, and none of them can uncordon later."""
    handed = _handed_over(node, holder, Claims(cordon=True))
    return node.unschedulable and handed == NodeChange() and is_wanted_closed(node, holder)


def is_handed_over(node: NodeView, claims: Claims) -> bool:
    """Return whether the record of the interruption of a node says that all of these are its own."""
    state = INTERRUPTIONS.read(node)
    if state is None:
        return False
    owns = INTERRUPTIONS.entry(state).owns
    return owns.cordon >= claims.cordon and owns.exclude >= claims.exclude


def is_wanted_closed(node: NodeView, holder: str) -> bool:
    """Return whether something that cannot open the node later wants it closed: it may have come when it was closed already."""
    # What announced the machine was withdrawn; the step leave takes its own annotation away by itself.
    keys = _WISHES - {holder} - ({NOTICE} if holder == STATE else set())
    taints = (taint.get("key") for taint in node.taints)
    return any(key in node.annotations for key in keys) or any(
        key in LEAVING.taints for key in taints
    )


def _handed_over(node: NodeView, holder: str, claims: Claims) -> NodeChange:
    """Return what makes these the own of another one of ours that wants them, and can undo them later; nothing if none does."""
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
    """Return the node with the annotations of a change, so that a second change of one record loses nothing of the first."""
    annotations = {**node.annotations}
    annotations.update({key: text for key, text in change.annotations.items() if text is not None})
    return replace(node, annotations=annotations)
