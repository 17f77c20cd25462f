"""JSON into structs, with one kind of error for any bytes."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec
from msgspec import Raw

T = TypeVar("T")


class JsonDecoder(Generic[T]):
    """msgspec's decoder of one type, which lets two exceptions of the interpreter out."""

    __slots__ = ("_decode",)

    def __init__(self, of: type[T]) -> None:
        self._decode = msgspec.json.Decoder(of).decode

    def decode(self, text: bytes | Raw) -> T:
        """Return the object in a text.

        Raises:
            msgspec.DecodeError: it is no such object, not UTF-8, or nested too deep.
        """
        try:
            return self._decode(text)
        except (UnicodeDecodeError, RecursionError) as error:
            raise msgspec.DecodeError(f"it is no JSON: {error}") from None
