"""Read files of API objects as text: gzip or plain; and parse YAML without dates."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from io import BytesIO
from typing import Any, BinaryIO

import yaml

_CHUNK = 1 << 21
_GZIP_MAGIC = b"\x1f\x8b"
_MAX_DEPTH = 500
"""Levels of nesting. API objects have a few dozen; some hundred thousand overflow the stack of the loader in C."""


def unpack(stream: BinaryIO) -> tuple[BinaryIO, bytes]:
    """Return the stream, decompressed if it is gzip, and the bytes that were already read from it."""
    head = stream.read(len(_GZIP_MAGIC))
    if head != _GZIP_MAGIC:
        return stream, head + stream.read(_CHUNK - len(head))
    prefixed: Any = _Prefixed(head, stream)
    packed: Any = gzip.GzipFile(fileobj=prefixed)
    return packed, packed.read(_CHUNK)


class _Prefixed:
    """A stream that first returns ``head``, then the rest. gzip needs no more (stdin cannot seek)."""

    def __init__(self, head: bytes, stream: BinaryIO) -> None:
        self._head, self._stream = head, stream

    def read(self, size: int = -1) -> bytes:
        head, self._head = self._head, b""
        return head + self._stream.read(size - len(head) if size >= 0 else -1)


def read_rest(stream: BinaryIO, head: bytes) -> bytes:
    """Return ``head`` and what remains of ``stream``, which is in memory once."""
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
        yaml.YAMLError: the text is not YAML, or is nested too deeply.
    """
    for event, depth in yaml_events(text):
        if depth > _MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                problem=f"nested more than {_MAX_DEPTH} levels deep", problem_mark=event.start_mark
            )
    yield from yaml.load_all(text, YamlLoader)
