"""Read single lists, as one response or in pages, into a fold or unchanged.

Since 1.33 the API server writes a list item by item from its cache (KEP-5116), so one long response is the cheapest
way for both sides, and is consistent. Earlier versions built the whole list in memory first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import JSON, Client
from rebalancer.kube.failures import (
    NotServedError,
    NotStreamedError,
    NotUnderstoodError,
    StatusError,
    TransportError,
    explain_errors,
    status_of,
)
from rebalancer.kube.resources import AccessRule
from rebalancer.kube.transport import Response, Stream
from rebalancer.snapshot.build import Fold
from rebalancer.wire import lists, pods
from rebalancer.wire.kinds import ALL, ASKED_FOR, ESSENTIAL, INDEPENDENT, JOBS, PODS, Resource
from rebalancer.wire.objects import ListMeta, ObjectMeta, Workload
from rebalancer.wire.pods import FINISHED, PodRecord
from rebalancer.wire.protobuf import PROTOBUF, BrokenListError

T = TypeVar("T")

Decode = Callable[[Response], tuple[T, ListMeta]]
"""Decodes one answer into the reader's form of a page, and the list's metadata."""

_RESTARTS = 1


class ListExpiredError(ClusterReadError):
    """The list's version was compacted between two pages; the pages read so far must be discarded."""


@dataclass(slots=True)
class Listing:
    """One list being read: its size and version, filled while it is read."""

    resource: Resource
    items_version: str = ""
    """resourceVersion of the list, from which a watch may continue."""
    content_type: str = ""
    """Content type of the response: JSON or protobuf."""
    server_date: float | None = None
    """The server's clock at the first page, Unix seconds."""
    local_date: float = 0.0
    """Our clock at the same moment, by the client's monotonic clock."""
    read_bytes: int = 0
    pages: int = 0
    notes: list[str] = field(default_factory=list)


def scale_out_selector(reason: str) -> str:
    """Return the field selector of the Events about pods with this reason."""
    return f"regarding.kind={PODS.kind},reason={reason}"


def read_pages(
    client: Client,
    listing: Listing,
    decode: Decode[T],
    *,
    page_size: int,
    selector: str = "",
    namespace: str = "",
    accept: str = JSON,
    may_restart: bool = True,
) -> Generator[T, None, None]:
    """Yield the decoded pages of a list, each requested only when the previous one is used up.

    ``selector`` is a field selector; without ``namespace`` all are read. All pages belong to one version of the list (the server keeps it by the
    continue token). If that version is compacted, :class:`ListExpiredError` is raised and the caller starts again;
    with ``may_restart`` false the remaining pages come from a newer version, and a note is added.

    Raises:
        ListExpiredError: see above.
        ForbiddenError: RBAC denied it; the error names the rule.
        ClusterReadError: the list could not be read completely.
    """
    resource = listing.resource
    query: dict[str, str | int] = {"limit": page_size}
    query |= {"fieldSelector": selector} if selector else {}
    rule = AccessRule.of("list", resource)
    path = resource.path(namespace)
    while True:
        response = client.get(path, query=query, accept=accept)
        if response.status == 410 and "continue" in query:
            token = status_of(response.body).metadata
            if may_restart or token is None or not token.continue_:
                raise ListExpiredError(
                    f"the list of {resource.plural} expired while it was read: the API server keeps it"
                    f" for about five minutes"
                )
            listing.notes.append(
                f"the list of {resource.plural} expired while it was read; its end is of a later moment"
            )
            query["continue"] = token.continue_
            continue
        client.expect(response, rule)
        _note(listing, response, client.monotonic())
        decoded, meta = _decode_page(response, decode, resource)
        listing.items_version = listing.items_version or meta.resource_version
        del response
        yield decoded
        del decoded
        if not meta.continue_:
            return
        if meta.continue_ == query.get("continue"):
            # A token names the last key of its page: the same one twice is no list, and would never end.
            raise ClusterReadError(
                f"the list of {resource.plural} does not go on: its pages name one and the same next page"
            )
        query["continue"] = meta.continue_


def list_whole(
    client: Client,
    resource: Resource,
    decode: Decode[Iterable[Any]] | None = None,
    *,
    page_size: int = 500,
    selector: str = "",
    namespace: str = "",
    may_restart: bool = False,
) -> list[Any]:
    """Return the objects of all pages of a short list; errors as :func:`read_pages`. ``decode``: else as its kind is declared."""

    def as_declared(response: Response) -> tuple[Iterable[Any], ListMeta]:
        return lists.decode_objects(resource.kind, response.body)

    pages = read_pages(
        client,
        Listing(resource),
        decode or as_declared,
        page_size=page_size,
        selector=selector,
        namespace=namespace,
        may_restart=may_restart,
    )
    return [one for page in pages for one in page]


def restarting(
    read: Callable[[bool], T],
) -> T:
    """Return ``read(may_restart)``; call it again from the start if the list expires in between."""
    for _ in range(_RESTARTS):
        try:
            return read(True)
        except ListExpiredError:
            continue
    return read(False)


def _note(listing: Listing, response: Response, now: float) -> None:
    if not listing.pages:
        listing.content_type = response.content_type
        listing.server_date, listing.local_date = response.date, now
    listing.pages += 1
    listing.read_bytes += len(response.body)


