"""When a run must end, and how long it may still wait."""

import math
import threading
import time

import pytest

from rebalancer.base.stop import Stop
from tests.support.clocks import HandClock


class Passing(threading.Event):
    """Waiting for it lets time pass on a clock of the test; it may be set on the way."""

    def __init__(self, clock: HandClock, set_at: float = math.inf) -> None:
        super().__init__()
        self._clock, self._set_at = clock, set_at

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self._clock.seconds += timeout
        if self._clock.seconds >= self._set_at:
            self.set()
        return self.is_set()


def test_it_comes_at_the_deadline():
    clock = HandClock(100.0)
    stop = Stop(clock, deadline=110.0)
    assert (stop.reason(), stop.seconds_left(), stop.since) == (None, 10.0, None)
    clock.seconds = 109.5
    assert (stop.reason(), stop.seconds_left()) == (None, 0.5)
    clock.seconds = 112.0
    assert (stop.reason(), stop.seconds_left()) == ("the run's deadline has passed", 0.0)
    assert stop.since == 110.0


def test_it_comes_with_a_signal_and_then_nothing_is_left():
    clock, signalled = HandClock(100.0), threading.Event()
    stop = Stop(clock, deadline=110.0, signalled=signalled)
    signalled.set()
    assert (stop.reason(), stop.seconds_left(), stop.since) == ("stopped by a signal", 0.0, 100.0)


def test_without_a_deadline_it_comes_for_other_reasons_only():
    clock, signalled = HandClock(100.0), threading.Event()
    stop = Stop(clock, signalled=signalled)
    clock.seconds = 1e9
    assert (stop.reason(), stop.seconds_left()) == (None, math.inf)
    signalled.set()
    assert stop.seconds_left() == 0.0


def test_a_condition_ends_it_in_its_own_words_and_for_good():
    clock = HandClock(100.0)
    stop = Stop(clock, deadline=200.0)
    whys = [None, "the Lease was lost", None]
    stop.add(lambda: None)
    stop.add(lambda: whys.pop(0))
    assert stop.reason() is None
    assert stop.reason() == "the Lease was lost"
    clock.seconds = 300.0
    assert (stop.reason(), stop.since) == ("the Lease was lost", 100.0)
    assert whys == [None]


def test_a_wait_lasts_as_long_as_it_was_asked_for():
    clock = HandClock(100.0)
    assert Stop(clock, deadline=200.0, signalled=Passing(clock)).wait(7.0) is None
    assert clock.seconds == 107.0


def test_a_wait_ends_at_the_deadline():
    clock = HandClock(100.0)
    stop = Stop(clock, deadline=103.0, signalled=Passing(clock))
    assert stop.wait(60.0) == "the run's deadline has passed"
    assert clock.seconds == 103.0


def test_a_wait_ends_with_a_condition_within_a_quarter_of_a_second():
    clock = HandClock(100.0)
    stop = Stop(clock, signalled=Passing(clock))
    stop.add(lambda: "lost" if clock.seconds >= 104.1 else None)
    assert stop.wait(60.0) == "lost"
    assert 104.1 <= clock.seconds <= 104.35


def test_a_signal_ends_a_wait_of_another_thread_at_once():
    signalled = threading.Event()

    class Real:
        now = staticmethod(time.monotonic)

    stop = Stop(Real(), signalled=signalled)
    threading.Timer(0.05, signalled.set).start()
    started = time.monotonic()
    assert stop.wait(600.0) == "stopped by a signal"
    assert time.monotonic() - started < 300.0


def test_nothing_is_waited_for_after_the_stop():
    clock = HandClock(100.0)
    stop = Stop(clock, deadline=100.0, signalled=Passing(clock))
    assert stop.wait(5.0) is not None
    assert clock.seconds == 100.0


def test_a_later_stop_comes_so_many_seconds_after_the_signal():
    clock = HandClock(100.0)
    signalled = Passing(clock)
    stop = Stop(clock, deadline=500.0, signalled=signalled)
    later = stop.later(5.0)
    assert (later.reason(), later.seconds_left()) == (None, 405.0)
    signalled.set()
    assert (later.reason(), later.seconds_left(), later.deadline) == (None, 5.0, 105.0)
    clock.seconds = 104.9
    assert later.reason() is None
    clock.seconds = 105.0
    assert (later.reason(), later.seconds_left()) == ("stopped by a signal", 0.0)


def test_a_later_stop_comes_so_many_seconds_after_the_deadline():
    clock = HandClock(100.0)
    stop = Stop(clock, deadline=110.0)
    later = stop.later(5.0)
    clock.seconds = 110.1
    assert stop.reason() is not None
    clock.seconds = 114.0
    assert (later.reason(), later.seconds_left()) == (None, 1.0)
    clock.seconds = 115.0
    assert later.reason() == "the run's deadline has passed"


@pytest.mark.parametrize(("noticed", "left"), [(111.0, 4.0), (114.0, 2.5), (200.0, 2.5)])
def test_a_process_that_stood_still_has_half_of_the_seconds_once_it_goes_on(noticed, left):
    clock = HandClock(100.0)
    later = Stop(clock, deadline=110.0).later(5.0)
    clock.seconds = noticed
    assert (later.reason(), later.seconds_left()) == (None, left)
    clock.seconds = noticed + left
    assert later.reason() == "the run's deadline has passed"


def test_a_signal_that_came_does_not_shorten_the_waits_before_a_later_stop():
    signalled = threading.Event()
    signalled.set()

    class Real:
        now = staticmethod(time.monotonic)

    later = Stop(Real(), signalled=signalled).later(600.0)
    started = time.monotonic()
    assert later.wait(0.3) is None
    assert time.monotonic() - started >= 0.3


@pytest.mark.parametrize("inner", [False, True], ids=["itself", "one within it"])
def test_what_is_begun_goes_on_for_a_while_unless_a_final_condition_holds(inner):
    clock, signalled, lost = HandClock(100.0), threading.Event(), [False]
    outer = Stop(clock, deadline=500.0, signalled=signalled)
    outer.add(lambda: "the Lease was lost" if lost[0] else None, final=True)
    outer.add(lambda: "something more urgent" if clock.seconds > 300.0 else None)
    stop = outer.sooner(300.0, signalled) if inner else outer
    finishing = stop.finishing(2.0)
    signalled.set()
    assert (stop.reason(), finishing.reason()) == ("stopped by a signal", None)
    clock.seconds = 101.9
    assert finishing.reason() is None
    lost[0] = True
    assert finishing.reason() == "the Lease was lost"


def test_what_is_begun_ends_so_many_seconds_after_a_condition_that_is_not_final():
    clock = HandClock(100.0)
    stop = Stop(clock)
    stop.add(lambda: "something more urgent")
    finishing = stop.finishing(2.0)
    assert (stop.reason(), finishing.reason()) == ("something more urgent", None)
    clock.seconds = 102.0
    assert finishing.reason() == "something more urgent"
