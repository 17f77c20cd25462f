"""Times of the API, and whatever else stands where a time should."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.wire.times import FIRST_SECOND, LAST_SECOND, rfc3339, unix_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-11-20T10:00:00Z", 1_795_168_800),
        ("2026-11-20T10:00:00.5Z", 1_795_168_800.5),
        ("2026-11-20T11:00:00+01:00", 1_795_168_800),
        # Without a zone it is no time of the API's; it must not depend on the machine's.
        ("2026-11-20T10:00:00", 1_795_168_800),
        ("9999-12-31T23:59:59Z", LAST_SECOND),
        ("0001-01-01T00:00:00+23:59", FIRST_SECOND - 86_340),
        (None, 0),
        ("", 0),
        ("tomorrow", 0),
        ("2026-13-45T99:99:99Z", 0),
    ],
)
def test_a_time_is_read(text, seconds):
    assert unix_seconds(text) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1_795_168_800.9, "2026-11-20T10:00:00Z"),
        (LAST_SECOND + 1, "9999-12-31T23:59:59Z"),
        (1e300, "9999-12-31T23:59:59Z"),
        (math.inf, "9999-12-31T23:59:59Z"),
        (-math.inf, "0001-01-01T00:00:00Z"),
        (-1e18, "0001-01-01T00:00:00Z"),
        (math.nan, "1970-01-01T00:00:00Z"),
    ],
)
def test_a_time_is_written(seconds, text):
    assert rfc3339(seconds) == text


@given(st.floats() | st.integers())
def test_no_number_breaks_it(seconds):
    assert len(rfc3339(seconds)) == 20


@given(st.integers(FIRST_SECOND, LAST_SECOND))
def test_what_is_written_is_read_again(seconds):
    assert unix_seconds(rfc3339(seconds)) == seconds


@given(st.text(max_size=30) | st.from_regex(r"\A.{10}T.{8}Z\Z"))
def test_no_text_breaks_it(text):
    assert math.isfinite(unix_seconds(text))
