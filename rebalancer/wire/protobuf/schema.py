"""Message classes of ``objects.proto`` and ``stored.proto``, from their compiled descriptions.

The description is used rather than generated Python code, because that runs only with the versions of
the protobuf package that its compiler was made for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from sys import intern
from typing import Any

import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from rebalancer.wire.protobuf import BrokenListError

DESCRIPTION = Path(__file__).with_name("objects.binpb")
STORED = Path(__file__).with_name("stored.binpb")


@cache
def _pool(description: Path) -> descriptor_pool.DescriptorPool:
    # A pool of our own: names cannot meet those of another library in the process.
    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString(description.read_bytes())
    for file in files.file:
        pool.Add(file)
    return pool


@cache
def message(name: str) -> Any:
    """Return the class of a message that is read; its fields are known at run time only.

    Raises:
        KeyError: there is no such message.
    """
    return _message(DESCRIPTION, f"rebalancer.wire.{name}")


@cache
def message_of_stored(name: str) -> Any:
    """Return the class of a message of ``stored.proto``.

    Raises:
        KeyError: there is no such message.
    """
    return _message(STORED, f"rebalancer.stored.{name}")


def _message(description: Path, name: str) -> Any:
    return message_factory.GetMessageClass(_pool(description).FindMessageTypeByName(name))


@contextmanager
def as_broken_list(problem: str) -> Iterator[None]:
    """Turn whatever protobuf and msgspec raise of bytes that are no such message into a BrokenListError.

    Text is decoded when it is looked at: a field that is no UTF-8 raises only then.
    """
    try:
        yield
    except (DecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise BrokenListError(f"{problem}: {error}") from None


def text(value: str | bytes) -> str:
    """Return a string field's value, as the server's JSON has it where it is no UTF-8.

    The server takes such bytes in fields that it does not validate, an image's name for one, and protobuf hands
    them out as they are.
    """
    return value if isinstance(value, str) else value.decode(errors="replace")


def share_text(value: str | bytes) -> str:
    """Return ``value``, as one object for all equal texts, which saves memory."""
    return intern(text(value))
