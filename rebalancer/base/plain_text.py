"""Text that people read on a terminal or in a page, made of texts of any origin."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def count(number: int, noun: str) -> str:
    """Return ``1 move``, ``2 moves``, ``1,204 pods``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def percent(probability: float) -> str:
    """Return ``62 %``; never ``0 %`` or ``100 %`` for what is only nearly so."""
    if 0 < probability < 0.01:
        return "<1 %"
    if 0.995 <= probability < 1:
        return ">99 %"
    return f"{probability * 100:.0f} %"


def and_more(pods: Sequence[str], most: int = 2) -> str:
    """Return ``a, b and 7 more``."""
    left = len(pods) - most
    shown = ", ".join(pods[:most])
    return f"{shown} and {left:,} more" if left > 0 else shown


def printable(text: str) -> str:
    """Return ``text`` with all that is not printable escaped, as Python writes it.

    For names, messages and annotations from a cluster or a file: control characters, line ends, direction
    marks (bidi) and lone surrogates would change what a terminal or a page shows of the text around them.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def printable_lines(text: str) -> str:
    """Return ``text`` of several lines with each line :func:`printable`."""
    return "\n".join(map(printable, text.split("\n")))


def printable_json(text: str) -> str:
    """Return the JSON ``text`` with all that is not printable in its strings escaped; it means the same."""
    if text.isascii() and "\x7f" not in text:
        return text  # JSON escapes the other control characters anyway
    return "".join(c if c.isprintable() or c == "\n" else _escape(c) for c in text)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def shown(value: Any) -> str:
    """Return ``value`` as a file in JSON or YAML has it, at most 60 characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
