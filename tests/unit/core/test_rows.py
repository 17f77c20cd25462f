"""The table of candidates: the first row is the best open one, whatever was promised, closed and lowered before."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.core import rows as compiled
from rebalancer.core.views import view_of
from tests.unit.core.interpreted import on_source

(SOURCE,) = on_source("rebalancer.core.rows")
CLASSES, NODES = 5, 4
Step = tuple[str, int, tuple[int, ...]]


def steps() -> st.SearchStrategy[list[Step]]:
    what = st.sampled_from(("promise", "close", "close class", "refuse", "lower", "open", "move"))
    few = st.tuples(*(st.integers(0, 3) for _ in range(3 * NODES)))
    return st.lists(st.tuples(what, st.integers(0, CLASSES * NODES - 1), few), max_size=25)


class Table:
    """Five classes on up to four nodes, each with up to two pods; every pod costs 1, 2 or 4."""

    def __init__(self, core: ModuleType, pods: list[int]) -> None:
        self.core = core
        cls = np.repeat(np.arange(CLASSES, dtype=np.int32), NODES)
        end = np.cumsum(pods).astype(np.int64)
        size = int(end[-1])
        self.next = end - np.array(pods)
        self.rows = core.Rows(
            view_of(np.arange(CLASSES + 1, dtype=np.int64) * NODES),
            view_of(cls),
            view_of(np.tile(np.arange(NODES, dtype=np.int32), CLASSES)),
            view_of(np.arange(size, dtype=np.int32)),
            view_of(self.next),
            view_of(end),
            view_of(np.array([(1.0, 2.0, 4.0)[pod % 3] for pod in range(size)] or [1.0])),
            view_of(np.array([(pod * 7) % 11 * 100 + pod for pod in range(size)] or [0], np.int32)),
        )
        self.book = core.Book(self.rows, NODES)

    def go(self, step: Step) -> Any:
        what, row, gains = step
        core, book, cls = self.core, self.book, row // NODES
        if what == "promise":
            core.promise(book, cls, view_of(np.array(gains, float).reshape(3, NODES)), 1)
        elif what == "close":
            core.close(book, row)
        elif what == "close class":
            core.close_class(book, cls)
        elif what == "refuse":
            core.refuse(book, row, gains[0])
        elif what == "open":
            core.open_all(book)
        elif (first := core.first_row(book)) >= 0 and what == "lower":
            behind = core.lower(book, first, view_of(np.array(gains[:3], float)), bool(gains[3]))
            if not behind:
                # That it is not clearly behind is why it moves, even if others promise a little more.
                self.move(first)
            return behind
        elif first >= 0:
            self.move(first)
        return None

    def move(self, row: int) -> None:
        """Let a pod of the row move: its class is promised the same as before."""
        core, book, cls = self.core, self.book, row // NODES
        book.moves += 1
        book.turns[cls] += 1
        book.touched[row % NODES] = book.concerned[cls] = book.moves
        self.next[row] += 1
        here = slice(cls * NODES, (cls + 1) * NODES)
        core.open_refused(book, cls)
        core.promise(
            book, cls, view_of(np.ascontiguousarray(np.asarray(book.promised)[:, here])), 1
        )

    def best(self) -> int:
        """Return the first row by comparing all."""
        book, rows = self.book, self.rows
        found = [
            (tuple(np.asarray(book.key)[:, row]), book.turns[row // NODES], self.rank(row), row)
            for row in range(CLASSES * NODES)
            if not book.closed[row] and self.next[row] < rows.end[row]
        ]
        # Of one class the rank decides before its turns are looked at.
        of_class: dict[int, Any] = {}
        for key, turns, rank, row in found:
            if any(key):
                best = of_class.get(row // NODES)
                if best is None or (key, rank) < (best[0], best[2]):
                    of_class[row // NODES] = key, turns, rank, row
        return min(of_class.values())[3] if of_class else -1

    def rank(self, row: int) -> int:
        return int(self.rows.rank[self.rows.pods[int(self.next[row])]])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=CLASSES * NODES, max_size=CLASSES * NODES), steps())
def test_the_first_row_is_the_best_one(pods, way):
    table, source = Table(compiled, pods), Table(SOURCE, pods)
    for step in way:
        assert table.go(step) == source.go(step)
        assert compiled.first_row(table.book) == SOURCE.first_row(source.book) == table.best()
