"""Set, remove and list marks on nodes, and list scale-in records. Other taints are never touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rebalancer.kube.client import Client
from rebalancer.kube.lists import list_whole
from rebalancer.kube.nodes import NodeChange, NodeView, TaintJson, change_node
from rebalancer.wire import marks
from rebalancer.wire.kinds import NODES
from rebalancer.wire.marks import EFFECT, Mark, ScaleInRecord, is_mark, parse_mark, scale_in_of


@dataclass(frozen=True, slots=True)
class NodeMark:
    """A mark on a node."""

    node: str
    value: str
    """Of the taint, also where it is not in our form; of scale-in, of the annotation."""
    of_scale_in: bool = False
    """Whether scale-in has written it."""

    @property
    def mark(self) -> Mark | None:
        """The parsed value; None if it is malformed, or scale-in's."""
        return None if self.of_scale_in else parse_mark(self.value)

    @property
    def scale_in(self) -> ScaleInRecord | None:
        """The scale-in record of the node; None if there is none, or it is malformed."""
        return scale_in_of({marks.SCALE_IN: self.value}) if self.of_scale_in else None


def set_mark(client: Client, node: str, mark: Mark) -> str | None:
    """Set ``mark`` on ``node``, replacing an older one of the same run; return None, or why it cannot be set.

    Raises:
        ClusterReadError: the node could not be read or written.
    """
    refused: list[str] = []

    def is_like(taint: TaintJson) -> bool:
        return _is_mark(taint) and taint.get("key") == mark.key

    def change(view: NodeView) -> NodeChange | None:
        refused.clear()
        standing = [_value(taint) for taint in view.taints if is_like(taint)]
        if standing == [mark.value]:
            return None
        for value in standing:
            other = parse_mark(value)
            if other is None or other.run != mark.run:
                refused.append(f"node {node} carries the mark {value} of another run")
                return None
        kept = tuple(taint for taint in view.taints if not is_like(taint))
        return NodeChange(taints=(*kept, {"key": mark.key, "value": mark.value, "effect": EFFECT}))

    if change_node(client, node, change) is None:
        return f"node {node} is gone"
    return refused[0] if refused else None


def remove_marks(client: Client, node: str, which: Callable[[str], bool]) -> None:
    """Remove the marks of ``node`` whose value satisfies ``which``. A missing node is not an error.

    Raises:
        ClusterReadError: the node could not be read or written.
    """

    def change(view: NodeView) -> NodeChange | None:
        kept = tuple(t for t in view.taints if not (_is_mark(t) and which(_value(t))))
        return None if len(kept) == len(view.taints) else NodeChange(taints=kept)

    change_node(client, node, change)


def list_marks(client: Client) -> Iterator[NodeMark]:
    """Yield the marks and scale-in records of all nodes, in the server's order.

    Raises:
        ClusterReadError: the nodes could not be listed.
    """
    for node in list_whole(client, NODES):
        for taint in node.spec.taints or ():
            if is_mark(taint.key, taint.effect):
                yield NodeMark(node.metadata.name, taint.value)
        annotations = node.metadata.annotations or {}
        if marks.is_written(annotations, (t.key for t in node.spec.taints or ())):
            written = annotations.get(marks.SCALE_IN, "")
            yield NodeMark(node.metadata.name, written, of_scale_in=True)


def _is_mark(taint: TaintJson) -> bool:
    return is_mark(str(taint.get("key", "")), str(taint.get("effect", "")))


def _value(taint: TaintJson) -> str:
    return str(taint.get("value") or "")