def _decode_page(response: Response, decode: Decode[T], resource: Resource) -> tuple[T, ListMeta]:
    try:
        decoded, meta = decode(response)
    except msgspec.ValidationError as error:
        raise ClusterReadError(
            f"the list of {resource.plural} is not what this version of kube-rebalancer expects:"
            f" {error}"
        ) from None
    except (msgspec.DecodeError, BrokenListError):
        raise ClusterReadError(
            f"the list of {resource.plural} broke off or is not JSON ({len(response.body)} bytes,"
            f" content type {response.content_type or 'unknown'}): is it really an API server, and no"
            f" proxy, that answers?"
        ) from None
    if not meta.resource_version:
        # Only a real list has a version.
        raise StatusError(
            response.status,
            f"the answer to list {resource.plural} has no resourceVersion: it is not a list of the API"
            f" server, or broke off",
        )
    return decoded, meta


T_co = TypeVar("T_co", covariant=True)


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
"""Content type -> decoder, in the order of preference in the Accept header."""


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


IN_PROTOBUF = frozenset(one.kind for one in ALL if one.in_protobuf and one is not PODS)
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


R = TypeVar("R")

_Take = Callable[[Iterable[T]], object]
"""Receives decoded objects."""


def phase_selector(finished: frozenset[str]) -> str:
    """Return the field selector for pods: finished ones use no resources and are not requested.

    Except those in the phases ``finished``, which a strategy needs.
    """
    return ",".join(f"status.phase!={phase}" for phase in sorted(FINISHED - finished, reverse=True))


PAGE = 500
"""Objects per page when lists are read in pages, as in client-go."""


@dataclass(frozen=True, slots=True)
class ListOptions:
    """Options for reading lists."""

    page_size: int
    streams: bool
    """Whether one long answer is tried first."""
    finished: frozenset[str] = frozenset()
    """Phases of pods that have ended and are read anyway."""
    autoscalers: bool = False
    """Whether HorizontalPodAutoscalers are read, too."""

    @property
    def independent(self) -> tuple[Resource, ...]:
        """The resources that are read concurrently with the pods, in any order."""
        return (*INDEPENDENT, *(ASKED_FOR if self.autoscalers else ()))


def read_pods(
    client: Client,
    how: ListOptions,
    looked_at: Callable[[Iterable[PodRecord]], Iterable[PodRecord]],
) -> tuple[Fold, Listing]:
    """Return a fold of all pods; ``looked_at`` sees each pod first, some twice after a failed attempt."""

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
    """Return all objects of a list; none if the server does not serve the resource.

    With ``wanted``, objects with other uids may be omitted. ``stop`` aborts reading.
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


def read_late(
    client: Client,
    resource: Resource,
    how: ListOptions,
    fold: Fold,
    also: list[ObjectMeta] | None = None,
) -> Listing:
    """Add ReplicaSets or Jobs to ``fold``. A second attempt adds some twice: the fold identifies them by uid.

    ``also`` gets the metadata of all Jobs, too.
    """
    decoders = object_decoders(resource.kind, fold.controllers)

    def begin() -> tuple[Fold, _Take[Any]]:
        if also is None or resource is not JOBS:
            return fold, lambda arrived: fold.add(resource.kind, arrived)
        also.clear()
        return fold, lambda arrived: fold.add(resource.kind, _noting(arrived, also))

    return _read(client, resource, how, decoders, begin)[0]


def _noting(objects: Iterable[Workload], kept: list[ObjectMeta]) -> Iterator[Workload]:
    for one in objects:
        kept.append(one.metadata)
        yield one


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
    """Read a list as one response if requested; otherwise, or if that fails, in pages.

    ``begin`` starts each attempt: it returns the container of the objects, and the function that adds them.
    """
    notes: list[str] = []
    if how.streams and PROTOBUF in decoders:
        listing = Listing(resource)
        result, take = begin()
        # Closed even if another list fails: the stream holds a place among the requests in flight.
        with closing(read_stream(client, listing, decoders, selector=selector)) as arrived:
            try:
                with explain_errors(resource):
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
            accept=accept_header(decoders),
            may_restart=may_restart,
        )
        with explain_errors(resource):
            for page in _if_served(pages, resource):
                take(page)
                if stop is not None and stop.is_set():
                    break
        return listing, result

    return restarting(in_pages)


def _if_served(pages: Iterator[T], resource: Resource) -> Iterator[T]:
    """Yield the pages; none if the server does not serve an optional resource."""
    try:
        yield from pages
    except NotServedError:
        if resource in ESSENTIAL:
            raise


STREAMS_SINCE = (1, 33)
"""The first version whose server does not keep an unlimited list in memory."""
_PIECE = 1 << 17


_LONG = 4 << 20
"""Size in bytes from which a list in JSON is worth a note; shorter lists are read quickly in any form."""


def read_stream(
    client: Client, listing: Listing, decoders: Decoders[T], *, selector: str = ""
) -> Generator[T, None, None]:
    """Yield the objects of a list over all namespaces from one response.

    Throttling is waited for; otherwise there is one attempt. The caller falls back to pages
    (``rebalancer.kube.lists``), which are retried, report missing rights, and work over slower connections.

    Raises:
        NotStreamedError: refused, interrupted, too slow, or not a list.
    """
    try:
        stream = client.open_list(
            listing.resource.path(),
            query={"fieldSelector": selector} if selector else None,
            accept=accept_header(decoders),
        )
    except TransportError as error:
        raise NotStreamedError(str(error)) from None
    complete = False
    try:
        if stream.status != 200:
            raise NotStreamedError(f"the server answered {stream.status}")
        listing.server_date, listing.local_date = stream.date, client.monotonic()
        listing.content_type = stream.content_type
        yield from _decode(stream, listing, decoders)
        complete = True
    except (TransportError, BrokenListError, msgspec.DecodeError) as error:
        raise NotStreamedError(str(error)) from None
    finally:
        stream.end(complete=complete)
    listing.pages = 1


def _decode(stream: Stream, listing: Listing, decoders: Decoders[T]) -> Generator[T, None, None]:
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
