"""Choose the nodes to drain, and cordon them, with author, reason and deadline recorded on the node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec
import numpy as np

from rebalancer.base.errors import ClusterReadError, PolicyError
from rebalancer.base.plain_text import printable
from rebalancer.kube.client import Client
from rebalancer.kube.nodes import NodeView
from rebalancer.node_record import tasks
from rebalancer.node_record.protocol import EXCLUDE, Claims, TaskPhase, Write, change_record
from rebalancer.node_record.records import (
    DRAINS,
    Order,
    ReplacePhase,
    Stage,
    at_stage,
    empty_record,
    stage_of,
)
from rebalancer.node_record.tasks import Process, is_opened
from rebalancer.policy.select import parse_selector
from rebalancer.snapshot.columns import Bools, freeze
from rebalancer.snapshot.labels import matches
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.nodes import UNSCHEDULABLE, version_numbers_of
from rebalancer.wire import objects as o


def _carry_over(node: NodeView, before: Order, order: Order) -> Order:
    """Return the record of a drain that takes a node over; the drain before has ended if people have uncordoned the node."""
    lasts = node.unschedulable
    return msgspec.structs.replace(
        order,
        at=before.at if lasts and not before.ended else order.at,
        excludes=order.excludes or order.excluded,
        stage=order.stage or (stage_of(before) if lasts else None),
    )


PROCESS = Process(
    DRAINS,
    DRAINS.read,
    guards={TaskPhase.ENDING: is_opened},
    carry=_carry_over,
    kept=lambda order: msgspec.structs.replace(order, ended=True, stage=None),
)
"""A drain, or a replacement."""


def cordon(client: Client, name: str, order: Order) -> NodeView | None:
    """Cordon the Node with the uid of ``order``, and record the drain; return its new version, or None if it is gone.

    The record of an earlier drain is taken over while the node is cordoned, including whether that drain cordoned
    it, and the stage of a replacement. If people have uncordoned the node since, these are dropped.

    Raises:
        ClusterReadError: the node could not be read or written.
    """
    return tasks.enter(client, name, PROCESS, lambda _: order, lambda *_: None, uid=order.uid).node


def enter(
    client: Client,
    name: str,
    stage: Stage,
    *,
    may: Callable[[NodeView, Stage | None], bool],
    order: Order | None = None,
) -> bool:
    """Enter a stage on the Node with its uid, if it ``may`` follow the current one; return whether it is there now.

    ``order``: the Node is cordoned and this recorded in the same write.

    Raises:
        ClusterReadError: the node could not be read or written.
    """

    def why_not(node: NodeView, standing: Order | None) -> str | None:
        return None if may(node, stage_of(standing)) else "it is at another stage"

    def make(standing: Order | None) -> Order:
        return at_stage(order or standing, stage)

    return tasks.enter(client, name, PROCESS, make, why_not, uid=stage.uid).why_not is None


def give_back(client: Client, name: str, uid: str) -> bool:
    """Open a node that a replacement has closed, whichever process that was; False while its machine may be ending.

    A drain that has taken the node over keeps it.

    Raises:
        ClusterReadError: the node could not be read or written.
    """

    def may(_: NodeView, order: Order | None) -> str | None:
        stage = stage_of(order)
        done = stage is None or stage.phase is ReplacePhase.DONE
        return "it is not replaced" if done else None

    def of_drain(order: Order) -> Order | None:
        mine = order.stage is not None and order.by == order.stage.by and not order.ended
        return None if mine else msgspec.structs.replace(order, stage=None)

    given = tasks.give_back(client, name, PROCESS, may, uid=uid, left=of_drain)
    stage = stage_of(given.record)
    return stage is None or stage.phase is not ReplacePhase.REMOVING


def let_go(client: Client, name: str, by: str, *, stays: bool = False) -> bool:
    """Uncordon a node that the drain ``by`` has cordoned, and remove its record; return whether it did.

    Nothing is changed while its machine may be ending, unless it is known that it ``stays``.

    Raises:
        ClusterReadError: the node could not be read or written.
    """

    def may(_: NodeView, order: Order | None) -> str | None:
        return None if order is not None and order.by == by else "it is not ours"

    return tasks.give_back(client, name, PROCESS, may, stays=stays).why_not is None


def finish(client: Client, name: str, by: str) -> bool:
    """Remove our record from a node that is empty, and leave it closed; return whether the node was ours.

    A record of our label, or of the stage of a replacement, is kept, marked as ended, until the node is opened. If another drain has taken over the node, nothing changes.

    Raises:
        ClusterReadError: the node could not be read or written.
    """
    ours = False

    def decide(node: NodeView, order: Order | None) -> Write[Order] | None:
        nonlocal ours
        ours = order is not None and order.by == by
        if order is None or not ours:
            return None
        kept = order.stage is not None or (order.excluded and EXCLUDE in node.labels)
        return Write(empty_record(order) if kept else None)

    change_record(client, name, DRAINS, decide)
    return ours


def open_node(client: Client, name: str) -> str | None:
    """Uncordon a node, and remove what a drain or a replacement has left on it; return why it stays cordoned, or None.

    It stays cordoned if another of our components, an announcement or people's ``rebalancer/leave`` requires that, and
    while its machine may be ending.

    Raises:
        ClusterReadError: the node could not be read or written.
    """
    opened = tasks.give_back(client, name, PROCESS, lambda *_: None, opens=True)
    if opened.node is None or opened.why_not is not None:
        return NO_NODE if opened.node is None else opened.why_not
    return tasks.WANTED if opened.node.unschedulable else None


NO_NODE = "there is no such node"


def give_up(client: Client, name: str, by: str) -> None:
    """Keep cordon, label and our record, marked as ended; without a cordon remove the record and our label.

    Raises:
        ClusterReadError: the node could not be read or written.
    """

    def decide(node: NodeView, order: Order | None) -> Write[Order] | None:
        if order is None or order.by != by or order.ended:
            return None
        if node.unschedulable:
            return Write(msgspec.structs.replace(order, ended=True))
        return Write(None, PROCESS.reopen(node, Claims(exclude=order.excluded)))

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


class Choice(Protocol):
    """A choice of nodes."""

    @property
    def names(self) -> Sequence[str]:
        """The nodes that are named; empty where they are chosen by conditions."""

    def of(self, snapshot: Snapshot) -> Sequence[str]:
        """Return the names of the chosen nodes; raises RebalancerError."""

    def expect(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with the nodes that will have come once the chosen ones are gone."""

    def still_has(self, node: NodeView) -> bool:
        """Return whether a chosen node still meets the conditions; raises ClusterReadError."""


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """The conditions that all chosen nodes meet; empty or None conditions are ignored."""

    names: Sequence[str] = ()
    selector: str | None = None
    kubelet_below: str | None = None
    older_than: float | None = None
    """Seconds since the Node was created."""

    def of(self, snapshot: Snapshot) -> list[str]:
        """Return the names of the chosen nodes in the snapshot's order; may be empty with a condition on age.

        Raises:
            PolicyError: a named node does not exist, the version is invalid, or no node has the labels.
            ClusterReadError: the kubelet of a node reports an invalid version.
        """
        missing = [name for name in self.names if name not in snapshot.nodes.index]
        if missing:
            raise PolicyError([f"there is no node {printable(name)}" for name in missing])
        labelled = self._match_labels(snapshot)
        if not labelled.any():
            raise PolicyError([f"no node is selected by -l {printable(self.selector or '')}"])
        return [
            name
            for node, name in enumerate(snapshot.nodes.names)
            if (not self.names or name in self.names)
            and labelled[node]
            and self._match_outdated(snapshot, node)
        ]

    def expect(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot unchanged: this choice adds no new nodes."""
        return snapshot

    def still_has(self, node: NodeView) -> bool:
        """Return whether a chosen node still meets the conditions; its age only grows.

        Raises:
            ClusterReadError: its kubelet reports an invalid version.
        """
        if self.selector is not None and not matches(
            parse_selector(self.selector).wire(), node.labels
        ):
            return False
        below = self.kubelet_below
        return below is None or _is_below(node.name, node.kubelet, below)

    def _match_labels(self, snapshot: Snapshot) -> Bools:
        """Return which nodes (N,) match the label selector."""
        if self.selector is None:
            return np.ones(len(snapshot.nodes), bool)
        return snapshot.nodes_matching(parse_selector(self.selector))

    def _match_outdated(self, snapshot: Snapshot, node: int) -> bool:
        nodes = snapshot.nodes
        below = self.kubelet_below
        if below is not None and not _is_below(nodes.names[node], nodes.kubelet[node], below):
            return False
        if self.older_than is not None:
            return bool(snapshot.captured_at - nodes.created[node] > self.older_than)
        return True


def _is_below(node: str, kubelet: str, below: str) -> bool:
    # Of a node whose kubelet has not said its version nothing is known: it stays.
    return bool(kubelet) and _kubelet_version(node, kubelet) < version_of(below)


def _kubelet_version(node: str, text: str) -> tuple[int, int, int]:
    try:
        return version_of(text)
    except PolicyError:
        said = f"the kubelet of node {node} says version {printable(text)}, which is none"
        raise ClusterReadError(
            f"{said}: leave the node out with -l, or choose nodes without --kubelet-below"
        ) from None


def version_of(text: str) -> tuple[int, int, int]:
    """Parse ``v1.36.3`` as numbers; a suffix (``-eks-1234``) is ignored.

    Raises:
        PolicyError: the text is not a version.
    """
    if (numbers := version_numbers_of(text)) is None:
        raise PolicyError([f"{printable(text)} is no version; write 1.36 or v1.36.3"])
    return numbers
