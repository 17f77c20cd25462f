"""Choose the nodes to drain, and cordon them, with author, reason and deadline recorded on the node."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec
import numpy as np

from rebalancer.base.errors import ClusterReadError, PolicyError
from rebalancer.base.plain_text import printable
from rebalancer.kube.client import Client
from rebalancer.kube.nodes import NodeChange, NodeView
from rebalancer.node_record.protocol import EXCLUDE, Claims, Write, change_record
from rebalancer.node_record.records import (
    DRAINS,
    Order,
    ReplacePhase,
    Stage,
    at_stage,
    empty_record,
    is_nobodys,
    let_go,
    stage_of,
)
from rebalancer.policy.select import parse_selector
from rebalancer.snapshot.columns import Bools, freeze
from rebalancer.snapshot.labels import matches
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.nodes import UNSCHEDULABLE
from rebalancer.wire import objects as o


def order_of(node: NodeView) -> Order | None:
    """Return the drain record on the node; None if there is none, it is malformed, or it belongs to another Node."""
    return DRAINS.read(node)


def cordon(client: Client, name: str, order: Order) -> NodeView | None:
    """Cordon the Node with the uid of ``order``, and record the drain; return its new version, or None if it is gone.

    The record of an earlier drain is taken over while the node is cordoned, including whether that drain cordoned
    it, and the stage of a replacement. If people have uncordoned the node since, these are dropped.

    Raises:
        ClusterReadError: the node could not be read or written.
    """

    def decide(node: NodeView, standing: Order | None) -> Write[Order]:
        return _take_over(node, standing, order)

    return change_record(client, name, DRAINS, decide, uid=order.uid)


def enter(
    client: Client,
    name: str,
    stage: Stage,
    *,
    may: Callable[[NodeView, Stage | None], bool],
    order: Order | None = None,
) -> bool:
    """Enter a stage on the Node with its uid, if it ``may`` follow the current one; return whether it is there now.

    ``order``: the Node is cordoned and this recorded in the same write. Of two concurrent processes one succeeds: the
    write is guarded by the version that was read.

    Raises:
        ClusterReadError: the node could not be read or written.
    """
    entered = False

    def decide(node: NodeView, standing: Order | None) -> Write[Order] | None:
        nonlocal entered
        before = stage_of(standing)
        entered = before == stage or may(node, before)
        if not entered:
            return None
        if order is not None:
            write = _take_over(node, standing, order)
            return replace(write, record=at_stage(write.record, stage))
        return Write(at_stage(standing, stage))

    return change_record(client, name, DRAINS, decide, uid=stage.uid) is not None and entered


def give_back(client: Client, name: str, uid: str) -> bool:
    """Open a node that a replacement has closed, whichever process that was; False while its machine may be ending.

    What closed it before, or wants it closed now, keeps it closed, see :func:`finish`. A drain that has taken the
    node over keeps it, too.

    Raises:
        ClusterReadError: the node could not be read or written.
    """
    ending = False

    def decide(node: NodeView, order: Order | None) -> Write[Order] | None:
        nonlocal ending
        stage = stage_of(order)
        ending = stage is not None and stage.phase is ReplacePhase.REMOVING
        if stage is None or stage.phase in (ReplacePhase.REMOVING, ReplacePhase.DONE):
            return None
        if order is None or order.by != stage.by or order.ended:
            return Write(None if order is None else msgspec.structs.replace(order, stage=None))
        return _let_go(node, order)

    change_record(client, name, DRAINS, decide, uid=uid)
    return not ending


def _take_over(node: NodeView, standing: Order | None, order: Order) -> Write[Order]:
    before = standing if node.unschedulable else None
    at = before.at if before is not None and not before.ended else order.at
    # The label of a drain before this one is on the node, whether people have uncordoned that or not.
    excluded = standing is not None and standing.excluded and EXCLUDE in node.labels
    mine = msgspec.structs.replace(
        order,
        at=at,
        cordoned=before is not None and before.cordoned,
        excludes=order.excludes or excluded,
        excluded=excluded,
        stage=stage_of(before),
    )
    labels = {EXCLUDE: "true"} if mine.excludes and EXCLUDE not in node.labels else {}
    if node.unschedulable:
        return Write(mine, NodeChange(labels=labels))
    return Write(mine, NodeChange(unschedulable=True, labels=labels))


def finish(client: Client, name: str, by: str, *, uncordon: bool = False) -> bool:
    """Remove our record; with ``uncordon`` also our cordon and label. Return whether the node was ours.

    Without, a record that says that the label is ours, or how far a replacement is, stays, marked as ended: whoever
    opens the node takes it back.

    If another drain has taken over the node, nothing changes; nor does a cordon that existed before ours. If another
    component of ours wants the node cordoned, it stays cordoned (``rebalancer.node_record.records``). If only people
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
        if uncordon:
            return _let_go(node, order)
        kept = order.stage is not None or (order.excluded and EXCLUDE in node.labels)
        return Write(empty_record(order) if kept else None)

    change_record(client, name, DRAINS, decide)
    return ours


def open_node(client: Client, name: str) -> str | None:
    """Open a node, and take back whatever a drain or a replacement has left on it; return why it stays closed, or None.

    It stays closed where another one of ours, an announcement or people's ``rebalancer/leave`` wants that, and while
    its machine may be ending.

    Raises:
        ClusterReadError: the node could not be read or written.
    """
    why: str | None = NO_NODE

    def decide(node: NodeView, order: Order | None) -> Write[Order] | None:
        nonlocal why
        stage = stage_of(order)
        if stage is not None and stage.phase is ReplacePhase.REMOVING:
            why = f"{stage.by} is removing its machine"
            return None
        if is_nobodys(node, DRAINS.key):
            why = _WANTED
            return None
        owns = Claims() if order is None else DRAINS.entry(order).owns
        change = let_go(node, DRAINS.key, replace(owns, cordon=True))
        opens = change.unschedulable is False or not node.unschedulable
        why = None if opens else _WANTED
        return Write(None, change)

    change_record(client, name, DRAINS, decide)
    return why


NO_NODE = "there is no such node"
_WANTED = "something else on it wants it closed"


def _let_go(node: NodeView, order: Order) -> Write[Order]:
    if order.cordoned and is_nobodys(node, DRAINS.key):
        return Write(msgspec.structs.replace(order, ended=True, stage=None))
    return Write(None, let_go(node, DRAINS.key, DRAINS.entry(order).owns))


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
        return Write(None, let_go(node, DRAINS.key, Claims(exclude=order.excluded)))

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


_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")


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
            if self._match_names(name) and labelled[node] and self._match_outdated(snapshot, node)
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

    def _match_names(self, name: str) -> bool:
        return not self.names or name in self.names

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
    match = _VERSION.match(text)
    if match is None:
        raise PolicyError([f"{printable(text)} is no version; write 1.36 or v1.36.3"])
    return int(match[1]), int(match[2]), int(match[3] or 0)
