"""What rows say of policies, on tables that a person can check."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rebalancer.fleet.comparison import LEVEL, adjust, compare_pairs, compare_rows
from rebalancer.fleet.comparison_report import as_data, describe_repeats, sentences, title
from rebalancer.fleet.simulation import MEASURES, Failure, LeftByRule, Origin, Row


def rows_of(policy, table, start=0):
    """A row for each value of ``table``: snapshot -> evictions of each draw."""
    return [
        Row(
            number=start + index,
            policy=policy,
            snapshot=snapshot,
            draw=draw,
            nodes=3,
            pods=9,
            silent=True,
            measures={**{of.key: 0.0 for of in MEASURES}, "evictions": float(value)},
            left={"topology-spread": LeftByRule(0.0, value, 0.0, 1)},
        )
        for index, (snapshot, draw, value) in enumerate(
            (snapshot, draw, value)
            for snapshot, values in table.items()
            for draw, value in enumerate(values)
        )
    ]


def evictions(comparison):
    return next(of for of in comparison.verdicts if of.measure.key == "evictions")


def test_means_and_spread_by_hand():
    rows = rows_of("a", {"x": [1, 3], "y": [4, 4]})
    summary = compare_rows(["a"], rows, []).policies[0].measures["evictions"]
    assert summary.mean == 3  # (2 + 4) / 2
    assert summary.draws == 1  # sqrt((2 + 0) / 2)
    assert summary.snapshots == pytest.approx(2**0.5)


def test_a_policy_that_is_better_on_all_of_eight_snapshots_is_named():
    names = "abcdefgh"
    rows = rows_of("good", {name: [1, 1] for name in names})
    rows += rows_of("bad", {name: [3, 4] for name in names}, 100)
    verdict = evictions(compare_rows(["good", "bad"], rows, []))
    assert (verdict.better, verdict.difference.mean) == ("good", -2.5)
    assert verdict.p == 2 / 256


def test_on_five_snapshots_no_policy_is_named():
    rows = rows_of("good", {name: [1] for name in "abcde"})
    rows += rows_of("bad", {name: [3] for name in "abcde"}, 100)
    assert evictions(compare_rows(["good", "bad"], rows, [])).better == ""


def test_snapshots_that_disagree_are_named():
    rows = rows_of("a", {"x": [1], "y": [1], "z": [9], "same": [2]})
    rows += rows_of("b", {"x": [9], "y": [9], "z": [1], "same": [2]}, 100)
    verdict = evictions(compare_rows(["a", "b"], rows, []))
    assert (verdict.against, verdict.equal, verdict.better) == (("z",), 1, "")


def test_one_snapshot_is_paired_by_its_draws():
    rows = rows_of("a", {"x": [1] * 8}) + rows_of("b", {"x": [2] * 8}, 100)
    comparison = compare_rows(["a", "b"], rows, [])
    assert (comparison.paired_by, evictions(comparison).better) == ("draw", "a")


def test_a_draw_that_one_policy_lacks_counts_for_neither():
    rows = rows_of("a", {"x": [1, 100], "y": [1, 1]})
    rows += [row for row in rows_of("b", {"x": [1, 1], "y": [1, 1]}, 100) if row.number != 101]
    failed = [Failure(101, "b", "x", 1, "no memory")]
    comparison = compare_rows(["a", "b"], rows, failed)
    assert evictions(comparison).difference.mean == 0
    assert comparison.failures == tuple(failed)


def test_without_any_row_nothing_is_claimed():
    comparison = compare_rows(["a", "b"], [], [Failure(0, "a", "x", 0, "cut off")])
    assert not any(of.better for of in comparison.verdicts)


@settings(max_examples=10)
@given(st.permutations(range(8)))
def test_the_order_of_rows_makes_no_difference(order):
    rows = rows_of("a", {"x": [1, 2], "y": [3, 5]}) + rows_of("b", {"x": [0, 2], "y": [4, 4]}, 4)
    assert compare_rows(["a", "b"], [rows[i] for i in order], []) == compare_rows(
        ["a", "b"], rows, []
    )


def test_one_pair_that_differs_is_not_called_alike():
    comparison = compare_rows(
        ["a", "b"], rows_of("a", {"x": [1]}) + rows_of("b", {"x": [9]}, 9), []
    )
    said = " ".join(sentences(comparison.verdicts, comparison.paired_by))
    assert "Not shown: evictions, -8 (too few of the draws differ)" in said
    assert "Alike" not in said


def p_by_hand(values):
    """Every assignment of signs, one after the other."""
    sums = [
        abs(sum(sign * abs(value) for sign, value in zip(signs, values, strict=True)))
        for signs in product((-1, 1), repeat=len(values))
    ]
    return sum(one >= abs(sum(values)) - 1e-9 for one in sums) / len(sums)


@given(st.lists(st.integers(-5, 5).filter(bool), min_size=1, max_size=9))
def test_p_is_the_share_of_signs_that_reach_as_far(values):
    assert compare_pairs(np.array(values, float)).p == pytest.approx(p_by_hand(values))


def test_p_of_many_pairs_is_near_the_exact_one():
    values = np.array([1.0, -0.5, 2, 1, -1, 0.25, 3, 1, -2, 1, 0.5, 1, 2, -1, 1], float)
    assert compare_pairs(values).p == pytest.approx(p_by_hand(values.tolist()), rel=0.01)


def test_p_has_no_floor_but_that_of_its_pairs():
    """Fifteen policies that differ in all measures on 24 snapshots: 1,050 questions at once."""
    for number in (15, 24, 200):
        assert compare_pairs(np.ones(number)).p == pytest.approx(2.0 ** (1 - number))
    rows, draw = [], np.random.default_rng(4)
    for at in range(15):
        table = {f"s{number}": [10.0 * at + draw.normal()] for number in range(24)}
        rows += rows_of(f"p{at:02}", table, 1000 * at)
    verdicts = compare_rows([f"p{at:02}" for at in range(15)], rows, []).verdicts
    alone = [of for of in verdicts if of.measure.key == "evictions" and not of.difference.blocks]
    assert len(alone) > 100
    assert all(of.better for of in alone)


def test_a_family_that_no_p_can_pass_is_said():
    rows = [
        row
        for at in range(4)
        for row in rows_of(f"p{at}", {name: [9 * at] for name in "abcdef"}, 100 * at)
    ]
    comparison = compare_rows([f"p{at}" for at in range(4)], rows, [])
    said = " ".join(sentences(comparison.verdicts, comparison.paired_by))
    assert "too few of the snapshots differ for 6 questions at once" in said


WIDE = {5: (0.92, 0.98), 6: (0.93, 0.98), 8: (0.93, 0.98), 10: (0.93, 0.98), 20: (0.93, 0.98)}


@pytest.mark.parametrize("number", WIDE)
def test_an_interval_covers_what_it_says(number):
    random, low, high = np.random.default_rng(number), *WIDE[number]
    covered = 0
    for _ in range(400):
        difference = compare_pairs(random.normal(3, 2, number))
        covered += difference.low <= 3 <= difference.high
    assert low <= covered / 400 <= high


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=9), st.randoms())
def test_the_order_of_independent_pairs_changes_no_digit(values, random):
    shuffled = random.sample(values, len(values))
    assert compare_pairs(np.array(values)) == compare_pairs(np.array(shuffled))


@given(st.lists(st.integers(-9, 9), min_size=6, max_size=9))
def test_interval_and_test_say_the_same(values):
    difference = compare_pairs(np.array(values, float))
    assert (difference.p <= LEVEL) is (difference.low > 0 or difference.high < 0)


def test_three_states_that_are_recorded_again_and_again_are_three():
    random, claims = np.random.default_rng(11), 0
    for _ in range(100):
        states = np.repeat(random.normal(0, 1, 3), 8)
        claims += compare_pairs(states + random.normal(0, 0.15, 24)).p <= LEVEL
    assert claims <= 10


HOUR = 3600.0


def recorded_rows(policy, values, origins, start):
    rows = rows_of(policy, {f"s{at}": [value] for at, value in enumerate(values)}, start)
    return [replace(row, origin=of) for row, of in zip(rows, origins, strict=True)]


def compared_at(origins):
    """Two policies of which one is better on every snapshot, by much the same."""
    random = np.random.default_rng(2)
    ones = [1 + random.random() / 9 for _ in origins]
    rows = recorded_rows("good", ones, origins, 0)
    return compare_rows(
        ["good", "bad"], rows + recorded_rows("bad", [9] * len(origins), origins, 500), []
    )


def origins_of(number, step, *, state="{at}", series="c"):
    return [Origin(state.format(at=at), series, 1000 + at * step) for at in range(number)]


@pytest.mark.parametrize(
    ("origins", "states"),
    [
        (origins_of(12, 2.0), 1),  # seconds apart
        (origins_of(12, 600.0), 2),  # every ten minutes
        (origins_of(12, HOUR), 12),
        (origins_of(12, 24 * HOUR, state="one"), 1),  # nothing has changed in days
        (origins_of(12, HOUR) + origins_of(12, HOUR, series="d", state="d{at}"), 24),
        (origins_of(12, HOUR) + origins_of(12, HOUR, series="copied"), 12),
        ([Origin(str(at)) for at in range(12)], 12),  # times that no file says
        ([Origin() for _ in range(12)], 12),
        # Two states at one moment are of two clusters, whatever their servers are called.
        (origins_of(12, 0.0), 12),
    ],
)
def test_snapshots_that_say_the_same_count_once(origins, states):
    comparison = compared_at(origins)
    assert comparison.states == states
    assert bool(evictions(comparison).better) is (states >= 9)
    assert bool(describe_repeats(comparison)) is (states < len(origins))
    data = as_data(comparison, "default")
    assert data["states"] == states


@settings(max_examples=20)
@given(st.permutations(range(12)))
def test_names_and_order_of_files_change_no_digit(order):
    origins = origins_of(12, 1800.0)
    rows = compared_at(origins).rows
    moved = [
        replace(row, snapshot=f"x{order[int(row.snapshot[1:])]}", number=at)
        for at, row in enumerate(
            sorted(rows, key=lambda row: (row.policy != "good", order[int(row.snapshot[1:])]))
        )
    ]
    here = [of.difference for of in compare_rows(["good", "bad"], rows, []).verdicts]
    assert here == [of.difference for of in compare_rows(["good", "bad"], moved, []).verdicts]


def test_hours_are_those_that_the_snapshots_of_each_cluster_cover():
    origins = origins_of(3, 2 * HOUR) + origins_of(2, HOUR, series="d", state="d{at}")
    assert compared_at(origins).hours == 5
    assert "from 5 hours" in title(compared_at(origins))


def test_equal_pairs_say_nothing():
    assert compare_pairs(np.zeros(20)).p == 1
    assert compare_pairs(np.array([0.0, 0, 0, 2])).least_p == 1
    assert compare_pairs(np.zeros(0)).mean == 0


def test_five_pairs_can_never_be_sure():
    difference = compare_pairs(np.ones(5))
    assert (difference.p, difference.least_p) == (0.0625, 0.0625)
    assert difference.p > LEVEL


def test_the_interval_of_a_mean_is_near_that_of_the_normal_distribution():
    values = np.random.default_rng(1).normal(3, 2, 400)
    difference = compare_pairs(values)
    half = 1.96 * values.std(ddof=1) / 20
    assert difference.low == pytest.approx(values.mean() - half, abs=0.02)
    assert difference.high == pytest.approx(values.mean() + half, abs=0.02)


def test_holm_by_hand():
    # The smallest times 4, the next times 3, and never below one before it.
    assert adjust([0.04, 0.01, 0.011, 0.5], 4) == pytest.approx([0.08, 0.04, 0.04, 0.5])


def test_where_nothing_differs_a_claim_is_as_rare_as_said():
    random = np.random.default_rng(7)
    claims = sum(compare_pairs(random.normal(0, 1, 12)).p <= LEVEL for _ in range(200))
    # 10 are expected; 23 would be four standard deviations more.
    assert claims < 23
