"""Decode the response to a list into objects, by the content type that the server chose."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from rebalancer.kube.client import JSON
from rebalancer.kube.transport import Response
from rebalancer.wire import lists, pods
from rebalancer.wire.objects import ListMeta
from rebalancer.wire.pods import PodRecord
from rebalancer.wire.protobuf import PROTOBUF

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class ListDecoder(Protocol[T_co]):
    """Decodes one list that arrives in pieces."""

    def feed(self, piece: bytes) -> Iterator[T_co]:
        """Yield the objects completed by ``piece``; exhaust the iterator before the next call."""

    def close(self) -> tuple[Iterator[T_co], ListMeta]:
        """Return the last objects and the metadata of the list.

        Raises:
            msgspec.DecodeError: the JSON list is truncated, or is not a list.
            rebalancer.wire.protobuf.frames.BrokenListError: the protobuf list is truncated, or is not a list.
        """


Decoders = Mapping[str, Callable[[], ListDecoder[T]]]
"""Content type -> decoder, in the order in which they are asked for."""


class _Protobuf(ListDecoder[T]):
    """Decodes run by run, with about one megabyte in memory."""

    def __init__(self, decode: Callable[[bytes], Iterator[T]]) -> None:
        from rebalancer.wire.protobuf.frames import ListFrames  # noqa: PLC0415

        self._frames, self._decode = ListFrames(), decode

    def feed(self, piece: bytes) -> Iterator[T]:
        for run in self._frames.feed(piece):
            yield from self._decode(run)

    def close(self) -> tuple[Iterator[T], ListMeta]:
        return iter(()), self._frames.close()


class _Json(ListDecoder[T]):
    """Decodes the whole text at its end.

    Servers without protobuf are small (the embedded cluster), or are read page by page.
    """

    def __init__(self, decode: Callable[[bytes], tuple[Iterator[T], ListMeta]]) -> None:
        self._pieces: list[bytes] = []
        self._decode = decode

    def feed(self, piece: bytes) -> Iterator[T]:
        self._pieces.append(piece)
        return iter(())

    def close(self) -> tuple[Iterator[T], ListMeta]:
        return self._decode(b"".join(self._pieces))


def _protobuf_pods() -> ListDecoder[PodRecord]:
    from rebalancer.wire.protobuf.pods import pod_records  # noqa: PLC0415

    return _Protobuf(pod_records)


POD_DECODERS: Decoders[PodRecord] = {
    PROTOBUF: _protobuf_pods,
    JSON: lambda: _Json(pods.decode_page),
}


def object_decoders(kind: str, wanted: Container[str] | None = None) -> Decoders[Any]:
    """Return the decoders of any kind except Pod.

    With ``wanted``, objects with other uids may be omitted.
    """

    def from_json(body: bytes) -> tuple[Iterator[Any], ListMeta]:
        objects, meta = lists.decode_objects(kind, body)
        return iter(objects), meta

    def from_protobuf() -> ListDecoder[Any]:
        from rebalancer.wire.protobuf.lists import decode_run  # noqa: PLC0415

        return _Protobuf(lambda run: iter(decode_run(kind, run, wanted)))

    json: Decoders[Any] = {JSON: lambda: _Json(from_json)}
    return {PROTOBUF: from_protobuf, **json} if kind in IN_PROTOBUF else json


IN_PROTOBUF = frozenset({"Node", "ReplicaSet", "Deployment"})
"""Kinds that come in numbers; the others are few or small."""


def accept_header(decoders: Decoders[Any]) -> str:
    """Return the Accept header for the content types of ``decoders``."""
    return ", ".join(decoders)


def decoder_of(decoders: Decoders[T], content_type: str) -> ListDecoder[T]:
    """Return a new decoder for this content type.

    Raises:
        msgspec.DecodeError: there is none.
    """
    make = decoders.get(content_type)
    if make is None:
        raise msgspec.DecodeError(f"no decoder for {content_type}")
    return make()


def decode_response(decoders: Decoders[T], response: Response) -> tuple[list[T], ListMeta]:
    """Return the objects of a page, and the list's metadata. Raises as :meth:`ListDecoder.close`."""
    decoder = decoder_of(decoders, response.content_type)
    items = list(decoder.feed(response.body))
    last, meta = decoder.close()
    items.extend(last)
    return items, meta
