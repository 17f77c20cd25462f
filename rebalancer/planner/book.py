"""The book of candidates: one row for each (class, node) pair that terms name and that has pods to move.

Rows are columns of one table; rows of one class are contiguous, best first. After a move, the rows of the affected
classes are replaced in one pass. The next candidates are chosen from the best rows of all classes, with array
operations only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from rebalancer.cost.term import Candidates, Entry
from rebalancer.planner.draft import Draft
from rebalancer.planner.effort import Effort
from rebalancer.planner.problem import Pair, WeightedTerm, reluctance
from rebalancer.snapshot.columns import Bools, Floats, Int32s

# The last of the pods that a term judges costs so much more than the first, when candidates are compared.
_LATER = 0.05
_LEAST_ROWS = 1024

Key = tuple[float, float, float]
"""Gain per cost, entry by entry, negative; the smallest key goes first."""
Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Promise:
    """The gain that the terms expect from moving one pod of a pair, before its landing is known."""

    row: int
    pod: int
    """The pod of the pair that goes first."""
    strategy: str
    """The one with the largest share in the entry that decides."""
    promised: tuple[float, float, float]
    """Per entry, the most that one pod leaving can gain."""
    gains: tuple[float, float, float]
    """The same, until a closer look lowers it."""


@dataclass(slots=True)
class _Rows:
    """Columns of candidates, of equal length."""

    cls: Int32s
    node: Int32s
    pod: Int32s
    strategy: Int32s
    promised: Floats
    """(3, M)"""
    gains: Floats
    """(3, M)"""
    key: Floats
    """(3, M) ``gains`` per cost, negative."""
    little: Bools
    """Only balance is at stake, and what is promised is less than the policy asks for."""
    done: Bools
    """It was looked at in this rung."""
    refused: Bools
    """The newest look at it has ended in a refusal, or a limit has held it back."""

    @staticmethod
    def empty(size: int) -> _Rows:
        """Return uninitialised columns."""
        cls, node, pod, strategy = np.zeros((4, size), np.int32)
        promised, gains, key = np.zeros((3, 3, size))
        little, done, refused = np.zeros((3, size), bool)
        return _Rows(cls, node, pod, strategy, promised, gains, key, little, done, refused)

    def __len__(self) -> int:
        return len(self.cls)

    def write(self, at: slice, other: _Rows) -> None:
        """Overwrite the rows ``at`` with ``other``."""
        for column in fields(self):
            getattr(self, column.name)[..., at] = getattr(other, column.name)

    def take(self, rows: Int64s) -> _Rows:
        """Return the given rows."""
        return _Rows(*(getattr(self, column.name)[..., rows] for column in fields(self)))


class Book:
    """The candidates of one search, updated as pods move."""

    def __init__(self, draft: Draft, terms: Sequence[WeightedTerm], effort: Effort) -> None:
        self._draft, self._terms, self._effort = draft, terms, effort
        self._nodes, classes = max(1, len(draft.snapshot.nodes)), len(draft.snapshot.classes)
        self._concerns = [(weighted.term, weighted.term.concerns) for weighted in terms]
        self._strategies = sorted({weighted.strategy for weighted in terms})
        later = _later(terms, len(draft.snapshot.pods))
        self._order = (
            draft.problem.costs
            * reluctance(draft.snapshot)
            * (1.0 + _LATER * np.where(later < 1.0, later, 0.0))
        )
        """(P,) what evicting each pod costs when candidates are compared."""
        self._rank = draft.view.rank_equals()
        first = np.lexsort((self._rank, self._order, later >= 1.0))
        self._place = np.empty(len(first), np.int64)
        """(P,) the place of each pod: first those that a term judges by themselves, then the cheapest."""
        self._place[first] = np.arange(len(first))
        self._cooling = self._in_cool_down()
        self._rows = _Rows.empty(_LEAST_ROWS)
        self._used = 0
        self._row_at = np.zeros(_LEAST_ROWS, np.int64)
        """Rows in their order: those of a class beside each other, what was looked at first, then the best."""
        self._start = np.zeros(classes, np.int64)
        """(C,) where the rows of each class begin in that order, as ``_next`` and ``_end``."""
        self._next = np.zeros(classes, np.int64)
        """(C,) the best row that was not looked at."""
        self._end = np.zeros(classes, np.int64)
        self._stale = np.zeros(classes, bool)
        """(C,) classes that moves have concerned since the terms were asked about them."""
        self._asked = np.zeros(classes, np.int64)
        """(C,) moves made when the terms were last asked about a class."""
        self._moves = 0
        self._seen: list[Int64s] = []
        self._ask(None)

    def _in_cool_down(self) -> Bools:
        """Return which classes (C,) have an owner in a cool-down; their pods are reported, not moved."""
        snapshot, cooling = self._draft.snapshot, self._draft.settings.cooling
        if not cooling:
            return np.zeros(len(snapshot.classes), bool)
        owners = [snapshot.owner_of(cls) for cls in range(len(snapshot.classes))]
        return np.array([owner is not None and owner.ref in cooling for owner in owners], bool)

    def is_cooling(self, cls: int) -> bool:
        """Return whether the owner of a class is in a cool-down."""
        return bool(self._cooling[cls])

    @property
    def seen(self) -> set[Pair]:
        """All pairs that any term has named so far."""
        codes = np.unique(np.concatenate([np.zeros(0, np.int64), *self._seen]))
        self._seen = [codes]
        return set(
            zip((codes // self._nodes).tolist(), (codes % self._nodes).tolist(), strict=True)
        )

    # -- what is promised ---------------------------------------------------------------------------

    def rows_of(self, cls: int) -> Int64s:
        """Return the rows of a class."""
        return self._row_at[self._start[cls] : self._end[cls]]

    def promises(self) -> Iterator[tuple[Pair, Promise]]:
        """Yield (pair, promise) for all pairs with pods to move, class by class."""
        for row in self._all_rows().tolist():
            yield self.pair_of(row), self.promise_of(row)

    def promise(self, pair: Pair) -> Promise | None:
        """Return the promise for a pair; None if it has none, or no pod left to move."""
        rows = self.rows_of(pair[0])
        here = rows[self._rows.node[rows] == pair[1]]
        return self.promise_of(int(here[0])) if len(here) else None

    def promise_of(self, row: int) -> Promise:
        """Return the promise of a row."""
        rows = self._rows
        hard, soft, imbalance = rows.promised[:, row].tolist()
        gains = rows.gains[:, row].tolist()
        strategy = self._strategies[rows.strategy[row]]
        return Promise(
            row,
            int(rows.pod[row]),
            strategy,
            (hard, soft, imbalance),
            (gains[0], gains[1], gains[2]),
        )

    def pair_of(self, row: int) -> Pair:
        """Return the pair of a row."""
        return int(self._rows.cls[row]), int(self._rows.node[row])

    def key_of(self, row: int) -> Key:
        """Return the sort key of a row."""
        hard, soft, imbalance = self._rows.key[:, row].tolist()
        return hard, soft, imbalance

    def key(self, gain: tuple[float, float, float], pod: int) -> Key:
        """Return the sort key of ``pod`` with this gain per entry."""
        cost = float(self._order[pod])
        return (-gain[0] / cost, -gain[1] / cost, -gain[2] / cost)

    def rank(self, pod: int) -> int:
        """Return the rank of ``pod`` among pods with equal keys."""
        return int(self._rank[pod])

    def is_little(self, row: int) -> bool:
        """Return whether a row promises less than the policy's threshold, on any landing."""
        return bool(self._rows.little[row])

    def ranked(self, pairs: Sequence[Pair]) -> list[Pair]:
        """Return the pairs that may fix a rule, largest gain per cost first."""
        promises = ((self.promise(pair), pair) for pair in pairs)
        keys = [
            (self.key_of(found.row), self.rank(found.pod), pair)
            for found, pair in promises
            if found is not None
        ]
        return [pair for key, _, pair in sorted(keys) if key[0] or key[1]]

    # -- what goes next -----------------------------------------------------------------------------

    def open(self) -> None:
        """Start a selection: update stale rows, and make every row available again."""
        if self._stale.any():
            self._ask(np.flatnonzero(self._stale).astype(np.int32))
        rows = self._all_rows()
        self._rows.done[: self._used] = False
        self._arrange(rows, np.unique(self._rows.cls[rows]))

    def heads(self) -> Int64s:
        """Return the best available row of each class, best first."""
        classes = np.flatnonzero(self._next < self._end)
        rows = self._row_at[self._next[classes]]
        hard, soft, imbalance = self._rows.key[:, rows]
        rank = self._rank[self._rows.pod[rows]]
        best: Int64s = rows[np.lexsort((rank, imbalance, soft, hard))]
        return best

    def rows_left(self, cls: int, most: int) -> list[int]:
        """Return the remaining rows of a class, best first, at most ``most``."""
        begins = int(self._next[cls])
        rows: list[int] = self._row_at[begins : min(begins + most, int(self._end[cls]))].tolist()
        return rows

    def left_of(self, cls: int) -> int:
        """Return the best available row of a class; -1 if there is none."""
        place = self._next[cls]
        return int(self._row_at[place]) if place < self._end[cls] else -1

    def pass_over(self, row: int, *, refused: bool = False) -> None:
        """Skip the best row of its class for now; ``refused``: its move was refused."""
        self._rows.done[row] = True
        self._rows.refused[row] |= refused
        cls = self._rows.cls[row]
        here = slice(int(self._next[cls]), int(self._end[cls]))
        places = self._row_at[here]
        if places[0] != row:
            # A look has lowered others since it was chosen.
            self._row_at[here] = np.concatenate([[row], places[places != row]])
        self._next[cls] += 1

    def pass_over_class(self, cls: int) -> None:
        """Skip all remaining rows of a class."""
        self._rows.done[self._row_at[self._next[cls] : self._end[cls]]] = True
        self._next[cls] = self._end[cls]

    def pass_over_little(self, cls: int) -> None:
        """Skip the best row of a class, which promises too little, and all following rows that do, too."""
        rows = self._row_at[self._next[cls] : self._end[cls]]
        if self._rows.little[rows].all():
            self._rows.refused[rows] = True
            self.pass_over_class(cls)
        else:
            self.pass_over(int(rows[0]), refused=True)

    def lower(self, row: int, gain: tuple[float, float, float]) -> None:
        """Replace the gain of a row by the one found by its examination, until the terms are asked again."""
        rows, cls = self._rows, int(self._rows.cls[row])
        rows.gains[:, row] = gain
        rows.key[:, row] = self.key(gain, int(rows.pod[row]))
        here = slice(int(self._next[cls]), int(self._end[cls]))
        self._row_at[here] = self._row_at[here][self._best_first(self._row_at[here])]

    def outdated(self, rows: Int64s) -> Int32s:
        """Return the classes of outdated ``rows``.

        A row is outdated if its class waits for an update, or if it concerns balance only, which any move changes.
        """
        of, classes = self._rows, self._rows.cls[rows]
        balance = ~of.gains[:2, rows].any(axis=0) & (self._asked[classes] < self._moves)
        return np.unique(classes[self._stale[classes] | balance])

    def is_outdated(self, cls: int) -> bool:
        """Return whether any pod has moved since the terms were asked about a class."""
        return bool(self._stale[cls] or self._asked[cls] < self._moves)

    def renew(self, classes: Int32s) -> None:
        """Ask the terms again about ``classes``."""
        self._ask(classes)

    # -- while pods move ----------------------------------------------------------------------------

    def moved(self, classes: Sequence[int], retried: Collection[int] = ()) -> Int32s:
        """Ask the terms again about all classes affected by moves of ``classes``; return the affected classes.

        Rows of ``retried`` classes that were refused before stay refused.
        """
        self._moves += len(classes)
        asked: list[Int32s] = []
        for cls in classes:
            related = self.related(cls)
            if len(related) > self._effort.related:
                # A rule over a whole namespace: asking about all of it after each move would take longer than
                # all else. What comes next is asked about then, the others before the next wave.
                self._stale[related] = True
                replacement = self._draft.snapshot.classes[cls].replacement
                related = np.array([cls, replacement], np.int32)
            asked.append(related)
        concerned = np.unique(np.concatenate(asked))
        self._ask(concerned, retried)
        return concerned

    def related(self, cls: int) -> Int32s:
        """Return the classes whose rows a move of ``cls`` affects."""
        replacement = self._draft.snapshot.classes[cls].replacement
        related = {cls, replacement}
        for term, concerns in self._concerns:
            if concerns(cls, replacement):
                for of_class in {cls, replacement}:
                    related.update(term.related(of_class).tolist())
        return np.array(sorted(related), np.int32)

    # -- the table ----------------------------------------------------------------------------------

    def _ask(self, classes: Int32s | None, retried: Collection[int] = ()) -> None:
        """Replace the rows of ``classes`` (None: all).

        Rows of ``retried`` classes that were refused before stay refused.
        """
        new = self._collect_named(classes)
        if classes is None:
            self._asked[:] = self._moves
        else:
            self._stale[classes] = False
            self._asked[classes] = self._moves
            parts = [self.rows_of(cls) for cls in classes.tolist()]
            old = np.concatenate([np.zeros(0, np.int64), *parts])
            if len(old) and len(new):
                self._carry_over(self._rows.take(old), new, retried)
            self._start[classes] = self._next[classes] = self._end[classes] = 0
        if len(new):
            begins = self._used
            if begins + len(new) > len(self._rows):
                begins = self._compact(len(new))
            self._rows.write(slice(begins, begins + len(new)), new)
            self._used = begins + len(new)
            self._arrange(np.arange(begins, self._used), np.unique(new.cls), begins)

    def _collect_named(self, classes: Int32s | None) -> _Rows:
        """Return one row per pair of ``classes`` that terms name and that has pods to move, by class and node."""
        rows = [
            weighted.selected_rows(weighted.term.candidates(classes)) for weighted in self._terms
        ]
        parts = [(index, of_term) for index, of_term in enumerate(rows) if len(of_term.cls)]
        if not parts:
            return _Rows.empty(0)
        code, promised, leading = self._added_up(parts)
        self._seen.append(code)
        pods = self._first_pods(code)
        has = pods >= 0
        code, pods = code[has], pods[has]
        promised = promised[:, has]
        cost = self._order[pods]
        of_strategy = np.array([self._strategies.index(w.strategy) for w in self._terms], np.int32)
        least = self._draft.settings.threshold.imbalance
        return _Rows(
            cls=(code // self._nodes).astype(np.int32),
            node=(code % self._nodes).astype(np.int32),
            pod=pods,
            strategy=of_strategy[leading[has]],
            promised=promised,
            gains=promised.copy(),
            key=-promised / cost,
            # It would be refused, if with other words: landings are worse than promised, never better.
            little=~promised[:2].any(axis=0)
            & (promised[2] / self._draft.problem.costs[pods] + 2e-9 < least),
            done=np.zeros(len(code), bool),
            refused=np.zeros(len(code), bool),
        )

    def _codes(self, cls: Int32s, node: Int32s) -> Int64s:
        """Return (class, node) pairs encoded as integers."""
        return cls.astype(np.int64) * self._nodes + node

    def _added_up(self, parts: Sequence[tuple[int, Candidates]]) -> tuple[Int64s, Floats, Int64s]:
        """Return distinct pair codes (K,), ascending, their gains per entry (3, K), and the leading term of each."""
        sizes = [len(of_term.cls) for _, of_term in parts]
        terms = np.repeat([index for index, _ in parts], sizes)
        entries = np.repeat([int(self._terms[index].term.entry) for index, _ in parts], sizes)
        gain = np.concatenate([of.gain * self._terms[index].weight for index, of in parts])
        codes = np.concatenate([self._codes(of.cls, of.node) for _, of in parts])
        code, inverse = np.unique(codes, return_inverse=True)
        cells = np.bincount(entries * len(code) + inverse, gain, len(Entry) * len(code))
        # The strategy with the largest share in the first entry at stake; of several, the first.
        order = np.lexsort((-gain, entries, inverse))
        first = np.ones(len(order), bool)
        first[1:] = inverse[order[1:]] != inverse[order[:-1]]
        promised: Floats = cells.astype(float).reshape(len(Entry), -1)
        leading: Int64s = terms[order[first]]
        return code, promised, leading

    def _first_pods(self, code: Int64s) -> Int32s:
        """Return for each pair code (K,), ascending, the movable pod that goes first; -1 if none is left."""
        draft, state = self._draft, self._draft.state
        classes = np.unique(code // self._nodes).astype(np.int32)
        classes = classes[~self._cooling[classes]]
        _, pods = state.pods_of_many(classes)
        pods = pods[state.at_home(pods) & draft.movable[pods]]
        pods = pods[np.argsort(self._place[pods])]
        of_pods = self._codes(state.cls_of[pods], state.node_of[pods])
        there, first = np.unique(of_pods, return_index=True)
        first_pods = np.full(len(code), -1, np.int32)
        _, mine, theirs = np.intersect1d(code, there, assume_unique=True, return_indices=True)
        first_pods[mine] = pods[first[theirs]]
        return first_pods

    def _carry_over(self, old: _Rows, new: _Rows, retried: Collection[int]) -> None:
        """Copy results of earlier examinations of the same pairs that are still valid."""
        were, are = (self._codes(rows.cls, rows.node) for rows in (old, new))
        _, before, now = np.intersect1d(were, are, assume_unique=True, return_indices=True)
        new.refused[now] = old.refused[before]
        if retried:
            new.done = new.refused & np.isin(new.cls, list(retried))
        # Else all pods of a large owner, whose landings are all alike, would be judged again after each of its moves.
        looked_at = (old.gains != old.promised).any(axis=0)
        if np.count_nonzero(looked_at) <= self._effort.looks:
            return
        looks = np.bincount(old.cls[looked_at], minlength=len(self._start))
        keeps = looked_at[before] & (looks[old.cls[before]] > self._effort.looks)
        rules = new.promised[:2, now]
        keeps &= rules.any(axis=0) & (rules == old.promised[:2, before]).all(axis=0)
        new.gains[:, now[keeps]] = old.gains[:, before[keeps]]
        new.key[:, now[keeps]] = -new.gains[:, now[keeps]] / self._order[new.pod[now[keeps]]]

    def _best_first(self, rows: Int64s) -> Int64s:
        """Return the order of ``rows``: by class, then available rows first, then by key."""
        of, key = self._rows, self._rows.key[:, rows]
        order: Int64s = np.lexsort(
            (of.node[rows], key[2], key[1], key[0], ~of.done[rows], of.cls[rows])
        )
        return order

    def _arrange(self, rows: Int64s, classes: Int32s, begins: int | None = None) -> None:
        """Store ``rows``, all rows of ``classes``, in their order, from position ``begins`` on."""
        begins = 0 if begins is None else begins
        rows = rows[self._best_first(rows)]
        self._row_at[begins : begins + len(rows)] = rows
        of = self._rows.cls[rows]
        self._start[classes] = begins + np.searchsorted(of, classes, "left")
        self._end[classes] = begins + np.searchsorted(of, classes, "right")
        done = np.bincount(of[self._rows.done[rows]], minlength=len(self._start))
        self._next[classes] = self._start[classes] + done[classes]

    def _all_rows(self) -> Int64s:
        """Return all rows, class by class."""
        sizes = self._end - self._start
        shift = np.repeat(self._start - (np.cumsum(sizes) - sizes), sizes)
        rows: Int64s = self._row_at[np.arange(len(shift)) + shift]
        return rows

    def _compact(self, more: int) -> int:
        """Remove replaced rows, make room for ``more`` rows, and return the number of remaining rows."""
        rows = self._all_rows()
        kept = self._rows.take(rows)
        size = max(_LEAST_ROWS, 2 * (len(rows) + more))
        done, lengths = self._next - self._start, self._end - self._start
        self._rows = _Rows.empty(size)
        self._rows.write(slice(0, len(rows)), kept)
        self._row_at = np.zeros(size, np.int64)
        self._row_at[: len(rows)] = np.arange(len(rows))
        self._end = np.cumsum(lengths)
        self._start = self._end - lengths
        self._next = self._start + done
        self._used = len(rows)
        return self._used


def _later(terms: Sequence[WeightedTerm], size: int) -> Floats:
    """Return the rank of each pod (P,) among the pods that a term judges: from 0 (first) to below 1; other pods 1."""
    later = np.ones(size)
    for weighted in terms:
        if len(judged := weighted.term.judged()):
            place = np.arange(len(judged)) / len(judged)
            later[judged] = np.minimum(later[judged], place)
    return later
