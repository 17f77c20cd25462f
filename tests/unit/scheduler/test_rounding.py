from __future__ import annotations

import math

import numpy as np
import pytest

from rebalancer.core.numbers import round_half_up
from rebalancer.scheduler.spread import go_log


@pytest.mark.parametrize(
    ("x", "bits"),
    [
        (2, "3fe62e42fefa39ef"),
        (3, "3ff193ea7aad030a"),
        (14, "40051cca16d7bba8"),
        (48, "400ef8383c50bb74"),
        (5002, "40210901f6dc84b9"),
    ],
)
def test_logarithms_are_gos_to_the_last_bit(x, bits):
    assert np.float64(go_log(float(x))).view(np.uint64) == int(bits, 16)


def test_logarithms_differ_from_the_c_library_by_one_bit_at_most():
    for x in range(2, 5003):
        assert abs(go_log(float(x)) - math.log(x)) <= math.ulp(math.log(x))


def test_halves_round_away_from_zero():
    values = [0.0, 0.49999999999999994, 0.5, 1.5, 2.5, 2.4]
    assert [round_half_up(value) for value in values] == [0, 0, 1, 2, 3, 2]
