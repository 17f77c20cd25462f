"""What is written on a node, by one protocol: drain, replace, scale-in, interruption, node agent and marks alike.

A record says who wrote it, why, until when, for which Node (its uid), and whether its writer has closed the node. It is read,
judged and written in :func:`change_record` alone: on the version that was read, so that of two processes one succeeds; never on
another Node of the same name; and with the very write that cordons, the record says that the cordon is its own. Only who has
made a cordon, or was handed it, opens the node (``rebalancer.node_record.cordons``).

What stands on a node is a hint, to people and to the others: a kubelet may write any annotation of its own node. What decides
over rights, deletions and calls to a cloud is asked of the cloud, or stands in a ConfigMap that only this program writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from rebalancer.kube.client import Client
from rebalancer.kube.nodes import NodeChange, NodeView, change_node

R = TypeVar("R")

EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"
"""Well-known label: the service controller and load balancer controllers take such nodes out of their targets."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What of a node's state was made by the writer of a record, and is undone by it alone."""

    cordon: bool = False
    exclude: bool = False
    """The label :data:`EXCLUDE`."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a record says, whatever its form."""

    by: str
    """The process, source or run that wrote it."""
    why: str = ""
    until: str = ""
    """RFC 3339 time; empty: until its writer takes it away."""
    uid: str = ""
    """Of the Node; empty: it is not said, and counts for any."""
    wants: Claims = field(default_factory=Claims)
    """What is to stay as long as this record stands."""
    owns: Claims = field(default_factory=Claims)
    """What its writer has made, and may undo."""


@dataclass(frozen=True, slots=True)
class Form(Generic[R]):
    """How one kind of record is written in an annotation."""

    key: str
    """Of the annotation."""
    decode: Callable[[str], R | None]
    """Returns what a value says, None if it cannot be read."""
    encode: Callable[[R], str]
    entry: Callable[[R], Entry]
    owning: Callable[[R, Claims], R]
    """Returns the record that also says that these are its own; what it owns already stays."""

    def standing(self, node: NodeView) -> R | None:
        """Return what stands on a node, whichever Node it is about; None if nothing does, or it cannot be read."""
        text = node.annotations.get(self.key)
        return None if text is None else self.decode(text)

    def read(self, node: NodeView) -> R | None:
        """Return what stands on a node and is about this very Node."""
        record = self.standing(node)
        about = None if record is None else self.entry(record).uid
        return record if about in ("", node.uid) else None


@dataclass(frozen=True, slots=True)
class Write(Generic[R]):
    """What is to become of a record, and of the node with the same write."""

    record: R | None
    """None: it is taken away."""
    change: NodeChange = field(default_factory=NodeChange)


def change_record(
    client: Client,
    name: str,
    form: Form[R],
    decide: Callable[[NodeView, R | None], Write[R] | None],
    *,
    uid: str = "",
) -> NodeView | None:
    """Change a record on the Node of this name; return it as it is then, None if it is gone or is another one of its name.

    ``decide`` is given the node and what stands there of this very Node, and returns what is to stand there; None: all stays.
    It is asked again, on the node as it is then, when another client was faster or a reply was lost.
    ``uid``: of the Node that is meant; empty: any.

    Raises:
        ClusterReadError: it could not be read or written.
    """

    def wanted(node: NodeView) -> NodeChange | None:
        if uid not in ("", node.uid):
            return None
        write = decide(node, form.read(node))
        return None if write is None else change_of(node, form, write)

    node = change_node(client, name, wanted)
    return node if node is not None and uid in ("", node.uid) else None


def change_of(node: NodeView, form: Form[R], write: Write[R]) -> NodeChange | None:
    """Return the change of a node for a write, None if it changes nothing: what it closes, the record says to be its own."""
    change, record = write.change, write.record
    if record is not None:
        made = Claims(
            cordon=bool(change.unschedulable) and not node.unschedulable,
            exclude=change.labels.get(EXCLUDE) is not None and EXCLUDE not in node.labels,
        )
        record = form.owning(record, made) if made != Claims() else record
    text = None if record is None else form.encode(record)
    if change == NodeChange() and node.annotations.get(form.key) == text:
        return None
    return replace(change, annotations={**change.annotations, form.key: text})
