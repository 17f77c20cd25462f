"""Write the whole cluster to a snapshot file, page by page, without keeping it in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec
from msgspec import Raw

from rebalancer.kube.access import missing_lists
from rebalancer.kube.client import JSON, Client
from rebalancer.kube.failures import ForbiddenError, NotServedError
from rebalancer.kube.lists import (
    IN_PROTOBUF,
    Listing,
    phase_selector,
    read_pages,
    restarting,
    scale_out_selector,
)
from rebalancer.kube.metrics import NotMeasuredError, UsageSource, usage_notes
from rebalancer.kube.read import read_version
from rebalancer.kube.seldom_read import (
    BUFFER_RULES,
    find_devices,
    find_karpenter,
    find_pod_groups,
    read_raw_buffers,
)
from rebalancer.kube.transport import Response
from rebalancer.snapshot.autoscalers import SCALE_OUT_REASONS
from rebalancer.snapshot.redact import Redactor
from rebalancer.snapshot.store import Capture, SnapshotWriter, StoredList, open_for_writing
from rebalancer.wire.kinds import (
    AFTER_PODS,
    ASKED_FOR,
    CAPACITY_BUFFERS,
    ESSENTIAL,
    EVENTS,
    INDEPENDENT,
    METRICS,
    POD_TEMPLATES,
    PODS,
    Resource,
)
from rebalancer.wire.lists import decode_raw
from rebalancer.wire.objects import ListMeta
from rebalancer.wire.protobuf import PROTOBUF

T = TypeVar("T")
_KINDS = (PODS, *INDEPENDENT, *AFTER_PODS)
_BUFFERS = (CAPACITY_BUFFERS, POD_TEMPLATES)


@dataclass(frozen=True, slots=True)
class Captured:
    """The contents of a written snapshot file."""

    counts: Mapping[str, int]
    """Kind -> number of objects."""
    seconds: float
    read_bytes: int
    notes: tuple[str, ...]


def write_cluster_snapshot(
    client: Client,
    target: Path | BinaryIO,
    *,
    clock: Callable[[], float],
    page_size: int = 500,
    usage: UsageSource | None = None,
    finished: frozenset[str] = frozenset(),
    autoscalers: bool = False,
    events: bool = False,
    buffers: bool = False,
    redactor: Redactor | None = None,
) -> Captured:
    """Write the current cluster to ``target`` (see ``rebalancer.snapshot.store``).

    Lists are read one after the other, pods first (finished pods only in the phases ``finished``), page by page.
    Metrics from ``usage`` come last, HorizontalPodAutoscalers only with ``autoscalers``, only with ``events`` the Events about
    machines being launched for pods, and only with ``buffers`` CapacityBuffers and their PodTemplates; a note is added if usage
    is unavailable. With ``redactor`` names are redacted before anything is written; the lists are read in JSON then.

    Raises:
        ForbiddenError: some lists are forbidden; the message names all of them.
        ClusterReadError: a list could not be read; no file is created.
        PolicyError: the file cannot be written.
    """
    started = client.monotonic()
    kinds = _KINDS + (ASKED_FOR if autoscalers else ()) + ((EVENTS,) if events else ())
    version = read_version(client).numbers
    groups, not_readable = find_pod_groups(client, version)
    # What selectors say of devices are names: a redacted file has none of it.
    devices = find_devices(client, version) if redactor is None else ()
    karpenter, no_claims = find_karpenter(client)
    kinds = (*kinds, *groups, *devices, *karpenter)
    not_readable = (*not_readable, *no_claims)

    def attempt(may_restart: bool) -> Captured:
        # What has gone down a pipe cannot be taken back.
        restartable = may_restart and isinstance(target, Path)
        listings = [Listing(resource) for resource in kinds]
        measured = [Listing(resource) for resource in METRICS if usage is not None]
        with open_for_writing(target) as stream, SnapshotWriter(stream) as writer:
            lists = [
                _write(
                    client, writer, of_kind, page_size, finished, redactor, may_restart=restartable
                )
                for of_kind in _by_kind(listings)
            ]
            if buffers:
                lists += _write_buffers(client, writer, redactor)
            notes = not_readable
            if usage is not None:
                of_usage, of_metrics = _write_metrics(usage, writer, measured, redactor)
                lists += of_usage
                notes += of_metrics
            pods = listings[0]
            capture = Capture(
                captured_at=clock() if pods.server_date is None else pods.server_date,
                version=version,
                resource_version=pods.items_version,
                kinds=tuple(
                    dict.fromkeys(resource.kind for resource in (*kinds, *_BUFFERS * buffers))
                ),
                source=client.server if redactor is None else redactor.pseudonym(client.server),
                finished=tuple(sorted(finished)),
            )
            writer.close(capture, lists)
        return Captured(
            counts={stored.kind: stored.objects for stored in lists},
            seconds=client.monotonic() - started,
            read_bytes=sum(listing.read_bytes for listing in (*listings, *measured)),
            notes=(*(note for one in (*listings, *measured) for note in one.notes), *notes),
        )

    try:
        return restarting(attempt)
    except ForbiddenError as error:
        also = (*(usage.rules if usage else ()), *BUFFER_RULES * buffers)
        missing = {*error.missing, *missing_lists(client, kinds, also=also)}
        raise ForbiddenError(missing, account=error.account) from None


def _by_kind(listings: Sequence[Listing]) -> list[Sequence[Listing]]:
    """Return the listings, those of one kind together: several projects have a PodGroup."""
    return [tuple(of) for _, of in groupby(listings, key=lambda listing: listing.resource.kind)]


def _write(
    client: Client,
    writer: SnapshotWriter,
    listings: Sequence[Listing],
    page_size: int,
    finished: frozenset[str],
    redactor: Redactor | None,
    *,
    may_restart: bool,
) -> StoredList:
    """Write what is of one kind as one list in the encoding in which the server sends it, or redacted in JSON."""
    kind = listings[0].resource.kind
    in_protobuf = redactor is None and (kind == "Pod" or kind in IN_PROTOBUF)
    selectors = {
        PODS: (phase_selector(finished),),
        EVENTS: tuple(map(scale_out_selector, SCALE_OUT_REASONS)),
    }
    pages: Iterator[Any] = chain.from_iterable(
        _pages(client, listing, page_size, selector, in_protobuf, may_restart=may_restart)
        for listing in listings
        for selector in selectors.get(listing.resource, ("",))
    )
    first = next(pages, None)
    if first is None or listings[0].content_type != PROTOBUF:
        items = (item for page in _all(first, pages) for item in page)
        return writer.write_json(kind, _redact(kind, items, redactor))
    return writer.write_protobuf(kind, (run for page in _all(first, pages) for run in page))


def _write_buffers(
    client: Client, writer: SnapshotWriter, redactor: Redactor | None
) -> list[StoredList]:
    """Write the CapacityBuffers, and the PodTemplates that they name."""
    read = zip(_BUFFERS, read_raw_buffers(client), strict=True)
    return [
        writer.write_json(resource.kind, _redact(resource.kind, items, redactor))
        for resource, items in read
    ]


def _redact(
    kind: str, items: Iterable[bytes | Raw], redactor: Redactor | None
) -> Iterable[bytes | Raw]:
    return items if redactor is None else (redactor.redact(kind, item) for item in items)


def _all(first: T | None, others: Iterable[T]) -> Iterator[T]:
    if first is not None:
        yield first
    yield from others


def _pages(
    client: Client,
    listing: Listing,
    page_size: int,
    selector: str,
    in_protobuf: bool,
    *,
    may_restart: bool,
) -> Iterator[Any]:
    """Yield the pages of a list as input for :class:`SnapshotWriter`: bytes of encoded items, or items in JSON."""
    kind = listing.resource.kind

    def decode(response: Response) -> tuple[Any, ListMeta]:
        if response.content_type != listing.content_type:
            raise msgspec.DecodeError("the form of the list changes from page to page")
        if in_protobuf and response.content_type == PROTOBUF:
            return _runs(kind, response.body)
        return decode_raw(response.body)

    try:
        yield from read_pages(
            client,
            listing,
            decode,
            page_size=page_size,
            selector=selector,
            accept=f"{PROTOBUF}, {JSON}" if in_protobuf else JSON,
            may_restart=may_restart,
        )
    except NotServedError:
        if listing.resource in ESSENTIAL:
            raise


def _runs(kind: str, body: bytes) -> tuple[list[tuple[bytes, int]], ListMeta]:
    """Return a page as (run, number of objects) pairs, and the list metadata."""
    from rebalancer.wire.protobuf.frames import ListFrames  # noqa: PLC0415
    from rebalancer.wire.protobuf.lists import strip_run  # noqa: PLC0415

    frames = ListFrames()
    runs = [strip_run(kind, run) for run in frames.feed(body)]
    return runs, frames.close()


def _write_metrics(
    usage: UsageSource,
    writer: SnapshotWriter,
    listings: Sequence[Listing],
    redactor: Redactor | None,
) -> tuple[list[StoredList], tuple[str, ...]]:
    """Write the metrics; return their lists and notes. If a list is missing or incomplete, write none."""
    lists: list[StoredList] = []
    troubles: list[tuple[Resource, str]] = []
    for listing in listings:
        try:
            items = usage.items(listing, lambda: False)
            kind = listing.resource.kind
            lists.append(writer.write_json(kind, _redact(kind, items, redactor)))
        except NotMeasuredError as error:
            troubles.append((listing.resource, str(error)))
    return ([] if troubles else lists), usage_notes(usage, troubles)
