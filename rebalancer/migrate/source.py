"""Read the descheduler's policy from a file, and collect notes on keys that change or are lost.

The file is the policy itself, or a ConfigMap that contains it.
"""

from __future__ import annotations

import enum
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import replace

from rebalancer import API_VERSION
from rebalancer.base.errors import PolicyError
from rebalancer.base.plain_text import quote_value
from rebalancer.policy.document import FileProblem, KeyPath, YamlDocument, parse, without_nulls

V1ALPHA1, V1ALPHA2 = "descheduler/v1alpha1", "descheduler/v1alpha2"
KIND = "DeschedulerPolicy"
_DATA_KEY = "policy.yaml"
# A literal block scalar, as in "policy.yaml: |": its text begins in the next line, and keeps its lines.
_LITERAL = re.compile(rb":\s*\|[-+1-9]*\s*(?:#.*)?\Z")


def peer_document(raw: bytes, file: str) -> YamlDocument:
    """Return the document that holds the descheduler's policy, with the line numbers of ``file``.

    Keys without a value are dropped: the descheduler treats them as absent.

    Raises:
        PolicyError: the file is not YAML, or contains no such policy.
    """
    document = _whole(*parse(raw, file))
    if isinstance(document.data, dict) and document.data.get("kind") == "ConfigMap":
        document = _in_config_map(document, raw)
    _check_kind(document)
    return replace(document, data=without_nulls(document.data))


def _whole(document: YamlDocument | None, problems: list[FileProblem]) -> YamlDocument:
    if document is None or problems:
        raise PolicyError([str(problem) for problem in problems])
    return document


def _in_config_map(outer: YamlDocument, raw: bytes) -> YamlDocument:
    data = outer.data.get("data")
    texts = {k: v for k, v in data.items() if isinstance(v, str)} if isinstance(data, dict) else {}
    key = _DATA_KEY if _DATA_KEY in texts or len(texts) != 1 else next(iter(texts))
    if key not in texts:
        message = f"this ConfigMap has no {_DATA_KEY}; give the one with the descheduler's policy"
        raise PolicyError([str(outer.problem(("data",), message))])
    line = outer.lines["data", key]
    literal = _LITERAL.search(raw.split(b"\n")[line - 1].rstrip()) is not None
    inner, problems = parse(texts[key].encode(), outer.file)

    def line_of(within: int) -> int:
        return line + within if literal else line

    document = _whole(inner, [replace(problem, line=line_of(problem.line)) for problem in problems])
    return replace(
        document, lines={path: line_of(within) for path, within in document.lines.items()}
    )


def _check_kind(document: YamlDocument) -> None:
    data = document.data
    if not isinstance(data, dict):
        message = f"{quote_value(data)} should be a mapping of keys to values"
        raise PolicyError([str(document.problem((), message))])
    kind, version = data.get("kind"), data.get("apiVersion")
    if version == API_VERSION:
        key, message = "apiVersion", "this is a policy of the rebalancer already"
    elif kind != KIND:
        what = (
            "is missing" if kind is None else f"{quote_value(kind)} is no policy of the descheduler"
        )
        key, message = "kind", f"{what}; give a {KIND}, or the ConfigMap that holds it"
    elif version not in (V1ALPHA1, V1ALPHA2):
        what = "is missing" if version is None else f"{quote_value(version)} is not known"
        key, message = "apiVersion", f"{what}; known here: {V1ALPHA1}, {V1ALPHA2}"
    else:
        return
    raise PolicyError([str(document.problem((key,), message))])


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
