"""What becomes of a key that has no equal here, told with its line: nothing is lost in silence."""

from __future__ import annotations

import enum
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import replace

from rebalancer.policy.document import Document, KeyPath, Problem

_WIDTH = 100


class Fate(enum.StrEnum):
    """What becomes of a key."""

    LOST = "not carried over"
    DIFFERS = "differs"
    ALWAYS = "always so here"
    IDLE = "had no effect there"


class Notes:
    """Gathers notes on one document, each once."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._found: dict[Problem, None] = {}

    def add(self, path: KeyPath, fate: Fate, text: str) -> None:
        """Note what becomes of the key at ``path``; the whole file's if it is empty."""
        problem = self._document.problem(path, f"{fate}: {text}")
        if not path:
            problem = Problem(problem.file, 0, (), problem.message)
        self._found[problem] = None

    def __iter__(self) -> Iterator[Problem]:
        """Yield the notes in the order of the file; those on the file as a whole come last."""
        return iter(sorted(self._found, key=lambda note: (not note.line, note.line)))


def as_comments(notes: Iterable[Problem]) -> str:
    """Return notes as YAML comments, which name the line, but not the file."""
    return "".join(map(_comment, notes))


def _comment(note: Problem) -> str:
    text = str(replace(note, file="", line=0))
    if note.line:
        text = f"line {note.line}: {text}"
    # A name in the file may hold what ends a line of YAML.
    text = "".join(c if c.isprintable() else "?" for c in text)
    lines = textwrap.wrap(
        text,
        _WIDTH,
        initial_indent="# - ",
        subsequent_indent="#   ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "".join(f"{line}\n" for line in lines)
