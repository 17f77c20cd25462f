"""Lists of objects as JSON: one typed decoder per kind, and items undecoded."""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from rebalancer.base.data_text import without_nulls
from rebalancer.wire import kinds
from rebalancer.wire import objects as o

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

    def decode_manifest(self, text: bytes | Raw) -> T:
        """Decode an object that a person may have written; a key whose value is null counts as absent, as for API servers.

        Raises:
            msgspec.DecodeError: the text is not such an object.
        """
        try:
            return self.decode(text)
        except msgspec.ValidationError:
            # Manifests have some nulls (a "spec:" with nothing below it); API servers write few.
            return self.decode(msgspec.json.encode(without_nulls(msgspec.json.decode(text))))


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


DECODED = {one.kind: one.decoded for one in kinds.ALL if one.decoded is not None}
"""Kind -> struct, for all kinds but Pod, which has a decoder of its own (``rebalancer.wire.pods``)."""


class ListPage(Struct, Generic[T]):
    """One page of a list. An empty list may arrive as null; a response without ``items`` is not a list."""

    items: tuple[T, ...] | None
    metadata: o.ListMeta = o.ListMeta()


class RawPage(Struct):
    """One page of a list with undecoded items."""

    items: tuple[Raw, ...] | None
    metadata: o.ListMeta = o.ListMeta()


_raw_page = JsonDecoder(RawPage)


def _page_decoder(struct: type) -> JsonDecoder[ListPage[Any]]:
    generic: Any = ListPage  # parametrised at run time, which type checkers do not follow
    return JsonDecoder(generic[struct])


# All made at import, in one thread: msgspec prepares a struct's fields when its first decoder is made, and
# two threads that do so at once for structs that share a part crash the process (msgspec 0.22).
_PAGE_DECODERS = {struct: _page_decoder(struct) for struct in set(DECODED.values())}
_ITEM_DECODERS = {struct: JsonDecoder(struct) for struct in set(DECODED.values())}


def item_decoder(kind: str) -> JsonDecoder[Any]:
    """Return the decoder of one object of ``kind``."""
    return _ITEM_DECODERS[DECODED[kind]]


def decode_objects(kind: str, body: bytes) -> tuple[tuple[Any, ...], o.ListMeta]:
    """Return the objects of one page of a list of ``kind``, and its list metadata.

    Raises:
        msgspec.DecodeError: ``body`` is not such a list.
    """
    page = _PAGE_DECODERS[DECODED[kind]].decode(body)
    return page.items or (), page.metadata


def decode_raw(body: bytes) -> tuple[tuple[Raw, ...], o.ListMeta]:
    """Return the items of one page undecoded (they point into ``body``), and its list metadata.

    Raises:
        msgspec.DecodeError: ``body`` is not a list.
    """
    page = _raw_page.decode(body)
    return page.items or (), page.metadata
