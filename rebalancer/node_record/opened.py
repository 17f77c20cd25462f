"""Take back what a drain has left on a node that people have opened since."""

from __future__ import annotations

from rebalancer.kube.client import Client
from rebalancer.kube.nodes import NodeView
from rebalancer.node_record.protocol import Claims, Write, change_record
from rebalancer.node_record.records import DRAINS, Order, let_go


def take_back_label(client: Client, name: str) -> None:
    """Remove the label of a drain that has ended, and its record, from the Node ``name`` if that is not cordoned.

    A label that another one of ours wants is handed over; one that was there before the drain stays.

    Raises:
        ClusterReadError: the node could not be read or written.
    """

    def decide(node: NodeView, order: Order | None) -> Write[Order] | None:
        if node.unschedulable or order is None or not (order.ended and order.excluded):
            return None
        return Write(None, let_go(node, DRAINS.key, Claims(exclude=True)))

    change_record(client, name, DRAINS, decide)
