"""What is kept of streaks, and for how long."""

import pytest

from rebalancer.cost.streaks import Streaks
from rebalancer.plan.plan import Status
from rebalancer.run.memory.document import MAX_BYTES, Document, StreakMemory, encode
from rebalancer.run.memory.remember import (
    STREAK_FORGOTTEN_AFTER,
    recall_streaks,
    with_streaks,
    without_old,
)
from tests.unit.run.memory.outcomes import NOW, outcome

LOW = "low-utilisation"


def kept(known, seen, outcomes=()):
    """What is kept of one strategy; None for nothing."""
    before = Document() if known is None else Document(streaks={LOW: known})
    return with_streaks(before, {LOW: seen}, outcomes, NOW).streaks.get(LOW)


@pytest.mark.parametrize(
    ("known", "seen", "after"),
    [
        (None, Streaks(NOW - 9, {"n0": 1}), StreakMemory(NOW - 9, {"n0": 1})),
        (
            StreakMemory(NOW - 99, {"n0": 1}),
            Streaks(NOW - 9, {"n0": 2}),
            StreakMemory(NOW - 9, {"n0": 2}),
        ),
        # Nothing is over-used: nothing need be kept, and what was kept ends.
        (None, Streaks(NOW - 9, {}), None),
        (StreakMemory(NOW - 99, {"n0": 1}), Streaks(NOW - 9, {}), StreakMemory(NOW - 9, {})),
        # What stays as it is is written again before it is forgotten, not by every run.
        (
            StreakMemory(NOW - 99, {"n0": 3}),
            Streaks(NOW - 9, {"n0": 3}),
            StreakMemory(NOW - 99, {"n0": 3}),
        ),
        (
            StreakMemory(NOW - 40_000, {"n0": 3}),
            Streaks(NOW - 9, {"n0": 3}),
            StreakMemory(NOW - 9, {"n0": 3}),
        ),
        # Another run has seen something newer meanwhile.
        (
            StreakMemory(NOW - 3, {"n0": 3}),
            Streaks(NOW - 9, {"n0": 2}),
            StreakMemory(NOW - 3, {"n0": 3}),
        ),
    ],
)
def test_what_was_seen_last_is_kept(known, seen, after):
    assert kept(known, seen) == after


@pytest.mark.parametrize("status", [Status.EVICTED, Status.LOST])
def test_once_pods_have_gone_only_later_measurements_count(status):
    after = kept(None, Streaks(NOW - 9, {"n0": 3}), [outcome(status)])
    assert after == StreakMemory(NOW, {"n0": 3})
    assert kept(None, Streaks(NOW - 9, {}), [outcome(status)]) == StreakMemory(NOW, {})


def test_not_even_by_a_clock_that_is_ahead_does_the_same_measurement_count_once_pods_have_gone():
    seen = Streaks(NOW + 20, {"n0": 3})
    after = recall_streaks(with_streaks(Document(), {LOW: seen}, [outcome()], NOW))[LOW]
    assert after.at > seen.at


def test_what_came_of_no_move_changes_nothing():
    assert kept(None, Streaks(NOW - 9, {"n0": 3}), [outcome(Status.BLOCKED)]).at == NOW - 9


def test_where_no_node_waits_for_anything_nothing_is_kept():
    assert with_streaks(Document(), {}, [outcome()], NOW) == Document()


@pytest.mark.parametrize(
    ("age", "stays"),
    [(0, True), (STREAK_FORGOTTEN_AFTER, True), (STREAK_FORGOTTEN_AFTER + 1, False)],
)
def test_after_a_day_runs_are_not_in_a_row_any_more(age, stays):
    document = Document(streaks={LOW: StreakMemory(NOW - age, {"n0": 2})})
    assert bool(recall_streaks(without_old(document, NOW))) is stays


def test_what_was_written_under_a_clock_that_was_ahead_is_forgotten():
    document = Document(streaks={LOW: StreakMemory(NOW + 3600, {"n0": 2})})
    assert recall_streaks(without_old(document, NOW)) == {}


def test_of_too_many_nodes_those_seen_for_longest_are_kept():
    runs = {f"node-{i:06d}": 1 + (i >= 19_000) for i in range(20_000)}
    kept_runs = kept(None, Streaks(NOW, runs)).runs
    assert len(encode(Document(streaks={LOW: StreakMemory(NOW, kept_runs)}))["memory.json"]) < (
        MAX_BYTES / 3
    )
    assert sum(count == 2 for count in kept_runs.values()) == 1000
    assert list(kept_runs) == sorted(kept_runs)


def test_of_too_many_nodes_those_over_used_most_often_are_kept_however_long_ago():
    """Bits: the newest run is the lowest one, so that a large number is an old run, and not many."""
    recent = {f"node-{i:06d}": 0b10000 if i < 19_000 else 0b00111 for i in range(20_000)}
    kept_bits = kept(None, Streaks(NOW, {}, recent)).recent
    assert sum(bits == 0b00111 for bits in kept_bits.values()) == 1000
    assert len(kept_bits) < len(recent)
