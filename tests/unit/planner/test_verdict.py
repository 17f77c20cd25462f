"""A move is a gamble where some landings are clearly worse than the best, in a rule."""

import pytest

from rebalancer.planner.verdict import is_gamble


@pytest.mark.parametrize(
    ("gain", "best", "gamble"),
    [
        ((1.0, 0.0, 0.0), (1.0, 0.0, 0.0), False),
        ((0.96, 0.0, 0.0), (1.0, 0.0, 0.0), False),
        ((0.94, 0.0, 0.0), (1.0, 0.0, 0.0), True),
        ((0.0, 0.5, 0.0), (0.0, 1.0, 0.0), True),
        # It breaks one rule to fix another, wherever it lands.
        ((0.0, -0.1, 0.0), (0.0, -0.1, 0.0), True),
        # A hard rule is fixed for sure: that does not wait for less than half a soft one.
        ((1.0, 0.5, 0.0), (1.0, 1.0, 0.0), False),
        ((1.0, -0.5, 0.0), (1.0, -0.5, 0.0), False),
        ((1.0, 0.4, 0.0), (1.0, 1.0, 0.0), True),
        ((1.0, -0.6, 0.0), (1.0, -0.6, 0.0), True),
        # Balance is no reason to wait for a better landing.
        ((1.0, 0.0, 0.1), (1.0, 0.0, 0.9), False),
    ],
)
def test_a_gamble_is_what_loses_much_against_its_best_landing(gain, best, gamble):
    assert is_gamble(gain, best) is gamble
