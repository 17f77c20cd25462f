"""A report as a document: blocks of text and tables, and data; with one writer for each form.

A block that is a plain string is one line. What is indented belongs to the line above it: a list in HTML and Markdown.
An unindented plain line above a list or a table is a heading.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from rebalancer.base.data_text import DATA_FORMS, data_text
from rebalancer.base.plain_text import (
    WIDE,
    Paint,
    columns,
    lines_of,
    printable,
    printable_lines,
    wrap,
)

FORMS = ("table", *DATA_FORMS, "html", "markdown")
"""The forms of every document; ``table`` is for a terminal."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A text that is wrapped on a terminal."""

    text: str
    indent: str = ""
    hanging: str | None = None
    """The indent of the second and later lines; None: the same as ``indent``."""
    width: int = WIDE
    label: str = ""
    """A word before the text, within the indent of its first line."""
    style: str = ""
    """Of the label, or of the text without one."""

    @property
    def lead(self) -> str:
        """The spaces before the first line."""
        return self.indent[: len(self.indent) - len(self.indent.lstrip(" "))]

    @property
    def whole(self) -> str:
        """The label and the text in one line."""
        return f"{self.label}: {self.text}" if self.label else self.text


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the first row has the heads."""

    rows: Sequence[Sequence[str]]
    indent: str = "  "
    left: range | tuple[int, ...] = (0,)
    """Columns that are left-aligned, the others are right-aligned."""
    headless: bool = False
    """The first row is as the others."""
    notes: Mapping[int, Sequence[Block]] | None = None
    """Number of a row (the first below the heads is 0) -> what stands below it."""

    @property
    def parts(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        """The heads, which are empty where there are none, and the rows below them."""
        heads, *rows = self.rows
        return ([""] * len(heads), self.rows) if self.headless else (heads, rows)

    def notes_of(self, row: int) -> Sequence[Block]:
        """Return what stands below a row."""
        return () if self.notes is None else self.notes.get(row, ())


Block = str | Passage | Table

_INDENT_OF_LABEL = "  "


@dataclass(frozen=True, slots=True)
class ReportDocument:
    """A report in all its forms. The first block is the headline."""

    blocks: Sequence[Block]
    data: Mapping[str, Any]
    """What JSON and YAML have."""
    page: str | None = None
    """The report in HTML where it is more than its blocks, as with pictures."""
    title: str = ""
    """The headline in HTML and Markdown, where the first block is none."""

    def write(self, form: str) -> str:
        """Return the report in a form, one of ``FORMS``."""
        if form in DATA_FORMS:
            return data_text(self.data, form)
        titled = [self.title, *self.blocks] if self.title else self.blocks
        if form == "markdown":
            return "\n".join(_markdown(titled)).strip() + "\n"
        if form == "html":
            return self.page or _html(titled)
        return printable_lines(text_of(self.blocks))

    def show(self, form: str, width: int, paint: Paint) -> str:
        """Return the report in a form; for a terminal in this width, with its labels in colour."""
        if form != "table":
            return self.write(form)
        return "\n".join(_paint_lines(self.blocks, width, paint)) + "\n"


def join_sections(*sections: Iterable[Block]) -> list[Block]:
    """Return the blocks of all sections that have some, with an empty line between two sections."""
    joined: list[Block] = []
    for section in map(list, sections):
        joined += ["", *section] if joined and section else section
    return joined


def text_of(blocks: Iterable[Block]) -> str:
    """Return blocks as text, ending in a newline."""
    return "\n".join(text_lines(blocks)) + "\n"


def text_lines(blocks: Iterable[Block]) -> Iterator[str]:
    """Yield the lines of blocks, which fit to a terminal later: see ``rebalancer.base.plain_text.dress``."""
    for block in blocks:
        if isinstance(block, str):
            yield block
        elif isinstance(block, Passage):
            yield from lines_of(block.text, block.indent, block.hanging, block.width)
        else:
            for number, line in enumerate(
                columns(block.rows, block.indent, block.left), 0 if block.headless else -1
            ):
                yield line
                yield from text_lines(block.notes_of(number))


def _paint_lines(blocks: Sequence[Block], width: int, paint: Paint) -> Iterator[str]:
    for block in blocks:
        if not isinstance(block, Passage):
            yield from map(printable, text_lines([block]))
            continue
        first, *rest = wrap(block.text, block.indent, block.hanging, width)
        if block.label:
            start = len(_INDENT_OF_LABEL) + len(block.label)
            first = f"{_INDENT_OF_LABEL}{paint(block.label, block.style)}{first[start:]}"
        else:
            first = paint(first, block.style)
        yield first
        yield from rest


# -- what HTML and Markdown have in common ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Line:
    depth: int
    """How deep it lies in a list; 0: in none."""
    text: str
    may_head: bool = False
    """Whether it is a heading where a list or a table follows."""


def _flat(blocks: Iterable[Block]) -> list[_Line | Table]:
    """Return the lines with their depths, and the tables; without empty lines."""
    flat: list[_Line | Table] = []
    above: list[int] = []
    for block in blocks:
        if isinstance(block, Table):
            flat.append(block)
            above = []
            continue
        text = block if isinstance(block, str) else f"{block.lead}{block.whole}"
        indent = len(text) - len(text.lstrip(" "))
        if text.strip():
            above = [one for one in above if one < indent] + [indent] * (indent > 0)
            short = isinstance(block, str) or bool(block.style)
            flat.append(_Line(len(above), printable(" ".join(text.split())), short))
    return flat


def _is_heading(line: _Line, following: _Line | Table) -> bool:
    below = isinstance(following, Table) or following.depth > 0
    return line.depth == 0 and line.may_head and below


_MARKUP = re.compile(r"([\\`*_{}\[\]<>()#+!|~@&$-])")


def escape_markdown(text: str) -> str:
    """Return a text in which Markdown has no effect, and which mentions nobody."""
    return _MARKUP.sub(r"\\\1", printable(text)).replace("\\@", "@\u2060")


def _markdown(blocks: Iterable[Block]) -> Iterator[str]:
    flat = _flat(blocks)
    for number, (one, following) in enumerate(pairwise([*flat, _Line(0, "")])):
        if isinstance(one, Table):
            yield from _markdown_table(one)
        elif one.depth:
            yield f"{'  ' * (one.depth - 1)}- {escape_markdown(one.text)}"
            if isinstance(following, Table) or not following.depth:
                yield ""
        elif number == 0:
            yield from (f"### {escape_markdown(one.text)}", "")
        elif _is_heading(one, following):
            yield from (f"**{escape_markdown(one.text)}**", "")
        else:
            yield from (escape_markdown(one.text), "")


def _markdown_table(table: Table) -> Iterator[str]:
    heads, rows = table.parts
    yield f"| {' | '.join(map(escape_markdown, heads))} |"
    marks = ["---" if place in table.left else "---:" for place in range(len(heads))]
    yield f"| {' | '.join(marks)} |"
    for row in rows:
        yield f"| {' | '.join(escape_markdown(cell.strip()) for cell in row)} |"
    yield ""
    for number, row in enumerate(rows):
        if notes := table.notes_of(number):
            yield f"- {escape_markdown(row[0].strip())}"
            yield from (f"  - {escape_markdown(note)}" for note in _texts(notes))
    if table.notes:
        yield ""


def _texts(blocks: Iterable[Block]) -> list[str]:
    return [one.text for one in _flat(blocks) if isinstance(one, _Line)]


def _html(blocks: Iterable[Block]) -> str:
    # The templates are loaded for HTML only.
    from rebalancer.report.html_parts import render_page  # noqa: PLC0415

    title, *flat = _flat(blocks)
    parts: list[dict[str, Any]] = []
    depth = 0
    for one, following in pairwise([*flat, _Line(0, "")]):
        part = _html_part(one, following)
        parts.append({**part, "closes": depth - part["depth"]})
        depth = part["depth"]
    text = title.text if isinstance(title, _Line) else ""
    return render_page("document.html.j2", ["report.css"], title=text, parts=parts, depth=depth)


def _html_part(one: _Line | Table, following: _Line | Table) -> dict[str, Any]:
    if isinstance(one, _Line):
        kind = "item" if one.depth else "heading" if _is_heading(one, following) else "text"
        return {"kind": kind, "text": one.text, "depth": one.depth}
    heads, rows = one.parts
    of_rows = [(row, _texts(one.notes_of(number))) for number, row in enumerate(rows)]
    return {"kind": "table", "heads": heads, "left": one.left, "rows": of_rows, "depth": 0}
