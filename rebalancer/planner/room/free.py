"""The cluster during a search for room: what each node has spare while pods are removed, and items are placed elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from rebalancer.planner.draft import Draft
from rebalancer.planner.room.items import Item
from rebalancer.planner.trial import Trial
from rebalancer.snapshot.columns import Bools, Floats, Int32s, Ints


class FreeRoom:
    """The spare room on each node of a draft's state; steps are undone in reverse order, which restores the state."""

    def __init__(self, draft: Draft) -> None:
        self._draft, self._state, self._nodes = draft, draft.state, draft.snapshot.nodes
        self.gone: set[int] = set()
        """Pods that have left their nodes."""
        self.placed: dict[int, tuple[Item, int]] = {}
        """Pod -> the item placed for it, and its node."""
        self._size = np.maximum(1, self._nodes.allocatable)
        self._trial = Trial(draft.state)

    @property
    def free(self) -> Ints:
        """The spare amounts (R, N)."""
        return self._nodes.allocatable - self._state.lasting

    @property
    def places(self) -> Ints:
        """How many more pods each node (N,) may have."""
        return self._nodes.max_pods.astype(np.int64) - self._state.lasting_count

    # -- what nodes take ---------------------------------------------------------------------------------

    def fitting(self, item: Item) -> Bools:
        """Return the nodes (N,) that take ``item`` now."""
        fits = item.nodes & (self.places >= item.places)
        fits &= (self.free[item.asked] >= item.needs).all(axis=0)
        if item.ruled and fits.any():
            fits &= self.passing(item)
        return fits

    def lacking(self, item: Item) -> Ints:
        """Return the amounts (R + 1, N) that each node lacks for ``item`` now, the number of pods in the last row; 0: none."""
        need = np.zeros((len(item.requests) + 1, len(item.nodes)), np.int64)
        need[item.asked] = item.needs - self.free[item.asked]
        need[-1] = item.places - self.places
        return np.maximum(0, need)

    def lacking_on(self, item: Item, node: int) -> Ints:
        """Return :meth:`lacking` (R + 1,) of one node."""
        lacking = np.zeros(len(item.requests) + 1, np.int64)
        lacking[item.asked] = item.needs[:, 0] - self.free[item.asked, node]
        lacking[-1] = item.places - self.places[node]
        return np.maximum(0, lacking)

    def slack(self, item: Item, nodes: Int32s) -> Floats:
        """Return for each of ``nodes`` the smallest share of the requests of ``item`` that it would have spare beside it."""
        left = (self.free[item.asked][:, nodes] - item.needs) / self._size[item.asked][:, nodes]
        slack: Floats = left.min(axis=0, initial=1.0)
        return slack

    def passing(self, item: Item, *, spread: bool = True) -> Bools:
        """Return the nodes (N,) that the rules between pods allow; topology spread is checked only on request."""
        left_out = ("NodeResourcesFit",) if spread else ("NodeResourcesFit", "PodTopologySpread")
        return self._draft.scheduler.feasible_but(self._state, item.cls, left_out)

    # -- steps -------------------------------------------------------------------------------------------

    @contextmanager
    def standing(self, item: Item, node: int) -> Iterator[None]:
        """Place an item on a node within a ``with`` block."""
        before = self._trial.here()
        if item.cls >= 0 and item.pod >= 0:
            self._trial.place(item.pod, node, item.cls)
        else:
            self._state.reserve(item.requests, item.places, node)
        self.placed[item.pod] = item, node
        try:
            yield
        finally:
            del self.placed[item.pod]
            self._trial.undo(before)

    @contextmanager
    def without(self, item: Item) -> Iterator[None]:
        """Let the pod of an item be gone from its node for a while."""
        before = self._trial.here()
        self._trial.evict(item.pod, gone=True)
        self.gone.add(item.pod)
        try:
            yield
        finally:
            self.gone.discard(item.pod)
            self._trial.undo(before)
