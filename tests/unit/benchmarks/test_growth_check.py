"""The check of growth passes what is linear, and fails what is not."""

import random

import numpy as np
import pytest

from benchmarks.phases.check import (
    DRAWS,
    MOST_GROWTH_OF_DRAWS,
    MOST_OF_DRAW,
    TIMES,
    Growth,
    calls,
    mean_growth,
    of_median,
)
from benchmarks.phases.growth import exponent

SMALL = 200
MEASURED = [
    (11850, 7211),
    (11012, 21019),
    (15534, 5988),
    (6522, 6228),
    (5800, 16304),
    (22521, 6537),
    (2675, 3793),
    (4372, 6390),
    (10505, 6007),
    (9392, 7503),
    (4008, 4800),
    (7418, 4726),
    (4133, 6078),
    (6921, 5049),
    (4217, 3524),
    (11709, 9620),
    (6249, 5538),
    (6274, 5213),
    (4005, 7182),
    (6868, 2595),
    (6792, 15296),
    (4007, 6642),
    (8220, 6494),
    (8601, 9625),
    (6550, 9322),
    (10593, 6001),
    (8226, 8262),
    (7494, 8410),
    (9787, 13394),
    (5264, 10921),
    (3102, 5601),
    (9965, 9696),
    (15292, 19827),
    (9885, 16689),
]
"""Calls per move on random shapes of 30 nodes and of 120, as they were measured for the limits."""


def per_pod(size):
    return lambda: [str(number) for number in range(size)]


def per_pair(size):
    return lambda: [len(str(a)) for a in range(size) for _ in range(size)]


def per_pair_in_numpy(size):
    column = np.arange(size * 20.0)
    return lambda: float(np.convolve(column, column).sum())


def test_linear_work_passes():
    per_size = calls(per_pod(SMALL * TIMES)) / calls(per_pod(SMALL)) / TIMES
    assert Growth(per_size, 1.0).complaint() is None


def test_a_loop_over_pairs_fails_by_its_calls():
    per_size = calls(per_pair(SMALL * TIMES)) / calls(per_pair(SMALL)) / TIMES
    assert "calls grow" in (Growth(per_size, 1.0).complaint() or "")


def test_pairs_within_one_call_of_numpy_fail_by_their_time_alone():
    per_size = calls(per_pair_in_numpy(SMALL * TIMES)) / calls(per_pair_in_numpy(SMALL)) / TIMES
    assert per_size <= 1
    assert Growth(per_size, 1.0).complaint() is None
    assert "CPU time grows" in (Growth(per_size, float(TIMES)).complaint() or "")


@pytest.mark.parametrize("power", [1, 1.5, 2])
def test_the_exponent_of_a_power_is_its_own(power):
    pods = [3_000, 10_000, 30_000]
    assert exponent(pods, [1e-4 * number**power for number in pods]) == pytest.approx(power)


def share_that_fails(dearer=1.0, all_dearer=1.0):
    """Return in how many of many sets of ten the check fails, if one draw of each, or all, cost more on 120 nodes."""
    draw, sets, failed = random.Random(1), 2_000, 0
    for _ in range(sets):
        drawn = draw.sample(MEASURED, DRAWS)
        small = [before for before, _ in drawn]
        large = [after * all_dearer for _, after in drawn]
        large[0] *= dearer
        failed += (
            max(of_median(large)) > MOST_OF_DRAW or mean_growth(small, large) > MOST_GROWTH_OF_DRAWS
        )
    return failed / sets


def test_chance_alone_fails_two_sets_of_draws_in_a_row_less_than_once_in_a_hundred_times():
    assert share_that_fails() ** 2 < 0.01


def test_what_grows_with_the_square_of_the_nodes_fails():
    assert share_that_fails(all_dearer=TIMES) > 0.99


def test_one_shape_that_costs_ten_times_as_much_fails():
    assert share_that_fails(dearer=10) > 0.9
