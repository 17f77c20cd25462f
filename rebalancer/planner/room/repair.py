"""Find room that takes many evictions by local search, where trying all combinations would take too long.

The asks are placed on nodes even if they do not fit. Then one pod after the other moves to the node that overcommits nodes
the least, until none is overcommitted: a tabu search, which does not undo its last steps, with a weight of each node that
grows while the node is overcommitted. Moves that turn out to be unnecessary are undone. It proves nothing, and moves no gang.
Each step evaluates all pods of overcommitted nodes on all nodes, as arrays. Rules between pods count as they are before any
move, and no two equal pods with such rules come to one node: the caller checks the order of the moves anyway.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from rebalancer.planner.room.items import Item, Placing
from rebalancer.planner.room.search import Accept, RoomSearch
from rebalancer.snapshot.columns import Bools, Floats, Int32s, Ints

_LOOK = 64
"""Steps between two looks whether planning must end."""
_TENURE = 8
"""For so many steps a pod does not return to a node that it has left."""
_OVERCOMMITTED = 1000.0
"""Penalty for a whole node of overcommitted requests; one eviction is 1."""
_REFUSED = 3
"""So many ways that cannot be gone, and the next start is tried."""


class RoomRepair:
    """Places requests and the pods that may leave for them on nodes. Rows: the requests, then these pods."""

    def __init__(
        self, search: RoomSearch, items: Sequence[Item], stop: Callable[[], str | None]
    ) -> None:
        self._search, self._items, self._stop = search, items, stop
        self._widest = max(items, key=lambda item: item.limit)
        pods = search.victims.all_for(self._widest)
        self._pods = pods[[not search.gangs.unit_of(pod) for pod in pods.tolist()]]
        snapshot = search.snapshot
        cls = snapshot.pods.cls[self._pods]
        self._classes, kind = np.unique(cls, return_inverse=True)
        asks, ones = len(items), np.ones((1, len(cls)), np.int64)
        leaving = [
            search.items.leaving(int(self._pods[np.argmax(kind == k)]), self._widest)
            for k in range(len(self._classes))
        ]
        needs = np.stack([item.requests for item in (*items, *leaving)], axis=1)
        places = np.array([[item.places for item in (*items, *leaving)]], np.int64)
        self._group: Int32s = np.concatenate([np.arange(asks), asks + kind]).astype(np.int32)
        self._needs: Ints = np.vstack([needs, places])[:, self._group]
        """(R + 1, M) what each row requests on its new node, the places for pods last."""
        self._holds = self._needs.copy()
        """(R + 1, M) what it frees on its own."""
        self._holds[:, asks:] = np.vstack([snapshot.requests[:, cls], ones])
        self._open: Bools = np.stack([search.nodes_for(item) for item in (*items, *leaving)])
        """(G, N) the nodes that accept the rows of a group."""
        self._apart = np.array([item.ruled for item in (*items, *leaving)], bool)
        self._home: Int32s = np.concatenate(
            [np.full(asks, -1), snapshot.pods.node[self._pods]]
        ).astype(np.int32)
        self._all_free: Ints = np.vstack([search.trial.free, search.trial.places])
        self._size = np.maximum(1, np.vstack([snapshot.nodes.allocatable, snapshot.nodes.max_pods]))
        self._short_anyway = np.minimum(0, self._all_free)
        for item in items:
            if not item.needs.any():
                self._short_anyway[np.ix_(item.asked, np.flatnonzero(item.nodes))] = 0
        self._free, self._at, self._moved = self._all_free.copy(), self._home.copy(), 0
        self._weights = np.ones(self._free.shape[1])
        self.used = 0
        """Steps."""

    def best(self, accept: Accept, steps: int, most: int) -> Placing | None:
        """Return the placing with the fewest evictions, at most ``most``, among those that were tried and that ``accept`` accepts."""
        best: Placing | None = None
        none = np.zeros(len(self._weights), bool)
        starts = self._search.find_promising(self._items[0], none, most)
        for start in starts:
            refused: set[frozenset[tuple[int, int]]] = set()
            recent: deque[tuple[int, int]] = deque(maxlen=_TENURE)
            self._begin(start)
            for _ in range(steps // len(starts)):
                self.used += 1
                if self.used % _LOOK == 0 and self._stop() is not None:
                    return best
                over = self._over(self._free)
                if not over.any():
                    self._send_home()
                    name = frozenset((row, int(self._at[row])) for row in self._away())
                    if self._moved <= most and name not in refused:
                        placing = self._placing()
                        if placing is not None and accept(placing):
                            best, most = placing, self._moved - 1
                        else:
                            refused.add(name)
                if len(refused) >= _REFUSED or most < 1:
                    break
                if not self._step(over, recent, most):
                    break
        return best

    def _begin(self, start: int) -> None:
        """Place all asks on nodes, the first one on ``start``, where it remains."""
        self._free[:], self._at[:], self._moved = self._all_free, self._home, 0
        self._weights[:] = 1.0
        for row in range(len(self._items)):
            node = start
            if row:
                more = self._more_over(np.array([row], np.int32))[0]
                more[~self._open[row]] = np.inf
                node = int(more.argmin())
            self._put(row, node)

    # -- one step ------------------------------------------------------------------------------------------

    def _step(self, over: Floats, recent: deque[tuple[int, int]], most: int) -> bool:
        """Move the row whose move improves the score most; return False if none can move."""
        may = (over > 0)[self._at] | (self._at != self._home)
        may[0] = False
        rows = np.flatnonzero(may).astype(np.int32)
        if not len(rows):
            return False
        score = self._scores(rows, over)
        score[~self._able(rows, recent, most)] = np.inf
        place, node = divmod(int(score.argmin()), score.shape[1])
        if not np.isfinite(score[place, node]):
            return False
        if score[place, node] >= -0.5:
            self._weights[over > 0] += 1.0
        row = int(rows[place])
        recent.append((row, int(self._at[row])))
        self._put(row, node)
        return True

    def _scores(self, rows: Int32s, over: Floats) -> Floats:
        """Return the score (K, N) of moving each of ``rows`` to each node: less is better."""
        at, home = self._at[rows], self._home[rows]
        held = np.where(at == home, self._holds[:, rows], self._needs[:, rows])
        left = self._over(self._free[:, at] + held, at)
        less = (over[at] - left) * self._weights[at]
        score = _OVERCOMMITTED * (self._more_over(rows) * self._weights - less[:, None])
        score += ((home >= 0) & (at == home))[:, None]
        came = np.flatnonzero(home >= 0)
        score[came, home[came]] -= 1
        return score

    def _able(self, rows: Int32s, recent: deque[tuple[int, int]], most: int) -> Bools:
        """Return to which nodes each of ``rows`` may move (K, N)."""
        at, home = self._at[rows], self._home[rows]
        able: Bools = self._open[self._group[rows]]
        if self._moved >= most:
            able[(home >= 0) & (at == home)] = False
        for other in self._away():
            if self._apart[self._group[other]]:
                alike = (self._group[rows] == self._group[other]) & (rows != other)
                able[alike, self._at[other]] = False
        came = np.flatnonzero(home >= 0)
        able[came, home[came]] = True
        able[np.arange(len(rows)), at] = False
        for row, node in recent:
            place = int(np.searchsorted(rows, row))
            if place < len(rows) and rows[place] == row:
                able[place, node] = False
        return able

    def _over(self, free: Ints, nodes: Int32s | None = None) -> Floats:
        """Return by how much ``free`` (R + 1, K) of ``nodes`` is too little: shares of what they have, over all resources."""
        short, size = self._short_anyway, self._size
        if nodes is not None:
            short, size = short[:, nodes], size[:, nodes]
        over: Floats = (np.maximum(0, short - free) / size).sum(axis=0)
        return over

    def _more_over(self, rows: Int32s) -> Floats:
        """Return by how much more each node would be overcommitted (K, N) with each of ``rows``."""
        needs = self._needs[:, rows]
        more = np.zeros((len(rows), self._free.shape[1]))
        for resource in np.flatnonzero(needs.any(axis=1)).tolist():
            short = self._short_anyway[resource] - self._free[resource]
            added = np.maximum(0, short + needs[resource][:, None]) - np.maximum(0, short)
            more += added / self._size[resource]
        return more

    def _put(self, row: int, node: int) -> None:
        before, home = int(self._at[row]), int(self._home[row])
        if before >= 0:
            self._free[:, before] += (self._holds if before == home else self._needs)[:, row]
        self._free[:, node] -= (self._holds if node == home else self._needs)[:, row]
        self._at[row] = node
        if home >= 0:
            self._moved += int(node != home) - int(before != home)

    # -- ways ----------------------------------------------------------------------------------------------

    def _away(self) -> list[int]:
        away: list[int] = np.flatnonzero(self._at != self._home).tolist()
        return away

    def _send_home(self) -> None:
        """Return pods to their own nodes as long as no node is overcommitted by it."""
        for row in self._away():
            home, node = int(self._home[row]), int(self._at[row])
            if home < 0:
                continue
            self._put(row, home)
            if self._over(self._free[:, [home]], np.array([home], np.int32)).any():
                self._put(row, node)

    def _placing(self) -> Placing | None:
        """Return the present node of each item, each pod with the ask for which it leaves; None if one leaves for no ask."""
        placed = [(item, int(self._at[row])) for row, item in enumerate(self._items)]
        comes = {node: item for item, node in sorted(placed, key=lambda one: one[0].limit)}
        rest = [row for row in self._away() if self._home[row] >= 0]
        while rest:
            ready = [row for row in rest if int(self._home[row]) in comes]
            if not ready:
                return None
            for row in ready:
                cause, node = comes[int(self._home[row])], int(self._at[row])
                pod = int(self._pods[row - len(self._items)])
                if not self._search.victims.may_leave(np.array([pod], np.int32), cause.limit)[0]:
                    return None
                item = self._search.items.leaving(pod, self._items[cause.root])
                placed.append((item, node))
                comes.setdefault(node, item)
            rest = [row for row in rest if row not in set(ready)]
        return Placing(tuple(placed))
