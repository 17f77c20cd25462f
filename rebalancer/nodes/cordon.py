"""Cordons with their author, reason and deadline on the node; and nodes as if they were cordoned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from rebalancer.kube.client import Client
from rebalancer.kube.nodes import NodeChange, NodeView, change_node
from rebalancer.node_record.cordons import open_or_hand_over
from rebalancer.nodes.stages import STAGE
from rebalancer.snapshot.columns import Bools, frozen
from rebalancer.snapshot.leaving import DRAIN
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.nodes import UNSCHEDULABLE
from rebalancer.wire import objects as o


class Order(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the annotation ``rebalancer/drain`` says: a drain that was killed is gone on with by the next."""

    by: str
    """The process that drains: its pod, or host and number."""
    why: str
    at: str
    """RFC 3339 time since when."""
    uid: str = ""
    """Of the Node: written on another one of its name, nothing of this holds."""
    until: str = ""
    """RFC 3339 time of the deadline; empty: none."""
    cordoned: bool = False
    """Whether a drain has cordoned the node, and not another client before it."""
    ended: bool = False
    """The drain gave up, cleanly: the next one starts from the beginning."""


def order_of(node: NodeView) -> Order | None:
    """Return what a drain has left on the node; None if nothing that can be read, or it is about another Node of its name."""
    order = node.annotated(DRAIN, Order)
    return None if order is None or order.uid not in ("", node.uid) else order


def cordon(client: Client, name: str, order: Order) -> NodeView | None:
    """Cordon the Node with the uid of ``order``, and say by whom; return it as it is then, None if it is gone.

    What an earlier drain has left is taken over, as long as the node is cordoned: whether a drain did that stays known. Of a
    node that people have uncordoned since, neither that nor how far a replacement came counts any more.

    Raises:
        ClusterReadError: it could not be read or written.
    """

    def wanted(node: NodeView) -> NodeChange | None:
        if node.uid != order.uid:
            return None
        before = order_of(node) if node.unschedulable else None
        ours = not node.unschedulable or (before is not None and before.cordoned)
        goes_on = before is not None and not before.ended
        at = before.at if before is not None and goes_on else order.at
        mine = msgspec.structs.replace(order, at=at, cordoned=ours)
        if node.unschedulable and before == mine:
            return None
        text = msgspec.json.encode(mine).decode()
        if node.unschedulable:
            return NodeChange(annotations={DRAIN: text})
        return NodeChange(unschedulable=True, annotations={DRAIN: text, **_without_stage(node)})

    node = change_node(client, name, wanted)
    return node if node is not None and node.uid == order.uid else None


def finish(client: Client, name: str, by: str, *, uncordon: bool = False) -> bool:
    """Take our annotation away; with ``uncordon`` also our cordon. Return whether the node was ours.

    Of a node that another drain has taken over nothing is changed, nor of a cordon that was there before us. A node that
    another one of ours wants closed stays so (``rebalancer.node_record.cordons``).

    Raises:
        ClusterReadError: it could not be read or written.
    """
    ours = False

    def wanted(node: NodeView) -> NodeChange | None:
        nonlocal ours
        order = order_of(node)
        if order is None or order.by != by:
            return None
        ours = True
        lifts = uncordon and order.cordoned and node.unschedulable
        if not lifts:
            return NodeChange(annotations={DRAIN: None})
        change = open_or_hand_over(node, DRAIN)
        stage = {} if change.unschedulable is None else _without_stage(node)
        return NodeChange(
            unschedulable=change.unschedulable,
            annotations={**change.annotations, DRAIN: None, **stage},
        )

    change_node(client, name, wanted)
    return ours


def _without_stage(node: NodeView) -> dict[str, str | None]:
    """Return what takes away how far a replacement came: that does not count on a node that is opened."""
    return {STAGE: None} if STAGE in node.annotations else {}


def give_up(client: Client, name: str, by: str) -> None:
    """Leave the cordon and our annotation, and say in it that the drain has ended; without a cordon take it away.

    Raises:
        ClusterReadError: it could not be read or written.
    """

    def wanted(node: NodeView) -> NodeChange | None:
        order = order_of(node)
        if order is None or order.by != by or order.ended:
            return None
        if not node.unschedulable:
            return NodeChange(annotations={DRAIN: None})
        text = msgspec.json.encode(msgspec.structs.replace(order, ended=True)).decode()
        return NodeChange(annotations={DRAIN: text})

    change_node(client, name, wanted)


def as_cordoned(snapshot: Snapshot, nodes: Bools) -> Snapshot:
    """Return ``snapshot`` as it is once ``nodes`` (N,) are cordoned: unschedulable, and tainted so."""
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
        unschedulable=frozen(of.unschedulable | nodes),
        taint_set=frozen(taint_set),
        taint_sets=tuple(sets),
    )
    return replace(snapshot, nodes=changed)


def mask_of(snapshot: Snapshot, names: Sequence[str]) -> Bools:
    """Return which nodes (N,) have these names."""
    mask = np.zeros(len(snapshot.nodes), bool)
    mask[[snapshot.nodes.index[name] for name in names if name in snapshot.nodes.index]] = True
    return mask
