"""The pods that may leave for an item, and the smallest sets of them without which it fits on a node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from itertools import combinations, combinations_with_replacement

import numpy as np

from rebalancer.planner.draft import Draft
from rebalancer.planner.effort import Effort
from rebalancer.planner.gangs import RoomGangs
from rebalancer.planner.room.free import FreeRoom
from rebalancer.planner.room.items import Item, Items
from rebalancer.snapshot.columns import Bools, Int32s, Ints

_LATE_PODS = 2
"""So many pods leave at most where only their replacements' places make the topology spread allow it."""
_RULED_PODS = 16
"""Pods elsewhere that may have to leave for the sake of a rule between pods."""


@dataclass(slots=True)
class Work:
    """The remaining steps of a search, and whether it omitted anything to save steps."""

    left: int = 0
    cut: bool = False
    """Something was left out."""
    doubted: bool = False
    """Whether sets of pods were omitted that are rarely a solution."""


_Choices = tuple[Ints, Ints, Ints]
"""Choices of classes (K, size), what each gives (R + 1, K), and what it gives without each of its pods (R + 1, K, size)."""


class Victims:
    """Chooses victims among the pods that a strategy may move."""

    def __init__(
        self,
        draft: Draft,
        evictable: Bools,
        gangs: RoomGangs,
        items: Items,
        trial: FreeRoom,
        effort: Effort,
    ) -> None:
        """``evictable`` (P,): pods that may leave. ``gangs``: of which others leave with a pod."""
        self._draft, self._snapshot, self._effort = draft, draft.snapshot, effort
        self._items, self._trial = items, trial
        snapshot = self._snapshot
        pods = draft.state.unmoved()
        pods = pods[evictable[pods]]
        pods = pods[gangs.are_whole(pods)]
        cost = draft.problem.costs[pods]
        node, cls = snapshot.pods.node[pods], snapshot.pods.cls[pods]
        order = np.lexsort((pods, cost, cls, node))
        self._pods: Int32s = pods[order]
        """(V,) node by node, on each those of a class beside each other, the cheapest first."""
        self._priority = np.array([of.priority for of in snapshot.classes] or [0], np.int64)
        """(C,)"""
        self._starts = np.searchsorted(node[order], np.arange(len(snapshot.nodes) + 1))
        """(N + 1,) where the pods of each node begin."""
        self._known_sums: dict[int, Ints] = {}
        self._known_choices: dict[object, tuple[list[list[int]], list[_Choices]]] = {}

    def may_leave(self, pods: Int32s, limit: int) -> Bools:
        """Return which of ``pods`` (K,) may leave for an item of priority ``limit``."""
        may: Bools = np.isin(pods, self._pods)
        may &= self._priority[self._snapshot.pods.cls[pods]] <= limit
        return may

    def all_for(self, item: Item) -> Int32s:
        """Return the pods that may leave for ``item``, node by node."""
        pods: Int32s = self._pods[self._priority[self._snapshot.pods.cls[self._pods]] <= item.limit]
        return pods

    def fewest(self, item: Item) -> Ints:
        """Return how many pods have to leave each node (N,) at least: the largest first, for each resource by itself.

        More than there are where all of them do not suffice.
        """
        lacking = self._trial.lacking(item)
        fewest = np.ones(lacking.shape[1], np.int64)
        sums = self._sums(item.limit)
        starts, ends = self._starts[:-1], self._starts[1:]
        for row in np.flatnonzero(lacking.any(axis=1)).tolist():
            total = sums[row]
            before = total[starts]
            count = np.searchsorted(total, before + lacking[row], side="left") - starts
            never = total[ends] - before < lacking[row]
            fewest = np.maximum(fewest, np.where(never, len(self._pods) + 1, count))
        return fewest

    def _sums(self, limit: int) -> Ints:
        """Return the cumulative requests of the largest pods on each node, for all nodes in one array (R + 1, V + 1)."""
        if (known := self._known_sums.get(limit)) is not None:
            return known
        cls = self._snapshot.pods.cls[self._pods]
        asks = self._asks(self._pods)
        asks[:, self._priority[cls] > limit] = 0
        node = self._snapshot.pods.node[self._pods]
        sums = np.zeros((len(asks), len(cls) + 1), np.int64)
        for row, of_row in enumerate(asks):
            sums[row, 1:] = np.cumsum(of_row[np.lexsort((-of_row, node))])
        self._known_sums[limit] = sums
        return sums

    def sets(
        self, item: Item, node: int, most: int, work: Work
    ) -> Iterator[tuple[list[int], bool]]:
        """Yield the smallest sets of pods without which ``item`` fits on ``node``, none of which contains another.

        With each, whether it may fit only once they have been placed elsewhere. ``most``: pods of a set.
        """
        lacking = self._trial.lacking_on(item, node)
        if item.ruled and not self._trial.passing(item)[node]:
            yield from self._sets_by_rules(item, node, lacking, most, work)
            return
        groups, choices = self._choices(node, item.limit)
        for size in range(1, min(most, self._effort.room_victims) + 1):
            if size > len(choices):
                break
            combos, sums, without = choices[size - 1]
            work.left -= 1 + len(combos) // 64
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

    def _choices(self, node: int, limit: int) -> tuple[list[list[int]], list[_Choices]]:
        """Return the pods of ``node`` that may leave, by class, and of each number of them all choices of classes."""
        pods = self._pods[self._starts[node] : self._starts[node + 1]].tolist()
        key = node, limit, frozenset(pod for pod in pods if pod in self._trial.gone)
        if (known := self._known_choices.get(key)) is None:
            groups = self._by_class(self._left_on(node, limit))
            asks = self._asks([group[0] for group in groups])
            most = min(sum(map(len, groups)), self._effort.room_victims)
            made: list[_Choices] = []
            for size in range(1, most + 1):
                combos = _combos(len(groups), size)
                sums = asks[:, combos].sum(axis=2)
                made.append((combos, sums, sums[:, :, None] - asks[:, combos]))
            known = self._known_choices[key] = groups, made
        return known

    def _sets_by_rules(
        self, item: Item, node: int, lacking: Ints, most: int, work: Work
    ) -> Iterator[tuple[list[int], bool]]:
        """Yield the same where rules between pods count: each set is tried."""
        here = self._by_class(self._left_on(node, item.limit))
        pods = [pod for group in here for pod in group[:most]]
        pods += self._rivals(item, node, work)
        asks = self._asks(pods)
        at_home = np.array([self._snapshot.pods.node[pod] == node for pod in pods], bool)
        asks[:, ~at_home] = 0
        done: list[set[int]] = []
        for size in range(1, min(most, len(pods), self._effort.room_victims) + 1):
            for combo in combinations(range(len(pods)), size):
                work.left -= 1
                if work.left <= 0:
                    return
                chosen = {pods[place] for place in combo}
                if (asks[:, combo].sum(axis=1) < lacking).any() or any(s <= chosen for s in done):
                    continue
                passes, but_for_spread = self._passes_without(
                    [pods[place] for place in combo], item, node
                )
                if passes:
                    done.append(chosen)
                elif but_for_spread and size > _LATE_PODS:
                    work.doubted = True
                    continue
                if passes or but_for_spread:
                    yield [pods[place] for place in combo], not passes

    def _passes_without(self, pods: Sequence[int], item: Item, node: int) -> tuple[bool, bool]:
        """Return whether ``node`` passes the rules of ``item`` without ``pods``.

        The second value says whether it passes all of them except topology spread.
        """
        trial = self._trial
        with ExitStack() as stack:
            for pod in pods:
                stack.enter_context(trial.without(self._items.leaving(pod, item)))
            if bool(trial.passing(item)[node]):
                return True, True
            return False, bool(trial.passing(item, spread=False)[node])

    def _rivals(self, item: Item, node: int, work: Work) -> list[int]:
        """Return pods on other nodes to which the rules of ``item`` refer, one of each class and node."""
        filters = self._draft.scheduler.filters_of(item.cls)
        classes = np.array(sorted(filters.interacting(item.cls)), np.int32)
        cls, nodes = self._snapshot.pods.cls[self._pods], self._snapshot.pods.node[self._pods]
        rows = np.flatnonzero(
            np.isin(cls, classes) & (nodes != node) & (self._priority[cls] <= item.limit)
        )
        _, first = np.unique(np.stack([cls[rows], nodes[rows]]), axis=1, return_index=True)
        pods = self._pods[rows[np.sort(first)]].tolist()
        pods = [pod for pod in pods if pod not in self._trial.gone]
        work.cut |= len(pods) > _RULED_PODS
        return pods[:_RULED_PODS]

    def _left_on(self, node: int, limit: int) -> list[int]:
        """Return the pods on ``node`` that may leave for an item of priority ``limit`` and have not."""
        pods = self._pods[self._starts[node] : self._starts[node + 1]]
        pods = pods[self._priority[self._snapshot.pods.cls[pods]] <= limit]
        return [pod for pod in pods.tolist() if pod not in self._trial.gone]

    def _by_class(self, pods: Sequence[int]) -> list[list[int]]:
        """Return ``pods`` of one node by class: any of a class will do, the cheapest first."""
        groups: dict[int, list[int]] = {}
        for pod in pods:
            groups.setdefault(int(self._snapshot.pods.cls[pod]), []).append(pod)
        return list(groups.values())

    def _asks(self, pods: Sequence[int] | Int32s) -> Ints:
        """Return the requests (R + 1, K) of ``pods``, the places for pods last."""
        cls = self._snapshot.pods.cls[list(pods)]
        return np.vstack([self._snapshot.requests[:, cls], np.ones((1, len(cls)), np.int64)])


@cache
def _combos(groups: int, size: int) -> Ints:
    """Return each choice (K, size) of so many of ``groups``, some more than once."""
    made = list(combinations_with_replacement(range(groups), size))
    return np.array(made, np.int64).reshape(len(made), size)
