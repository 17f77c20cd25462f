"""Format text for a terminal or a page from strings of any origin."""

from __future__ import annotations

import difflib
import heapq
import json
import textwrap
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

WIDTH = 80
WIDE = 100
"""Width of explanations, in characters."""

_SGR = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def count(number: int, noun: str) -> str:
    """Format a number with its noun: ``1 move``, ``2 moves``, ``1,204 pods``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def percent(probability: float) -> str:
    """Format a probability as ``62%``, as policies do; only exactly 0 and 1 become ``0%`` and ``100%``."""
    if 0 < probability < 0.01:
        return "<1%"
    if 0.995 <= probability < 1:
        return ">99%"
    return f"{probability * 100:.0f}%"


def and_more(pods: Sequence[str], most: int = 2) -> str:
    """Join the first ``most`` names and count the rest: ``a, b and 7 more``."""
    left = len(pods) - most
    shown = ", ".join(pods[:most])
    return f"{shown} and {left:,} more" if left > 0 else shown


def printable(text: str) -> str:
    """Escape every unprintable character of ``text``, as ``repr`` does.

    For names, messages and annotations from a cluster or a file: control characters, line ends, direction marks
    (bidi) and lone surrogates would change how a terminal or a page shows the text around them.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def printable_json(text: str) -> str:
    """Escape the unprintable characters in the strings of the JSON ``text``, without a change of its meaning."""
    if text.isascii() and "\x7f" not in text:
        return text  # JSON escapes the other control characters anyway
    return "".join(c if c.isprintable() or c == "\n" else _escape(c) for c in text)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def quote_value(value: Any) -> str:
    """Return ``value`` as JSON or YAML would write it, cut to 60 characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


@dataclass(frozen=True, slots=True)
class Paint:
    """Adds ANSI styles to text, or returns it unchanged."""

    color: bool

    def __call__(self, text: str, style: str) -> str:
        """Return ``text`` in ``style``: bold, dim, red, green, yellow, cyan, or empty."""
        if not self.color or not style or not text:
            return text
        return f"\x1b[{_SGR[style]}m{text}\x1b[0m"


def wrap(text: str, indent: str = "", hanging: str | None = None, width: int = WIDTH) -> list[str]:
    """Wrap ``text`` into indented lines of ``width`` characters; a longer word is not broken.

    ``hanging`` is the indent of the second and later lines; None: the same as ``indent``.
    """
    return textwrap.wrap(
        printable(text),
        width=width,
        initial_indent=indent,
        subsequent_indent=indent if hanging is None else hanging,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [indent.rstrip()]


def more(number: int, indent: str = "  ") -> Iterator[str]:
    """Yield one line with the number of omitted entries; nothing if ``number`` is 0."""
    if number > 0:
        yield f"{indent}... and {number:,} more (-o json shows all)"


def columns(
    rows: Sequence[Sequence[str]], indent: str = "  ", left: Container[int] = (0,)
) -> list[str]:
    """Format rows as lines with aligned columns: those in ``left`` left-aligned, the others right-aligned."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return [
        indent
        + "  ".join(
            f"{cell:<{width}}" if place in left else f"{cell:>{width}}"
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


FEW = 8
"""Maximum number of object names that a message lists."""
_MANY = 1000
"""Maximum number of names that are compared: comparing is slow."""


def closest(word: object, known: Collection[str]) -> str | None:
    """Return the known name that starts or ends with ``word``, or else the most similar one; None if none is similar.

    Of many names only those with the longest common prefix are compared.
    """
    lower = {one.lower(): one for one in sorted(known)}
    written = str(word).lower()
    begun = [name for name in lower if name.startswith(written) and len(written) > 2]
    for near in (begun, [name for name in lower if name.endswith(f"-{written}")]):
        if len(near) == 1:
            return lower[near[0]]
    names = list(lower)
    if len(names) > _MANY:
        names = heapq.nlargest(_MANY, names, key=lambda name: _common_prefix(name, written))
    matches = difflib.get_close_matches(written, names, n=1, cutoff=0.6)
    return lower[matches[0]] if matches else None


def did_you_mean(
    word: object,
    known: Collection[str],
    *,
    show: Callable[[str], str] = str,
    listed: int | None = None,
) -> str:
    """Return ``; did you mean X?``, or a list of all known names if none is similar; empty if there are none.

    ``show``: formats the name that is suggested. ``listed``: more names than that are not listed.
    """
    if (name := closest(word, known)) is not None:
        return f"; did you mean {show(name)}?"
    if not known or (listed is not None and len(known) > listed):
        return ""
    return f"; known here: {', '.join(sorted(known))}"


def _common_prefix(one: str, other: str) -> int:
    """Return the length of the common prefix of two names."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
