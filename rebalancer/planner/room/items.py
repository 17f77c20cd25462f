"""What a search for room places: waiting pods, requested room, and pods that must leave their node."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rebalancer.cost.room_term import Ask
from rebalancer.planner.draft import Draft
from rebalancer.snapshot.columns import Bools, Int32s, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """A pod that needs a place: a pending pod, or a pod that must leave its node."""

    pod: int
    """Row of the pod; below 0 for requested room without a pod."""
    cls: int
    """The class to be scheduled; -1: only the requests count."""
    source: int
    """The node that it leaves, -1 for a waiting pod."""
    requests: Ints
    """(R,) of the resources that the scheduler checks for it, 0 for the others."""
    places: int
    """The number of pods as which it counts on its node."""
    nodes: Bools
    """(N,) the nodes that accept it, by the properties of the nodes alone."""
    ruled: bool
    """Whether rules between pods also restrict its nodes."""
    limit: int
    """The highest priority of pods that may leave for it."""
    root: int
    """The ask for which it needs a place."""
    asked: Int32s
    """The rows of ``requests`` that count: those that are not 0, or of which its node has to have enough for what is there."""
    needs: Ints
    """(K, 1) these."""
    late: bool = False
    """It is placed after the pods that leave: where their replacements are counts for its topology spread."""

    def placed_last(self, node: int) -> Item:
        """Return this item as one that is placed last, on ``node``."""
        nodes = np.zeros(len(self.nodes), bool)
        nodes[node] = self.nodes[node]
        return replace(self, nodes=nodes, late=True)


@dataclass(frozen=True, slots=True)
class Placing:
    """A placing: the node of each item."""

    nodes: tuple[tuple[Item, int], ...]

    @property
    def moves(self) -> list[tuple[Item, int]]:
        """The pods that leave, each with its new node."""
        return [(item, node) for item, node in self.nodes if item.source >= 0]


class Items:
    """Makes the items of one search."""

    def __init__(self, draft: Draft, closed: Bools) -> None:
        """``closed`` (N,): nodes on which no pod that leaves is to land."""
        self._snapshot, self._scheduler, self._closed = draft.snapshot, draft.scheduler, closed
        self._usable = draft.view.usable
        self._known: dict[tuple[int, int, bool], Item] = {}

    def waiting(self, number: int, ask: Ask) -> Item:
        """Return the item to place for the request of this number."""
        nodes, ruled = ask.nodes & ~self._snapshot.nodes.leaving, False
        requests = ask.requests
        if ask.cls >= 0:
            nodes, ruled = nodes & self._usable(ask.cls), self._is_ruled(ask.cls)
            requests = self._requests_of(ask.cls)
        pod = ask.pod if ask.pod >= 0 else -1 - number
        asked = np.flatnonzero(requests > 0).astype(np.int32)
        # Where what is asked for stands on its node already, that has to have enough for what is there.
        counts = np.zeros_like(requests) if ask.counted else requests
        return Item(
            pod=pod,
            cls=ask.cls,
            source=-1,
            requests=counts,
            places=0 if ask.counted else ask.places,
            nodes=nodes,
            ruled=ruled,
            limit=ask.priority,
            root=number,
            asked=asked,
            needs=counts[asked, None],
        )

    def leaving(self, pod: int, cause: Item, *, may_return: bool = False) -> Item:
        """Return the item to place for a pod that leaves because of ``cause``.

        ``may_return``: only others of its gang have to leave; its replacement may land on the same node.
        """
        return self._of_pod(pod, cause.root, cause.limit, may_return=may_return)

    def standing(self, pod: int) -> Item:
        """Return the item to place for a pod that leaves its node, and may come back to it."""
        return self._of_pod(pod, -1, 0, may_return=True)

    def _of_pod(self, pod: int, root: int, limit: int, *, may_return: bool) -> Item:
        key = pod, root, may_return
        if (known := self._known.get(key)) is not None:
            return known
        cls, node = int(self._snapshot.pods.cls[pod]), int(self._snapshot.pods.node[pod])
        replacement = self._snapshot.classes[cls].replacement
        nodes = self._usable(replacement) & ~self._closed
        nodes[node] &= may_return
        requests = self._requests_of(replacement)
        asked = np.flatnonzero(requests > 0).astype(np.int32)
        made = self._known[key] = Item(
            pod=pod,
            cls=replacement,
            source=node,
            requests=requests,
            places=1,
            nodes=nodes,
            ruled=self._is_ruled(replacement),
            limit=limit,
            root=root,
            asked=asked,
            needs=requests[asked, None],
        )
        return made

    def _requests_of(self, cls: int) -> Ints:
        rows = self._scheduler.filters_of(cls).resources.requested_rows(cls)
        requests = np.zeros(len(self._snapshot.resources), np.int64)
        requests[rows] = self._snapshot.requests[rows, cls]
        return requests

    def _is_ruled(self, cls: int) -> bool:
        filters = self._scheduler.filters_of(cls)
        return bool(filters.interacting(cls)) or filters.volumes.of(cls) is not None
