"""The candidates of one search: what each pair of a class and a node promises, and which one is next.

Rows stand in one table of the compiled core (:mod:`rebalancer.core.rows`). The best row of each class is in a heap; an
entry of the heap counts as long as it is the newest of its class.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rebalancer.core import rows as core
from rebalancer.core.views import view_of
from rebalancer.cost.term import Entry
from rebalancer.planner.draft import Draft
from rebalancer.planner.effects import Effects
from rebalancer.planner.effort import Effort
from rebalancer.planner.problem import Pair, WeightedTerm, reluctance
from rebalancer.snapshot.columns import Bools, Floats, Int32s

# The last of the pods that a term judges costs so much more than the first, when candidates are compared.
_LATER = 0.05
# A promise counts as larger than what is known only if it is so by more than this share of it; one of balance, which is
# optimistic, if it is several times as large.
_CLEARLY = 0.05
_MANY_TIMES = 5.0

Key = tuple[float, float, float]
"""Gain per cost, entry by entry, negative; the smallest key goes first."""
Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Promise:
    """The gain that the terms expect from moving one pod of a row, before its landing is known."""

    row: int
    pod: int
    """The pod that goes first."""
    strategy: str
    """The one with the largest share in the entry that decides."""
    promised: tuple[float, float, float]
    """Per entry, the most that one pod leaving can gain."""

    @property
    def for_rules(self) -> bool:
        """Whether a rule may be fixed; else the move is for balance alone."""
        return any(self.promised[:2])


class Candidates:
    """The candidates, best first, while pods move."""

    def __init__(
        self, draft: Draft, terms: Sequence[WeightedTerm], effects: Effects, effort: Effort
    ) -> None:
        self._draft, self._terms, self._effects, self._effort = draft, terms, effects, effort
        self._nodes, classes = max(1, len(draft.snapshot.nodes)), len(draft.snapshot.classes)
        self._cooling = self._in_cool_down()
        self._cost, self._rank, place = self._order()
        self._code, self._rows = self._lay_out(place)
        size = len(self._code)
        self._node = (self._code % self._nodes).astype(np.int32)
        self._promised, self._key = np.zeros((2, len(Entry), size))
        self._closed, self._lowered = np.zeros((2, size), np.uint8)
        self._looked = np.full((2, size), -1, np.int64)
        self._landing = np.full((2, size), -1, np.int32)
        self._kind = 0
        """Row of the two above: 1 while marks may choose landings, for that refuses others."""
        self._touched = np.full(self._nodes, -1, np.int64)
        self._concerned = np.full(classes, -1, np.int64)
        self._best = np.full(classes, -1, np.int64)
        self._book = core.Book(
            self._rows,
            *map(
                view_of,
                (
                    self._promised,
                    self._key,
                    self._closed,
                    self._lowered,
                    self._looked[0],
                    self._landing[0],
                    self._best,
                    self._touched,
                    self._concerned,
                ),
            ),
        )
        self._leading = np.full(size, -1, np.int64)
        """(R,) the term with the largest share in the entry that decides."""
        self._named = np.zeros(size, bool)
        """(R,) rows that any term has named so far."""
        self._stale = np.zeros(classes, bool)
        """(C,) classes that moves have concerned since the terms were asked about them."""
        self._asked = np.zeros(classes, np.int64)
        """(C,) moves made when the terms were last asked about a class."""
        self.moves = 0
        self._heap: list[tuple[float, float, float, int, int, int, int]] = []
        self._turns: Counter[int] = Counter()
        """Class -> its moves in this rung: of equal rows those of other classes go first."""
        self._newest = [0] * classes
        """Per class the number of its newest entry in the heap."""
        self._related: dict[int, Int32s] = {}
        self._moved = view_of(draft.state.moved)
        for cls in range(classes):
            self._ask(cls)

    # -- the table ----------------------------------------------------------------------------------

    def _in_cool_down(self) -> Bools:
        """Return which classes (C,) have an owner in a cool-down; their pods are reported, not moved."""
        snapshot, cooling = self._draft.snapshot, self._draft.settings.cooling
        if not cooling:
            return np.zeros(len(snapshot.classes), bool)
        owners = [snapshot.owner_of(cls) for cls in range(len(snapshot.classes))]
        return np.array([owner is not None and owner.ref in cooling for owner in owners], bool)

    def _order(self) -> tuple[Floats, Int32s, Int64s]:
        """Return what evicting each pod costs (P,), its rank among equals, and its place among all pods.

        First come the pods that a term judges by themselves, then the cheapest.
        """
        draft = self._draft
        later = _later(self._terms, len(draft.snapshot.pods))
        youth = 1.0 + _LATER * np.where(later < 1.0, later, 0.0)
        cost = draft.problem.costs * reluctance(draft.snapshot) * youth
        rank = draft.view.rank_equals()
        first = np.lexsort((rank, cost, later >= 1.0))
        place = np.empty(len(first), np.int64)
        place[first] = np.arange(len(first))
        return cost, rank, place

    def _lay_out(self, place: Int64s) -> tuple[Int64s, core.Rows]:
        """Return the codes of all pairs of a class and a node with pods that have not moved, and their rows."""
        draft, pods = self._draft, self._draft.snapshot.pods
        here = draft.state.unmoved()
        of_here = pods.cls[here].astype(np.int64) * self._nodes + pods.node[here]
        code = np.unique(of_here)
        may_move = draft.movable[here] & ~self._cooling[pods.cls[here]]
        movable, of_movable = here[may_move], of_here[may_move]
        order = np.lexsort((place[movable], of_movable))
        movable, of_movable = movable[order], of_movable[order]
        classes = np.arange(len(draft.snapshot.classes) + 1)
        return code, core.Rows(
            view_of(np.searchsorted(code, classes * self._nodes)),
            view_of((code % self._nodes).astype(np.int32)),
            view_of(movable.astype(np.int32)),
            view_of(np.searchsorted(of_movable, code, "left").astype(np.int64)),
            view_of(np.searchsorted(of_movable, code, "right").astype(np.int64)),
            view_of(np.ascontiguousarray(self._cost)),
            view_of(self._rank),
        )

    def is_cooling(self, cls: int) -> bool:
        """Return whether the owner of a class is in a cool-down."""
        return bool(self._cooling[cls])

    def pair_of(self, row: int) -> Pair:
        """Return the class and the node of a row."""
        code = int(self._code[row])
        return code // self._nodes, code % self._nodes

    def promise_of(self, row: int) -> Promise:
        """Return what a row promises."""
        hard, soft, imbalance = self._promised[:, row].tolist()
        pod = self._rows.pods[self._rows.next_pod[row]]
        strategy = self._terms[self._leading[row]].strategy
        return Promise(row, pod, strategy, (hard, soft, imbalance))

    def promises(self) -> Iterator[tuple[Pair, Promise]]:
        """Yield (pair, promise) for all rows that promise anything and have pods to move, class by class."""
        for row in np.flatnonzero(self._promised.any(axis=0)).tolist():
            if self._rows.next_pod[row] < self._rows.end[row]:
                yield self.pair_of(row), self.promise_of(row)

    def promise(self, pair: Pair) -> Promise | None:
        """Return the promise of a pair; None if it has none, or no pod left to move."""
        row = self._row_of(pair)
        if row < 0 or not core.is_worth(self._book, row):
            return None
        return self.promise_of(row)

    def _row_of(self, pair: Pair) -> int:
        code = pair[0] * self._nodes + pair[1]
        row = int(self._code.searchsorted(code))
        return row if row < len(self._code) and self._code[row] == code else -1

    @property
    def seen(self) -> set[Pair]:
        """All pairs that any term has named so far."""
        return {self.pair_of(row) for row in np.flatnonzero(self._named).tolist()}

    def ranked(self, pairs: Iterable[Pair]) -> list[Pair]:
        """Return the pairs that may fix a rule, largest gain per cost first."""
        rows = [row for pair in pairs if (row := self._row_of(pair)) >= 0]
        keys = sorted(self._entry(row, 0) for row in rows if self._key[:2, row].any())
        return [self.pair_of(row) for *_, row in keys]

    # -- what goes next -----------------------------------------------------------------------------

    def open(self, *, again: bool = False, steered: bool = False) -> None:
        """Open all rows but those whose refusal stands, with marks or without; ``again``: these, too."""
        self._kind = int(steered)
        self._book.looked = view_of(self._looked[self._kind])
        self._book.landing = view_of(self._landing[self._kind])
        for cls in np.flatnonzero(self._stale).tolist():
            self._ask(cls)
        if again:
            self._looked[:] = -1
        core.open_all(self._book, self.moves)
        heads = self._best[self._best >= 0]
        self._newest = [0] * len(self._newest)
        self._turns.clear()
        self._heap = [self._entry(row, 0) for row in heads.tolist()]
        heapq.heapify(self._heap)

    def _entry(self, row: int, number: int) -> tuple[float, float, float, int, int, int, int]:
        hard, soft, imbalance = self._key[:, row].tolist()
        pod = self._rows.pods[self._rows.next_pod[row]]
        turn = self._turns[int(self._code[row]) // self._nodes]
        return hard, soft, imbalance, turn, int(self._rank[pod]), number, row

    def head(self) -> int | None:
        """Return the best open row of all, up to date; None if none is left."""
        while self._heap:
            *key, _, _, number, row = self._heap[0]
            cls = int(self._code[row]) // self._nodes
            if number != self._newest[cls]:
                heapq.heappop(self._heap)
            elif self._stale[cls] or (not any(key[:2]) and self._asked[cls] < self.moves):
                # Any move changes what a row for balance promises.
                self._ask(cls)
            else:
                return row
        return None

    def _push(self, cls: int, row: int) -> None:
        """Put the best row of a class, -1 if it has none, in the place of its entry in the heap."""
        self._newest[cls] += 1
        if row >= 0:
            heapq.heappush(self._heap, self._entry(row, self._newest[cls]))

    def close(self, row: int) -> None:
        """Close a row until the next rung."""
        cls = int(self._code[row]) // self._nodes
        self._closed[row] = 1
        self._push(cls, core.find_best(self._book, cls))

    def close_class(self, cls: int) -> None:
        """Close all rows of a class until the next rung."""
        core.close_class(self._book, cls)
        self._newest[cls] += 1

    def refuse(self, row: int, landing: int) -> None:
        """Close a row until something changes that its refusal depends on; ``landing``: the most probable one, or -1."""
        self._looked[self._kind, row], self._landing[self._kind, row] = self.moves, landing
        self.close(row)

    def was_refused(self, row: int) -> bool:
        """Return whether the newest look at a row ended in a refusal."""
        return bool(self._looked[0, row] >= 0)

    def is_little(self, row: int) -> bool:
        """Return whether only balance is at stake, and a row promises less than the policy's threshold, on any landing."""
        hard, soft, imbalance = self._promised[:, row].tolist()
        if hard or soft:
            return False
        pod = self._rows.pods[self._rows.next_pod[row]]
        # It would be refused, if with other words: landings are worse than promised, never better.
        least = self._draft.settings.threshold.imbalance
        return bool(imbalance / self._draft.problem.costs[pod] + 2e-9 < least)

    def is_for_rules(self, row: int) -> bool:
        """Return whether a row promises to fix a rule; else it is for balance alone."""
        return bool(self._promised[:2, row].any())

    def lower(self, row: int, gain: tuple[float, float, float], *, compared: bool) -> bool:
        """Write the gain that a closer look has shown of the best row; return whether another one promises clearly more.

        ``compared``: also rows that may fix rules are compared.
        """
        before = self._key[:, row].tolist()
        for entry, value in enumerate(gain):
            core.set_key(self._book, row, entry, value)
        exact = self._key[:, row].tolist()
        if exact == before or not (compared or not any(exact[:2])):
            return False
        cls = int(self._code[row]) // self._nodes
        self._lowered[row] = 1
        self._closed[row] = 1
        others = [core.find_best(self._book, cls)]
        self._newest[cls] += 1
        if (other := self.head()) is not None:
            others.append(other)
        self._closed[row] = 0
        behind = any(
            _is_behind(exact, self._key[:, other].tolist()) for other in others if other >= 0
        )
        self._push(cls, core.find_best(self._book, cls) if behind else row)
        return behind

    # -- while pods move ----------------------------------------------------------------------------

    def move(self, cls: int, nodes: Sequence[int], reopened: set[int] | None = None) -> Int32s:
        """Note that a pod of a class has moved between ``nodes``; return the classes whose rules that concerns.

        Rows of them that were refused are opened, but for ``reopened`` classes.
        """
        self.moves += 1
        self._turns[cls] += 1
        self._touched[list(nodes)] = self.moves
        concerned = self.related(cls)
        self._concerned[concerned] = self.moves
        asked = concerned
        if len(concerned) > self._effort.related:
            # A rule over a whole namespace: asking about all of it after each move would take longer than
            # all else. What comes next is asked about then, the others before the next wave.
            self._stale[concerned] = True
            asked = np.array(sorted({cls, self._draft.snapshot.classes[cls].replacement}), np.int32)
        for other in asked.tolist():
            if reopened is None or other not in reopened:
                core.open_refused(self._book, other)
            self._ask(other)
        return concerned

    def related(self, cls: int) -> Int32s:
        """Return the classes whose rows a move of ``cls`` affects."""
        related = self._related.get(cls)
        if related is None:
            replacement = self._draft.snapshot.classes[cls].replacement
            all_of = {cls, replacement}
            for weighted in self._terms:
                if weighted.term.concerns(cls, replacement):
                    for of_class in {cls, replacement}:
                        all_of.update(weighted.term.related(of_class).tolist())
            related = self._related[cls] = np.array(sorted(all_of), np.int32)
        return related

    # -- asking the terms ---------------------------------------------------------------------------

    def _ask(self, cls: int) -> None:
        """Ask the terms about one class."""
        self._stale[cls] = False
        self._asked[cls] = self.moves
        first, end = self._rows.start[cls], self._rows.start[cls + 1]
        if first == end:
            return
        core.skip_moved(self._rows, cls, self._moved)
        promised, leading = self._effects.promises(cls, self._node[first:end])
        self._leading[first:end] = leading
        self._named[first:end] |= leading >= 0
        core.promise(self._book, cls, view_of(promised), self._effort.looks)
        self._push(cls, int(self._best[cls]))


def _is_behind(key: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether ``other`` promises clearly more than ``key``."""
    for mine, theirs in zip(key[:2], other[:2], strict=True):
        if mine != theirs:
            return mine - theirs > _CLEARLY * abs(mine)
    return not any(key[:2]) and key[2] * _MANY_TIMES > other[2]


def _later(terms: Sequence[WeightedTerm], size: int) -> Floats:
    """Return the rank of each pod (P,) among the pods that a term judges: from 0 (first) to below 1; other pods 1."""
    later = np.ones(size)
    for weighted in terms:
        if len(judged := weighted.term.judged()):
            place = np.arange(len(judged)) / len(judged)
            later[judged] = np.minimum(later[judged], place)
    return later
