"""When the next plan is due."""

from datetime import UTC, datetime

import pytest

from rebalancer.serve.triggers import TimeZoneError, parse_schedule

AT = datetime(2026, 11, 20, 10, 1, 30, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2m", 120),
        ("90", 90),
        ("1h30m", 5400),
        ("*/2 * * * *", 30),
        ("0 22 * * *", 11 * 3600 + 58 * 60 + 30),
        ("30 9 * * *", 23 * 3600 + 28 * 60 + 30),
    ],
)
def test_seconds_until_the_next_plan(text, seconds):
    assert parse_schedule(text)(AT) == seconds


def test_cron_is_in_its_time_zone_as_windows_are():
    assert parse_schedule("0 22 * * *", "Asia/Tokyo")(AT) == 2 * 3600 + 58 * 60 + 30
    spring = datetime(2026, 3, 29, 0, 0, tzinfo=UTC).timestamp()
    # 02:30 does not exist on that day: clocks go from 02:00 to 03:00.
    assert parse_schedule("30 2 * * *", "Europe/Berlin")(spring) == 3600


@pytest.mark.parametrize(
    ("text", "zone"), [("2m", "Asia/Tokyo"), ("0 22 * * *", "Mars"), ("0 22 * * *", "")]
)
def test_time_zones_that_say_nothing_are_refused(text, zone):
    with pytest.raises(TimeZoneError, match="time zone"):
        parse_schedule(text, zone)


@pytest.mark.parametrize(
    "text", ["", "0", "0.5", "soon", "* * *", "61 * * * *", "0 0 31 2 *", "@daily", "2x"]
)
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError):
        parse_schedule(text)


def test_cron_with_too_few_fields_is_shown_its_five():
    with pytest.raises(ValueError, match="has 4 fields; cron has five, minute hour day month"):
        parse_schedule("0 22 * *")
