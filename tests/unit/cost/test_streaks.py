"""What counts as a run in a row."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def play(seen, window=5):
    """The streaks after runs that saw the condition on the nodes of each text, a minute apart."""
    streaks = Streaks()
    for minute, nodes in enumerate(seen):
        streaks = streaks.after(nodes, 60.0 * (minute + 1), window, window)
    return streaks


@pytest.mark.parametrize(
    ("seen", "among", "recent"),
    [
        (["a", "a"], 2, {}),  # in a row: the number says all
        (["a", "", "a"], 2, {"a": 0b101}),
        (["a", "", "a", "a", ""], 3, {"a": 0b10110}),
        (["a", "", "", "", "", "a"], 1, {}),  # the first is out of the window
        (["a", "", "", "", "", ""], 0, {}),
        (["ab", "b", "ab"], 2, {"a": 0b101}),
        (["a"] * 9, 5, {}),
    ],
)
def test_of_the_last_runs_those_count_in_which_it_held(seen, among, recent):
    streaks = play(seen)
    assert (streaks.among_last("a", 5), streaks.recent) == (among, recent)
    assert set(streaks.runs) == set(seen[-1])


@given(st.lists(st.sets(st.sampled_from("abc")), max_size=30), st.integers(1, Streaks.MAX_WINDOW))
def test_they_are_what_a_list_of_all_runs_says(seen, window):
    streaks = play(seen, window)
    for name in "abc":
        held = [name in nodes for nodes in seen]
        assert streaks.among_last(name, window) == sum(held[-window:])


def test_the_same_measurement_is_one_run_also_among_the_last():
    streaks = play(["a", "", "a"])
    assert streaks.after("a", streaks.at, 5, 5) == streaks
    # Another policy judges the same measurement: "a" holds no more, "b" does.
    assert streaks.after("b", streaks.at, 5, 5).among_last("b", 5) == 1


def test_a_program_that_knows_only_runs_in_a_row_and_another_take_turns():
    streaks = play(["a", "", "a"])
    before = Streaks(streaks.at, streaks.runs).after("a", 300, 3)  # it writes no ``recent``
    assert before == Streaks(300, {"a": 2})
    assert before.after("", 360, 5, 5).after("a", 420, 5, 5).among_last("a", 5) == 3


def test_numbers_that_nobody_counted_cost_nothing():
    assert Streaks(1.0, {"a": 10**9}).after("a", 2.0, 5, 5).among_last("a", 5) == 5
