"""Cordon nodes, with author, reason and deadline recorded on the node; and cordon nodes in a snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from rebalancer.kube.client import Client
from rebalancer.kube.nodes import NodeChange, NodeView
from rebalancer.node_record.cordons import is_nobodys, open_or_hand_over
from rebalancer.node_record.records import DRAINS, STAGE, Order, Write, change_record
from rebalancer.snapshot.columns import Bools, freeze
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.nodes import UNSCHEDULABLE
from rebalancer.wire import objects as o


def order_of(node: NodeView) -> Order | None:
    """Return the drain record on the node; None if there is none, it is malformed, or it belongs to another Node."""
    return DRAINS.read(node)


def cordon(client: Client, name: str, order: Order) -> NodeView | None:
    """Cordon the Node with the uid of ``order``, and record the drain; return its new version, or None if it is gone.

    The record of an earlier drain is taken over while the node is cordoned, including whether that drain cordoned
    it. If people have uncordoned the node since, the record and the stage of a replacement are dropped.

    Raises:
        ClusterReadError: the node could not be read or written.
    """

    def decide(node: NodeView, standing: Order | None) -> Write[Order]:
        before = standing if node.unschedulable else None
        at = before.at if before is not None and not before.ended else order.at
        mine = msgspec.structs.replace(
            order, at=at, cordoned=before is not None and before.cordoned
        )
        if node.unschedulable:
            return Write(mine)
        return Write(mine, replace(_without_stage(node), unschedulable=True))

    return change_record(client, name, DRAINS, decide, uid=order.uid)


def finish(client: Client, name: str, by: str, *, uncordon: bool = False) -> bool:
    """Remove our record; with ``uncordon`` also our cordon. Return whether the node was ours.

    If another drain has taken over the node, nothing changes; nor does a cordon that existed before ours. If another
    component of ours wants the node cordoned, it stays cordoned (``rebalancer.node_record.cordons``). If only people
    or an announcement want that, our record stays, too, marked as ended, so that the author of the cordon remains
    known.

    Raises:
        ClusterReadError: the node could not be read or written.
    """
    ours = False

    def decide(node: NodeView, order: Order | None) -> Write[Order] | None:
        nonlocal ours
        if order is None or order.by != by:
            return None
        ours = True
        if not uncordon:
            return Write(None)
        if order.cordoned and is_nobodys(node, DRAINS.key):
            return Write(msgspec.structs.replace(order, ended=True), _without_stage(node))
        change = open_or_hand_over(node, DRAINS.key) if order.cordoned else NodeChange()
        annotations = {**change.annotations, **_without_stage(node).annotations}
        return Write(None, replace(change, annotations=annotations))

    change_record(client, name, DRAINS, decide)
    return ours


def _without_stage(node: NodeView) -> NodeChange:
    """Return the change that removes the stage of a replacement from a node that is given back."""
    return NodeChange(annotations={STAGE: None} if STAGE in node.annotations else {})


def give_up(client: Client, name: str, by: str) -> None:
    """Keep the cordon and our record, marked as ended; without a cordon remove the record.

    Raises:
        ClusterReadError: the node could not be read or written.
    """

    def decide(node: NodeView, order: Order | None) -> Write[Order] | None:
        if order is None or order.by != by or order.ended:
            return None
        return Write(msgspec.structs.replace(order, ended=True) if node.unschedulable else None)

    change_record(client, name, DRAINS, decide)


def as_cordoned(snapshot: Snapshot, nodes: Bools) -> Snapshot:
    """Return ``snapshot`` with the nodes ``nodes`` (N,) cordoned: unschedulable, with the taint."""
    of = snapshot.nodes
    sets: list[tuple[o.Taint, ...]] = list(of.taint_sets)
    taint_set = of.taint_set.copy()
    for node in np.flatnonzero(nodes).tolist():
        taints = sets[int(taint_set[node])]
        if any(taint.key == UNSCHEDULABLE.key for taint in taints):
            continue
        tainted = (*taints, UNSCHEDULABLE)
        if tainted not in sets:
            sets.append(tainted)
        taint_set[node] = sets.index(tainted)
    changed = replace(
        of,
        unschedulable=freeze(of.unschedulable | nodes),
        taint_set=freeze(taint_set),
        taint_sets=tuple(sets),
    )
    return replace(snapshot, nodes=changed)


def mask_of(snapshot: Snapshot, names: Sequence[str]) -> Bools:
    """Return which nodes (N,) have these names."""
    mask = np.zeros(len(snapshot.nodes), bool)
    mask[[snapshot.nodes.index[name] for name in names if name in snapshot.nodes.index]] = True
    return mask
