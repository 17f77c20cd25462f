from datetime import timedelta

import pytest

from rebalancer.migrate.durations import parse_go_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("5m0s", 300),
        ("1h30m", 5400),
        ("1.5h", 5400),
        (".5s", 0.5),
        ("250ms", 0.25),
        ("3us", 0.000003),
        ("-10s", -10),
        ("+10s", 10),
    ],
)
def test_go_durations_are_read(text, seconds):
    assert parse_go_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "5", "5 m", "1d", "m", "1h30", "--1s", "2562048h"])
def test_what_go_refuses_is_refused(text):
    with pytest.raises(ValueError, match="duration"):
        parse_go_duration(text)
