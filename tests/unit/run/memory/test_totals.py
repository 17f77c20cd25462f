"""Sums over runs: what is counted, that they only grow, and that they are bounded."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.plan.plan import MAX_COUNT, MAX_SERIES, OTHERS, Status, Totals, with_moves, with_run
from rebalancer.run.memory.document import Document, decode, encode
from tests.unit.run.memory.outcomes import badly, outcome, well


def elsewhere(name, one):
    return replace(one, move=replace(one.move, namespace=name))


@pytest.mark.parametrize(
    ("one", "moves", "landings"),
    [
        (well(), (("evicted", "topology-spread", "default", 1),), (1, 0, 0)),
        (badly(), (("evicted", "topology-spread", "default", 1),), (0, 1, 0)),
        (outcome(landed=None), (("evicted", "topology-spread", "default", 1),), (0, 0, 1)),
        (outcome(Status.BLOCKED), (("blocked", "topology-spread", "default", 1),), (0, 0, 0)),
        (outcome(Status.PLANNED), (), (0, 0, 0)),
        (outcome(Status.OBSERVED), (), (0, 0, 0)),
        (outcome(Status.NOT_ATTEMPTED), (), (0, 0, 0)),
    ],
)
def test_what_counts(one, moves, landings):
    totals = with_moves(Totals(), [one])
    assert totals.moves == moves
    results = ("as-predicted", "elsewhere", "unknown")
    assert tuple(totals.landings.get(result, 0) for result in results) == landings


def test_runs_count_by_exit_code():
    assert with_run(with_run(with_run(Totals(), 4), 0), 0).runs == {"0": 2, "4": 1}


@settings(max_examples=40)
@given(st.lists(st.integers(0, 2 * MAX_SERIES), max_size=30))
def test_a_sum_never_falls_and_the_number_of_them_is_bounded(namespaces):
    full = Totals(moves=tuple(("evicted", "x", f"ns-{i:04}", 1) for i in range(MAX_SERIES - 2)))
    totals = full
    for number in namespaces:
        after = with_moves(totals, [elsewhere(f"ns-{number:04}", well())])
        known = {series[:3]: series[3] for series in after.moves}
        assert all(known[series[:3]] >= series[3] for series in totals.moves)
        totals = after
    assert len(totals.moves) <= MAX_SERIES + 1
    assert sum(series[3] for series in totals.moves) == MAX_SERIES - 2 + len(namespaces)
    if len(set(namespaces)) > 2:
        assert ("evicted", "topology-spread", OTHERS) in {series[:3] for series in totals.moves}


def test_a_sum_stays_where_it_could_not_be_read_again():
    most = Totals({"0": MAX_COUNT}, (("evicted", "topology-spread", "default", MAX_COUNT),))
    totals = with_run(with_moves(most, [well()]), 0)
    assert totals.runs == most.runs
    assert totals.moves == most.moves
    assert decode(encode(Document(totals=totals))) == (Document(totals=totals), None)
