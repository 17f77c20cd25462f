"""Build what msgspec knows of each Struct, before threads use them.

msgspec builds it when a Struct is decoded for the first time. Where two threads are the first ones at the same moment, the second
reads what the first has not finished, and the process ends with a segmentation fault (msgspec 0.22.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cache

import msgspec


def prepare_structs() -> None:
    """Build the decoder of each Struct that is imported now. Takes some milliseconds; a second call takes no time."""
    for struct in _subclasses(msgspec.Struct):
        _prepare(struct)


@cache
def _prepare(struct: type[msgspec.Struct]) -> None:
    # One that cannot be decoded is not decoded by threads either.
    with suppress(TypeError, NameError):
        msgspec.json.Decoder(struct)


def _subclasses(struct: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for each in struct.__subclasses__():
        yield each
        yield from _subclasses(each)
