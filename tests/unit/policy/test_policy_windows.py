import re
from datetime import datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rebalancer.policy.windows import Window, is_open, next_allowed


def window(allow, duration, zone="UTC"):
    return Window.model_validate({"allow": allow, "for": duration, "timeZone": zone})


def at(text, zone="UTC"):
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def shown(moments, zone):
    return [datetime.fromtimestamp(moment, ZoneInfo(zone)).isoformat() for moment in moments]


@pytest.mark.parametrize(
    ("time", "open_"),
    [
        ("2026-11-20T21:59:59", False),
        ("2026-11-20T22:00:00", True),
        ("2026-11-21T05:59:59", True),
        ("2026-11-21T06:00:00", False),
    ],
)
def test_a_night_window_opens_and_closes_to_the_second(time, open_):
    night = window("0 22 * * *", "8h", "Asia/Tokyo")
    assert night.is_open(at(time, "Asia/Tokyo")) is open_


def test_the_time_zone_is_that_of_the_window():
    night = window("0 22 * * *", "8h", "Asia/Tokyo")
    assert night.next_opening(at("2026-11-20T00:00:00")) == at("2026-11-20T13:00:00")


def test_an_opening_in_the_hour_left_out_happens_at_the_change():
    early = window("30 2 * * *", "1h", "America/New_York")
    start = at("2026-03-07T12:00", "America/New_York")
    assert shown(islice(early.openings(start), 2), "America/New_York") == [
        "2026-03-08T03:00:00-04:00",
        "2026-03-09T02:30:00-04:00",
    ]


def test_an_opening_in_the_repeated_hour_happens_once():
    early = window("30 1 * * *", "1h", "America/New_York")
    start = at("2026-10-31T12:00", "America/New_York")
    assert shown(islice(early.openings(start), 2), "America/New_York") == [
        "2026-11-01T01:30:00-04:00",
        "2026-11-02T01:30:00-05:00",
    ]


def test_an_hourly_opening_happens_in_both_hours_of_the_same_name():
    hourly = window("30 * * * *", "10m", "America/New_York")
    start = at("2026-11-01T00:45", "America/New_York")
    assert shown(islice(hourly.openings(start), 3), "America/New_York") == [
        "2026-11-01T01:30:00-04:00",
        "2026-11-01T01:30:00-05:00",
        "2026-11-01T02:30:00-05:00",
    ]


# Six hours before some changes of clocks, forward and back, by one hour, half an hour and two hours.
_CHANGES = [
    ("America/New_York", "2026-03-08T00:00"),
    ("America/New_York", "2026-11-01T00:00"),
    ("Europe/Berlin", "2026-10-24T20:00"),
    ("Australia/Lord_Howe", "2026-04-04T20:00"),
    ("Antarctica/Troll", "2026-03-28T20:00"),
    ("Asia/Tokyo", "2026-06-01T00:00"),
]
_CRONS = ["30 2 * * *", "0 1 * * *", "*/20 * * * *", "15 */2 * * *", "0 0-3 * * *", "59 1,2 * * *"]


