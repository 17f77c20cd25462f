"""Plain data as text: read JSON and YAML files, write them, and fill in JSON templates with ``$name``.

JSON and YAML are for people and programs; both escape characters that are not printable. A template is parsed before
it is filled in, so a value cannot change the structure of the JSON.
"""

from __future__ import annotations

import gzip
import json
import math
import string
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Any, BinaryIO

import yaml

from rebalancer.base.plain_text import printable_json

DATA_FORMS = ("json", "yaml")


def data_text(data: Mapping[str, Any], form: str) -> str:
    """Return ``data`` as text in ``form`` (one of ``DATA_FORMS``), with the keys in order and a final newline."""
    if form == "json":
        return printable_json(json.dumps(data, indent=2, ensure_ascii=False)) + "\n"
    return yaml_text(json.loads(json.dumps(data)))


def yaml_text(data: Mapping[str, Any]) -> str:
    """Return ``data``, which has plain types only, as YAML."""
    text: str = yaml.dump(data, Dumper=_YamlDumper, sort_keys=False, width=100)
    return text


def _yaml_dumper() -> Any:
    """Return a safe YAML dumper that writes equal parts out each time, without anchors."""
    # libyaml is ten times faster, which shows with thousands of skipped pods.
    base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return type("YamlDumper", (base,), {"ignore_aliases": lambda _, __: True})


_YamlDumper = _yaml_dumper()


def plain_number(value: float, digits: int = 9) -> int | float | None:
    """Return ``value`` rounded to ``digits`` significant digits.

    A whole number has no decimal point. NaN and infinity become None.
    """
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 2**53 else rounded


def without_nulls(value: Any) -> Any:
    """Return plain data without keys whose value is null; such a key means the same as an absent one."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def fill(template: Any, values: Mapping[str, str]) -> bytes:
    """Return the request body: the template as JSON with its placeholders replaced."""
    return json.dumps(_fill(template, values), ensure_ascii=False).encode()


def _fill(value: Any, values: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return string.Template(value).safe_substitute(values)
    if isinstance(value, list):
        return [_fill(item, values) for item in value]
    if isinstance(value, dict):
        # Keys stay as they are: "$schema" is one.
        return {key: _fill(item, values) for key, item in value.items()}
    return value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def names_in(template: Any) -> Iterator[str]:
    """Yield the names of the placeholders in a template."""
    for text in _texts(template):
        yield from string.Template(text).get_identifiers()


_CHUNK = 1 << 21
_UNPACKED = 1 << 26
"""Bytes that any file may unpack to."""
_RATIO = 200
"""Of what more is unpacked to what is packed."""
_MAX_ALIASED = 1 << 24
"""Characters that the aliases of a YAML text may come to."""
_GZIP_MAGIC = b"\x1f\x8b"
_MAX_DEPTH = 500
"""Levels of nesting. API objects have a few dozen; some hundred thousand overflow the stack of the loader in C."""


def unpack(stream: BinaryIO) -> tuple[BinaryIO, bytes]:
    """Return the stream, decompressed if it is gzip, and the bytes that were already read from it."""
    head = stream.read(len(_GZIP_MAGIC))
    if head != _GZIP_MAGIC:
        return stream, head + stream.read(_CHUNK - len(head))
    packed: Any = _Unpacked(_Prefixed(head, stream))
    return packed, packed.read(_CHUNK)


class _Prefixed:
    """A stream that first returns ``head``, then the rest of ``stream``.

    It can only be read: GzipFile needs no more, and standard input cannot seek.
    """

    def __init__(self, head: bytes, stream: BinaryIO) -> None:
        self._head, self._stream = head, stream
        self.bytes = 0
        """Read so far."""

    def read(self, size: int = -1) -> bytes:
        head, self._head = self._head, b""
        data = head + self._stream.read(size - len(head) if size >= 0 else -1)
        self.bytes += len(data)
        return data


def unpack_limit(packed: int) -> int:
    """Return the limit of unpacked bytes for a number of packed ones: lists of a cluster's objects need a tenth of it."""
    return max(_UNPACKED, _RATIO * packed)


class _Unpacked:
    """What a stream of gzip unpacks to, as long as that is in proportion."""

    def __init__(self, packed: _Prefixed) -> None:
        given: Any = packed
        self._packed, self._stream, self._bytes = packed, gzip.GzipFile(fileobj=given), 0

    def read(self, size: int = -1) -> bytes:
        """Read at most ``size`` bytes.

        Raises:
            gzip.BadGzipFile: the stream is damaged, or is made to exhaust the memory.
        """
        data = self._stream.read(size)
        self._bytes += len(data)
        if self._bytes > unpack_limit(self._packed.bytes):
            raise gzip.BadGzipFile(f"it unpacks to more than {_RATIO} times its size")
        return data


def read_rest(stream: BinaryIO, head: bytes) -> bytes:
    """Return ``head`` and the rest of ``stream``, with one copy in memory."""
    text = BytesIO()
    text.write(head)
    while chunk := stream.read(_CHUNK):
        text.write(chunk)
    return text.getvalue()


def _yaml_loader() -> Any:
    """Return a safe YAML loader, in C if available, that leaves timestamps as text."""
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loader: Any = type("YamlLoader", (base,), {})
    loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in base.yaml_implicit_resolvers.items()
    }
    return loader


YamlLoader = _yaml_loader()


def yaml_events(text: bytes | str) -> Iterator[tuple[Any, int]]:
    """Yield the events of a YAML text with their nesting depth; no object is built, however deep it nests.

    Raises:
        yaml.YAMLError: the text is not YAML.
    """
    depth = 0
    for event in yaml.parse(text, Loader=YamlLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        yield event, depth


def yaml_documents(text: bytes) -> Iterator[Any]:
    """Yield the documents of a YAML text.

    Raises:
        yaml.YAMLError: the text is not YAML, is nested too deeply, or has aliases that come to very much.
    """
    aliases = _Aliases()
    for event, depth in yaml_events(text):
        if depth > _MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                problem=f"nested more than {_MAX_DEPTH} levels deep", problem_mark=event.start_mark
            )
        if problem := aliases.add(event):
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
    yield from yaml.load_all(text, YamlLoader)


class _Aliases:
    """Counts what the aliases of a YAML text come to where each is written out, before anything is built."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        """Anchor -> characters of its value."""
        self._open: list[tuple[str | None, int]] = []
        """Collections that have begun, with their anchors and the characters so far."""
        self._aliased = 0

    def add(self, event: Any) -> str:
        """Take the next event; return what is wrong, or empty."""
        anchor, size = getattr(event, "anchor", None), 1
        if isinstance(event, yaml.CollectionStartEvent):
            self._open.append((anchor, 1))
            return ""
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == name for name, _ in self._open):
                return "a value contains itself by an alias"
            size = self._sizes.get(anchor or "", 1)
            self._aliased += size
        elif isinstance(event, yaml.ScalarEvent):
            size += len(event.value)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, size = self._open.pop()
        else:
            return ""
        if anchor is not None:
            self._sizes[anchor] = size
        if self._open:
            name, characters = self._open[-1]
            self._open[-1] = name, characters + size
        if self._aliased <= _MAX_ALIASED:
            return ""
        return f"its aliases come to more than {_MAX_ALIASED >> 20} MiB"
