"""Lines and tables of text for a terminal or a pipe: as wide as asked for, colour only if asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from io import StringIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rebalancer.base.plain_text import printable
from rebalancer.base.text_lines import Paint, wrapped

_MARGIN = re.compile(r" +((?:\x1b\[0m)?)$")
"""What a table is filled up with on the right."""


class Screen:
    """Collects what is printed. Texts may come from anywhere: what is not printable is escaped, nothing is markup."""

    def __init__(self, *, width: int, color: bool) -> None:
        self.width = width
        self._color = color
        self._paint = Paint(color)
        self._lines: list[str] = []

    @property
    def text(self) -> str:
        """All lines; one empty line between two sections."""
        return "\n".join(self._lines).strip("\n") + "\n"

    def gap(self) -> None:
        """Leave a line empty, unless the last one is."""
        if self._lines and self._lines[-1]:
            self._lines.append("")

    def heading(self, text: str) -> None:
        """Begin a section."""
        self.gap()
        self.prose(text, style="bold")

    def prose(
        self, text: str, indent: str = "", hanging: str | None = None, style: str = ""
    ) -> None:
        """Print a text, wrapped; words are never broken, as they may be names to copy."""
        for line in wrapped(text, indent, hanging, self.width):
            self._lines.append(self._paint(line, style))

    def sides(self, left: str, right: str, style: str) -> None:
        """Print a name, and a word of ``style`` at the right margin."""
        left, right = printable(left), printable(right)
        gap = " " * max(2, self.width - 2 - len(left) - len(right)) if right else ""
        self._lines.append(f"  {self._paint(left, 'bold')}{gap}{self._paint(right, style)}")

    def table(
        self, heads: Sequence[str], rows: Sequence[Sequence[str]], styles: Mapping[int, str]
    ) -> None:
        """Print a table, indented; the first column is never broken, ``styles`` are by row."""
        first = max(len(printable(row[0])) for row in rows)
        table = Table(box=None, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
        for index, head in enumerate(heads):
            least = first if index == 0 else None
            table.add_column(Text(head), header_style="dim", no_wrap=index == 0, min_width=least)
        for number, row in enumerate(rows):
            cells = [Text(printable(cell)) for cell in row]
            table.add_row(*cells, style=styles.get(number) or None)
        stream = StringIO()
        console = Console(
            file=stream,
            width=max(self.width - 2, 20),
            force_terminal=self._color,
            color_system="standard" if self._color else None,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
            _environ={},
        )
        console.print(table, crop=False)
        lines = stream.getvalue().splitlines()
        self._lines += [_MARGIN.sub(r"\1", f"  {line}") for line in lines]
