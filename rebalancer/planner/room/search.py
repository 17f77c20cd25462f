"""Search for the fewest evictions after which a pending pod fits on a node, with a place for each evicted pod.

A waiting pod is placed on a node; some of the pods there leave, and each of them is placed on another node, where other
pods may have to leave in turn. The search is depth first, and allows one more eviction each time it has tried everything:
the first solution has the fewest evictions, and smaller numbers are proven impossible. Work is counted in steps, not in
seconds, so that equal snapshots give equal plans. On large clusters only the most promising nodes are tried, without proof.

Only the final state counts here: victims are gone, and each pod is on the node that the search has chosen. The order of the
moves, and whether the scheduler chooses these nodes, is checked by :mod:`rebalancer.planner.room.walk`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from rebalancer.planner.draft import Draft
from rebalancer.planner.effort import Effort
from rebalancer.planner.gangs import RoomGangs
from rebalancer.planner.room.free import FreeRoom
from rebalancer.planner.room.items import Item, Items, Placing
from rebalancer.planner.room.victims import Victims, Work
from rebalancer.snapshot.columns import Bools, Int32s, Ints

_LOOK = 256
"""Steps between two looks whether planning must end."""


@dataclass(slots=True)
class RoomSearchResult:
    """The result of a search for room."""

    placing: Placing | None
    """The solution; None: there is none, or the search ended before it had one."""
    fewest: int
    """The least number of evictions that can suffice."""
    exhaustive: bool
    """Without a solution: whether everything was tried up to ``Effort.room_moves`` evictions."""


Accept = Callable[[Placing], bool]
"""Whether a way can be gone in some order."""


class RoomSearch:
    """Searches for room in the state of a draft. The state is the same afterwards."""

    def __init__(
        self,
        draft: Draft,
        evictable: Bools,
        closed: Bools,
        effort: Effort,
        stop: Callable[[], str | None],
        gangs: RoomGangs,
    ) -> None:
        """``evictable`` (P,): pods that may leave; ``closed`` (N,): nodes on which nothing is to land.

        ``stop`` returns why planning must end, or None. ``gangs``: of which others leave with a pod.
        """
        self._usable, self._closed = draft.view.usable, closed
        self._stop, self._effort, self.gangs = stop, effort, gangs
        self.snapshot = draft.snapshot
        self.items = Items(draft, closed)
        self.trial = FreeRoom(draft)
        self.victims = Victims(draft, evictable, gangs, self.items, self.trial, effort)
        self.used = 0
        """Steps of all searches so far."""
        self._work = Work()
        self._failed: set[tuple[object, ...]] = set()
        self._take: Callable[[], bool] = lambda: False

    def find(
        self, items: Sequence[Item], accept: Accept, steps: int, least: int = 0, most: int = 0
    ) -> RoomSearchResult:
        """Return the placing of all ``items``, in order, with the fewest evictions that ``accept`` accepts.

        ``steps``: the maximum number of steps. ``least``, ``most``: the range of evictions to try; ``most`` 0: as
        many as the effort allows.
        """
        work = self._work = Work(steps)
        most = most or self._effort.room_moves
        accepted: list[Placing] = []
        refused = [most + 1]

        def take() -> bool:
            placing = Placing(tuple(self.trial.placed.values()))
            if accept(placing):
                accepted.append(placing)
                return True
            refused.append(len(placing.moves))
            return False

        self._take = take
        asks = list(items)[::-1]
        evictions, exhaustive, bound = least, False, least
        for evictions in range(least, most + 1):
            bound = bound if work.doubted else evictions
            self._failed.clear()
            if work.left > 0 and self._search(asks, [], evictions):
                break
            if work.left <= 0 or work.cut:
                break
        else:
            exhaustive = not work.doubted
            bound = bound if work.doubted else most + 1
        self.used += steps - max(0, work.left)
        placing = accepted[-1] if accepted else None
        return RoomSearchResult(placing, min(bound, *refused), exhaustive=exhaustive)

    def nodes_for(self, item: Item) -> Bools:
        """Return the nodes (N,) that allow ``item`` apart from room, under the current rules between pods."""
        nodes = item.nodes.copy()
        if item.source >= 0:
            nodes = self._usable(item.cls) & ~self._closed
        if not item.ruled:
            return nodes
        if item.source < 0:
            return nodes & self.trial.passing(item)
        with self.trial.without(item):
            return nodes & self.trial.passing(item)

    def give_up(self) -> None:
        """End the search; remaining steps are not used."""
        self.used -= max(0, self._work.left)
        self._work.left = 0

    # -- the search ----------------------------------------------------------------------------------------

    def _search(self, asks: list[Item], leaving: list[Item], evictions: int) -> bool:
        """Place the last of ``asks``, then the others, then all that are ``leaving``, with at most ``evictions`` more evictions."""
        work = self._work
        work.left -= 1
        if work.left % _LOOK == 0 and self._stop() is not None:
            self.give_up()
        if not (asks or leaving):
            return self._take()
        if work.left <= 0 or not self._may_do(asks, leaving, evictions):
            return False
        placed = frozenset((pod, node) for pod, (_, node) in self.trial.placed.items())
        key = placed, len(asks), tuple(item.pod for item in leaving), evictions
        if key in self._failed:
            return False
        chosen = self._next(asks, leaving)
        if self._stand(chosen, evictions) or (evictions > 0 and self._make_room(chosen, evictions)):
            return True
        if work.left > 0 and evictions:
            self._failed.add(key)
        return False

    def _may_do(self, asks: Sequence[Item], leaving: Sequence[Item], evictions: int) -> bool:
        """Return whether this number of evictions may suffice for each of ``asks`` alone."""
        if leaving:
            needed: Ints = np.sum([item.requests for item in leaving], axis=0)
            if (needed > np.maximum(0, self.trial.free).sum(axis=1)).any():
                return False
        for item in asks[:-1]:
            if not self.trial.fitting(item).any():
                fewest = self.victims.fewest(item)[item.nodes]
                if fewest.min(initial=self._effort.room_moves + 1) > evictions:
                    return False
        return True

    def _next(self, asks: list[Item], leaving: list[Item]) -> _Chosen:
        """Return the next item to place: an ask, or the item with the fewest possible nodes."""
        if asks:
            item = asks[-1]
            return _Chosen(item, self.trial.fitting(item), asks[:-1], leaving)
        fits = [self.trial.fitting(item) for item in leaving]
        numbers = [
            len(of) if item.late else int(np.count_nonzero(of))
            for item, of in zip(leaving, fits, strict=True)
        ]
        place = min(range(len(leaving)), key=numbers.__getitem__)
        return _Chosen(leaving[place], fits[place], asks, [*leaving[:place], *leaving[place + 1 :]])

    def _stand(self, chosen: _Chosen, evictions: int) -> bool:
        """Place an item where it fits, and all that is left after it."""
        item = chosen.item
        for node in self._emptiest_first(item, chosen.fits):
            with self.trial.standing(item, node):
                if self._search(chosen.asks, chosen.leaving, evictions):
                    return True
        return False

    def _make_room(self, chosen: _Chosen, evictions: int) -> bool:
        """Place an item where others leave for it, and all that is left after it."""
        item, trial = chosen.item, self.trial
        for node in self.find_promising(item, chosen.fits, evictions):
            for victims, late in self.victims.sets(item, node, evictions, self._work):
                others = self.gangs.others(victims, trial.gone, item.limit)
                if others is None or len(victims) + len(others) > evictions:
                    continue
                leaving = [self.items.leaving(pod, item) for pod in victims]
                leaving += [self.items.leaving(pod, item, may_return=True) for pod in others]
                left = evictions - len(leaving)
                with ExitStack() as stack:
                    for one in leaving:
                        stack.enter_context(trial.without(one))
                    if late:
                        leaving.append(item.placed_last(node))
                    else:
                        stack.enter_context(trial.standing(item, node))
                    if self._search(chosen.asks, [*chosen.leaving, *leaving], left):
                        return True
        return False

    # -- which nodes are tried -----------------------------------------------------------------------------

    def _emptiest_first(self, item: Item, fits: Bools) -> list[int]:
        nodes = np.flatnonzero(fits).astype(np.int32)
        if len(nodes) > 1:
            nodes = nodes[np.argsort(-self.trial.slack(item, nodes), kind="stable")]
        return self._most_promising(nodes)

    def find_promising(self, item: Item, fits: Bools, evictions: int) -> list[int]:
        """Return the nodes on which ``item`` fits after at most ``evictions`` evictions, those that need the fewest first."""
        fewest = self.victims.fewest(item)
        able = item.nodes & ~fits & (fewest <= evictions)
        nodes = np.flatnonzero(able).astype(np.int32)
        order = np.lexsort((nodes, -self.trial.slack(item, nodes), fewest[nodes]))
        return self._most_promising(nodes[order])

    def _most_promising(self, nodes: Int32s) -> list[int]:
        self._work.cut |= len(nodes) > self._effort.room_nodes
        first: list[int] = nodes[: self._effort.room_nodes].tolist()
        return first


@dataclass(frozen=True, slots=True)
class _Chosen:
    item: Item
    fits: Bools
    """(N,) the nodes that take it now."""
    asks: list[Item]
    leaving: list[Item]
