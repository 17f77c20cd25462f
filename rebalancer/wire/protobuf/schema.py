"""Message classes of ``objects.proto`` and ``stored.proto``, from their compiled descriptions.

The description is used rather than generated Python code, because that runs only with the versions of
the protobuf package that its compiler was made for.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

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
def stored_message(name: str) -> Any:
    """Return the class of a message of ``stored.proto``.

    Raises:
        KeyError: there is no such message.
    """
    return _message(STORED, f"rebalancer.stored.{name}")


def _message(description: Path, name: str) -> Any:
    return message_factory.GetMessageClass(_pool(description).FindMessageTypeByName(name))
