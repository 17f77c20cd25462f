"""Single lists, as one answer or in pages, into a fold or as they are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

from rebalancer.kube.client import Client
from rebalancer.kube.decoders import (
    POD_DECODERS,
    Decoders,
    accepted,
    decode_response,
    object_decoders,
)
from rebalancer.kube.failures import (
    NotStreamedError,
    NotUnderstoodError,
    StatusError,
    understood,
)
from rebalancer.kube.pages import Listing, read_pages, restarting
from rebalancer.kube.resources import ASKED_FOR, ESSENTIAL, INDEPENDENT, PODS, Resource
from rebalancer.kube.streamed import read_stream
from rebalancer.snapshot.build import Fold
from rebalancer.snapshot.feed import feed
from rebalancer.snapshot.pod_table import FINISHED
from rebalancer.wire.pods import PodRecord
from rebalancer.wire.protobuf import PROTOBUF

T = TypeVar("T")
R = TypeVar("R")

_Take = Callable[[Iterable[T]], object]
"""Takes objects in."""


def phase_selector(finished: frozenset[str]) -> str:
    """Return the field selector of pods: those that have ended hold nothing on their node, and are not even sent.

    But for ``finished``, the phases of those that a strategy asks for.
    """
    return ",".join(f"status.phase!={phase}" for phase in sorted(FINISHED - finished, reverse=True))


PAGE = 500
"""Objects per page where lists are read in pages, as client-go does."""


@dataclass(frozen=True, slots=True)
class ListOptions:
    """How lists are read."""

    page_size: int
    streams: bool
    """Whether one long answer is tried first."""
    finished: frozenset[str] = frozenset()
    """Phases of pods that have ended and are read anyway."""
    autoscalers: bool = False
    """Whether HorizontalPodAutoscalers are read, too."""

    @property
    def independent(self) -> tuple[Resource, ...]:
        """What is read beside the pods, in any order."""
        return (*INDEPENDENT, *(ASKED_FOR if self.autoscalers else ()))


def read_pods(
    client: Client,
    how: ListOptions,
    looked_at: Callable[[Iterable[PodRecord]], Iterable[PodRecord]],
) -> tuple[Fold, Listing]:
    """Return a fold of all pods; ``looked_at`` sees them on their way, some twice after a failed attempt."""

    def begin() -> tuple[Fold, _Take[PodRecord]]:
        fold = Fold(how.finished)
        return fold, lambda records: fold.add_pods(looked_at(records))

    selector = phase_selector(how.finished)
    listing, fold = _read(client, PODS, how, POD_DECODERS, begin, selector=selector)
    return fold, listing


def read_objects(
    client: Client,
    resource: Resource,
    how: ListOptions,
    stop: threading.Event,
    wanted: Container[str] | None = None,
) -> tuple[Listing, list[Any]]:
    """Return all objects of a list; none of its pages if the server does not serve it.

    With ``wanted``, objects of other uids may be left out. ``stop`` ends it before its end.
    """

    def begin() -> tuple[list[Any], _Take[Any]]:
        objects: list[Any] = []
        return objects, lambda arrived: objects.extend(_until(arrived, stop))

    return _read(client, resource, how, object_decoders(resource.kind, wanted), begin, stop)


def _until(objects: Iterable[Any], stop: threading.Event) -> Iterator[Any]:
    for one in objects:
        yield one
        if stop.is_set():
            return


def read_late(client: Client, resource: Resource, how: ListOptions, fold: Fold) -> Listing:
    """Fold ReplicaSets or Jobs. A second attempt feeds some twice: the fold knows them by uid."""
    decoders = object_decoders(resource.kind, fold.controllers)

    def begin() -> tuple[Fold, _Take[Any]]:
        return fold, lambda arrived: feed(fold, resource.kind, arrived)

    return _read(client, resource, how, decoders, begin)[0]


def _read(
    client: Client,
    resource: Resource,
    how: ListOptions,
    decoders: Decoders[T],
    begin: Callable[[], tuple[R, _Take[T]]],
    stop: threading.Event | None = None,
    *,
    selector: str = "",
) -> tuple[Listing, R]:
    """Read a list as one answer where that is wanted, else, or if that fails, in pages.

    ``begin`` starts each attempt: it returns what will hold the objects, and what takes them in.
    """
    notes: list[str] = []
    if how.streams and PROTOBUF in decoders:
        listing = Listing(resource)
        result, take = begin()
        # Closed even if another list fails: the stream holds a place among the requests in flight.
        with closing(read_stream(client, listing, decoders, selector=selector)) as arrived:
            try:
                with understood(resource):
                    take(arrived)
            except (NotStreamedError, NotUnderstoodError) as error:
                # The note also says what is wrong, should it last.
                what = f"the list of {resource.plural} was read in pages, as one answer failed"
                notes.append(f"{what}: {error}")
            else:
                return listing, result

    def in_pages(may_restart: bool) -> tuple[Listing, R]:
        listing = Listing(resource, notes=list(notes))
        result, take = begin()
        pages = read_pages(
            client,
            listing,
            lambda response: decode_response(decoders, response),
            page_size=how.page_size,
            selector=selector,
            accept=accepted(decoders),
            may_restart=may_restart,
        )
        with understood(resource):
            for page in _if_served(pages, resource):
                take(page)
                if stop is not None and stop.is_set():
                    break
        return listing, result

    return restarting(in_pages)


def _if_served(pages: Iterator[T], resource: Resource) -> Iterator[T]:
    """Yield the pages; none, if the server does not serve what a snapshot can do without."""
    try:
        yield from pages
    except StatusError as error:
        if error.status != 404 or resource in ESSENTIAL:
            raise
