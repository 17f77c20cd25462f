"""The back-off of groups: times that a person can add up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.machines.capacity.groups import Sizes
from rebalancer.machines.capacity.state import (
    INITIAL,
    MAXIMUM,
    NOT_LAUNCHED,
    REFUSED,
    TIMEOUT,
    GroupState,
    note_decrease,
    note_failure,
    note_request,
    note_scale_out,
    note_seen,
    note_sizes,
)

_NOW = 1_800_000_000.0
_PROVISION_TIME = 900.0
_ONE = Sizes(ready=3, unregistered=1)
_ALL = Sizes(ready=4)


def _lived(state, *looks):
    """Look again and again: (seconds since then, sizes) each."""
    for after, sizes in looks:
        state = note_sizes(state, sizes, _NOW + after, _PROVISION_TIME)
    return state


def test_machines_that_come_in_time_are_no_failure():
    state = _lived(note_scale_out(GroupState(), _NOW), (120, _ONE), (840, _ONE), (960, _ALL))
    assert state == GroupState(scaled_out_at=_NOW)


def test_machines_that_do_not_come_are_one():
    state = _lived(note_scale_out(GroupState(), _NOW), (900, _ONE), (901, _ONE))
    assert (state.failures, state.code, state.backoff_until) == (1, TIMEOUT, _NOW + 901 + INITIAL)
    assert state.why == "1 machine did not become ready within 15 minutes"


def test_machines_that_were_asked_for_elsewhere_have_as_long():
    state = _lived(GroupState(), (0, _ONE), (900, _ONE))
    assert state.failures == 0
    assert _lived(state, (901, _ONE)).failures == 1


def test_in_a_back_off_the_time_to_come_stands_still():
    state = note_failure(GroupState(upcoming_since=_NOW - 901), TIMEOUT, "", _NOW)
    state = _lived(state, *((after, _ONE) for after in range(0, 1200, 120)))
    assert state.failures == 1
    # The back-off has ended at 300 s, and the last look in it was at 240 s.
    assert _lived(state, (1140, _ONE)).failures == 1
    assert _lived(state, (1142, _ONE)).failures == 2


@pytest.mark.parametrize(
    ("failures", "minutes"), [(1, 5), (2, 10), (3, 20), (4, 30), (5, 30), (50, 30)]
)
def test_each_failure_doubles_the_back_off_up_to_half_an_hour(failures, minutes):
    state, now = GroupState(), _NOW
    for _ in range(failures):
        state = note_failure(state, REFUSED, "", now)
        now = state.backoff_until
    assert state.backoff_until - state.failed_at == 60 * minutes


def test_after_three_hours_a_failure_counts_as_the_first():
    state = note_failure(note_failure(GroupState(), REFUSED, "", _NOW), REFUSED, "", _NOW + 60)
    late = note_failure(state, REFUSED, "", _NOW + 60 + 3 * 3600 + 1)
    assert (late.failures, late.backoff_until - late.failed_at) == (1, INITIAL)


def test_a_group_that_has_all_of_its_machines_has_failed_at_nothing():
    state = _lived(note_scale_out(GroupState(), _NOW), (901, _ONE))
    assert state.in_backoff(_NOW + 930)
    assert not _lived(state, (930, _ALL)).in_backoff(_NOW + 930)


def test_a_request_that_was_refused_is_not_tried_again_at_once():
    """No machine is observed then, so that having all of them is no success."""
    state = note_failure(GroupState(), REFUSED, "no", _NOW)
    assert _lived(state, (30, _ALL)).in_backoff(_NOW + 30)
    assert _lived(state, (3 * 3600 + 1, _ALL)) == GroupState()


def test_a_new_node_that_never_becomes_ready_is_no_success():
    state = _lived(note_scale_out(GroupState(), _NOW), (901, _ONE))
    assert _lived(state, (930, Sizes(ready=3, unready=1))).in_backoff(_NOW + 930)


def test_an_end_beyond_any_back_off_was_written_by_a_wrong_clock():
    assert not GroupState(failures=1, backoff_until=_NOW + MAXIMUM + 1).in_backoff(_NOW)


def test_a_group_that_was_decreased_to_its_machines_has_still_failed():
    state = _lived(note_scale_out(GroupState(), _NOW), (901, _ONE))
    left = _lived(note_decrease(state), (930, Sizes(ready=3)))
    assert left.in_backoff(_NOW + 930)
    assert left.failures == 1


def test_machines_that_come_after_others_were_given_up_are_no_success():
    """Of two machines one is launched: the group would be increased again at once, and fail again at its first back-off."""
    state = note_failure(note_scale_out(GroupState(), _NOW), NOT_LAUNCHED, "no capacity", _NOW + 60)
    left = _lived(note_decrease(state), (120, _ONE), (180, _ALL))
    assert left.in_backoff(_NOW + 180)
    assert note_failure(left, NOT_LAUNCHED, "", _NOW + 420).failures == 2
    # Those that come after the back-off are.
    assert _lived(left, (420, _ONE), (480, _ALL)).failures == 0


@given(
    looks=st.lists(
        st.tuples(st.integers(1, 400), st.integers(0, 3), st.booleans()), min_size=1, max_size=60
    )
)
def test_a_back_off_never_lasts_longer_than_the_longest(looks):
    state, now = GroupState(), _NOW
    for seconds, missing, grows in looks:
        now += seconds
        state = note_sizes(state, Sizes(ready=1, unregistered=missing), now, _PROVISION_TIME)
        if grows and not state.in_backoff(now):
            state = note_scale_out(state, now)
        assert state.backoff_until <= now + MAXIMUM


# -- sizes that were requested ---------------------------------------------------------------------

_REQUESTED = note_request(GroupState(), 7, _NOW)
_DONE = note_scale_out(_REQUESTED, _NOW + 1)
_LOST = note_failure(_REQUESTED, REFUSED, "no answer", _NOW + 1)


@pytest.mark.parametrize(
    ("state", "desired", "seconds", "unseen"),
    [
        # Right after the request no answer counts, whatever it says: the next one may be older.
        (_DONE, 2, 5, 7),
        (_DONE, 7, 5, 7),
        (_DONE, 2, 59, 7),
        # Later, one that shows the size ends it, also a larger one.
        (_DONE, 2, 600, 7),
        (_DONE, 7, 61, 0),
        (_DONE, 9, 61, 0),
        # Of a process that was killed around the request it is not known whether it was sent.
        (_REQUESTED, 2, 30, 7),
        (_REQUESTED, 2, 61, 0),
        # The same of a lost answer, for its back-off.
        (_LOST, 2, 200, 7),
        (_LOST, 2, 302, 0),
        # The clock was set back.
        (_DONE, 2, -300, 0),
        (GroupState(), 2, 5, 0),
    ],
)
def test_how_long_a_size_counts_that_the_provider_does_not_show(state, desired, seconds, unseen):
    now = _NOW + seconds
    assert state.find_unseen(desired, now) == unseen
    assert note_seen(state, desired, now).asked == unseen


def test_a_size_whose_machines_do_not_come_counts_until_its_back_off_is_over():
    state = _lived(_DONE, (120, Sizes(ready=2, unregistered=5)), (1030, _ONE))
    assert state.code == TIMEOUT
    assert state.find_unseen(2, _NOW + 1031) == 7
    assert state.find_unseen(2, _NOW + 1030 + INITIAL) == 0


@pytest.mark.parametrize("sizes", [_ALL, _ONE, Sizes(ready=3)])
def test_what_was_requested_is_not_forgotten_by_a_success(sizes):
    assert _lived(_DONE, (20, sizes), (40, sizes)).asked == 7
