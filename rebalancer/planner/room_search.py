"""Search for the fewest evictions after which a pending pod fits on a node, with a place for each evicted pod.

A pod that waits goes to a node; of the pods there, some leave, and each of them goes to another node, where others may have
to leave in their turn. Depth first, with one eviction more allowed each time nothing was left to try: what comes first is the
fewest, and what was tried to its end before is proven to be impossible. Work is counted in steps, not in seconds, so that
equal snapshots give equal plans. On large clusters only the most promising nodes are tried, and nothing is proven.

Only the end counts here: victims are gone, and each pod stands where the search has put it. In which order, and whether the
scheduler puts them there, :mod:`rebalancer.planner.room_walk` asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import combinations, combinations_with_replacement

import numpy as np

from rebalancer.cost.room_term import Ask
from rebalancer.planner.draft import Draft
from rebalancer.planner.effort import Effort
from rebalancer.planner.room_gangs import RoomGangs
from rebalancer.snapshot.columns import Bools, Floats, Int32s, Ints

_LOOK = 256
"""Steps between two looks whether planning must end."""
_LATE_PODS = 2
"""So many pods leave at most where only their replacements' places make the topology spread allow it."""
_RULED_PODS = 16
"""Pods elsewhere that may have to leave for the sake of a rule between pods."""


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """A pod that needs a place: a pending pod, or a pod that must leave its node."""

    pod: int
    """Row of the pod; below 0 for room that no pod asks for by itself."""
    cls: int
    """What is to be scheduled, -1: only the requests count."""
    source: int
    """The node that it leaves, -1 for what waits."""
    requests: Ints
    """(R,) of the resources that the scheduler checks for it, 0 for the others."""
    places: int
    """How many pods it counts as on its node."""
    nodes: Bools
    """(N,) where it may go as far as nodes say."""
    ruled: bool
    """Rules between pods say where it may go, too."""
    limit: int
    """Only pods of at most this priority leave for it."""
    root: int
    """For which of the asks it needs a place."""
    asked: Int32s
    """The rows of ``requests`` that count: those that are not 0, or of which its node has to have enough for what is there."""
    needs: Ints
    """(K, 1) these."""
    size: float
    """The largest share of the largest node that it asks."""
    late: bool = False
    """It is placed after the pods that leave: where their replacements are counts for its topology spread."""


@dataclass(frozen=True, slots=True)
class Placing:
    """A placing: the node of each item."""

    nodes: tuple[tuple[Item, int], ...]

    @property
    def moves(self) -> list[tuple[Item, int]]:
        """The pods that leave, each with its new node."""
        return [(item, node) for item, node in self.nodes if item.source >= 0]


@dataclass(slots=True)
class RoomSearchResult:
    """The result of a search for room."""

    placing: Placing | None
    """None: there is no way, or the search ended before it met one."""
    fewest: int
    """It takes at least so many evictions."""
    exhaustive: bool
    """Without a way: all has been tried up to ``Effort.room_moves`` evictions."""


