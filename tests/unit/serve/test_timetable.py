"""When a process that serves makes its next run: by the schedule, since something changed, or for pods that must leave."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from rebalancer.base.stop import Stop
from rebalancer.serve.early import GAP, QUIET, Early
from rebalancer.serve.timetable import Timetable
from rebalancer.wire.lists import item_decoder
from tests.unit.machines.interruption.scene import HandClock

EVERY = 120.0
STEP = 1 / 16
BEGAN, ENDED = 1000.0, 1030.0
ADDED = item_decoder("Node").decode(b'{"metadata": {"name": "n"}}')


def interruptions(gap=math.inf) -> Any:
    """Pods have to leave a machine, or not; the next run is due so long after the last one."""
    return SimpleNamespace(due=lambda ended: ended + gap)


class Waits:
    """Notes for how long it is waited, and does not wait."""

    def __init__(self, *, is_set=False):
        self.seconds, self._is_set = [], is_set

    def is_set(self):
        return self._is_set

    def wait(self, seconds):
        self.seconds.append(seconds)


def timetable(*, gap=math.inf, news_at=None, lasted=ENDED - BEGAN):
    """A timetable after a run that began at BEGAN; ``news_at``: when a node was added, of which the run knew nothing."""
    clock = HandClock()
    clock.seconds = BEGAN
    early: Any = Early(clock)
    made = Timetable(clock, lambda _: EVERY, early, interruptions(gap))
    made.begin_run()
    early.begin()
    if news_at is not None:
        clock.seconds = news_at
        early.object_changed("Node", None, ADDED)
    clock.seconds = BEGAN + lasted
    made.end_run()
    return made, clock, early


def first_due(made, clock, early):
    """When it says for the first time that a run is due, and why; it is asked every STEP seconds."""
    early.news.wait = lambda _: None
    stop: Any = Stop(clock)
    stop.wait = lambda _: None
    while clock.seconds <= BEGAN + 2 * EVERY:
        why = made.await_next(stop)
        if why is not None:
            return clock.seconds, why
        clock.seconds += STEP
    raise AssertionError("it is never due")


@pytest.mark.parametrize(
    ("given", "at", "why"),
    [
        ({}, BEGAN + EVERY, ""),
        ({"news_at": BEGAN + 5}, ENDED + GAP, "node n was added"),
        ({"gap": 10.0}, ENDED + 10, ""),
        ({"gap": 10.0, "news_at": BEGAN + 5}, ENDED + 10, ""),
        ({"gap": 20.0, "news_at": BEGAN + 5}, ENDED + GAP, "node n was added"),
        # A run that lasts longer than its interval is followed by the next one at once.
        ({"lasted": EVERY + 1}, BEGAN + EVERY + 1, ""),
        ({"lasted": EVERY + 1, "news_at": BEGAN + 5}, BEGAN + EVERY + 1, ""),
    ],
)
def test_the_next_run_is_due_by_what_comes_first(given, at, why):
    assert first_due(*timetable(**given)) == (at, why)


def test_the_first_run_is_due_at_once():
    clock = HandClock()
    made = Timetable(clock, lambda _: EVERY, Early(clock), interruptions())
    assert made.await_next(Stop(clock)) == ""


def test_what_changes_between_two_runs_is_awaited_for_a_moment():
    made, clock, early = timetable()
    clock.seconds = at = ENDED + 50
    early.object_changed("Node", None, ADDED)
    due, why = first_due(made, clock, early)
    assert 0 <= due - (at + QUIET) < STEP
    assert why == "node n was added"


@pytest.mark.parametrize(
    ("given", "now", "longest"),
    [
        ({}, ENDED, 0.25),
        ({}, BEGAN + EVERY - 0.1, 0.1),
        ({"news_at": BEGAN + 5}, ENDED, 0.05),
        ({"news_at": BEGAN + 5}, ENDED + GAP - 0.02, 0.02),
    ],
)
def test_no_wait_is_longer_than_until_something_may_be_due(given, now, longest):
    made, clock, early = timetable(**given)
    clock.seconds = now
    waits: Any
    early.news = waits = Waits(is_set="news_at" in given)
    assert made.await_next(waits) is None
    assert waits.seconds == [pytest.approx(longest)]
