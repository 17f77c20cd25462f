"""YAML text as plain data with the lines of its keys; errors are returned as problems, not raised.

Only plain data: no tags, no merge keys, text keys, each key once. Scalars are read by YAML 1.2's core schema, so
``off``, ``on`` and ``22:00`` are text. Size, depth and the expansion of aliases are bounded. Validation errors of
pydantic become problems with lines, too.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rebalancer.base.data_text import yaml_events
from rebalancer.base.errors import PluginError
from rebalancer.base.plain_text import closest, did_you_mean, quote_value

KeyPath = tuple[str | int, ...]

MAX_BYTES = 256 * 1024
"""Of a policy's file."""
_MAX_VALUES = 20_000
_MAX_DEPTH = 40
# Each of these begins a new line in YAML 1.1, and so in the lines that PyYAML counts.
_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
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
        """Return a problem at ``path``, of the flag that set it or made it, else of the file.

        Its line is that of the longest prefix of ``path`` in the file.
        """
        whole = tuple(path)
        for length in range(len(whole), -1, -1):
            if (flag := self.flags.get(whole[:length])) is not None:
                return FileProblem(flag, 0, whole, message)
        if whole and whole not in self.lines:
            made = (flag for path, flag in self.flags.items() if path[: len(whole)] == whole)
            if (flag := next(made, None)) is not None:
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
        (node,) = _compose(raw, _compose_one)
    except _UnusableError as error:
        return None, [FileProblem(file, error.line, (), error.message)]
    return _read_node(node, file)


def parse_stream(raw: bytes, file: str) -> list[tuple[YamlDocument | None, list[FileProblem]]]:
    """Parse each document of ``raw``, a stream of documents, like ``parse`` a single one."""
    try:
        nodes = _compose(raw, _compose_all)
    except _UnusableError as error:
        return [(None, [FileProblem(file, error.line, (), error.message)])]
    return [_read_node(node, file) for node in nodes]


def _read_node(node: yaml.Node, file: str) -> tuple[YamlDocument, list[FileProblem]]:
    reader = _Reader(file)
    data = reader.read(node, (), ())
    return YamlDocument(file, data, reader.lines), reader.problems


def _compose_one(text: str, loader: Any) -> list[yaml.Node]:
    node = yaml.compose(text, Loader=loader)
    return [] if node is None else [node]


def _compose_all(text: str, loader: Any) -> list[yaml.Node]:
    return list(yaml.compose_all(text, Loader=loader))


class _UnusableError(Exception):
    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line, self.message = line, message


_QuickLoader: Any = type("_QuickLoader", (getattr(yaml, "CSafeLoader", yaml.SafeLoader),), {})
"""Composes nodes ten times as fast as ``_Loader`` where libyaml is there. Its errors say less."""


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
_QuickLoader.yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers


_SURROGATE = re.compile("[\ud800-\udfff]")
"""What an escape may make in quotes, and no encoding can write."""


def _compose(raw: bytes, compose: Callable[[str, Any], list[yaml.Node]]) -> list[yaml.Node]:
    if len(raw) > MAX_BYTES:
        raise _UnusableError(0, f"is larger than {MAX_BYTES // 1024} KiB: is it a policy at all?")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _UnusableError(line, "is not UTF-8 text; save it as UTF-8") from None
    try:
        nodes = _nodes(text, compose)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, int(error.position)) + 1
        raise _UnusableError(
            line,
            f"holds a character that YAML forbids (#x{ord(error.character) if isinstance(error.character, str) else error.character:04x})",
        ) from None
    except yaml.MarkedYAMLError as error:
        raise _UnusableError(*_syntax(error, text)) from None
    except (ValueError, OverflowError):  # An escape such as \U00110000: PyYAML leaves it to chr().
        text = "holds an escape in quotes that is no character; write the character itself"
        raise _UnusableError(0, text) from None
    if not nodes:
        raise _UnusableError(0, "is empty; it needs at least apiVersion and kind")
    return nodes


def _nodes(text: str, compose: Callable[[str, Any], list[yaml.Node]]) -> list[yaml.Node]:
    """Compose with the loader in C if it accepts the text, else with the one whose errors are more detailed."""
    if "\t" not in text:  # libyaml accepts tabs where YAML forbids them.
        with contextlib.suppress(yaml.YAMLError):
            if all(depth <= _MAX_DEPTH for _, depth in yaml_events(text)):
                return compose(text, _QuickLoader)
    return compose(text, _Loader)


