"""``rebalancer/evict`` for a time."""

import pytest

from rebalancer.wire.opt_outs import EVICT, evict_opt_out
from rebalancer.wire.times import unix_seconds

AT = unix_seconds("2026-12-01T00:00:00Z")
DAY = 86400.0


def out(value):
    return evict_opt_out({EVICT: value})


@pytest.mark.parametrize("value", ["true", "True", "TRUE"])
def test_true_opts_nothing_out(value):
    assert out(value) is None
    assert evict_opt_out({}) is None
    assert evict_opt_out(None) is None


@pytest.mark.parametrize(
    ("value", "before", "after"),
    [
        ("false until 2026-12-01", AT - 1, AT),
        ("False Until 2026-12-01T00:00:00Z", AT - 1, AT),
        ("false until 2026-12-01T08:00Z", AT + 8 * 3600 - 1, AT + 8 * 3600),
        ("false until 2026-12-01T08:00:00+09:00", AT - 3601, AT - 3600),
    ],
)
def test_until_a_time_it_protects_whatever_the_age(value, before, after):
    opt_out = out(value)
    assert opt_out.understood
    assert opt_out.protects(10 * DAY, before)
    assert not opt_out.protects(10 * DAY, after)
    assert not opt_out.protects(0.0, after)
    assert opt_out.text == f'annotated rebalancer/evict: "{value}"'


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("false for 4h", 14400), ("false  for 1h30m", 5400), ("false for 90s", 90)],
)
def test_for_a_time_it_protects_by_the_age_of_the_pod(value, seconds):
    opt_out = out(value)
    assert opt_out.understood
    assert opt_out.protects(seconds - 1, AT)
    assert not opt_out.protects(seconds, AT)


@pytest.mark.parametrize(
    "value",
    [
        "no", "", "false until tomorrow", "false until 2026-13-01", "false until 2026-12-01 08:00",
        "false until 2026-12-01T08:00", "false for ever", "false for -4h", "false for 0s", "false for 4",
        "false until", "true for 4h", "false since 2026-12-01", "false until 20261201",
    ],
)  # fmt: skip
def test_what_is_not_understood_protects_without_end_and_says_so(value):
    opt_out = out(value)
    assert not opt_out.understood
    assert opt_out.protects(1e12, 1e12)
    assert opt_out.text.endswith(", which is not understood")
