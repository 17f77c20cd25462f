"""Differences over pairs: the test by signs against the whole list of signs, and how often nothing is called something."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.fleet.paired import LEVEL, adjust, compare_pairs


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
