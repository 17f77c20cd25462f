"""What can be let in at all, and by how few evictions: an integer programme over workloads and nodes, solved by HiGHS.

It reads the plain data of the generator and shares no code with the planner, the fold or the scheduler model. Pods of a
workload that may move go anywhere that requests, pools and anti-affinity allow, those of a gang all or none; the order in which they go, budgets of a
wave, and who chooses their nodes, it does not know: nothing can do better. A run may make ten evictions here, and it as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.decisions.programme import Programme
from benchmarks.room.clusters import RoomCluster, Work

_PER_RUN = 10
"""What ``budgets.perRun`` allows of fewer than a hundred movable pods."""


@dataclass(frozen=True, slots=True)
class RoomOptimum:
    """The best that can be."""

    let_in: tuple[int, ...]
    """Of each priority, the highest first, how many pods that wait get a node."""
    evictions: int
    proven: bool


def optimum(cluster: RoomCluster, seconds: float = 30.0) -> RoomOptimum:
    """Return as many pods of the highest priority let in as can be, then of the others, by the fewest evictions."""
    priorities = sorted({one.priority for one in cluster.works if one.waiting}, reverse=True)
    let_in: list[int] = []
    proven = True
    for priority in priorities:
        model = _Model(cluster)
        model.keep(priorities, let_in)
        mine = model.entering(priority)
        solved = model.programme.minimise(dict.fromkeys(mine, -1.0), seconds)
        proven &= solved.status == "proven"
        let_in.append(round(-solved.value))
    model = _Model(cluster)
    model.keep(priorities, let_in)
    solved = model.programme.minimise(dict.fromkeys(model.left, 1.0), seconds)
    return RoomOptimum(tuple(let_in), round(solved.value), proven and solved.status == "proven")


class _Model:
    """Per workload and node: its pods there in the end, and how many of those that are there leave."""

    def __init__(self, cluster: RoomCluster) -> None:
        self._cluster, self.programme = cluster, Programme()
        self._nodes = range(len(cluster.machines))
        self._entering: dict[int, list[int]] = {}
        self.left: list[int] = []
        self._at: list[tuple[Work, list[int]]] = []
        for work in cluster.works:
            self._place(work)
        for n in self._nodes:
            self._fit(n)
        self._respect_priorities()
        self.programme.row(dict.fromkeys(self.left, 1.0), high=_PER_RUN)

    def entering(self, priority: int) -> list[int]:
        """Return the variables that count the pods of a priority that are let in."""
        return self._entering[priority]

    def keep(self, priorities: Sequence[int], let_in: Sequence[int]) -> None:
        """Let in no fewer pods of the first priorities."""
        for priority, number in zip(priorities, let_in, strict=False):
            self.programme.row(dict.fromkeys(self._entering[priority], 1.0), low=number)

    def _place(self, work: Work) -> None:
        programme, total = self.programme, len(work.on) + work.waiting
        at: list[int] = []
        goes = programme.variable(0, 1, whole=True) if work.gang else -1
        for n in self._nodes:
            here = work.on.count(n)
            open_ = work.pool in (None, self._cluster.machines[n].pool)
            most = total if open_ else here
            if work.apart:
                most = min(most, 1)
            stays = here if work.fixed else 0
            x = programme.variable(stays, max(most, stays), whole=True)
            at.append(x)
            if here and not work.fixed:
                left = programme.variable(0, here, whole=True)
                programme.row({x: 1, left: 1}, low=here)
                if work.gang:
                    programme.row({left: 1, goes: -here}, low=0, high=0)
                self.left.append(left)
        self._at.append((work, at))
        row = dict.fromkeys(at, 1.0)
        if work.waiting:
            entering = programme.variable(0, work.waiting, whole=True)
            self._entering.setdefault(work.priority, []).append(entering)
            row[entering] = -1.0
        programme.row(row, low=len(work.on), high=len(work.on))

    def _fit(self, n: int) -> None:
        for row, most in enumerate(self._cluster.machines[n].room):
            asks = {
                at[n]: float((*work.asks, 1)[row]) for work, at in self._at if (*work.asks, 1)[row]
            }
            self.programme.row(asks, high=most)

    def _respect_priorities(self) -> None:
        """Let pods of a priority leave only where one of at least that priority is let in."""
        lefts = iter(self.left)
        for work in self._cluster.works:
            for n in self._nodes:
                if not work.on.count(n) or work.fixed:
                    continue
                left = next(lefts)
                able = [
                    one
                    for priority, entering in self._entering.items()
                    if priority >= work.priority
                    for one in entering
                ]
                row = {left: 1.0} | {one: -float(work.on.count(n)) for one in able}
                self.programme.row(row, high=0)
