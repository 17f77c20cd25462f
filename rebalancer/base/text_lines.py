"""Plain text of a given width: wrapping, colour if wanted."""

from __future__ import annotations

import textwrap
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from rebalancer.base.plain_text import printable

WIDTH = 80
WIDE = 100
"""Width of explanations."""

_SGR = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


@dataclass(frozen=True, slots=True)
class Paint:
    """Colours text, or leaves it as it is."""

    color: bool

    def __call__(self, text: str, style: str) -> str:
        """Return ``text`` in ``style``, one of bold, dim, red, green, yellow, cyan, or empty."""
        if not self.color or not style or not text:
            return text
        return f"\x1b[{_SGR[style]}m{text}\x1b[0m"


def wrapped(
    text: str, indent: str = "", hanging: str | None = None, width: int = WIDTH
) -> list[str]:
    """Return ``text`` in lines of ``width``, indented; a word that is too long stands out rather than break.

    ``hanging`` indents the lines after the first, as ``indent`` if None.
    """
    return textwrap.wrap(
        printable(text),
        width=width,
        initial_indent=indent,
        subsequent_indent=indent if hanging is None else hanging,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [indent.rstrip()]


def lines_of(text: str, indent: str = "", hanging: str | None = None) -> list[str]:
    """Return ``text`` in lines of ``WIDE``."""
    return wrapped(text, indent, hanging, WIDE)


def more(number: int, indent: str = "  ") -> Iterator[str]:
    """Yield a line with the number of further entries, if there are any."""
    if number > 0:
        yield f"{indent}... and {number:,} more (-o json shows all)"


def columns(
    rows: Sequence[Sequence[str]], indent: str = "  ", left: Container[int] = (0,)
) -> list[str]:
    """Return rows as lines with aligned columns: those in ``left`` to the left, the others to the right."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return [
        indent
        + "  ".join(
            f"{cell:<{width}}" if place in left else f"{cell:>{width}}"
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
