"""Limits as counters: the first that one more move would exceed, and what a move adds to which of them."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.core import limits as compiled
from rebalancer.core.views import view_of
from tests.unit.core.interpreted import on_source

(SOURCE,) = on_source("rebalancer.core.limits")
CLASSES, NODES, COUNTERS, OWNERS, STRATEGIES = 3, 3, 6, 2, 2
Lists = list[list[tuple[int, int]]]
Move = tuple[int, int, int, bool]
"""A class, a node or -1, a strategy, and whether the pod is Ready."""


@dataclass
class Drawn:
    """Limits as plain lists."""

    counter: list[int]
    most: list[int]
    strategy: list[int]
    of_ready: list[bool]
    of_open: list[bool]
    closed: list[bool]
    of_class: Lists
    of_node: Lists
    spared: list[int]

    def lowered(self, core: ModuleType) -> Any:
        def lists(of: Lists) -> Any:
            pairs = np.array([pair for one in of for pair in one], np.int64).reshape(-1, 2)
            limit, amount = (np.ascontiguousarray(column) for column in pairs.T)
            start = np.cumsum([0, *map(len, of)])
            return core.LimitLists(view_of(start), view_of(limit), view_of(amount))

        numbers = (np.array(of, np.int64) for of in (self.counter, self.most, self.strategy))
        words = (np.array(of, bool) for of in (self.of_ready, self.of_open, self.closed))
        arrays = [view_of(array) for array in (*numbers, *words)]
        used = view_of(np.zeros(COUNTERS, np.int64))
        of_class, of_node = lists(self.of_class), lists(self.of_node)
        spared = view_of(np.array(self.spared, np.int64))
        return core.LimitArrays(used, OWNERS, *arrays, of_class, of_node, spared)

    def under(self, move: Move) -> list[tuple[int, int]]:
        """The limits that a move is under, ascending, each with what the move adds."""
        cls, node, strategy, ready = move
        inside = node >= 0 and self.closed[node]
        return [
            (limit, amount)
            for limit, amount in sorted(
                self.of_class[cls] + (self.of_node[node] if node >= 0 else [])
            )
            if self.strategy[limit] in (0, strategy)
            and (ready or not self.of_ready[limit])
            and not (inside and self.of_open[limit])
        ]


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    size = draw(st.integers(1, 8))

    def column(of: st.SearchStrategy[Any], length: int = size) -> Any:
        return draw(st.lists(of, min_size=length, max_size=length))

    split = draw(st.integers(0, size))
    of_class = st.lists(st.tuples(st.integers(0, max(0, split - 1)), st.integers(0, 3)), max_size=3)
    of_node = st.lists(
        st.tuples(st.integers(min(split, size - 1), size - 1), st.just(1)), max_size=3
    )
    unique = lambda of: of.map(lambda pairs: sorted(dict(pairs).items()))  # noqa: E731
    return Drawn(
        column(st.integers(0, COUNTERS - 1)),
        column(st.integers(-1, 4)),
        column(st.integers(0, STRATEGIES)),
        column(st.booleans()),
        column(st.booleans()),
        column(st.booleans(), NODES),
        column(unique(of_class), CLASSES),
        column(unique(of_node), NODES),
        column(st.integers(0, 2), CLASSES),
    )


MOVES = st.tuples(
    st.integers(0, CLASSES - 1),
    st.integers(-1, NODES - 1),
    st.integers(0, STRATEGIES),
    st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(
    drawn(),
    st.lists(MOVES, max_size=8),
    st.integers(0, 8),
    st.integers(0, 8),
    st.integers(0, 1),
    st.booleans(),
)
def test_the_first_limit_that_one_more_move_exceeds(limits, moves, first, last, itself, for_room):
    used = [0] * COUNTERS
    cores = [(core, limits.lowered(core)) for core in (compiled, SOURCE)]
    for move in moves:
        without = limits.spared[move[0]] if for_room else 0
        spared = [itself + without, *[itself] * OWNERS, *[0] * (COUNTERS - 1 - OWNERS)]
        expected = next(
            (
                limit
                for limit, amount in limits.under(move)
                if first <= limit < last
                and used[at := limits.counter[limit]] - spared[at] + amount > limits.most[limit]
            ),
            -1,
        )
        cls, node, strategy, ready = move
        for core, lowered in cores:
            asked = (lowered, cls, node, strategy, first, last, ready, itself, for_room)
            assert core.find_full(*asked) == expected
            core.count(lowered, cls, node, strategy, first, ready)
        for limit, amount in limits.under(move):
            used[limits.counter[limit]] += amount if limit >= first else 0
        assert [list(np.asarray(lowered.used)) for _, lowered in cores] == [used, used]
