"""What of foreign text is shown as it is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.base.plain_text import printable, printable_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("shop/web-1", "shop/web-1"),
        ("日本語 é", "日本語 é"),
        ("a\nb\tc", r"a\nb\tc"),
        ("\x1b[2Jgone\x07", r"\x1b[2Jgone\x07"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\u2066x\u2069", r"\u2066x\u2069"),
        ("\x9b31m", r"\x9b31m"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_all_that_is_not_printable_is_escaped(text, shown):
    assert printable(text) == shown


@given(st.text(st.characters(exclude_categories=())))
def test_the_result_is_printable_and_can_be_written(text):
    shown = printable(text)
    assert shown.isprintable()
    shown.encode()  # no lone surrogate is left
    assert printable(shown) == shown


@given(st.text(st.characters(exclude_categories=())), st.booleans())
def test_json_stays_the_same_json(text, ascii_only):
    shown = printable_json(json.dumps({text: [text]}, ensure_ascii=ascii_only, indent=1))
    assert shown.replace("\n", "").isprintable()
    assert json.loads(shown) == json.loads(json.dumps({text: [text]}))
