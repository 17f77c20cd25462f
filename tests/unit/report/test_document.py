"""A report in all its forms: headings, lists, tables with notes, and what a cluster's names cannot do in them."""

import json

import pytest
import yaml

from rebalancer.base.plain_text import Paint
from rebalancer.report.document import (
    FORMS,
    Passage,
    ReportDocument,
    Table,
    join_sections,
    text_of,
)

BLOCKS = [
    "Two shops",
    "",
    "What they sell",
    Passage("tea", "  ", "    "),
    Passage("green, and black, and white", "    ", "      "),
    Passage("coffee", "  "),
    "",
    Table([["SHOP", "POTS"], ["old", "7"], ["new", "12"]], "", notes={1: ["    opens in May"]}),
    "Closed on Sundays.",
]
DATA = {"kind": "Shops", "shops": ["old", "new"]}


def document(blocks=BLOCKS):
    return ReportDocument(blocks, DATA)


def test_the_text_has_every_line_as_it_stands_and_notes_below_their_rows():
    assert document().write("table").splitlines() == [
        "Two shops",
        "",
        "What they sell",
        "  tea",
        "    green, and black, and white",
        "  coffee",
        "",
        "SHOP  POTS",
        "old      7",
        "new     12",
        "    opens in May",
        "Closed on Sundays.",
    ]


def test_markdown_has_a_headline_a_nested_list_and_an_aligned_table():
    assert document().write("markdown").splitlines() == [
        "### Two shops",
        "",
        "**What they sell**",
        "",
        "- tea",
        "  - green, and black, and white",
        "- coffee",
        "",
        "| SHOP | POTS |",
        "| --- | ---: |",
        "| old | 7 |",
        "| new | 12 |",
        "",
        "- new",
        "  - opens in May",
        "",
        "Closed on Sundays.",
    ]


def test_html_nests_lists_and_closes_them():
    page = document().write("html")
    lists = "".join(page.partition("<h2>What they sell</h2>")[2].partition("<div")[0].split("\n"))
    assert lists == (
        "<ul><li>tea<ul><li>green, and black, and white</li></ul></li><li>coffee</li></ul>"
    )
    assert page.index("<td>new</td>") < page.index("opens in May") < page.index("Closed on Sundays")
    assert page.count("<ul>") == page.count("</ul>")
    assert page.count("<li>") == page.count("</li>")


def test_json_and_yaml_have_the_data():
    assert json.loads(document().write("json")) == yaml.safe_load(document().write("yaml")) == DATA


@pytest.mark.parametrize("form", FORMS)
def test_every_form_ends_in_one_newline_and_prints_no_control_character(form):
    nasty = "<b>@all</b> | `x` \x1b[31m"
    text = ReportDocument([nasty, Table([["A"], [nasty]]), Passage(nasty)], {"a": nasty}).write(
        form
    )
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert "\x1b" not in text
    if form == "html":
        assert "<b>" not in text
    if form == "markdown":
        assert "@all" not in text
        assert "<b>" not in text.replace("\\<", "")


def test_a_table_without_heads_has_all_rows_in_every_form():
    table = Table([["cpu", "5"], ["memory", "9"]], headless=True)
    assert text_of([table]).splitlines() == ["  cpu     5", "  memory  9"]
    assert "| cpu | 5 |" in ReportDocument(["One", table], {}).write("markdown")
    assert "<td>cpu</td>" in ReportDocument(["One", table], {}).write("html")


def test_sections_are_joined_by_one_empty_line_and_empty_ones_are_left_out():
    assert join_sections([], ["a"], [], ["b", "c"]) == ["a", "", "b", "c"]


def test_labels_are_in_colour_and_texts_are_wrapped_beside_them():
    passage = Passage("the Lease is not there", " " * 10, label="WARNING", style="yellow")
    lines = ReportDocument([passage], {}).show("table", 24, Paint(color=True)).splitlines()
    assert lines == ["  \x1b[33mWARNING\x1b[0m the Lease is", "          not there"]
