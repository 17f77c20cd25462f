"""Lists as one answer, decoded while the server writes it.

Since 1.33 the API server writes a list item by item from its cache (KEP-5116), so one long answer is the
cheapest way for both sides, and is of one moment. Before, it made the whole list in memory first.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import msgspec

from rebalancer.kube.client import Client
from rebalancer.kube.decoders import Decoders, accepted, decoder_of
from rebalancer.kube.failures import NotStreamedError, TransportError
from rebalancer.kube.pages import Listing
from rebalancer.kube.transport import Stream
from rebalancer.wire.protobuf import PROTOBUF, BrokenListError

T = TypeVar("T")

STREAMS_SINCE = (1, 33)
"""The first version whose server does not hold an unlimited list in memory."""
_PIECE = 1 << 17


_LONG = 4 << 20
"""Bytes from which on JSON is worth a note: shorter lists are read in no time, whatever their form."""


def read_stream(
    client: Client, listing: Listing, decoders: Decoders[T], *, selector: str = ""
) -> Generator[T, None, None]:
    """Yield the objects of a list over all namespaces, as one answer brings them.

    What throttles it is waited for; otherwise there is one attempt: the caller goes on with pages
    (``rebalancer.kube.pages``), which are repeated, name what is forbidden, and pass through slower lines.

    Raises:
        NotStreamedError: refused, broken off, too slow, or not a list.
    """
    try:
        stream = client.open_list(
            listing.resource.path(),
            query={"fieldSelector": selector} if selector else None,
            accept=accepted(decoders),
        )
    except TransportError as error:
        raise NotStreamedError(str(error)) from None
    complete = False
    try:
        if stream.status != 200:
            raise NotStreamedError(f"the server answered {stream.status}")
        listing.server_date, listing.local_date = stream.date, client.monotonic()
        listing.content_type = stream.content_type
        yield from _decoded(stream, listing, decoders)
        complete = True
    except (TransportError, BrokenListError, msgspec.DecodeError) as error:
        raise NotStreamedError(str(error)) from None
    finally:
        stream.end(complete=complete)
    listing.pages = 1


def _decoded(stream: Stream, listing: Listing, decoders: Decoders[T]) -> Generator[T, None, None]:
    decoder = decoder_of(decoders, stream.content_type)
    while piece := stream.read_up_to(_PIECE):
        listing.read_bytes += len(piece)
        yield from decoder.feed(piece)
    last, meta = decoder.close()
    if meta.continue_ or not meta.resource_version:
        raise NotStreamedError("the answer is not a whole list")
    yield from last
    listing.items_version = meta.resource_version
    if listing.read_bytes > _LONG and PROTOBUF in decoders and stream.content_type != PROTOBUF:
        listing.notes.append(
            f"the list of {listing.resource.plural} came as {stream.content_type}, not as protobuf:"
            f" {listing.read_bytes >> 20} MiB took more time and memory than needed"
        )
