"""When a group is tried again: times that a person can add up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.capacity.backoff import (
    FIRST,
    LONGEST,
    REFUSED,
    TIMEOUT,
    GroupMemory,
    awaited,
    failed,
    grown,
)
from rebalancer.capacity.sizes import Sizes

_NOW = 1_800_000_000.0
_PATIENCE = 900.0
_ONE = Sizes(ready=3, missing=1)
_ALL = Sizes(ready=4)


def _lived(memory, *looks):
    """Look again and again: (seconds since then, sizes) each."""
    for after, sizes in looks:
        memory = awaited(memory, sizes, _NOW + after, _PATIENCE)
    return memory


def test_machines_that_come_in_time_are_no_failure():
    memory = _lived(grown(GroupMemory(), _NOW), (120, _ONE), (840, _ONE), (960, _ALL))
    assert memory == GroupMemory(grown=_NOW)


def test_machines_that_do_not_come_are_one():
    memory = _lived(grown(GroupMemory(), _NOW), (900, _ONE), (901, _ONE))
    assert (memory.failures, memory.code, memory.until) == (1, TIMEOUT, _NOW + 901 + FIRST)
    assert memory.why == "1 machine did not become ready within 15 minutes"


def test_machines_that_somebody_else_asked_for_have_as_long():
    memory = _lived(GroupMemory(), (0, _ONE), (900, _ONE))
    assert memory.failures == 0
    assert _lived(memory, (901, _ONE)).failures == 1


def test_in_a_back_off_the_time_to_come_stands_still():
    memory = failed(GroupMemory(), TIMEOUT, "", _NOW)
    memory = _lived(memory, *((after, _ONE) for after in range(0, 1200, 120)))
    assert memory.failures == 1
    # The back-off has ended at 300 s, and the last look in it was at 240 s.
    assert _lived(memory, (1140, _ONE)).failures == 1
    assert _lived(memory, (1142, _ONE)).failures == 2


@pytest.mark.parametrize(
    ("failures", "minutes"), [(1, 5), (2, 10), (3, 20), (4, 30), (5, 30), (50, 30)]
)
def test_each_failure_doubles_the_back_off_up_to_half_an_hour(failures, minutes):
    memory, now = GroupMemory(), _NOW
    for _ in range(failures):
        memory = failed(memory, REFUSED, "", now)
        now = memory.until
    assert memory.until - memory.failed == 60 * minutes


def test_after_three_hours_a_failure_counts_as_the_first():
    memory = failed(failed(GroupMemory(), REFUSED, "", _NOW), REFUSED, "", _NOW + 60)
    late = failed(memory, REFUSED, "", _NOW + 60 + 3 * 3600 + 1)
    assert (late.failures, late.until - late.failed) == (1, FIRST)


def test_a_group_that_has_all_of_its_machines_has_failed_at_nothing():
    memory = _lived(grown(GroupMemory(), _NOW), (901, _ONE))
    assert memory.backs_off(_NOW + 930)
    assert not _lived(memory, (930, _ALL)).backs_off(_NOW + 930)


def test_a_request_that_was_refused_is_not_tried_again_at_once():
    """No machine is awaited then, so that having all of them is no success."""
    memory = failed(GroupMemory(), REFUSED, "no", _NOW)
    assert _lived(memory, (30, _ALL)).backs_off(_NOW + 30)
    assert _lived(memory, (3 * 3600 + 1, _ALL)) == GroupMemory()


def test_a_new_node_that_never_becomes_ready_is_no_success():
    memory = _lived(grown(GroupMemory(), _NOW), (901, _ONE))
    assert _lived(memory, (930, Sizes(ready=3, unready=1))).backs_off(_NOW + 930)


def test_an_end_beyond_any_back_off_was_written_by_a_wrong_clock():
    assert not GroupMemory(failures=1, until=_NOW + LONGEST + 1).backs_off(_NOW)


@given(
    looks=st.lists(
        st.tuples(st.integers(1, 400), st.integers(0, 3), st.booleans()), min_size=1, max_size=60
    )
)
def test_a_back_off_never_lasts_longer_than_the_longest(looks):
    memory, now = GroupMemory(), _NOW
    for seconds, missing, grows in looks:
        now += seconds
        memory = awaited(memory, Sizes(ready=1, missing=missing), now, _PATIENCE)
        if grows and not memory.backs_off(now):
            memory = grown(memory, now)
        assert memory.until <= now + LONGEST