def _syntax(error: yaml.MarkedYAMLError, text: str) -> tuple[int, str]:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark is not None else 0
    what = ", ".join(part for part in (error.context, error.problem) if part)
    hint = ""
    if "'\\t'" in what:
        hint = "; indent with spaces, not with tabs"
    elif "single document" in what:
        hint = "; put each document into a file of its own"
    elif "expected <block end>" in what or "mapping values" in what:
        hint = _ask_indentation(text, line)
    column = f" (column {mark.column + 1})" if mark is not None else ""
    return line, f"is not YAML: {what}{column}{hint}"


def _ask_indentation(text: str, line: int) -> str:
    """Return a hint on a line that begins in another column than the one with text before it; empty if it does not."""
    lines = _LINE_BREAK.split(text)
    written = (n for n in range(line - 1, 0, -1) if lines[n - 1].split("#")[0].strip())
    if (before := next(written, None)) is None:
        return ""
    first, second = (
        len(one) - len(one.lstrip(" ")) for one in (lines[before - 1], lines[line - 1])
    )
    return f"; is line {line} indented as line {before}?" if first != second else ""


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
            elif _SURROGATE.search(key.value):
                self._wrong(
                    line, path, "a key holds half of a character; write the whole character"
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
        if kind == "str" and _SURROGATE.search(node.value):
            line = node.start_mark.line + 1
            self._wrong(line, path, "holds half of a character; write the whole character")
            return None
        if kind == "str":
            return node.value
        self._wrong(
            node.start_mark.line + 1, path, f"the tag {node.tag} is not allowed; write plain values"
        )
        return None

    def _wrong(self, line: int, path: KeyPath, message: str) -> None:
        self.problems.append(FileProblem(self._file, line, path, message))


_Model = TypeVar("_Model", bound=BaseModel)

_WANTED = {
    "bool_type": "true or false",
    "dict_type": "a mapping of keys to values",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_type": "a mapping of keys to values",
    "string_type": "text; quotes make it text",
    "tuple_type": "a list",
}
_BOUNDS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}


def validate(
    model: type[_Model],
    data: Any,
    document: YamlDocument,
    base: KeyPath,
    also: Collection[str] = (),
) -> tuple[_Model | None, list[FileProblem]]:
    """Validate ``data`` as ``model``; return the result, or None and all problems.

    Parameters
    ----------
    document, base
        The document and the path of ``data`` in it, for lines and paths.
    also
        Further keys that are allowed beside the model's, for suggestions.
    """
    try:
        # Strict, so that "yes" is no boolean; as JSON, so that a list can become a tuple.
        text = json.dumps(data)
        return model.model_validate_json(text, strict=True, by_alias=True, by_name=False), []
    except ValidationError as error:
        errors = error.errors(include_url=False)
    return None, [_problem(model, data, detail, document, base, also) for detail in errors]


def plugin_model(known: Mapping[str, type[_Model]], noun: str, name: str) -> type[_Model] | str:
    """Return the options model of a plug-in, or an error message if the plug-in cannot be loaded.

    Only the plug-in ``name`` is looked up in ``known``, and so imported. ``noun``: what messages call this kind of
    plug-in.
    """
    try:
        if name in known:
            return known[name]
    except PluginError as error:
        return str(error)
    return f"unknown {noun} {quote_value(name)}{did_you_mean(name, known)}"


def no_options(value: Any) -> str:
    """Return the error message for a value that cannot be the options of a plug-in."""
    return f"{quote_value(value)} should be a mapping of keys to values; {{}} takes all defaults"


def _problem(
    model: type[BaseModel],
    data: Any,
    detail: ErrorDetails,
    document: YamlDocument,
    base: KeyPath,
    also: Collection[str],
) -> FileProblem:
    kind, value = detail["type"], detail["input"]
    path = _path_in(data, detail["loc"], lacks=kind == "missing")
    if kind == "extra_forbidden":
        known = list_keys(model, path[:-1]) | (set(also) if len(path) == 1 else set())
        message = (
            f"unknown key{_elsewhere(model, path[-1], known) or did_you_mean(path[-1], known)}"
        )
    elif kind == "missing":
        message = "is missing; add it"
    else:
        message = _value_message(kind, value, detail)
    return document.problem((*base, *path), message)


