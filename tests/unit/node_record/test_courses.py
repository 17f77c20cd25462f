"""Courses: carried out to their end by one loop, which waits, and tells them why the process must end."""

import pytest

from rebalancer.base.stop import Stop
from rebalancer.node_record.tasks import carry_out
from tests.support.clocks import HandClock
from tests.support.killing import Killed


class Passing(Stop):
    """A stop whose waits pass at once, by its clock."""

    def __init__(self, deadline=float("inf")):
        clock = HandClock()
        super().__init__(clock, deadline)
        self.clock, self.waits = clock, []

    def wait(self, seconds):
        self.waits.append(seconds)
        self.clock.seconds += seconds
        return self.reason()


def count_down(number, pause):
    for _ in range(number):
        if (ended := (yield pause)) is not None:
            return ended
    return None


def test_a_course_is_waited_for_as_it_asks_and_its_result_returned():
    stop = Passing()
    assert carry_out(count_down(3, 5.0), stop) is None
    assert stop.waits == [5.0] * 3
    assert carry_out(count_down(0, 5.0), stop) is None
    assert stop.waits == [5.0] * 3


def test_a_course_of_courses_waits_for_each():
    def both():
        first = yield from count_down(2, 1.0)
        return first or (yield from count_down(1, 7.0))

    stop = Passing()
    assert carry_out(both(), stop) is None
    assert stop.waits == [1.0, 1.0, 7.0]


def test_it_decides_itself_what_is_done_once_the_process_must_end():
    def cleaning():
        ended = yield from count_down(9, 4.0)
        assert (yield 0.0) == ended
        return f"given back: {ended}"

    assert carry_out(cleaning(), Passing(10.0)) == "given back: the run's deadline has passed"


@pytest.mark.parametrize("within", ["step", "wait"])
def test_what_it_has_to_give_back_is_given_back_when_it_is_cut_off(within, monkeypatch):
    given: list[str] = []

    def holding():
        try:
            yield 1.0
            raise Killed
        finally:
            given.append("lock")

    stop = Passing()
    if within == "wait":

        def cut(_seconds):
            raise Killed

        monkeypatch.setattr(stop, "wait", cut)
    with pytest.raises(Killed):
        carry_out(holding(), stop)
    assert given == ["lock"]
