"""Nodes that Karpenter removes, or may remove next: no replacement lands there, so that no pod moves twice and none delays the removal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from rebalancer.base.plain_text import count
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.columns import Bools, Int32s, Ints, freeze
from rebalancer.snapshot.karpenter import POOL, SOON, NodeClaim, Takes
from rebalancer.snapshot.leaving import OF_KARPENTER, Announcement, NoticeKind
from rebalancer.snapshot.model import Nodes, Snapshot
from rebalancer.snapshot.nodes import STARTUP, AddedNode, fold_amounts
from rebalancer.snapshot.state import ClusterState

_LOOK, _LOOK_AT_EACH, _LONGEST_LOOK = 60.0, 0.5, 300.0
"""Seconds after which Karpenter has looked at a node: for the cluster, more for each of its nodes, at most."""


def with_claims(snapshot: Snapshot, profile: SchedulerProfile) -> Snapshot:
    """Return the snapshot in which the nodes that Karpenter removes, or may remove next, are leaving, each with a notice."""
    if not snapshot.node_claims:
        return snapshot
    why = _Candidates(snapshot, profile).why
    if not why:
        return snapshot
    nodes = snapshot.nodes
    notices, leaving = dict(nodes.notices), nodes.leaving.copy()
    for node, (kind, text) in why.items():
        notice = Announcement(kind, "NodeClaim", 0.0, text)
        notices[node] = (*notices.get(node, ()), notice)
        leaving[node] = True
    noted = dict(sorted(notices.items()))
    return replace(snapshot, nodes=replace(nodes, notices=noted, leaving=freeze(leaving)))


def describe_closed(nodes: Nodes) -> str:
    """Return a sentence on the nodes that take no replacements because of Karpenter; empty if there are none."""
    number = sum(any(of.kind in OF_KARPENTER for of in noted) for noted in nodes.notices.values())
    if not number:
        return ""
    takes = "takes" if number == 1 else "take"
    return (
        f"{number} of {count(len(nodes), 'node')} {takes} no replacements, "
        "since Karpenter removes or replaces them, or may do so next: explain node says why"
    )


def find_changing(snapshot: Snapshot) -> tuple[int, int]:
    """Return how many nodes Karpenter has ordered that are not ready yet, and how many that it is removing have pods.

    A node that has been going for long is held by its pods: nothing changes there.
    """
    on_nodes = set(snapshot.pods.node[snapshot.pods.living & ~snapshot.per_node].tolist())
    coming = going = 0
    for claim in snapshot.node_claims or ():
        if claim.going:
            lately = snapshot.captured_at - claim.going_since < SOON
            going += lately and snapshot.nodes.index.get(claim.node) in on_nodes
        else:
            coming += is_coming(claim, snapshot)
    return coming, going


def is_coming(claim: NodeClaim, snapshot: Snapshot) -> bool:
    """Return whether the node of a NodeClaim is still expected: its pool registers nodes, and the claim is not overdue."""
    waits = claim.pool.registers and not (claim.ready or claim.going)
    return waits and snapshot.captured_at - claim.created < STARTUP


def list_ordered_nodes(snapshot: Snapshot) -> list[AddedNode]:
    """Return the ordered nodes that have no Node object yet, as far as their NodeClaims show their resources."""
    ordered, there = [], set(snapshot.nodes.provider_id)
    for claim in snapshot.node_claims or ():
        if claim.node or claim.machine in there or not is_coming(claim, snapshot):
            continue
        if claim.allocatable is None:
            continue
        allocatable = np.zeros(len(snapshot.resources), np.int64)
        try:
            places = fold_amounts(claim.allocatable, snapshot.resources, allocatable)
        except (ValueError, OverflowError):
            continue
        labels = claim.labels or {}
        ordered.append(
            AddedNode(f"NodeClaim {claim.name}", labels, claim.taints, allocatable, places)
        )
    return ordered


class _Candidates:
    """Finds the nodes that Karpenter removes, or may remove next."""

    def __init__(self, snapshot: Snapshot, profile: SchedulerProfile) -> None:
        self._snapshot, self._profile = snapshot, profile
        index = snapshot.nodes.index
        self._claims = {
            index[claim.node]: claim for claim in snapshot.node_claims or () if claim.node in index
        }
        pods = snapshot.pods
        there = np.flatnonzero(pods.living & ~snapshot.per_node).astype(np.int32)
        self._pods: Int32s = there[np.argsort(pods.node[there], kind="stable")]
        self._starts = np.searchsorted(pods.node[self._pods], np.arange(len(index) + 1))
        self._blocking = self._find_blocking()
        self.why: dict[int, tuple[NoticeKind, str]] = dict(self._list_certain())
        """Node -> whether it is or may be removed, and why."""
        may = NoticeKind.CANDIDATE
        for listed in (self._list_drifted, self._list_removable):
            self.why.update([(node, (may, text)) for node, text in listed()])

    def _on(self, node: int) -> Int32s:
        """Return the pods that would be created elsewhere if ``node`` went."""
        return self._pods[self._starts[node] : self._starts[node + 1]]

    def _find_blocking(self) -> Bools:
        """Return the pods (P,) that keep Karpenter from taking their nodes: annotated, or of a PodDisruptionBudget that allows none."""
        snapshot = self._snapshot
        keeps = [
            any(one.protection == "doNotDisrupt" for one in cls.opt_outs)
            for cls in snapshot.classes
        ]
        blocking = np.array(keeps or [False], bool)
        for budget in snapshot.budgets:
            if budget.allowed <= 0:
                blocking[budget.classes] = True
        of_pods: Bools = blocking[snapshot.pods.cls]
        return of_pods

    def _list_certain(self) -> Iterator[tuple[int, tuple[NoticeKind, str]]]:
        """Yield the nodes that are being removed, expire soon, or are empty."""
        for node, claim in self._claims.items():
            if claim.going:
                yield node, (NoticeKind.CLAIM, claim.going)
            elif text := self._judge(node, claim):
                yield node, (NoticeKind.CANDIDATE, text)

    def _judge(self, node: int, claim: NodeClaim) -> str:
        """Return why Karpenter may remove a node, regardless of other nodes; empty if it may not."""
        # A node that should have expired long ago stays: Karpenter has not removed it.
        if abs(claim.expires - self._snapshot.captured_at) < SOON:
            return f"Karpenter is to replace it: NodeClaim {claim.name} expires"
        if Takes.EMPTY in claim.takes and self._may_go(node) and not len(self._on(node)):
            return "Karpenter may remove it: it is empty"
        return ""

    def _list_drifted(self) -> Iterator[tuple[int, str]]:
        """Yield (node, why) for the drifted nodes that are replaced next: in each pool as many as its budgets allow at once.

        Karpenter replaces empty nodes first, then the one that has been drifted for longest. Between equal nodes its choice is
        not known: then none of them is listed.
        """
        drifted: dict[str, list[int]] = {}
        for node, claim in self._claims.items():
            if claim.drifted_since and node not in self.why and self._may_be_replaced(node, claim):
                drifted.setdefault(self._pool_of(claim), []).append(node)
        sizes = Counter(map(self._pool_of, self._claims.values()))
        listed = [
            node
            for pool, nodes in drifted.items()
            for node in self._take_first(
                nodes, self._claims[nodes[0]].pool.limit_drift(sizes[pool])
            )
        ]
        for node in self._take_first(listed, len(self._snapshot.nodes) // 2):
            yield (
                node,
                f"Karpenter is to replace it: NodeClaim {self._claims[node].name} is drifted",
            )

    def _take_first(self, drifted: list[int], most: int) -> list[int]:
        """Return at most so many of the nodes, empty ones first, then those that have been drifted for longest; equal ones all or none."""
        turn = {
            node: (len(self._on(node)) > 0, self._claims[node].drifted_since) for node in drifted
        }
        turns = sorted(turn.values())
        return [node for node in drifted if most >= len(turns) or turn[node] < turns[most]]

    def _may_be_replaced(self, node: int, claim: NodeClaim) -> bool:
        held = claim.waits_for_pods and self._blocking[self._on(node)].any()
        return Takes.DRIFTED in claim.takes and self._may_go(node) and not held

    @staticmethod
    def _pool_of(claim: NodeClaim) -> str:
        return (claim.labels or {}).get(POOL, "")

    def _may_go(self, node: int) -> bool:
        notices = self._snapshot.nodes.notices.get(node, ())
        return not any(notice.kind is NoticeKind.KEEP for notice in notices)

    def _list_removable(self) -> Iterator[tuple[int, str]]:
        """Yield (node, why) for nodes whose pods would all find room on others, and which Karpenter has not looked at since they could."""
        judged = [
            node
            for node, claim in self._claims.items()
            if node not in self.why
            and Takes.UNDERUTILIZED in claim.takes
            and claim.consolidatable_from - self._snapshot.captured_at < SOON
            and not self._has_kept(claim)
            and self._may_go(node)
            and len(self._on(node))
            and not self._blocking[self._on(node)].any()
        ]
        if not judged:
            return
        places = _Places(self._snapshot, self._profile, list(self.why))
        for node in sorted(judged):
            if places.hold(node, self._on(node)):
                yield node, "Karpenter may remove it: its pods fit on other nodes"

    def _has_kept(self, claim: NodeClaim) -> bool:
        """Return whether Karpenter has left a node in place although it may take it for long enough to have looked at it."""
        snapshot = self._snapshot
        if not claim.consolidatable_since:
            return False
        look = min(_LONGEST_LOOK, _LOOK + _LOOK_AT_EACH * len(snapshot.nodes))
        since = max(claim.consolidatable_since, claim.pool.held_until)
        return snapshot.captured_at - since >= look


class _Places:
    """The room on the nodes that are not removed, for the pods of one node at a time; rules between pods are ignored.

    Pods are counted, not placed, so that no order of nodes or pods decides.
    """

    def __init__(self, snapshot: Snapshot, profile: SchedulerProfile, going: list[int]) -> None:
        self._snapshot, nodes = snapshot, snapshot.nodes
        self._model = SchedulerModel(snapshot, profile)
        state = ClusterState(snapshot)
        self._open: Bools = nodes.ready & ~nodes.leaving & ~nodes.unschedulable
        self._open[going] = False
        # Pods take a place each, too.
        self._asked = np.vstack([snapshot.requests, np.ones((1, len(snapshot.classes)), np.int64)])
        places = (nodes.max_pods - state.lasting_count)[None, :]
        room = np.vstack([nodes.allocatable - state.lasting, places])
        self._room: Ints = np.maximum(0, room)
        self._for_class: dict[int, Ints] = {}

    def hold(self, node: int, pods: Int32s) -> bool:
        """Return whether there is room on nodes other than ``node`` for all ``pods``, and for those of each class by themselves."""
        classes, number = np.unique(self._snapshot.pods.cls[pods], return_counts=True)
        others = self._open.copy()
        others[node] = False
        asked = (self._asked[:, classes] * number).sum(axis=1)
        if (asked > self._room[:, others].sum(axis=1)).any():
            return False
        return all(
            self._places(cls)[others].sum() >= count
            for cls, count in zip(classes.tolist(), number.tolist(), strict=True)
        )

    def _places(self, cls: int) -> Ints:
        """Return how many pods of a class each node (N,) has room for."""
        if (known := self._for_class.get(cls)) is None:
            asked = self._asked[:, cls]
            rows = np.flatnonzero(asked)
            known = (self._room[rows] // asked[rows, None]).min(axis=0)
            known *= self._model.static_mask(self._snapshot.classes[cls].replacement)
            self._for_class[cls] = known
        return known
