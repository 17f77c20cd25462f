"""What rows say of policies, on tables that a person can check."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.fleet.comparison import LEVEL, adjust, compare_pairs, compare_rows
from rebalancer.fleet.comparison_report import sentences
from rebalancer.fleet.measures import MEASURES
from rebalancer.fleet.task import Failure, LeftByRule, Row


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
    assert "Not shown: evictions, -8 (95%: -8 to -8; too few of the draws differ)" in said
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
    assert compare_pairs(values).p == pytest.approx(p_by_hand(values.tolist()), rel=0.15)


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
