"""The queue: the best promise first, asked about again when its turn comes."""

from typing import Any

import pytest

from rebalancer.planner.queue import Queue


class Listed:
    """Candidates with given keys; what promises less on being asked again is in ``later``."""

    def __init__(self, keys, later=(), stale=()):
        self.keys, self.later, self.stale = dict(keys), dict(later), dict(stale)

    def entries(self):
        return [self.entry(pair) for pair in self.keys]

    def entry(self, pair):
        key = self.keys.get(pair)
        return None if key is None else (key, pair)

    def renew(self, pair):
        if pair not in self.later:
            return False
        key = self.later.pop(pair)
        self.keys.pop(pair)
        if key is not None:
            self.keys[pair] = key
        return True

    def refresh_stale(self, pair):
        return self.stale.pop(pair, None)


def queue_of(candidates: Any, spared=()) -> Queue:
    return Queue(candidates, lambda pair: pair in spared)


def order(candidates):
    queue = queue_of(candidates)
    popped = []
    while (entry := queue.pop()) is not None:
        popped.append(entry[1])
    assert len(queue) == 0
    return popped


A, B, C = (0, 1), (0, 2), (1, 1)


def test_entries_come_by_their_first_entry_then_the_next_then_the_pair():
    keys = {A: (0, -1, -9), B: (-1, 0, 0), C: (0, -1, -9)}
    assert order(Listed(keys)) == [B, A, C]


def test_what_promises_less_by_now_goes_back_to_its_place():
    keys = {A: (0, 0, -5), B: (0, 0, -4), C: (0, 0, -3)}
    assert order(Listed(keys, later={A: (0, 0, -3.5)})) == [B, A, C]


def test_what_promises_nothing_any_more_is_dropped():
    keys = {A: (0, 0, -5), B: (0, 0, -4)}
    assert order(Listed(keys, later={A: None})) == [B]


def test_a_class_that_is_due_is_asked_about_first():
    candidates = Listed({A: (0, -1, 0), B: (0, -2, 0)}, stale={B: [A, B]})
    queue = queue_of(candidates)
    candidates.keys[B] = (0, -0.5, 0)
    assert queue.pop() == ((0, -1, 0), A)


@pytest.mark.parametrize(
    ("key", "other", "before"),
    [
        ((-1, 0, 0), (-2, 0, 0), True),
        ((-1, 0, 0), (-1.04, 0, 0), False),
        ((0, -1, 0), (0, -1.06, 0), True),
        # Balance is compared where nothing else is at stake.
        ((0, -1, -1), (0, -1, -9), False),
        ((0, 0, -1), (0, 0, -1.04), False),
        ((0, 0, -1), (0, 0, -1.06), True),
    ],
)
def test_only_clearly_more_goes_before(key, other, before):
    assert queue_of(Listed({A: other})).goes_before(key) is before


def test_what_need_not_be_looked_at_is_left_out():
    queue = queue_of(Listed({A: (0, -1, 0), B: (0, -2, 0)}), spared={B})
    assert queue.pop() == ((0, -1, 0), A)
    assert queue.pop() is None


def test_nothing_goes_before_in_an_empty_queue():
    assert not queue_of(Listed({})).goes_before((0, 0, 0))
