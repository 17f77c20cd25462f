"""The text of files of API objects: compressed or not, in chunks; and YAML, without dates."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any, BinaryIO

import yaml

_CHUNK = 1 << 21
_GZIP_MAGIC = b"\x1f\x8b"
_MAX_DEPTH = 500
"""Levels of nesting. API objects have a few dozen; some hundred thousand overflow the stack of the loader in C."""


def unpack(stream: BinaryIO) -> tuple[BinaryIO, bytes]:
    """Return the stream to read on, decompressed if it is gzip, and what was read of it already."""
    head = stream.read(len(_GZIP_MAGIC))
    if head != _GZIP_MAGIC:
        return stream, head + stream.read(_CHUNK - len(head))
    prefixed: Any = _Prefixed(head, stream)
    packed: Any = gzip.GzipFile(fileobj=prefixed)
    return packed, packed.read(_CHUNK)


class _Prefixed:
    """A stream with some bytes put back in front; enough of a file for gzip (stdin cannot seek)."""

    def __init__(self, head: bytes, stream: BinaryIO) -> None:
        self._head, self._stream = head, stream

    def read(self, size: int = -1) -> bytes:
        head, self._head = self._head, b""
        return head + self._stream.read(size - len(head) if size >= 0 else -1)


def chunks(stream: BinaryIO, head: bytes) -> Iterator[bytes]:
    """Yield ``head`` and then what remains of ``stream``."""
    # glibc gives memory of this size back to the system each time, and has it cleared page by page again, a
    # tenth of the time of a large file; unless it has seen larger pieces go (this one is never touched).
    bytes(8 * _CHUNK)
    chunk = head
    while chunk:
        yield chunk
        chunk = stream.read(_CHUNK)


def _yaml_loader() -> Any:
    """Return a safe loader, in C if there is one, that leaves timestamps as text."""
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loader: Any = type("YamlLoader", (base,), {})
    loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in base.yaml_implicit_resolvers.items()
    }
    return loader


YamlLoader = _yaml_loader()


def yaml_events(text: bytes | str) -> Iterator[tuple[Any, int]]:
    """Yield the events of a YAML text, each with how deep it is nested: nothing is built, however deep.

    Raises:
        yaml.YAMLError: it is no YAML.
    """
    depth = 0
    for event in yaml.parse(text, Loader=YamlLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        yield event, depth


def yaml_documents(text: bytes) -> Iterator[Any]:
    """Yield the documents of a YAML text.

    Raises:
        yaml.YAMLError: it is no YAML, or nested too deep.
    """
    for event, depth in yaml_events(text):
        if depth > _MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                problem=f"nested more than {_MAX_DEPTH} levels deep", problem_mark=event.start_mark
            )
    yield from yaml.load_all(text, YamlLoader)
