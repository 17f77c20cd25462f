"""The notice of a node agent: what the machine says of its own end. It closes nothing; what follows is decided elsewhere."""

from __future__ import annotations

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.nodes import NodeView
from rebalancer.node_record.protocol import Entry, Form, Write, change_record
from rebalancer.signals.notice import NOTICE, NodeNotice, read, written


def _entry(notice: NodeNotice) -> Entry:
    return Entry(by=notice.id, why=notice.reason or notice.kind, until=notice.deadline)


NOTICES = Form(NOTICE, read, written, _entry, lambda notice, _: notice)


def write_notice(client: Client, name: str, notice: NodeNotice | None, ours: str) -> None:
    """Have ``notice`` stand on the node of this name; None: what stands there is taken away, if its id begins with ``ours``.

    Raises:
        ClusterReadError: it could not be read or written, or there is none of this name.
    """

    def decide(_: NodeView, standing: NodeNotice | None) -> Write[NodeNotice] | None:
        if notice is not None:
            return None if standing == notice else Write(notice)
        is_ours = standing is not None and standing.id.startswith(ours)
        return Write(None) if is_ours else None

    if change_record(client, name, NOTICES, decide) is None:
        raise ClusterReadError(
            f"there is no node {name}; NODE_NAME must be the name of the agent's own node"
        )
