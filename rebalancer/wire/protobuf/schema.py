"""The message classes of ``objects.proto`` and ``stored.proto``, from their compiled descriptors.

Descriptors are used rather than generated Python code, because such code runs only with the versions of the protobuf
package that its compiler was made for.
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
    """Return the class of a message in ``objects.proto``; its fields are known at run time only.

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
    """Convert the exceptions of protobuf and msgspec on malformed messages into a BrokenListError.

    Text is decoded on access: a field that is not UTF-8 raises only then.
    """
    try:
        yield
    except (DecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise BrokenListError(f"{problem}: {error}") from None


def text(value: str | bytes) -> str:
    """Return the value of a string field; invalid UTF-8 is converted as the server does for JSON.

    The server accepts such bytes in fields that it does not validate, such as an image's name, and protobuf returns
    them unchanged.
    """
    return value if isinstance(value, str) else value.decode(errors="replace")


def share_text(value: str | bytes) -> str:
    """Return ``value`` as a string object shared by all equal values, which saves memory."""
    return intern(text(value))
