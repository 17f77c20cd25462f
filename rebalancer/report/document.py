"""A report as a document: blocks of text and tables, and data; with one writer for each form.

A block that is a plain string is one line. What is indented belongs to the line above it: a list in HTML and Markdown.
An unindented plain line above a list or a table is a heading.
"""

from __future__ import annotations

import enum
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from itertools import pairwise
from typing import Any

from rebalancer.base.data_text import DATA_FORMS, data_text
from rebalancer.base.environment import Environment
from rebalancer.base.output import terminal_look, write
from rebalancer.base.plain_text import WIDE, Paint, columns, printable, wrap

UNBOUND = sys.maxsize
"""A width at which no line is broken."""
UNBROKEN = 0
"""The width of a passage that no terminal breaks, such as a command."""

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
    """Most characters in a line; ``UNBROKEN``: it stays one line, to be copied."""
    label: str = ""
    """A word before the text, within the indent of its first line."""
    style: str = ""
    """The style of the label, or of the text without a label; empty: see :func:`_style_of`."""

    @property
    def whole(self) -> str:
        """The label and the text in one line, after the spaces before them."""
        lead = self.indent[: len(self.indent) - len(self.indent.lstrip(" "))]
        return f"{lead}{self.label}: {self.text}" if self.label else f"{lead}{self.text}"


@dataclass(frozen=True, slots=True)
class Sides:
    """A name on the left, and a word at the right margin of the terminal."""

    left: str
    right: str = ""
    style: str = ""
    """The style of the word."""

    @property
    def whole(self) -> str:
        """Both in one line."""
        return f"  {self.left}: {self.right}" if self.right else f"  {self.left}"


@dataclass(frozen=True, slots=True)
class Details:
    """A section that Markdown shows on demand."""

    title: str
    blocks: Sequence[Block]


