"""How the time is divided: rows that can be checked by hand."""

from datetime import timedelta

import pytest

from rebalancer.machines.interruption.pipeline_run import LEAST, seconds_of


def s(seconds):
    return timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("parts", "total", "left", "first"),
    [
        ([s(10)], 120, 120, 10),  # no more than its part, though nothing else is to come
        ([s(10), s(10), None], 120, 120, 10),
        ([None, s(10)], 120, 100, 90),  # all that the others leave
        ([None, None, s(20)], 120, 120, 50),
        ([0.5, None], 120, 100, 60),  # a share is of all the time, not of what is left
        ([None, 0.25], 120, 100, 70),
        ([s(100), s(100)], 120, 120, 60),  # more than there is: all are shortened alike
        ([s(60), s(30)], 120, 45, 30),
        ([None, s(60)], 120, 40, LEAST),  # nothing is left, and it has its least all the same
        ([s(10), None], 120, -300, LEAST),
        ([0.5], -300, -300, LEAST),
        ([s(10)], 0, 0, LEAST),
    ],
)
def test_a_step_has_its_part_of_the_time_and_no_other_steps(parts, total, left, first):
    assert seconds_of(parts, total, left) == first
