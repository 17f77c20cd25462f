"""The check of growth passes what is linear, and fails what is not."""

import numpy as np
import pytest

from benchmarks.phases.check import TIMES, Growth, calls
from benchmarks.phases.growth import exponent

SMALL = 200


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
