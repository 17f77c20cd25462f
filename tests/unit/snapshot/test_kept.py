"""Results that are kept for as long as they are asked for."""

import gc
import weakref

from rebalancer.snapshot.owners import Memo, NoMemo


class Counted:
    """A function that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, *parts: list[int]) -> list[int]:
        self.calls += 1
        return [number for part in parts for number in part]


def test_the_same_objects_give_the_same_result_and_equal_ones_do_not():
    kept, joined, one, two = Memo(), Counted(), [1], [2]
    first = kept.of(joined, one, two)
    assert first == [1, 2]
    assert kept.of(joined, one, two) is first
    assert kept.of(joined, [1], two) is not first
    assert joined.calls == 2
    assert kept.of(joined, two, one) == [2, 1]
    assert kept.of(Counted(), one, two) is not first


def test_what_is_asked_for_each_time_stays_and_the_rest_goes():
    kept, joined, stays, goes = Memo(), Counted(), [1], [2]
    kept.of(joined, stays)
    kept.of(joined, goes)
    for _ in range(3):
        kept.forget_unused()
        kept.of(joined, stays)
    assert joined.calls == 2
    kept.of(joined, goes)
    assert joined.calls == 3


def test_what_a_kept_result_was_made_of_stays_with_it():
    kept, joined, whole = Memo(), Counted(), [0]
    parts = [[number] for number in range(10)]

    def made(of: list[int]) -> list[int]:
        return of + [number for part in parts for number in kept.of(joined, part)]

    for _ in range(5):
        kept.of(made, whole)
        kept.forget_unused()
    assert joined.calls == 10
    kept.of(made, [1])
    assert joined.calls == 10


class Part(list[int]):
    """An argument whose end can be seen."""


def test_for_one_snapshot_nothing_is_kept():
    once, joined, part = NoMemo(), Counted(), Part([1])
    assert once.of(joined, part) == once.of(joined, part) == [1]
    assert joined.calls == 2
    seen = weakref.ref(part)
    del part
    gc.collect()
    assert seen() is None
