"""YAML text as plain data with the lines of its keys; errors are returned as problems, not raised.

Only plain data: no tags, no merge keys, text keys, each key once. Scalars are read by YAML 1.2's core schema,
so ``off``, ``on`` and ``22:00`` are text. Size, depth and the expansion of aliases are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

KeyPath = tuple[str | int, ...]

MAX_BYTES = 256 * 1024
"""Of a policy's file."""
_MAX_VALUES = 20_000
_MAX_DEPTH = 40
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")


@dataclass(frozen=True, slots=True)
class FileProblem:
    """One error in a file."""

    file: str
    line: int
    """From 1; 0 for the file as a whole."""
    path: KeyPath
    message: str
    """The error, and what to do."""

    @property
    def place(self) -> str:
        """The position as ``file:line: path``; unknown parts are omitted."""
        file = f"{self.file}:{self.line}" if self.line else self.file
        return ": ".join(part for part in (file, format_path(self.path)) if part)

    def __str__(self) -> str:
        return ": ".join(part for part in (self.place, self.message) if part)


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """One YAML document."""

    file: str
    data: Any
    lines: Mapping[KeyPath, int]
    """Path of a key or list item -> its line, from 1."""
    flags: Mapping[KeyPath, str] = field(default_factory=dict)
    """Path of a value -> the flag of the command line that it came from."""

    def problem(self, path: Sequence[str | int], message: str) -> FileProblem:
        """Return a problem at ``path``. Its line is that of the longest prefix of ``path`` in the file."""
        whole = tuple(path)
        for length in range(len(whole), -1, -1):
            if (flag := self.flags.get(whole[:length])) is not None:
                return FileProblem(flag, 0, whole, message)
        line = next(
            (
                self.lines[whole[:length]]
                for length in range(len(whole), -1, -1)
                if whole[:length] in self.lines
            ),
            0,
        )
        return FileProblem(self.file, line, whole, message)


def format_path(path: KeyPath) -> str:
    """Format a path as text: ``windows[0].allow``, ``labels["k8s.io/app"]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_KEY.match(part):
            text += f".{part}" if text else part
        else:
            text += f'["{part}"]'
    return text


def parse(raw: bytes, file: str) -> tuple[YamlDocument | None, list[FileProblem]]:
    """Parse ``raw``; return the document (None if it cannot be parsed) and its problems."""
    try:
        node = _compose(raw)
    except _UnusableError as error:
        return None, [FileProblem(file, error.line, (), error.message)]
    reader = _Reader(file)
    data = reader.read(node, (), ())
    return YamlDocument(file, data, reader.lines), reader.problems


class _UnusableError(Exception):
    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line, self.message = line, message


class _Loader(yaml.SafeLoader):
    """A YAML loader that composes nodes with YAML 1.2's core schema; it constructs no Python objects."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 (as PyYAML declares it)
    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        # Checked here and not in the result, because PyYAML recurses.
        if self._depth > _MAX_DEPTH:
            line = self.peek_event().start_mark.line + 1  # type: ignore[no-untyped-call]
            raise _UnusableError(line, f"is nested more than {_MAX_DEPTH} levels deep")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _resolve(tag: str, pattern: str, first: str) -> None:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(pattern), list(first))


_resolve("bool", r"(?:true|True|TRUE|false|False|FALSE)\Z", "tTfF")
_resolve("null", r"(?:~|null|Null|NULL|)\Z", "~nN\0")
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"\Z"), [""])
# A policy needs no numbers with more digits, and they are slow to parse.
_resolve("int", r"[-+]?[0-9]{1,18}\Z", "-+0123456789")
_resolve(
    "float",
    # 0.0001 to 17 significant digits, as programs write the smallest numbers without an exponent.
    r"[-+]?(?:\.[0-9]{1,21}|[0-9]{1,18}(?:\.[0-9]{0,21})?)(?:[eE][-+]?[0-9]{1,3})?\Z",
    "-+.0123456789",
)


def _compose(raw: bytes) -> yaml.Node:
    if len(raw) > MAX_BYTES:
        raise _UnusableError(0, f"is larger than {MAX_BYTES // 1024} KiB: is it a policy at all?")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _UnusableError(line, "is not UTF-8 text; save it as UTF-8") from None
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, int(error.position)) + 1
        raise _UnusableError(
            line,
            f"holds a character that YAML forbids (#x{ord(error.character) if isinstance(error.character, str) else error.character:04x})",
        ) from None
    except yaml.MarkedYAMLError as error:
        raise _UnusableError(*_syntax(error)) from None
    if node is None:
        raise _UnusableError(0, "is empty; it needs at least apiVersion and kind")
    return node


def _syntax(error: yaml.MarkedYAMLError) -> tuple[int, str]:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark is not None else 0
    what = ", ".join(part for part in (error.context, error.problem) if part)
    hint = ""
    if "'\\t'" in what:
        hint = "; indent with spaces, not with tabs"
    elif "single document" in what:
        hint = "; put each document into a file of its own"
    column = f" (column {mark.column + 1})" if mark is not None else ""
    return line, f"is not YAML: {what}{column}{hint}"


class _Reader:
    """Converts YAML nodes into plain data, and collects lines and problems."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._values = 0
        self.lines: dict[KeyPath, int] = {}
        self.problems: list[FileProblem] = []

    def read(self, node: yaml.Node, path: KeyPath, inside: tuple[yaml.Node, ...]) -> Any:
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        self._values += 1
        if self._values > _MAX_VALUES:
            # Reported once; further values are dropped.
            if self._values == _MAX_VALUES + 1:
                self._wrong(line, path, f"unfolds to more than {_MAX_VALUES} values; write less")
            return None
        if any(node is outer for outer in inside):
            self._wrong(line, path, "contains itself by an alias; write it out")
            return None
        if len(inside) > _MAX_DEPTH:
            self._wrong(line, path, f"is nested more than {_MAX_DEPTH} levels deep")
            return None
        if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
            return {
                key: self.read(value, (*path, key), (*inside, node))
                for key, value in self._keys(node, path)
            }
        if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
            return [
                self.read(item, (*path, i), (*inside, node)) for i, item in enumerate(node.value)
            ]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        self._wrong(line, path, f"the tag {node.tag} is not allowed; write plain values")
        return None

    def _keys(self, node: yaml.MappingNode, path: KeyPath) -> Iterator[tuple[str, yaml.Node]]:
        seen: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                shown = key.value if isinstance(key, yaml.ScalarNode) else "this"
                self._wrong(line, path, f"{shown} is no text key; write it in quotes")
            elif key.value in seen:
                first = seen[key.value]
                self._wrong(
                    line, (*path, key.value), f"stands here and in line {first}; remove one of them"
                )
            elif key.value == "<<":
                self._wrong(line, (*path, "<<"), "merge keys are not supported; write the keys out")
            else:
                seen[key.value] = line
                self.lines[*path, key.value] = line
                yield key.value, value

    def _scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        try:
            if kind == "int":
                return int(node.value)
            if kind == "float":
                return float(node.value)
        except ValueError:  # An explicit tag: !!int many.
            kind = node.tag
        if kind == "bool":
            return node.value.lower() == "true"
        if kind == "null":
            return None
        if kind == "str":
            return node.value
        self._wrong(
            node.start_mark.line + 1, path, f"the tag {node.tag} is not allowed; write plain values"
        )
        return None

    def _wrong(self, line: int, path: KeyPath, message: str) -> None:
        self.problems.append(FileProblem(self._file, line, path, message))


def without_nulls(value: Any) -> Any:
    """Return plain data without keys whose value is null; such a key means the same as an absent one."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value
