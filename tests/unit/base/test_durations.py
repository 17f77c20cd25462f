from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.base.durations import (
    format_duration,
    parse_duration,
    parse_go_duration,
    parse_seconds,
)

BOTH = {"90s": 90, "5m": 300, "1h30m": 5400, "0s": 0, "1.5s": 1.5, "1h1s": 3601, "5m0s": 300}
OURS_ONLY = {"2d": 172_800, "1d12h": 129_600}
GO_ONLY = {
    "0": 0,
    "1.5h": 5400,
    ".5s": 0.5,
    "250ms": 0.25,
    "3us": 0.000003,
    "-10s": -10,
    "+10s": 10,
    "5m1h": 3900,
    "-5m": -300,
}
NEITHER = ["", "5", "m", "5 m", "5min", "1h30", "--1s", "\u0665m", "1h\n"]


@pytest.mark.parametrize(("text", "seconds"), [*BOTH.items(), *OURS_ONLY.items()])
def test_ours_are_read(text, seconds):
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", [*NEITHER, *GO_ONLY, 5, None])
def test_what_is_none_of_ours_is_refused(text):
    with pytest.raises(ValueError, match="is no duration; write"):
        parse_duration(text)


@pytest.mark.parametrize(("text", "seconds"), [*BOTH.items(), *GO_ONLY.items()])
def test_those_of_go_are_read(text, seconds):
    assert parse_go_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", [*NEITHER, *OURS_ONLY])
def test_what_go_refuses_is_refused(text):
    with pytest.raises(ValueError, match="is no duration; write"):
        parse_go_duration(text)


def test_more_than_go_can_count_is_refused():
    with pytest.raises(ValueError, match="longer than a duration can be"):
        parse_go_duration("2562048h")


@given(st.integers(0, 10**9).map(lambda ms: timedelta(milliseconds=ms)))
def test_what_is_written_is_read_by_both(span):
    assert parse_duration(format_duration(span)) == span
    assert parse_go_duration(format_duration(span)) == span


@pytest.mark.parametrize(
    ("seconds", "text"), [(5400, "1h30m"), (300, "5m"), (0, "0s"), (90, "1m30s"), (0.25, "0.25s")]
)
def test_they_are_written_in_their_largest_units(seconds, text):
    assert format_duration(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5m", 300.0), ("300", 300.0), ("0.08", 0.08), ("0.08s", 0.08), ("1h30m", 5400.0)],
)
def test_flags_take_durations_and_plain_seconds(text, seconds):
    assert parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", ".", "-1", "1e3", "nan", "inf", "\uff13", "soon", "5 m"])
def test_what_is_neither_is_an_error(text):
    with pytest.raises(ValueError, match="is no duration"):
        parse_seconds(text)
