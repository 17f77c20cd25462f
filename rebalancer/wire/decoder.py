"""Decode JSON into structs, with one exception type for all malformed input."""

from __future__ import annotations

import re
from typing import Generic, TypeVar

import msgspec
from msgspec import Raw

T = TypeVar("T")


class JsonDecoder(Generic[T]):
    """msgspec's decoder of one type, which also converts the two interpreter exceptions that msgspec does not."""

    __slots__ = ("_decode",)

    def __init__(self, of: type[T]) -> None:
        self._decode = msgspec.json.Decoder(of).decode

    def decode(self, text: bytes | Raw) -> T:
        """Decode an object.

        Raises:
            msgspec.DecodeError: the text is not such an object, not UTF-8, or nested too deeply.
        """
        try:
            return self._decode(text)
        except msgspec.ValidationError as error:
            raise msgspec.ValidationError(in_words(error)) from None
        except (UnicodeDecodeError, RecursionError) as error:
            raise msgspec.DecodeError(f"it is no JSON: {error}") from None


_MISFIT = re.compile(r"Expected `([^`]+)`, got `([^`]+)`(?: - at `(?:\w+ in )?\$\.?([^`]*)`)?")
_TYPES = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}


def in_words(error: msgspec.ValidationError) -> str:
    """Return msgspec's message about a wrong type, without Python's names of types."""
    match = _MISFIT.fullmatch(str(error))
    if match is None:
        return str(error)
    expected, got = (
        " or ".join(_TYPES.get(name, name) for name in part.split(" | "))
        for part in match.group(1, 2)
    )
    where = f"{match[3]}: " if match[3] else ""
    return f"{where}has to be {expected}, and is {got}"
