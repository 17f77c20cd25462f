"""The candidates of one search: the promise of each pair of a class and a node, and the next pair.

They are rows of one table of the compiled core (:mod:`rebalancer.core.rows`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rebalancer.core import rows as core
from rebalancer.core.moves import Mover, ask
from rebalancer.core.views import view_of
from rebalancer.planner.draft import Draft
from rebalancer.planner.effort import Effort
from rebalancer.planner.judge import Judge
from rebalancer.planner.problem import Pair, WeightedTerm
from rebalancer.snapshot.columns import Bools, Floats, Int32s

# The last of the pods that a term judges costs so much more than the first, when candidates are compared.
_LATER = 0.05
Int64s = NDArray[np.int64]


class Promise(NamedTuple):
    """The gain that the terms expect from moving one pod of a row, before its landing is known."""

    row: int
    pair: Pair
    pod: int
    """The pod that is evicted first."""
    strategy: str
    """The one with the largest share in the entry that decides."""
    promised: tuple[float, float, float]
    """Per entry, the most that one pod leaving can gain."""

    @property
    def for_rules(self) -> bool:
        """Whether a rule may be fixed; else the move is for balance alone."""
        hard, soft, _ = self.promised
        return hard != 0 or soft != 0


class CandidateRows:
    """The candidates, best first, while pods move."""

    def __init__(
        self, draft: Draft, terms: Sequence[WeightedTerm], judge: Judge, effort: Effort
    ) -> None:
        self._draft, self._terms, self._judge, self._effort = draft, terms, judge, effort
        self._nodes = max(1, len(draft.snapshot.nodes))
        self._cooling = self._in_cool_down()
        self._cost, self._rank, place = self._order()
        self._rows = self._lay_out(place)
        self.book = book = core.Book(self._rows, self._nodes)
        self._promised, self._key = np.asarray(book.promised), np.asarray(book.key)
        self._named, self._stale = np.asarray(book.named), np.asarray(book.stale)
        self._touched, self._concerned = np.asarray(book.touched), np.asarray(book.concerned)
        self._turns, self._looked = np.asarray(book.turns), np.asarray(book.looked)
        self._leading = np.asarray(book.leading)
        self._related: dict[int, Int32s] = {}
        self.moved = view_of(draft.state.moved)
        # Rules that hold are not lowered: of most classes nothing is promised.
        naming: dict[int, list[int]] = {}
        for index, of in enumerate(terms):
            for cls in np.unique(of.term.candidates().cls).tolist():
                naming.setdefault(cls, []).append(index)
        for cls, of_class in naming.items():
            self._ask(judge.promising(cls, of_class))

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
        cost = draft.problem.costs * draft.problem.reluctance * youth
        rank = draft.view.rank_equals()
        first = np.lexsort((rank, cost, later >= 1.0))
        place = np.empty(len(first), np.int64)
        place[first] = np.arange(len(first))
        return cost, rank, place

    def _lay_out(self, place: Int64s) -> core.Rows:
        """Return the rows: all pairs of a class and a node with pods that have not moved."""
        draft, pods = self._draft, self._draft.snapshot.pods
        here = draft.state.unmoved()
        of_here = pods.cls[here].astype(np.int64) * self._nodes + pods.node[here]
        self._code = code = np.unique(of_here)
        self._cls, self._node = (
            (code // self._nodes).astype(np.int32),
            (code % self._nodes).astype(np.int32),
        )
        may_move = draft.movable[here] & ~self._cooling[pods.cls[here]]
        movable, of_movable = here[may_move], of_here[may_move]
        order = np.lexsort((place[movable], of_movable))
        movable, of_movable = movable[order], of_movable[order]
        classes = np.arange(len(draft.snapshot.classes) + 1)
        self._start = np.searchsorted(code, classes * self._nodes)
        self._pods = movable.astype(np.int32)
        self._next_pod, self._end = (
            np.searchsorted(of_movable, code, side).astype(np.int64) for side in ("left", "right")
        )
        return core.Rows(
            view_of(self._start),
            view_of(self._cls),
            view_of(self._node),
            view_of(self._pods),
            view_of(self._next_pod),
            view_of(self._end),
            view_of(np.ascontiguousarray(self._cost)),
            view_of(self._rank),
        )

    def is_cooling(self, cls: int) -> bool:
        """Return whether the owner of a class is in a cool-down."""
        return bool(self._cooling[cls])

    def pair_of(self, row: int) -> Pair:
        """Return the class and the node of a row."""
        return self._cls.data[row], self._node.data[row]

    def promise_of(self, row: int) -> Promise:
        """Return the promise of a row."""
        promised = self._promised.data
        pod = self._pods.data[self._next_pod.data[row]]
        strategy = self._terms[self._leading.data[row]].strategy
        of_entries = promised[0, row], promised[1, row], promised[2, row]
        return Promise(row, self.pair_of(row), pod, strategy, of_entries)

    def promises(self) -> Iterator[Promise]:
        """Yield the promises of all rows that promise a gain and have pods to move, class by class."""
        for row in np.flatnonzero(self._promised.any(axis=0)).tolist():
            if core.has_pods(self._rows, row):
                yield self.promise_of(row)

    def promise(self, pair: Pair) -> Promise | None:
        """Return the promise of a pair; None if it has none, or no pod left to move."""
        row = self.row_of(pair)
        if row < 0 or not core.is_worth(self.book, row):
            return None
        return self.promise_of(row)

    def row_of(self, pair: Pair) -> int:
        """Return the row of a pair; -1 if it has none."""
        code = pair[0] * self._nodes + pair[1]
        row = int(self._code.searchsorted(code))
        return row if row < len(self._code) and self._code[row] == code else -1

    @property
    def seen(self) -> set[Pair]:
        """All pairs that any term has named so far."""
        return {self.pair_of(row) for row in np.flatnonzero(self._named).tolist()}

    def ranked(self) -> list[int]:
        """Return the rows that may fix a rule, largest gain per cost first."""
        rows = np.flatnonzero(self._key[:2].any(axis=0) & (self._next_pod < self._end))
        rank = self._rank[self._pods[self._next_pod[rows]]]
        return rows[np.lexsort((rows, rank, *self._key[::-1, rows]))].tolist()

    # -- what goes next -----------------------------------------------------------------------------

    def open(self, *, again: bool = False, steered: bool = False) -> None:
        """Open all rows except those whose refusal is still valid, with and without marks; ``again``: open these as well."""
        book = self.book
        book.marked = int(steered)
        for cls in np.flatnonzero(self._stale).tolist():
            self._ask(self._judge.mover(cls))
        if again:
            # Where nothing at all has moved since, the answer is the same.
            self._looked[self._looked < book.moves] = -1
        core.open_all(book)

    # -- while pods move ----------------------------------------------------------------------------

    def land(self) -> None:
        """Note that the victims of a wave are gone: pods that had no room before may have some."""
        self.book.moves += 1

    def move(self, cls: int, nodes: Sequence[int], reopened: set[int] | None = None) -> Int32s:
        """Note that a pod of a class has moved between ``nodes``; return the classes whose rules the move affects.

        Refused rows of these classes are opened again, except rows of the classes ``reopened``.
        """
        self.land()
        self._turns[cls] += 1
        self._touched[list(nodes)] = self.book.moves
        concerned = self.related(cls)
        self._concerned[concerned] = self.book.moves
        asked = concerned
        if len(concerned) > self._effort.related:
            # A rule over a whole namespace: asking about all of it after each move would take longer than
            # all else. What comes next is asked about then, the others before the next wave.
            self._stale[concerned] = True
            asked = np.array(sorted({cls, self._draft.snapshot.classes[cls].replacement}), np.int32)
        for other in asked.tolist():
            if reopened is None or other not in reopened:
                core.open_refused(self.book, other)
            self._ask(self._judge.mover(other))
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

    def _ask(self, mover: Mover) -> None:
        """Read the candidates of one class from the terms."""
        ask(self.book, self._judge.bench.terms, mover, self.moved, self._effort.looks)


def _later(terms: Sequence[WeightedTerm], size: int) -> Floats:
    """Return the rank of each pod (P,) among the pods that a term judges: from 0 (first) to below 1; other pods 1."""
    later = np.ones(size)
    for weighted in terms:
        if len(judged := weighted.term.judged()):
            place = np.arange(len(judged)) / len(judged)
            later[judged] = np.minimum(later[judged], place)
    return later
