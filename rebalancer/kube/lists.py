"""Single lists, as one answer or in pages, into a fold or as they are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from rebalancer.kube.client import Client
from rebalancer.kube.decoders import (
    IN_PROTOBUF,
    POD_DECODERS,
    Decoders,
    accepted,
    decode_response,
    object_decoders,
)
from rebalancer.kube.failures import StatusError
from rebalancer.kube.pages import Listing, read_pages, restarting
from rebalancer.kube.resources import ESSENTIAL, PODS, Resource
from rebalancer.kube.streamed import NotStreamedError, read_stream
from rebalancer.snapshot.build import Fold
from rebalancer.snapshot.feed import feed
from rebalancer.wire.pods import PodRecord

UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"
"""Field selector: finished pods hold nothing on their node and are not even sent."""

PAGE = 500
"""Objects per page where lists are read in pages, as client-go does."""


@dataclass(frozen=True, slots=True)
class How:
    """How lists are read."""

    page_size: int
    streams: bool
    """Whether one long answer is tried first."""


def read_pods(
    client: Client, how: How, looked_at: Callable[[Iterable[PodRecord]], Iterable[PodRecord]]
) -> tuple[Fold, Listing]:
    """Return a fold of all pods; ``looked_at`` sees them on their way, some twice after a failed attempt."""
    notes: list[str] = []
    if how.streams:
        fold, listing = Fold(), Listing(PODS)
        # Closed even if another list fails: the stream holds a place among the requests in flight.
        with closing(read_stream(client, listing, POD_DECODERS, selector=UNFINISHED)) as records:
            try:
                fold.add_pods(looked_at(records))
            except NotStreamedError as error:
                notes.append(_in_pages_because(error, PODS))
            else:
                return fold, listing

    def in_pages(may_restart: bool) -> tuple[Fold, Listing]:
        fold, listing = Fold(), Listing(PODS, notes=list(notes))
        for records in read_pages(
            client,
            listing,
            lambda response: decode_response(POD_DECODERS, response),
            page_size=how.page_size,
            selector=UNFINISHED,
            accept=accepted(POD_DECODERS),
            may_restart=may_restart,
        ):
            fold.add_pods(looked_at(records))
        return fold, listing

    return restarting(in_pages)


def _in_pages_because(error: NotStreamedError, resource: Resource) -> str:
    """Return the note on a list that is read in pages now, which also tell what is wrong, if it lasts."""
    return f"the list of {resource.plural} was read in pages, as one answer failed: {error}"


def read_objects(
    client: Client,
    resource: Resource,
    how: How,
    stop: threading.Event,
    wanted: Container[str] | None = None,
) -> tuple[Listing, list[Any]]:
    """Return all objects of a list; none of its pages if the server does not serve it.

    With ``wanted``, objects of other uids may be left out. ``stop`` ends it before its end.
    """
    decoders = object_decoders(resource.kind, wanted)
    notes: list[str] = []
    if how.streams and resource.kind in IN_PROTOBUF:
        listing = Listing(resource)
        with closing(read_stream(client, listing, decoders)) as found:
            try:
                return listing, _until(found, stop)
            except NotStreamedError as error:
                notes.append(_in_pages_because(error, resource))

    def in_pages(may_restart: bool) -> tuple[Listing, list[Any]]:
        listing = Listing(resource, notes=list(notes))
        objects: list[Any] = []
        for page in _object_pages(client, listing, decoders, how, may_restart=may_restart):
            objects.extend(page)
            if stop.is_set():
                break
        return listing, objects

    return restarting(in_pages)


def _until(objects: Iterator[Any], stop: threading.Event) -> list[Any]:
    found = []
    for one in objects:
        found.append(one)
        if stop.is_set():
            break
    return found


def read_late(client: Client, resource: Resource, how: How, fold: Fold) -> Listing:
    """Fold ReplicaSets or Jobs. A second attempt feeds some twice: the fold knows them by uid."""
    decoders = object_decoders(resource.kind, fold.controllers)
    notes: list[str] = []
    if how.streams and resource.kind in IN_PROTOBUF:
        listing = Listing(resource)
        with closing(read_stream(client, listing, decoders)) as found:
            try:
                feed(fold, resource.kind, found)
            except NotStreamedError as error:
                notes.append(_in_pages_because(error, resource))
            else:
                return listing

    def in_pages(may_restart: bool) -> Listing:
        listing = Listing(resource, notes=list(notes))
        for page in _object_pages(client, listing, decoders, how, may_restart=may_restart):
            feed(fold, resource.kind, page)
        return listing

    return restarting(in_pages)


def _object_pages(
    client: Client,
    listing: Listing,
    decoders: Decoders[Any],
    how: How,
    *,
    may_restart: bool,
) -> Iterator[list[Any]]:
    try:
        yield from read_pages(
            client,
            listing,
            lambda response: decode_response(decoders, response),
            page_size=how.page_size,
            accept=accepted(decoders),
            may_restart=may_restart,
        )
    except StatusError as error:
        if error.status != 404 or listing.resource in ESSENTIAL:
            raise
