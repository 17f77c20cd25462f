"""What is computed of all windows in one pass is what each window has by itself."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.core.views import flags, ints, view_of
from rebalancer.core.windows import (
    Ring,
    count_distinct,
    fold,
    number_kinds,
    share_out,
    slide,
    weigh_windows,
)

ROOM = 40


def _ring(ranks: list[int], nodes: int, size: int) -> Ring:
    ring = Ring(ROOM)
    ring.count = len(ranks)
    for place, rank in enumerate(ranks):
        ring.nodes[place] = ring.rank[place] = rank
    weigh_windows(ring, nodes, size)
    return ring


def _slices(values: list[int], size: int) -> list[list[int]]:
    """Return the values in each window; one window holds all if no more than ``size`` are there."""
    starts = range(len(values) if len(values) > size else 1)
    return [(values + values)[start : start + min(size, len(values))] for start in starts]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=12), st.integers(1, 14))
def test_extremes_and_distinct_labels(values, size):
    ring = _ring(list(range(len(values))), 13, size)
    slices, out, ignored = _slices(values, size), ints(2 * ROOM), flags(ROOM)
    column = np.array(values, np.int64)
    slide(ring, view_of(column), 1, out, 0)
    assert out.tolist()[: len(slices)] == [max(one) for one in slices]
    slide(ring, view_of(column), -1, out, 5)
    assert out.tolist()[5 : 5 + len(slices)] == [min(one) for one in slices]
    ignored[0] = 1
    seen = ints(7)
    count_distinct(ring, view_of(column + 3), ignored, seen, out, 0)
    places = _slices(list(range(len(values))), size)
    expected = [len({values[place] for place in one if place}) for one in places]
    assert out.tolist()[: len(slices)] == expected
    assert not any(seen)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-4, 2)), min_size=1, max_size=14),
    st.integers(1, 15),
)
def test_each_window_goes_in_equal_parts_to_its_best_nodes(nodes, size):
    ranks = np.cumsum([1 + gap for gap, _ in nodes]).tolist()
    cluster, scores = ranks[-1] + 2, [score for _, score in nodes]
    ring = _ring(ranks, cluster, size)
    assert number_kinds(ring, ints(ROOM), 1) == 1
    share_out(ring, view_of(np.array(scores, np.int64)), 0)
    fold(ring)
    expected = np.zeros(len(nodes))
    for start in range(cluster):
        order = sorted(range(len(ranks)), key=lambda place: (ranks[place] - start) % cluster)
        best = max(scores[place] for place in order[:size])
        winners = [place for place in order[:size] if scores[place] == best]
        expected[winners] += 1 / len(winners)
    chance = np.asarray(ring.chance)[: len(nodes)]
    assert chance / chance.sum() == pytest.approx(expected / expected.sum())


def test_many_kinds_are_stood_for_by_windows_evenly_spread():
    count = 200
    ring = Ring(count)
    ring.count = count
    for place in range(count):
        ring.nodes[place] = ring.rank[place] = place
    weigh_windows(ring, count, 10)
    kinds = number_kinds(ring, view_of(np.arange(count, dtype=np.int64)), 1)
    chosen = [window for window in range(count) if ring.times[window]]
    assert kinds == len(chosen) == 48
    assert sum(ring.weight[window] for window in chosen) == pytest.approx(1)
    assert {late - early for early, late in pairwise(chosen)} <= {4, 5}