def _value_message(kind: str, value: Any, detail: ErrorDetails) -> str:
    if kind == "value_error":
        return detail["msg"].removeprefix("Value error, ")
    if kind in ("enum", "literal_error"):
        choices = [part.strip("'") for part in _choices(detail)]
        meant = _MEANT.get(value) if isinstance(value, str) else None
        name = meant if meant in choices else closest(value, choices)
        hint = f"; did you mean {name}?" if name is not None else ""
        return f"{quote_value(value)} is none of {', '.join(choices)}{hint}"
    if kind in _WANTED:
        return f"{quote_value(value)} should be {_WANTED[kind]}"
    if kind in _BOUNDS:
        words, name = _BOUNDS[kind]
        bound = detail.get("ctx", {}).get(name)
        text = f"{bound:g}" if isinstance(bound, float) else str(bound)
        return f"{quote_value(value)} should be {words} {text}"
    return f"{quote_value(value)} {detail['msg'].removeprefix('Input ')}"


_MEANT = {"DoNotSchedule": "hard", "ScheduleAnyway": "soft", "dry-run": "observe"}
"""What others call a value -> its name here."""


def _choices(detail: ErrorDetails) -> Sequence[str]:
    expected = str(detail.get("ctx", {}).get("expected", ""))
    return expected.replace(" or ", ", ").split(", ")


def _path_in(data: Any, loc: Sequence[int | str], *, lacks: bool) -> KeyPath:
    """Return pydantic's location ``loc`` as a path in ``data``, without its additions (tags of unions, ``[key]``).

    ``lacks``: the last part is a missing key.
    """
    path: list[str | int] = []
    here = data
    for index, part in enumerate(loc):
        is_item = isinstance(here, list) and isinstance(part, int) and part < len(here)
        if is_item or (isinstance(here, dict) and part in here):
            here = here[part]
        elif not (lacks and index == len(loc) - 1):
            continue
        path.append(part)
    return tuple(path)


def list_keys(model: type[BaseModel], path: KeyPath) -> set[str]:
    """Return the keys of ``model`` at ``path``, as written in the file."""
    here = [model]
    for part in path:
        inner = [
            nested
            for one in here
            for name, field in one.model_fields.items()
            if part == (field.alias or name)
            for nested in _models_in(field.annotation)
        ]
        # Indices and free keys stay in the same model.
        here = inner or here
    return {field.alias or name for one in here for name, field in one.model_fields.items()}


def _elsewhere(model: type[BaseModel], key: object, known: Collection[str]) -> str:
    """Return ``; did you mean protect.minPodAge?`` for a key that belongs within other keys; empty if there is none.

    ``known``: the keys of the place where it is written, of which one may be more similar.
    """
    within: dict[str, tuple[str, ...]] = {}
    for path in sorted(_paths(model), key=lambda path: (len(path), path)):
        if len(path) > 1:
            within.setdefault(path[-1], path)
    name = closest(key, within)
    if name is None or name in known:
        return ""
    here = closest(key, known)
    alike = _likeness(key, name)
    if alike < _ALIKE or (here is not None and _likeness(key, here) >= alike):
        return ""
    return f"; did you mean {'.'.join(within[name])}?"


_ALIKE = 0.85
"""Of difflib's ratio: one or two letters of a key."""


def _likeness(key: object, name: str) -> float:
    return SequenceMatcher(None, str(key).lower(), name.lower()).ratio()


def _paths(model: type[BaseModel], before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each key, as written in the file; a model within itself is not entered again."""
    for name, of in model.model_fields.items():
        path = (*before, of.alias or name)
        yield path
        if len(path) < _DEEPEST:
            for nested in _models_in(of.annotation, _ONE):
                yield from _paths(nested, path)


_DEEPEST = 3
"""Levels of keys that are looked through for one that is written at the wrong place."""


_ONE = (typing.Union, types.UnionType, typing.Annotated)
"""Types of a single section, which has a path of its own; those in lists and under free keys have none."""


def _models_in(annotation: Any, within: Collection[Any] | None = None) -> Iterator[type[BaseModel]]:
    """Yield the models of a type. ``within``: only in types of these origins; None: in all."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    if within is None or typing.get_origin(annotation) in within:
        for inner in typing.get_args(annotation):
            yield from _models_in(inner, within)


__all__ = ["list_keys", "validate"]
