"""What of foreign text is shown as it is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.base.plain_text import Paint, dress, lines_of, printable, printable_json


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
def test_all_that_is_not_printable_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters(exclude_categories=())))
def test_the_result_is_printable_and_can_be_written(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    shown.encode()  # no lone surrogate is left
    assert printable(shown) == shown


@given(st.text(st.characters(exclude_categories=())), st.booleans())
def test_json_stays_the_same_json(text: str, ascii_only: bool) -> None:
    shown = printable_json(json.dumps({text: [text]}, ensure_ascii=ascii_only, indent=1))
    assert shown.replace("\n", "").isprintable()
    assert json.loads(shown) == json.loads(json.dumps({text: [text]}))


def test_a_finished_text_is_fitted_to_the_terminal_without_breaking_words():
    text = "Head\n\nNODE  WHY\nnode-a1  because of this and that\n  Warning: careful here\nname-that-is-long\n"
    assert dress(text, 20, Paint(color=False)) == (
        "Head\n\nNODE  WHY\nnode-a1  because of\n    this and that\n  Warning: careful\n      here\nname-that-is-long\n"
    )
    assert dress(text, 200, Paint(color=False)) == text
    painted = dress(text, 20, Paint(color=True)).split("\n")
    assert painted[0] == "\x1b[1mHead\x1b[0m"
    assert painted[2] == "\x1b[2mNODE  WHY\x1b[0m"
    assert painted[5:7] == ["\x1b[33m  Warning: careful\x1b[0m", "\x1b[33m      here\x1b[0m"]


def test_a_wrapped_text_is_wrapped_again_as_a_whole():
    words = "one two three four five six seven eight nine ten"
    text = "\n".join(["Head", *lines_of(words, "  ", "    ", 30), "  next"])
    narrow = dress(text, 20, Paint(color=False))
    assert narrow == ("Head\n  one two three four\n    five six seven\n    eight nine ten\n  next")
    wide = dress(text, 80, Paint(color=False))
    assert wide == "Head\n  one two three four five six\n    seven eight nine ten\n  next"
