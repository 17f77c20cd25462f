from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.wire.marks import Mark, is_mark, parse_mark

LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
"""``validation.IsValidLabelValue``, which also limits it to 63 characters."""


def test_a_mark_says_why_until_when_and_whose_it_is():
    assert Mark("steer", 1795334400.7, "3fa9").value == "steer.20261122T080000Z.3fa9"


@given(
    st.from_regex(r"[a-z]{1,20}", fullmatch=True),
    st.integers(0, 253_402_300_799),
    st.from_regex(r"[0-9a-z]{1,20}", fullmatch=True),
)
def test_what_is_written_is_a_label_value_and_is_read_again(reason, expires, run):
    mark = Mark(reason, expires, run)
    assert len(mark.value) <= 63
    assert LABEL_VALUE.fullmatch(mark.value)
    assert parse_mark(mark.value) == mark


@pytest.mark.parametrize(
    "value",
    [
        "",
        "steer",
        "steer.20261122T080000Z",
        "steer.20261322T080000Z.a",
        "steer.20261122T080000Z.a\n",
    ],
)
def test_another_form_says_nothing(value):
    assert parse_mark(value) is None


def test_a_mark_is_known_by_its_key_and_its_effect():
    assert is_mark("rebalancer/mark", "PreferNoSchedule")
    assert not is_mark("rebalancer/mark", "NoSchedule")
    assert not is_mark("other/mark", "PreferNoSchedule")