def minutes_that_open(spec, start, end):
    """Walk minute by minute on the wall clock: what cron(8) says, and nothing clever."""
    zone = ZoneInfo(spec.time_zone)
    for second in range(int(start), int(end), 60):
        here = datetime.fromtimestamp(second, zone)
        wall = here.replace(tzinfo=None, fold=0)
        before = datetime.fromtimestamp(second - 60, zone).replace(tzinfo=None, fold=0)
        jumped = range(1, int((wall - before).total_seconds() // 60))
        again = here.fold and not spec.allow.split()[1].startswith("*")
        left_out = any(croniter.match(spec.allow, before + timedelta(minutes=m)) for m in jumped)
        if (croniter.match(spec.allow, wall) and not again) or left_out:
            yield float(second)


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(_CHANGES),
    st.sampled_from(_CRONS),
    st.sampled_from(["30m", "1h", "4h"]),
    st.lists(st.floats(0, 12 * 3600 - 1), min_size=3, max_size=8),
)
def test_windows_agree_with_a_walk_minute_by_minute(change, cron, duration, later):
    zone, text = change
    spec = window(cron, duration, zone)
    start = at(text, zone)
    end = start + 12 * 3600
    opened = list(minutes_that_open(spec, start - 5 * 3600, end))
    spans = []
    for moment in spec.openings(start - 1):
        if moment >= end:
            break
        spans.append(moment)
    assert spans == [moment for moment in opened if moment >= start]
    length = spec.for_.total_seconds()
    for now in (start + seconds for seconds in later):
        assert spec.is_open(now) == any(moment <= now < moment + length for moment in opened)


def deny(cron, length, zone="UTC"):
    return Window.model_validate({"deny": cron, "for": length, "timeZone": zone})


def test_no_windows_at_all_are_always_open():
    assert is_open([], 0.0)
    assert next_allowed([[]], 5.0) == 5.0


def test_any_open_window_will_do():
    first, second = window("0 8 * * *", "4h"), window("0 12 * * *", "1h")
    assert is_open([second, first], at("2026-11-20T09:00"))
    assert next_allowed([[first, second]], at("2026-11-20T13:00")) == at("2026-11-21T08:00")


def test_what_one_window_denies_no_other_allows():
    night, freeze = window("0 22 * * *", "8h"), deny("0 0 24 12 *", "72h")
    assert is_open([night, freeze], at("2026-12-23T23:59"))
    assert not is_open([night, freeze], at("2026-12-24T00:00"))
    assert not is_open([night, freeze], at("2026-12-25T23:00"))
    assert is_open([night, freeze], at("2026-12-27T00:00"))


def test_a_window_that_denies_leaves_all_other_time_open():
    office = deny("0 9 * * 1-5", "8h")
    assert is_open([office], at("2026-11-20T08:59"))
    assert not is_open([office], at("2026-11-20T09:00"))
    assert next_allowed([[office]], at("2026-11-20T09:00")) == at("2026-11-20T17:00")


@pytest.mark.parametrize(
    ("now", "then"),
    [
        ("2026-11-20T12:00", "2026-11-20T22:00"),
        ("2026-11-20T23:00", "2026-11-20T23:00"),
        # The night of the 24th begins denied; the 27th begins open.
        ("2026-12-24T12:00", "2026-12-27T00:00"),
    ],
)
def test_the_next_time_is_when_all_sets_allow_moves(now, then):
    policy, strategy = [window("0 22 * * *", "8h")], [deny("0 0 24 12 *", "72h")]
    assert next_allowed([policy, strategy], at(now)) == at(then)


def test_windows_that_exclude_each_other_have_no_next_time():
    never = [window("0 8 * * *", "1h"), deny("0 7 * * *", "3h")]
    assert next_allowed([never], at("2026-11-20T09:00")) is None


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 23), st.integers(1, 30)), max_size=4),
    st.integers(0, 48 * 60),
)
def test_the_next_time_agrees_with_minute_by_minute(given_windows, minute):
    windows = [
        (deny if denies else window)(f"0 {hour} * * *", f"{hours}h")
        for denies, hour, hours in given_windows
    ]
    now = at("2026-11-20T00:00") + 60 * minute
    expected = next(
        (
            t
            for t in (now, *(now - now % 3600 + 3600 * h for h in range(1, 60)))
            if is_open(windows, t)
        ),
        None,
    )
    assert next_allowed([windows], now) == expected


@pytest.mark.parametrize("keys", [{}, {"allow": "0 1 * * *", "deny": "0 2 * * *"}])
def test_a_window_either_allows_or_denies(keys):
    with pytest.raises(ValidationError, match="either allow or deny"):
        Window.model_validate({**keys, "for": "1h"})


@pytest.mark.parametrize(
    "cron",
    [
        "",
        "@daily",
        "* * * *",
        "* * * * * *",
        "61 * * * *",
        "0 0 30 2 *",
        "R R * * *",
        "H * * * *",
        "a * * * *",
    ],
)
def test_a_cron_expression_that_is_none_or_never_matches_is_refused(cron):
    with pytest.raises(ValidationError, match="is no cron expression"):
        window(cron, "1h")


@pytest.mark.parametrize("zone", ["", "Asia/Tokio", "../etc/passwd", "/etc/passwd", "a\0b", "Asia"])
def test_a_time_zone_that_the_iana_database_lacks_is_refused(zone):
    with pytest.raises(ValidationError, match="is no time zone"):
        window("0 0 * * *", "1h", zone)


@pytest.mark.parametrize("duration", ["0s", "367d"])
def test_a_window_lasts_longer_than_nothing_and_at_most_a_year(duration):
    with pytest.raises(ValidationError, match="should be"):
        window("0 0 * * *", duration)


FIELDS = ["*", "*/5", "0", "59", "0-30/5", "1,2", "?", "07", "7", "23", "L", "sun", "fri#2", "22-2"]


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("field", [*FIELDS, "24", "31", "32", "60", "JAN", "12,*"])
def test_no_schema_refuses_what_the_policy_takes(field, place):
    fields = ["0", "0", "1", "1", "*"]
    fields[place] = field
    text = " ".join(fields)
    pattern = Window.model_json_schema()["properties"]["allow"]["anyOf"][0]["pattern"]
    try:
        Window.model_validate({"allow": text, "for": "1h"})
    except ValueError:
        return
    assert re.match(pattern, text)


@pytest.mark.parametrize("text", ["60 * * * *", "0 24 * * *", "0 0 * *", "@daily", "", "a 0 * * *"])
def test_an_editor_sees_what_is_no_cron_expression(text):
    pattern = Window.model_json_schema()["properties"]["allow"]["anyOf"][0]["pattern"]
    assert not re.match(pattern, text)
