"""Notes, with line numbers, on keys that change or are lost in the conversion."""

from __future__ import annotations

import enum
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import replace

from rebalancer.policy.document import FileProblem, KeyPath, YamlDocument

_WIDTH = 100


class KeyFate(enum.StrEnum):
    """What happens to a key."""

    LOST = "not carried over"
    DIFFERS = "differs"
    ALWAYS = "always so here"
    IDLE = "had no effect there"


class Notes:
    """The notes on one document, without repetitions."""

    def __init__(self, document: YamlDocument) -> None:
        self._document = document
        self._notes: dict[FileProblem, None] = {}

    def add(self, path: KeyPath, fate: KeyFate, text: str) -> None:
        """Add a note on the key at ``path``; an empty path stands for the whole file."""
        problem = self._document.problem(path, f"{fate}: {text}")
        if not path:
            problem = FileProblem(problem.file, 0, (), problem.message)
        self._notes[problem] = None

    def place(self, path: KeyPath, message: str) -> str:
        """Return the error ``message`` at ``path``, with file and line."""
        return str(self._document.problem(path, message))

    def __iter__(self) -> Iterator[FileProblem]:
        """Yield the notes in the order of the file, then the notes on the whole file."""
        return iter(sorted(self._notes, key=lambda note: (not note.line, note.line)))


def as_comments(notes: Iterable[FileProblem]) -> str:
    """Return notes as YAML comments, with the line but without the file."""
    return "".join(map(_comment, notes))


def _comment(note: FileProblem) -> str:
    text = str(replace(note, file="", line=0))
    if note.line:
        text = f"line {note.line}: {text}"
    # A name in the file may contain a line break, which would end the comment.
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
