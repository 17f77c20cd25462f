"""What counts as a run in a row."""

import pytest

from rebalancer.cost.streaks import Streaks


@pytest.mark.parametrize(
    ("before", "seen", "at", "runs"),
    [
        (Streaks(), ["a"], 100, {"a": 1}),
        (Streaks(100, {"a": 1}), ["a", "b"], 160, {"a": 2, "b": 1}),
        # Not seen once: it starts again.
        (Streaks(160, {"a": 2, "b": 1}), ["b"], 220, {"b": 2}),
        # So many are enough.
        (Streaks(220, {"b": 3}), ["b"], 280, {"b": 3}),
        (Streaks(220, {"b": 9}), ["b"], 280, {"b": 3}),
        # The same measurement, seen by a second run: b was none of its streaks under another policy.
        (Streaks(220, {"a": 2}), ["a", "b"], 220, {"a": 2, "b": 1}),
        # Measured before the last moves: it says nothing of what is now.
        (Streaks(220, {"a": 2}), ["a", "b"], 219, {"a": 2}),
    ],
)
def test_a_run_adds_one_for_a_new_measurement(before, seen, at, runs):
    after = before.after(seen, at, 3)
    assert (after.runs, after.at) == (runs, max(before.at, at))


def test_two_terms_of_a_strategy_are_joined():
    joined = Streaks(5.0, {"b": 1, "a": 3}).joined(Streaks(4.0, {"b": 2, "c": 1}))
    assert joined == Streaks(5.0, {"a": 3, "b": 2, "c": 1})
    assert list(joined.runs) == ["a", "b", "c"]
