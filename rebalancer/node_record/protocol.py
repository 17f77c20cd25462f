"""The protocol of the records on nodes: drain, replace, scale-in, interruption and node agent.

A record contains its writer, the reason, the end time, the Node (its uid), and whether its writer has cordoned the node.
It is read, judged and written in :func:`change_record` only: guarded by the version that was read, so that of two
processes one succeeds; never on another Node of the same name; and in the same write that cordons the node, so that
the record names the owner of the cordon. Only the component that set a cordon, or received it, uncordons the node
(``rebalancer.node_record.records``).

A mark is a taint, because the scheduler must see it (``rebalancer.node_record.marks``). Its value names the run that wrote
it, the reason, and the end time; a taint is on one Node by nature; and it is changed with the same guard. It cordons nothing.

The content of a node is only a hint, to people and to other components: a kubelet may write any annotation of its
own node. Decisions about rights, deletions and calls to a cloud use the cloud's answers, or a ConfigMap that only
this program writes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from rebalancer.kube.client import Client
from rebalancer.kube.nodes import NodeChange, NodeView, change_node
from rebalancer.wire.marks import NOT_BALANCED

R = TypeVar("R")

EXCLUDE = NOT_BALANCED
"""Well-known label: the service controller and load balancer controllers remove such nodes from their targets."""


@dataclass(frozen=True, slots=True)
class Claims:
    """The parts of a node's state that the writer of a record made, and that only it undoes."""

    cordon: bool = False
    exclude: bool = False
    """Whether the label :data:`EXCLUDE` is claimed."""


class TaskPhase(enum.StrEnum):
    """How far a component is with a node; the table in ``rebalancer.node_record.tasks`` has the rules of each phase."""

    WAITING = "waiting"
    """It will be emptied, and its turn has not come."""
    EMPTYING = "emptying"
    EMPTY = "empty"
    ENDING = "ending"
    """The end of its machine was requested, or is about to be."""
    DONE = "done"
    """Its machine is ended."""
    OVER = "over"
    """The component gave up; nodes that it has cordoned are still cordoned."""


@dataclass(frozen=True, slots=True)
class NodeTask:
    """The content of a record, independent of its format: its writer, the phase, the reason, the end time, and what the writer owns on the node."""

    by: str
    """The process, source or run that wrote it."""
    why: str = ""
    until: str = ""
    """RFC 3339 time; empty: until its writer removes it."""
    uid: str = ""
    """Uid of the Node; empty: not given, which matches any."""
    wants: Claims = field(default_factory=Claims)
    """What must be kept as long as this record exists."""
    owns: Claims = field(default_factory=Claims)
    """The cordon and the label that its writer has set, and may remove."""
    phase: TaskPhase | None = None
    """The phase of the task; None: nothing is done to the node, or not any more."""
    ends: bool = False
    """Whether the machine will be ended, or ends by itself."""


@dataclass(frozen=True, slots=True)
class Form(Generic[R]):
    """The format of one kind of record in an annotation."""

    key: str
    """The key of the annotation."""
    decode: Callable[[str], R | None]
    """Returns the decoded record of a value; None if it cannot be decoded."""
    encode: Callable[[R], str]
    task: Callable[[R], NodeTask]
    owning: Callable[[R, Claims], R]
    """Returns the record that also owns these claims; the claims that it has are kept."""
    former: str = ""
    """Annotation in which the version before wrote a part of it; each write removes it."""
    join: Callable[[R | None, str], R | None] = lambda record, _: record
    """Returns the record with the data of ``former``."""

    def standing(self, node: NodeView) -> R | None:
        """Return the record on a node, for whichever Node it is; None if there is none, or it is malformed."""
        text, former = node.annotations.get(self.key), node.annotations.get(self.former)
        record = None if text is None else self.decode(text)
        return record if former is None else self.join(record, former)

    def read(self, node: NodeView) -> R | None:
        """Return the record on a node if it belongs to this very Node; else None."""
        record = self.standing(node)
        about = None if record is None else self.task(record).uid
        return record if about in ("", node.uid) else None


@dataclass(frozen=True, slots=True)
class Write(Generic[R]):
    """A change of a record, and of the node in the same write."""

    record: R | None
    """The record to write; None: the record is removed."""
    change: NodeChange = field(default_factory=NodeChange)


def change_record(
    client: Client,
    name: str,
    form: Form[R],
    decide: Callable[[NodeView, R | None], Write[R] | None],
    *,
    uid: str = "",
) -> NodeView | None:
    """Change a record on the Node ``name``; return its new version, or None if it is gone or another Node.

    ``decide`` receives the node and its record for this very Node, and returns the change; None changes nothing. It
    is called again with a newer version after a conflict with another client, or after a lost response. ``uid``: of
    the Node that is meant; empty: any.

    Raises:
        ClusterReadError: the Node could not be read or written.
    """

    def change_node_record(node: NodeView) -> NodeChange | None:
        if uid not in ("", node.uid):
            return None
        write = decide(node, form.read(node))
        return None if write is None else change_of(node, form, write)

    node = change_node(client, name, change_node_record)
    return node if node is not None and uid in ("", node.uid) else None


def change_of(node: NodeView, form: Form[R], write: Write[R]) -> NodeChange | None:
    """Return the patch of a node for ``write``; None if nothing changes. If the write cordons the node, the record owns the cordon."""
    change, record = write.change, write.record
    if record is not None:
        made = Claims(
            cordon=bool(change.unschedulable) and not node.unschedulable,
            exclude=change.labels.get(EXCLUDE) is not None and EXCLUDE not in node.labels,
        )
        record = form.owning(record, made) if made != Claims() else record
    text = None if record is None else form.encode(record)
    written: dict[str, str | None] = {form.key: text}
    if form.former in node.annotations:
        written[form.former] = None
    elif change == NodeChange() and node.annotations.get(form.key) == text:
        return None
    return replace(change, annotations={**change.annotations, **written})