class Fit(enum.Enum):
    """How to fit the lines of a table that are wider than the terminal."""

    LINES = enum.auto()
    """Values that continue in the lines below."""
    CELLS = enum.auto()
    """Every cell, except the first of a row, continues in the lines below."""
    CUT = enum.auto()
    """The last cell is cut off."""


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
    """Number of a row (the first below the heads is 0) -> the note below it."""
    styles: Mapping[int, str] | None = None
    """Number of a row -> its style."""
    fit: Fit = Fit.LINES

    @property
    def parts(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        """The heads, which are empty where there are none, and the rows below them."""
        heads, *rows = self.rows
        return ([""] * len(heads), self.rows) if self.headless else (heads, rows)

    def notes_of(self, row: int) -> Sequence[Block]:
        """Return the note below a row."""
        return () if self.notes is None else self.notes.get(row, ())


Block = str | Passage | Sides | Table | Details


@dataclass(frozen=True, slots=True)
class ReportDocument:
    """A report in all its forms. The first block is the headline."""

    blocks: Sequence[Block]
    data: Mapping[str, Any]
    """The data for JSON and YAML."""
    title: str = ""
    """The headline in HTML and Markdown, where the first block is none."""

    def show(self, form: str, width: int = UNBOUND, paint: Paint = Paint(color=False)) -> str:  # noqa: B008
        """Return the report in a form, one of ``FORMS``; ``width`` and ``paint`` are a terminal's."""
        if form in DATA_FORMS:
            return data_text(self.data, form)
        blocks = [*map(_escape, self.blocks)]
        titled = [printable(self.title), *blocks] if self.title else blocks
        if form == "markdown":
            return "\n".join(_markdown(titled)).strip() + "\n"
        if form == "html":
            return _html(titled)
        return "\n".join(_terminal(blocks, width, paint)) + "\n"

    def print_to(self, environment: Environment, form: str) -> None:
        """Write the report to standard output, in the width of a terminal."""
        look = terminal_look(environment, "auto")
        bound = environment.out.isatty() or "COLUMNS" in environment.environ
        text = self.show(form, look.width if bound else UNBOUND, Paint(look.color))
        write(environment.out, [text])


def _escape(block: Block) -> Block:
    """Make each text of a block printable, and so one line: every text of a document goes through this."""
    match block:
        case Passage():
            return replace(block, text=printable(block.text), label=printable(block.label))
        case Sides():
            return replace(block, left=printable(block.left), right=printable(block.right))
        case Details():
            return Details(printable(block.title), [*map(_escape, block.blocks)])
        case Table():
            rows = [[printable(cell) for cell in row] for row in block.rows]
            notes = {row: [*map(_escape, of)] for row, of in (block.notes or {}).items()}
            return replace(block, rows=rows, notes=notes)
    return printable(block)


def join_sections(*sections: Iterable[Block]) -> list[Block]:
    """Return the blocks of all sections that have some, with an empty line between two sections."""
    joined: list[Block] = []
    for section in map(list, sections):
        joined += ["", *section] if joined and section else section
    return joined


# -- a terminal ----------------------------------------------------------------------------------------

_INDENT = "  "
"""Of labels, and of a table whose cells are fitted."""
_LEAST = 20
"""Characters of a last cell that are shown however long those before it are."""
_WIDEST = 2_000
"""Columns that rich lays a table out in at most."""
_MARGIN = re.compile(r" +((?:\x1b\[0m)?)$")
"""What rich fills a table up with on the right."""
_WARNS = re.compile(r" *Warning: |rebalancer: ")


def _terminal(
    blocks: Iterable[Block], width: int, paint: Paint, *, first: bool = True
) -> Iterator[str]:
    """Yield the lines of blocks; no word is broken. ``first``: whether the first one is a headline."""
    for block in blocks:
        if isinstance(block, Passage):
            yield from _passage(block, min(width, block.width), paint, first=first)
        elif isinstance(block, Details):
            yield from _terminal([block.title, *block.blocks], width, paint)
        elif isinstance(block, Table):
            yield from _table_lines(block, width, paint)
        elif isinstance(block, Sides):
            gap = (
                " " * max(2, width - 2 - len(block.left) - len(block.right)) if block.right else ""
            )
            yield f"  {paint(block.left, 'bold')}{gap}{paint(block.right, block.style)}"
        else:
            style = _style_of(block, first=first)
            yield from (paint(part, style) for part in _fit(block, width))
        first = False


def _style_of(text: str, *, first: bool) -> str:
    """Return the style of a line that has none of its own: the first one is bold, and warnings are yellow."""
    return "yellow" if _WARNS.match(text) else "bold" if first else ""


def _passage(block: Passage, width: int, paint: Paint, *, first: bool) -> Iterator[str]:
    lines = wrap(block.text, block.indent, block.hanging, width) if width else [block.whole]
    style = block.style or _style_of(block.text, first=first)
    if block.label:
        start = len(_INDENT) + len(block.label)
        lines[0] = f"{_INDENT}{paint(block.label, block.style)}{lines[0][start:]}"
        style = ""
    yield from (paint(line, style) for line in lines)


def _fit(line: str, width: int) -> list[str]:
    """Return a line as it is, or on several lines that are a little further right from the second one on."""
    if len(line) <= width:
        return [line]
    text = line.lstrip(" ")
    indent = line[: len(line) - len(text)]
    return wrap(text, indent, f"{indent}    ", width)


def _table_lines(table: Table, width: int, paint: Paint) -> Iterator[str]:
    lay_out = {Fit.LINES: _whole_rows, Fit.CELLS: _fitted_rows, Fit.CUT: _cut_rows}
    for number, lines in enumerate(
        lay_out[table.fit](table, width, paint), 0 if table.headless else -1
    ):
        yield from lines
        yield from _terminal(table.notes_of(number), width, paint, first=False)


_Rows = Iterator[Sequence[str]]
"""The lines of each row, that of the heads first."""


def _row_style(table: Table, number: int) -> str:
    if not table.headless and number == 0:
        return "dim"
    return (table.styles or {}).get(number if table.headless else number - 1, "")


def _whole_rows(table: Table, width: int, paint: Paint) -> _Rows:
    for number, line in enumerate(columns(table.rows, table.indent, table.left)):
        yield [paint(part, _row_style(table, number)) for part in _fit(line, width)]


def _fitted_rows(table: Table, width: int, paint: Paint) -> _Rows:
    # Few reports have such a table.
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table as Grid  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    heads, rows = table.parts
    first = max(len(row[0]) for row in rows)
    grid = Grid(box=None, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    for index, head in enumerate(heads):
        least = first if index == 0 else None
        grid.add_column(Text(head), header_style="dim", no_wrap=index == 0, min_width=least)
    for number, row in enumerate(rows, 1):
        grid.add_row(*map(Text, row), style=_row_style(table, number) or None)
    stream = StringIO()
    console = Console(
        file=stream,
        width=min(max(width - len(_INDENT), _LEAST), _WIDEST),
        force_terminal=paint.color,
        color_system="standard" if paint.color else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    console.print(grid, crop=False)
    yield [_MARGIN.sub(r"\1", f"{_INDENT}{line}") for line in stream.getvalue().splitlines()]


def _cut_rows(table: Table, width: int, paint: Paint) -> _Rows:
    starts = columns([row[:-1] for row in table.rows], table.indent, table.left)
    widest = max(map(len, starts))
    for number, (start, row) in enumerate(zip(starts, table.rows, strict=True)):
        room, text = max(width - widest - 2, _LEAST), row[-1]
        text = text if len(text) <= room else f"{text[: room - 3]}..."
        yield [paint(f"{start:<{widest}}  {text}".rstrip(), _row_style(table, number))]


# -- what HTML and Markdown have in common ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Line:
    depth: int
    """How deep it lies in a list; 0: in none."""
    text: str
    may_head: bool = False
    """Whether it is a heading where a list or a table follows."""


_Part = _Line | Table | Details


def _flat(blocks: Iterable[Block]) -> list[_Part]:
    """Return the lines with their depths, the tables and the sections; without empty lines."""
    flat: list[_Part] = []
    above: list[int] = []
    for block in blocks:
        if isinstance(block, Table | Details):
            flat.append(block)
            above = []
            continue
        text = block if isinstance(block, str) else block.whole
        indent = len(text) - len(text.lstrip(" "))
        if text.strip():
            above = [one for one in above if one < indent] + [indent] * (indent > 0)
            short = isinstance(block, str) or block.style not in ("", "dim")
            line = " ".join(text.split()).removeprefix("- ")
            flat.append(_Line(len(above), line, short))
    return flat


def _is_in_list(part: _Part) -> bool:
    return isinstance(part, _Line) and part.depth > 0


def _is_heading(line: _Line, following: _Part) -> bool:
    below = isinstance(following, Table) or _is_in_list(following)
    return line.depth == 0 and line.may_head and below


_MARKUP = re.compile(r"(^-|[\\`*_{}\[\]<>()#+!|~@&$])")
_NUMBER = re.compile(r"^(\d+)(?=[.](?:\s|$))")


def escape_markdown(text: str) -> str:
    """Return a text in which Markdown has no effect, and which mentions nobody."""
    marked = _MARKUP.sub(r"\\\1", printable(text)).replace("\\@", "@\u2060")
    return _NUMBER.sub(r"\1\\", marked)


def _markdown(blocks: Iterable[Block], *, titled: bool = True) -> Iterator[str]:
    for one, following in pairwise([*_flat(blocks), _Line(0, "")]):
        if isinstance(one, Table):
            yield from _markdown_table(one)
        elif isinstance(one, Details):
            from html import escape  # noqa: PLC0415  # a heavy table, which only Markdown needs

            yield from (f"<details><summary>{escape(one.title)}</summary>", "")
            yield from (*_markdown(one.blocks, titled=False), "</details>", "")
        elif one.depth:
            yield f"{'  ' * (one.depth - 1)}- {escape_markdown(one.text)}"
            if not _is_in_list(following):
                yield ""
        elif titled:
            yield from (f"### {escape_markdown(one.text)}", "")
            titled = False
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

    title, *flat = _flat(_unfold(blocks))
    parts: list[dict[str, Any]] = []
    depth = 0
    for one, following in pairwise([*flat, _Line(0, "")]):
        part = _html_part(one, following)
        parts.append({**part, "closes": depth - part["depth"]})
        depth = part["depth"]
    text = title.text if isinstance(title, _Line) else ""
    return render_page("document.html.j2", ["report.css"], title=text, parts=parts, depth=depth)


def _unfold(blocks: Iterable[Block]) -> Iterator[Block]:
    for block in blocks:
        yield from [block.title, *block.blocks] if isinstance(block, Details) else [block]


def _html_part(one: _Part, following: _Part) -> dict[str, Any]:
    if isinstance(one, Details):
        raise TypeError("a section within a section")
    if isinstance(one, _Line):
        kind = "item" if one.depth else "heading" if _is_heading(one, following) else "text"
        return {"kind": kind, "text": one.text, "depth": one.depth}
    heads, rows = one.parts
    of_rows = [(row, _texts(one.notes_of(number))) for number, row in enumerate(rows)]
    return {"kind": "table", "heads": heads, "left": one.left, "rows": of_rows, "depth": 0}