_Choices = tuple[Ints, Ints, Ints]
"""Choices of classes (K, size), what each gives (R + 1, K), and what it gives without each of its pods (R + 1, K, size)."""

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
        self._stop, self.gangs = stop, gangs
        self._draft, self._effort = draft, effort
        self.snapshot, self._state = draft.snapshot, draft.state
        self._closed = closed
        snapshot, state = self.snapshot, self._state
        self.free = snapshot.nodes.allocatable - state.lasting
        self.places = snapshot.nodes.max_pods.astype(np.int64) - state.lasting_count
        pods = state.unmoved()
        pods = pods[evictable[pods]]
        pods = pods[gangs.are_whole(pods)]
        priority = np.array([of.priority for of in snapshot.classes] or [0], np.int64)
        cost = draft.problem.costs[pods]
        node, cls = snapshot.pods.node[pods], snapshot.pods.cls[pods]
        order = np.lexsort((pods, cost, cls, node))
        self._pods, self._priority = pods[order], priority
        self._starts = np.searchsorted(node[order], np.arange(len(snapshot.nodes) + 1))
        self._gone: set[int] = set()
        self._placed: dict[int, tuple[Item, int]] = {}
        """By number: an item is placed once."""
        self._left, self.used = 0, 0
        self._cut = False
        """Something was left out for the sake of time."""
        self._doubted = False
        """The same, but only of sets of pods that rarely would do."""
        self._failed: set[tuple[object, ...]] = set()
        self._take: Callable[[], bool] = lambda: False
        self._alike_asks: dict[int, list[int]] = {}
        self._known_choices: dict[object, tuple[list[list[int]], list[_Choices]]] = {}
        self._size = np.maximum(1, snapshot.nodes.allocatable)
        self._most = self._size.max(axis=1, initial=1)
        self._steps: list[tuple[Item, int]] = []
        """What was done in the arrays of the search, in order: an item placed on a node, or (-1) gone from its own."""
        self._followed = 0
        """So many of these steps the state has followed: rules between pods are rarely asked about."""
        self._items: dict[tuple[int, int, bool], Item] = {}

    # -- what is asked -----------------------------------------------------------------------------------

    def item_of(self, number: int, ask: Ask) -> Item:
        """Return the item to place for a request."""
        nodes, ruled = ask.nodes & ~self.snapshot.nodes.leaving, False
        requests = ask.requests
        if ask.cls >= 0:
            filters = self._draft.scheduler.filters_of(ask.cls)
            nodes, ruled = nodes & filters.static(ask.cls), self._is_ruled(ask.cls)
            requests = self._asked(ask.cls)
        pod = ask.pod if ask.pod >= 0 else -1 - number
        item = _item(
            pod,
            ask.cls,
            -1,
            requests,
            ask.places,
            nodes,
            ruled=ruled,
            limit=ask.priority,
            root=number,
            most=self._most,
        )
        if not ask.counted:
            return item
        nothing = np.zeros_like(requests)
        return replace(item, requests=nothing, needs=nothing[item.asked, None], places=0)

    def find(
        self, items: Sequence[Item], accept: Accept, steps: int, least: int = 0, most: int = 0
    ) -> RoomSearchResult:
        """Return the placing of all ``items``, in order, with the fewest evictions that ``accept`` accepts.

        ``steps``: the maximum number of steps. ``least``, ``most``: the range of evictions to try; ``most`` 0: as
        many as the effort allows.
        """
        self._left, self._cut, self._doubted = steps, False, False
        self._alike_asks = _twins(items)
        most = most or self._effort.room_moves
        found: list[Placing] = []
        refused = [most + 1]

        def take() -> bool:
            placing = Placing(tuple(self._placed.values()))
            if accept(placing):
                found.append(placing)
                return True
            refused.append(len(placing.moves))
            return False

        self._take = take
        asks = list(items)[::-1]
        evictions, exhaustive, bound = least, False, least
        for evictions in range(least, most + 1):
            bound = bound if self._doubted else evictions
            if self._tried(asks, evictions):
                self.used += steps - max(0, self._left)
                return RoomSearchResult(found[-1], min(bound, *refused), exhaustive=False)
            if self._left <= 0 or self._cut:
                break
        else:
            exhaustive = not self._doubted
            bound = bound if self._doubted else most + 1
        self.used += steps - max(0, self._left)
        placing = found[-1] if found else None
        return RoomSearchResult(placing, min(bound, *refused), exhaustive=exhaustive)

    def _tried(self, asks: list[Item], evictions: int) -> bool:
        """Search with so many evictions, if steps are left."""
        self._failed.clear()
        return self._left > 0 and self._search(asks, [], evictions)

    def lacking(self, item: Item) -> Ints:
        """Return what each node lacks for ``item`` now (R + 1, N), the number of pods in the last row; 0: nothing."""
        need = np.zeros((len(item.requests) + 1, len(item.nodes)), np.int64)
        need[item.asked] = item.needs - self.free[item.asked]
        need[-1] = item.places - self.places
        return np.maximum(0, need)

    def may_leave(self, pods: Int32s, limit: int) -> Bools:
        """Return which of ``pods`` (K,) may leave for an item of priority ``limit``."""
        may: Bools = np.isin(pods, self._pods)
        may &= self._priority[self.snapshot.pods.cls[pods]] <= limit
        return may

    def evictable_for(self, item: Item) -> Int32s:
        """Return the pods that may leave for ``item``, node by node."""
        pods: Int32s = self._pods[self._priority[self.snapshot.pods.cls[self._pods]] <= item.limit]
        return pods

    def nodes_for(self, item: Item) -> Bools:
        """Return the nodes (N,) that allow ``item`` apart from room, under the current rules between pods."""
        nodes = item.nodes.copy()
        if item.source >= 0:
            nodes = self._draft.scheduler.static_mask(item.cls) & ~self._closed
        if not item.ruled:
            return nodes
        if item.source < 0:
            return nodes & self._passing(item)
        with self._without(item):
            return nodes & self._passing(item)

    def nodes_to_try(self, item: Item, evictions: int) -> list[int]:
        """Return the nodes where ``item`` may fit after this many evictions, those with the fewest evictions first."""
        fits = np.zeros(len(item.nodes), bool)
        return self._promising(item, fits, evictions)

    def give_up(self) -> None:
        """End the search; remaining steps are not used."""
        self.used -= max(0, self._left)
        self._left = 0

    # -- the search ----------------------------------------------------------------------------------------

    def _search(self, asks: list[Item], leaving: list[Item], evictions: int) -> bool:
        """Place the last of ``asks``, then the others, then all that are ``leaving``, with so many ``evictions`` more at most."""
        self._left -= 1
        if self._left % _LOOK == 0 and self._stop() is not None:
            self.give_up()
        if not (asks or leaving):
            return self._take()
        if self._left <= 0 or not self._may_do(asks, leaving, evictions):
            return False
        key = self._key(asks, leaving, evictions)
        if key in self._failed:
            return False
        chosen = self._next(asks, leaving)
        found = self._stand(chosen, evictions)
        found = found or (evictions > 0 and self._make_room(chosen, evictions))
        if not found and self._left > 0 and evictions:
            self._failed.add(key)
        return found

    def _key(self, asks: list[Item], leaving: list[Item], evictions: int) -> tuple[object, ...]:
        placed = frozenset((pod, node) for pod, (_, node) in self._placed.items())
        return placed, len(asks), tuple(item.pod for item in leaving), evictions

    def _may_do(self, asks: Sequence[Item], leaving: Sequence[Item], evictions: int) -> bool:
        """Return whether so many evictions may do for each of ``asks`` by itself."""
        if leaving:
            needed = np.sum([item.requests for item in leaving], axis=0)
            if (needed > np.maximum(0, self.free).sum(axis=1)).any():
                return False
        for item in asks[:-1]:
            if not self._fitting(item).any() and self._fewest_for(item) > evictions:
                return False
        return True

    def _fewest_for(self, item: Item) -> int:
        return int(self._least(item)[item.nodes].min(initial=len(self._pods) + 1))

    def _next(self, asks: list[Item], leaving: list[Item]) -> _Chosen:
        """Return what is placed next: an ask, or what has the fewest nodes to go to."""
        if asks:
            item = asks[-1]
            return _Chosen(item, self._fitting(item), asks[:-1], leaving)
        fits = [self._fitting(item) for item in leaving]
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
            with self._standing(item, node):
                if self._search(chosen.asks, chosen.leaving, evictions):
                    return True
        return False

    def _make_room(self, chosen: _Chosen, evictions: int) -> bool:
        """Place an item where others leave for it, and all that is left after it."""
        item = chosen.item
        for node in self._promising(item, chosen.fits, evictions):
            for victims, late in self._victims(item, node, evictions):
                others = self.gangs.others(victims, self._gone, item.limit)
                if others is None or len(victims) + len(others) > evictions:
                    continue
                leaving = [self.leaving(pod, item) for pod in victims]
                leaving += [self.leaving(pod, item, may_return=True) for pod in others]
                left = evictions - len(leaving)
                with ExitStack() as stack:
                    for one in leaving:
                        stack.enter_context(self._without(one))
                    if late:
                        leaving.append(_late(item, node))
                    else:
                        stack.enter_context(self._standing(item, node))
                    if self._search(chosen.asks, [*chosen.leaving, *leaving], left):
                        return True
        return False

    def _fitting(self, item: Item) -> Bools:
        """Return the nodes (N,) that take ``item`` now."""
        fits = item.nodes & (self.places >= item.places)
        fits &= (self.free[item.asked] >= item.needs).all(axis=0)
        if item.ruled and fits.any():
            fits &= self._passing(item)
        return fits

    def _emptiest_first(self, item: Item, fits: Bools) -> list[int]:
        nodes = np.flatnonzero(fits).astype(np.int32)
        twin = self._twin_of(item)
        if twin is not None:
            nodes = nodes[nodes >= twin]
        if len(nodes) > 1:
            nodes = nodes[np.argsort(-self._slack(item, nodes), kind="stable")]
        if len(nodes) > self._effort.room_nodes:
            self._cut = True
        chosen: list[int] = nodes[: self._effort.room_nodes].tolist()
        return chosen

    def _twin_of(self, item: Item) -> int | None:
        """Return the last node of an item like this one that is placed: which of them stands where makes no difference."""
        twins: Sequence[int] = self._alike_asks.get(item.root, ())
        if item.source >= 0:
            twins = [
                pod
                for pod, (other, _) in self._placed.items()
                if other.source == item.source and other.cls == item.cls and pod != item.pod
            ]
        return max((self._placed[pod][1] for pod in twins if pod in self._placed), default=None)

    def _passing(self, item: Item, *, spread: bool = True) -> Bools:
        """Return the nodes (N,) that the rules between pods allow, those of topology spread only if asked."""
        for step, node in self._steps[self._followed :]:
            if node < 0:
                self._state.evict(step.pod)
                self._state.hide_newest_victim()
            elif step.cls >= 0 and step.pod >= 0:
                self._state.place(step.pod, step.cls, node)
        self._followed = len(self._steps)
        left_out = ("NodeResourcesFit",) if spread else ("NodeResourcesFit", "PodTopologySpread")
        return self._draft.scheduler.filters_of(item.cls).passing_but(
            self._state, item.cls, left_out
        )

    def _slack(self, item: Item, nodes: Int32s) -> Floats:
        """Return the smallest share of what ``item`` asks that each of ``nodes`` would have free beside it."""
        left = (self.free[item.asked][:, nodes] - item.needs) / self._size[item.asked][:, nodes]
        slack: Floats = left.min(axis=0, initial=1.0)
        return slack

    def _promising(self, item: Item, fits: Bools, evictions: int) -> list[int]:
        """Return the nodes on which ``item`` fits after at most ``evictions`` evictions, those that need the fewest first."""
        least = self._least(item)
        able = item.nodes & ~fits & (least <= evictions)
        nodes = np.flatnonzero(able).astype(np.int32)
        twin = self._twin_of(item)
        if twin is not None:
            nodes = nodes[nodes >= twin]
        order = np.lexsort((nodes, -self._slack(item, nodes), least[nodes]))
        if len(nodes) > self._effort.room_nodes:
            self._cut = True
        chosen: list[int] = nodes[order][: self._effort.room_nodes].tolist()
        return chosen

    def _least(self, item: Item) -> Ints:
        """Return how many pods have to leave each node (N,) at least: the largest first, for each resource by itself."""
        lacking = self.lacking(item)
        least = np.ones(lacking.shape[1], np.int64)
        sums = self._sums[item.limit]
        starts, ends = self._starts[:-1], self._starts[1:]
        for row in np.flatnonzero(lacking.any(axis=1)).tolist():
            total = sums[row]
            before = total[starts]
            count = np.searchsorted(total, before + lacking[row], side="left") - starts
            never = total[ends] - before < lacking[row]
            least = np.maximum(least, np.where(never, len(self._pods) + 1, count))
        return least

    @cached_property
    def _sums(self) -> _Sums:
        return _Sums(self)

    def sums_of(self, limit: int) -> Ints:
        """Return the cumulative requests of the largest pods on each node, for all nodes in one array (R + 1, V + 1)."""
        cls = self.snapshot.pods.cls[self._pods]
        asks = np.vstack([self.snapshot.requests[:, cls], np.ones((1, len(cls)), np.int64)])
        asks[:, self._priority[cls] > limit] = 0
        node = self.snapshot.pods.node[self._pods]
        sums = np.zeros((len(asks), len(cls) + 1), np.int64)
        for row, of_row in enumerate(asks):
            sums[row, 1:] = np.cumsum(of_row[np.lexsort((-of_row, node))])
        return sums

    # -- who leaves ----------------------------------------------------------------------------------------

    def _victims(self, item: Item, node: int, most: int) -> Iterator[tuple[list[int], bool]]:
        """Yield the smallest sets of pods without which ``item`` fits on ``node``, none of which holds another.

        With each, whether it may fit only once they stand elsewhere.
        """
        lacking = self._lacking_on(item, node)
        if item.ruled and not self._passing(item)[node]:
            here = self._evictable_on(node, item.limit)
            yield from self._ruled_victims(item, node, lacking, here, most)
            return
        groups, choices = self._choices(node, item.limit)
        for size in range(1, min(most, self._effort.room_victims) + 1):
            if size > len(choices):
                break
            combos, sums, without = choices[size - 1]
            self._left -= 1 + len(combos) // 64
            able = (sums >= lacking[:, None]).all(axis=0)
            # None that would do without one of its pods.
            able &= ~np.asarray((without >= lacking[:, None, None]).all(axis=0)).any(axis=1)
            for combo in combos[able].tolist():
                taken = [0] * len(groups)
                victims: list[int] = []
                for group in combo:
                    if taken[group] < len(groups[group]):
                        victims.append(groups[group][taken[group]])
                    taken[group] += 1
                if len(victims) == size:
                    yield victims, False

    def _lacking_on(self, item: Item, node: int) -> Ints:
        """Return :meth:`lacking` (R + 1,) of one node."""
        lacking = np.zeros(len(item.requests) + 1, np.int64)
        lacking[item.asked] = item.needs[:, 0] - self.free[item.asked, node]
        lacking[-1] = item.places - self.places[node]
        return np.maximum(0, lacking)

    def _choices(self, node: int, limit: int) -> tuple[list[list[int]], list[_Choices]]:
        """Return the pods of ``node`` that may leave, by class, and of each number of them all choices of classes."""
        pods = self._pods[self._starts[node] : self._starts[node + 1]].tolist()
        key = node, limit, frozenset(pod for pod in pods if pod in self._gone)
        if (known := self._known_choices.get(key)) is None:
            groups = self._alike(self._evictable_on(node, limit))
            asks = self._asks([group[0] for group in groups])
            most = min(sum(map(len, groups)), self._effort.room_victims)
            made: list[_Choices] = []
            for size in range(1, most + 1):
                combos = _combos(len(groups), size)
                sums = asks[:, combos].sum(axis=2)
                made.append((combos, sums, sums[:, :, None] - asks[:, combos]))
            known = self._known_choices[key] = groups, made
        return known

    def _ruled_victims(
        self, item: Item, node: int, lacking: Ints, here: Sequence[int], most: int
    ) -> Iterator[tuple[list[int], bool]]:
        """Yield the same where rules between pods count: each set is tried."""
        firsts = [pod for group in self._alike(here) for pod in group[:most]]
        pods = [*firsts, *self._rivals(item, node)]
        asks = self._asks(pods)
        at_home = np.array([self.snapshot.pods.node[pod] == node for pod in pods], bool)
        asks[:, ~at_home] = 0
        done: list[set[int]] = []
        for size in range(1, min(most, len(pods), self._effort.room_victims) + 1):
            for combo in combinations(range(len(pods)), size):
                self._left -= 1
                if self._left <= 0:
                    return
                chosen = {pods[place] for place in combo}
                if (asks[:, combo].sum(axis=1) < lacking).any() or any(s <= chosen for s in done):
                    continue
                with ExitStack() as stack:
                    for place in combo:
                        stack.enter_context(self._without(self.leaving(pods[place], item)))
                    passes = bool(self._passing(item)[node])
                    spread_alone = not passes and bool(self._passing(item, spread=False)[node])
                if passes:
                    done.append(chosen)
                if spread_alone and size > _LATE_PODS:
                    self._doubted = True
                elif passes or spread_alone:
                    yield [pods[place] for place in combo], not passes

    def _rivals(self, item: Item, node: int) -> list[int]:
        """Return pods on other nodes to which the rules of ``item`` refer, one of each class and node."""
        filters = self._draft.scheduler.filters_of(item.cls)
        classes = np.array(sorted(filters.interacting(item.cls)), np.int32)
        cls, nodes = self.snapshot.pods.cls[self._pods], self.snapshot.pods.node[self._pods]
        rows = np.flatnonzero(
            np.isin(cls, classes) & (nodes != node) & (self._priority[cls] <= item.limit)
        )
        _, first = np.unique(np.stack([cls[rows], nodes[rows]]), axis=1, return_index=True)
        pods = [pod for pod in self._pods[rows[np.sort(first)]].tolist() if pod not in self._gone]
        if len(pods) > _RULED_PODS:
            self._cut = True
        return pods[:_RULED_PODS]

    def _evictable_on(self, node: int, limit: int) -> list[int]:
        pods = self._pods[self._starts[node] : self._starts[node + 1]]
        pods = pods[self._priority[self.snapshot.pods.cls[pods]] <= limit]
        return [pod for pod in pods.tolist() if pod not in self._gone]

    def _alike(self, pods: Sequence[int]) -> list[list[int]]:
        """Return ``pods`` of one node by class: any of a class will do, the cheapest first."""
        groups: dict[int, list[int]] = {}
        for pod in pods:
            groups.setdefault(int(self.snapshot.pods.cls[pod]), []).append(pod)
        return list(groups.values())

    def _asks(self, pods: Sequence[int]) -> Ints:
        """Return what ``pods`` hold (R + 1, K), the places for pods last."""
        cls = self.snapshot.pods.cls[list(pods)]
        return np.vstack([self.snapshot.requests[:, cls], np.ones((1, len(cls)), np.int64)])

    def leaving(self, pod: int, cause: Item, *, may_return: bool = False) -> Item:
        """Return the item to place for a pod that leaves because of ``cause``.

        ``may_return``: only others of its gang have to; its replacement may stand where it stood.
        """
        key = pod, cause.root, may_return
        known = self._items.get(key)
        if known is None:
            cls, node = int(self.snapshot.pods.cls[pod]), int(self.snapshot.pods.node[pod])
            replacement = self.snapshot.classes[cls].replacement
            nodes = self._draft.scheduler.static_mask(replacement) & ~self._closed
            nodes[node] &= may_return
            known = self._items[key] = _item(
                pod,
                replacement,
                node,
                self._asked(replacement),
                1,
                nodes,
                ruled=self._is_ruled(replacement),
                limit=cause.limit,
                root=cause.root,
                most=self._most,
            )
        return known

    def _asked(self, cls: int) -> Ints:
        rows = self._draft.scheduler.filters_of(cls).resources.requested_rows(cls)
        requests = np.zeros(len(self.snapshot.resources), np.int64)
        requests[rows] = self.snapshot.requests[rows, cls]
        return requests

    def _is_ruled(self, cls: int) -> bool:
        filters = self._draft.scheduler.filters_of(cls)
        return bool(filters.interacting(cls)) or filters.unusual(cls)

    # -- the state while it is tried -----------------------------------------------------------------------

    @contextmanager
    def _standing(self, item: Item, node: int) -> Iterator[None]:
        self.free[:, node] -= item.requests
        self.places[node] -= item.places
        self._placed[item.pod] = item, node
        self._steps.append((item, node))
        try:
            yield
        finally:
            self._undo()
            del self._placed[item.pod]
            self.places[node] += item.places
            self.free[:, node] += item.requests

    @contextmanager
    def _without(self, item: Item) -> Iterator[None]:
        requests = self.snapshot.requests[:, self.snapshot.pods.cls[item.pod]]
        self.free[:, item.source] += requests
        self.places[item.source] += 1
        self._gone.add(item.pod)
        self._steps.append((item, -1))
        try:
            yield
        finally:
            self._undo()
            self._gone.discard(item.pod)
            self.places[item.source] -= 1
            self.free[:, item.source] -= requests

    def _undo(self) -> None:
        """Take back the newest step, in the state, too, if it has followed."""
        item, node = self._steps.pop()
        if self._followed <= len(self._steps):
            return
        self._followed -= 1
        if node < 0:
            self._state.show_newest_victim()
            self._state.unevict(item.pod)
        elif item.cls >= 0 and item.pod >= 0:
            self._state.unplace(item.pod)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What is placed next, and what then."""

    item: Item
    fits: Bools
    """(N,) the nodes that take it now."""
    asks: list[Item]
    leaving: list[Item]


def _item(
    pod: int,
    cls: int,
    source: int,
    requests: Ints,
    places: int,
    nodes: Bools,
    *,
    ruled: bool,
    limit: int,
    root: int,
    most: Ints,
) -> Item:
    asked = np.flatnonzero(requests > 0).astype(np.int32)
    needs, size = requests[asked, None], float((requests / most).max(initial=0.0))
    return Item(pod, cls, source, requests, places, nodes, ruled, limit, root, asked, needs, size)


def _late(item: Item, node: int) -> Item:
    """Return ``item`` as one that is placed last, on ``node``."""
    nodes = np.zeros(len(item.nodes), bool)
    nodes[node] = item.nodes[node]
    return replace(item, nodes=nodes, late=True)


def _twins(asks: Sequence[Item]) -> dict[int, list[int]]:
    """Return root -> the pods of the asks that are alike."""
    alike: dict[object, list[Item]] = {}
    for one in asks:
        key = (one.cls, one.limit, one.requests.tobytes(), one.nodes.tobytes())
        alike.setdefault(key, []).append(one)
    return {
        one.root: [other.pod for other in group if other is not one]
        for group in alike.values()
        for one in group
    }


@dataclass(slots=True)
class _Sums:
    """What the largest pods on each node ask, by the priority up to which they may leave."""

    search: RoomSearch
    made: dict[int, Ints] = field(default_factory=dict)

    def __getitem__(self, limit: int) -> Ints:
        if limit not in self.made:
            self.made[limit] = self.search.sums_of(limit)
        return self.made[limit]


@cache
def _combos(groups: int, size: int) -> Ints:
    """Return each choice (K, size) of so many of ``groups``, some more than once."""
    made = list(combinations_with_replacement(range(groups), size))
    return np.array(made, np.int64).reshape(len(made), size)
