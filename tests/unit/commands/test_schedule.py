"""When the next plan is due."""

from datetime import UTC, datetime

import pytest

from rebalancer.commands.schedule import parse_schedule

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


@pytest.mark.parametrize(
    "text", ["", "0", "0.5", "soon", "* * *", "61 * * * *", "0 0 31 2 *", "@daily"]
)
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError):
        parse_schedule(text)
