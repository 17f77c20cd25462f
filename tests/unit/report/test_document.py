"""A report in all its forms: headings, lists, tables with notes, and what a cluster's names cannot do in them."""

import html
import io
import json
import re

import pytest
import yaml
from markdown_it import MarkdownIt

from rebalancer.base.environment import Environment, SystemClock
from rebalancer.base.plain_text import Paint
from rebalancer.report.document import (
    FORMS,
    Details,
    Fit,
    Passage,
    ReportDocument,
    Sides,
    Table,
    join_sections,
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
    assert document().show("table").splitlines() == [
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
    assert document().show("markdown").splitlines() == [
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


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "[a](javascript:1) ![b](http://c)",
        "`a` *b* _c_ ~~d~~ $e$",
        "| a | b |",
        "# a",
        "> a",
        "12. a",
        "-a",
        "a\\|b",
        "&lt;a&gt;",
        "@team",
    ],
)
def test_foreign_text_is_text_in_markdown(text):
    # A reader of Markdown that shares no code with ours.
    rendered = MarkdownIt("gfm-like", {"linkify": False}).render(
        document([Table([["HEAD"], [text]]), "", Passage(text, "  ")]).show("markdown")
    )
    cell = re.search(r"<td>(.*?)</td>", rendered, re.DOTALL)
    item = re.search(r"<li>(.*?)</li>|<p>(.*?)</p>", rendered, re.DOTALL)
    assert cell is not None
    assert item is not None
    for found in (cell[1], item[1] or item[2]):
        assert html.unescape(found).replace("\u2060", "").strip() == text


def test_html_nests_lists_and_closes_them():
    page = document().show("html")
    lists = "".join(page.partition("<h2>What they sell</h2>")[2].partition("<div")[0].split("\n"))
    assert lists == (
        "<ul><li>tea<ul><li>green, and black, and white</li></ul></li><li>coffee</li></ul>"
    )
    assert page.index("<td>new</td>") < page.index("opens in May") < page.index("Closed on Sundays")
    assert page.count("<ul>") == page.count("</ul>")
    assert page.count("<li>") == page.count("</li>")


def test_json_and_yaml_have_the_data():
    assert json.loads(document().show("json")) == yaml.safe_load(document().show("yaml")) == DATA


@pytest.mark.parametrize("form", FORMS)
def test_every_form_ends_in_one_newline_and_prints_no_control_character(form):
    nasty = "<b>@all</b> | `x` \x1b[31m"
    text = ReportDocument([nasty, Table([["A"], [nasty]]), Passage(nasty)], {"a": nasty}).show(form)
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
    shown = ReportDocument([table], {}).show("table")
    assert shown.splitlines() == ["  cpu     5", "  memory  9"]
    assert "| cpu | 5 |" in ReportDocument(["One", table], {}).show("markdown")
    assert "<td>cpu</td>" in ReportDocument(["One", table], {}).show("html")


def test_sections_are_joined_by_one_empty_line_and_empty_ones_are_left_out():
    assert join_sections([], ["a"], [], ["b", "c"]) == ["a", "", "b", "c"]


def test_labels_are_in_colour_and_texts_are_wrapped_beside_them():
    passage = Passage("the Lease is not there", " " * 10, label="WARNING", style="yellow")
    lines = ReportDocument([passage], {}).show("table", 24, Paint(color=True)).splitlines()
    assert lines == ["  \x1b[33mWARNING\x1b[0m the Lease is", "          not there"]


def shown(*blocks, width, color=False):
    return ReportDocument(["Head", *blocks], {}).show("table", width, Paint(color)).splitlines()


def test_lines_are_fitted_to_the_terminal_without_breaking_words():
    table = Table([["NODE", "WHY"], ["node-a1", "because of this and that"]], "", (0, 1))
    warned = "  Warning: careful here"
    assert shown(table, warned, "name-that-is-much-too-long", width=20) == [
        "Head",
        "NODE     WHY",
        "node-a1  because of",
        "    this and that",
        "  Warning: careful",
        "      here",
        "name-that-is-much-too-long",
    ]
    assert shown(warned, width=200) == ["Head", warned]
    head, heads, *_, first, second = shown(table, warned, width=20, color=True)
    assert (head, heads) == ("\x1b[1mHead\x1b[0m", "\x1b[2mNODE     WHY\x1b[0m")
    assert (first, second) == ("\x1b[33m  Warning: careful\x1b[0m", "\x1b[33m      here\x1b[0m")


def test_a_passage_is_wrapped_at_its_width_or_at_that_of_a_narrower_terminal():
    words = Passage("one two three four five six seven eight nine ten", "  ", "    ", 30)
    narrow = ["  one two three four", "    five six seven", "    eight nine ten"]
    wide = ["  one two three four five six", "    seven eight nine ten"]
    assert shown(words, width=20)[1:] == narrow
    assert shown(words, width=80)[1:] == wide


def test_the_last_cell_is_cut_off_where_a_table_says_so_and_others_are_wrapped():
    rows = [["NAME", "WHY"], ["a", "one two three four five six seven eight"]]
    cut = Table(rows, left=(0, 1), fit=Fit.CUT, styles={0: "red"})
    assert shown(cut, width=32)[2] == "  a     one two three four fi..."
    assert "\x1b[31m  a" in shown(cut, width=32, color=True)[2]
    wrapped = shown(Table(rows, left=(0, 1), fit=Fit.CELLS), width=32)
    assert [line.split()[-1] for line in wrapped[1:]] == ["WHY", "five", "eight"]


def test_a_section_has_a_title_on_a_terminal_and_in_html_and_opens_on_demand_in_markdown():
    given = ReportDocument(["Head", Details("More <b>", [Sides("web-0", "failed", "red")])], {})
    assert given.show("table", 20).splitlines() == ["Head", "More <b>", "  web-0       failed"]
    assert "<summary>More &lt;b&gt;</summary>\n\n- web-0: failed" in given.show("markdown")
    assert "<h2>More &lt;b&gt;</h2>" in given.show("html")


@pytest.mark.parametrize(
    ("environ", "form", "written"),
    [
        ({}, "table", "a line of words\n"),
        ({"COLUMNS": "40", "FORCE_COLOR": "1"}, "table", "\x1b[1ma line of words\x1b[0m\n"),
        ({"COLUMNS": "40", "FORCE_COLOR": "1"}, "json", "{}\n"),
    ],
)
def test_a_report_for_people_has_the_colours_and_the_width_of_its_terminal(environ, form, written):
    out = io.StringIO()
    environment = Environment(SystemClock(), environ, out, io.StringIO())
    ReportDocument(["a line of words"], {}).print_to(environment, form)
    assert out.getvalue() == written
