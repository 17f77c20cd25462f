"""Read files of API objects as text: gzip or plain, in chunks; and parse YAML without dates."""

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


def chunks(stream: BinaryIO, head: bytes) -> Iterator[bytes]:
    """Yield ``head`` and then the rest of ``stream``, in chunks."""
    # glibc gives memory of this size back to the system each time, and has it cleared page by page again, a
    # tenth of the time of a large file; unless it has seen larger pieces go (this one is never touched).
    bytes(8 * _CHUNK)
    chunk = head
    while chunk:
        yield chunk
        chunk = stream.read(_CHUNK)


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
