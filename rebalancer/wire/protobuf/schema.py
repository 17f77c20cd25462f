"""Message classes of ``objects.proto``, from its compiled description.

The description is used rather than generated Python code, because that runs only with the versions of
the protobuf package that its compiler was made for.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

DESCRIPTION = Path(__file__).with_name("objects.binpb")
_PACKAGE = "rebalancer.wire"


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    # A pool of our own: names cannot meet those of another library in the process.
    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTION.read_bytes())
    for file in files.file:
        pool.Add(file)
    return pool


@cache
def message(name: str) -> Any:
    """Return the class of a message; its fields are known at run time only.

    Raises:
        KeyError: there is no such message.
    """
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))
