"""Pauses that double."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from rebalancer.base.stop import Backoff, Stop, pause_after


class Still:
    """A clock whose time passes only while something waits."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        self.time += 0.05
        return self.time


def test_each_pause_is_twice_the_one_before_up_to_the_maximum():
    backoff = Backoff(0.5, 5.0)
    assert [backoff.take() for _ in range(6)] == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    assert backoff.pause == 5.0
    backoff.reset()
    assert (backoff.pause, backoff.take(), backoff.pause) == (0.5, 0.5, 1.0)


def test_a_first_pause_beyond_the_maximum_is_the_maximum():
    assert Backoff(30.0, 5.0).take() == 5.0


def test_a_pause_ends_with_the_stop_and_says_why():
    stop = Stop(Still(), 1.0)
    backoff = Backoff(0.2, 60.0)
    assert backoff.wait(stop) is None
    signalled = threading.Event()
    signalled.set()
    assert backoff.wait(stop.sooner(5.0, signalled)) == "stopped by a signal"
    assert backoff.pause == 0.8


@given(st.integers(1, 10**9), st.floats(0.01, 100), st.floats(0.01, 1000))
def test_however_many_failures_the_pause_stays_within_its_bounds(failures, first, maximum):
    pause = pause_after(failures, first, maximum)
    assert min(first, maximum) <= pause <= maximum
    assert pause_after(failures + 1, first, maximum) >= pause
