"""Which candidates a wave leaves out, and how they are let in again."""

import numpy as np
import pytest

from rebalancer.planner import postponed
from rebalancer.planner.postponed import Postponed
from rebalancer.planner.promises import Promise
from rebalancer.planner.verdict import Verdict
from rebalancer.scheduler.prediction import Prediction

PAIRS = [(0, node) for node in range(5)]
SOMEWHERE = Prediction(np.array([1], np.int32), np.array([1.0]))


def verdict(gain, best=None):
    return Verdict(SOMEWHERE, gain, best or gain, {}, None)


def promise(*gains):
    return Promise(list(gains), "a", 0, 1.0, list(gains))


@pytest.fixture
def two_again(monkeypatch):
    monkeypatch.setattr(postponed, "_AGAIN", 2)


@pytest.mark.usefixtures("two_again")
def test_only_the_first_refused_ones_are_looked_at_again():
    waiting = Postponed()
    for pair in PAIRS[:4]:
        waiting.refuse(pair)
    waiting.begin()
    assert [waiting.is_spared(pair) for pair in PAIRS] == [False, False, True, True, False]
    assert waiting.admit_spared()
    waiting.begin()
    assert not any(waiting.is_spared(pair) for pair in PAIRS)
    assert not waiting.admit_spared()


@pytest.mark.usefixtures("two_again")
def test_what_a_move_concerns_is_looked_at_all_the_same():
    waiting = Postponed()
    for pair in PAIRS:
        waiting.refuse(pair)
    waiting.begin()
    waiting.retry(PAIRS[3:])
    assert [waiting.is_spared(pair) for pair in PAIRS] == [False, False, True, False, False]


@pytest.mark.usefixtures("two_again")
def test_a_pair_is_surely_spared_once_enough_others_were_looked_at():
    waiting = Postponed()
    for pair in PAIRS:
        waiting.refuse(pair)
    waiting.begin()
    assert not waiting.is_surely_spared(PAIRS[4])
    assert [waiting.is_spared(pair) for pair in PAIRS[:2]] == [False, False]
    assert waiting.is_surely_spared(PAIRS[4])
    assert not waiting.is_surely_spared((7, 7))


@pytest.mark.parametrize(
    ("promised", "gain", "best", "waits"),
    [
        ((0, 1, 0), (0, 1, 0), (0, 1, 0), False),
        # Half of what was promised is lost to another rule.
        ((0, 1, 0), (0, 0.5, 0), (0, 0.5, 0), True),
        # One landing would be much better than the mean of them.
        ((0, 1, 0), (0, 1, 0), (0, 2, 0), True),
        # Of balance, promises are optimistic by nature.
        ((0, 0, 1), (0, 0, 0.1), (0, 0, 0.9), False),
    ],
)
def test_moves_that_may_land_badly_wait(promised, gain, best, waits):
    waiting = Postponed()
    assert waiting.passes_over((0, 0), promise(*promised), verdict(gain, best)) is waits
    assert waiting.admit_passed_over() is waits


def test_what_falls_short_counts_as_refused_until_gambles_may_go():
    waiting = Postponed()
    assert waiting.passes_over((0, 0), promise(0, 1, 0), verdict((0, 0.5, 0)))
    assert waiting.was_refused((0, 0))
    waiting.admit_passed_over()
    assert not waiting.was_refused((0, 0))


def test_what_pods_went_first_for_goes_in_the_next_wave_and_is_a_gamble_again_later():
    waiting = Postponed()
    waiting.free([PAIRS[0]])
    waiting.begin()
    falls_short = (promise(0.0, 2.0, 0.0), verdict((0.0, 1.0, 0.0)))
    assert [waiting.passes_over(pair, *falls_short) for pair in PAIRS[:2]] == [False, True]
    waiting.free(())
    assert waiting.passes_over(PAIRS[0], *falls_short)
