"""The whole cluster into a snapshot file, object by object, nothing of it kept in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from msgspec import Raw

from rebalancer.kube.access import missing_lists
from rebalancer.kube.client import Client
from rebalancer.kube.failures import ForbiddenError, StatusError
from rebalancer.kube.lists import UNFINISHED
from rebalancer.kube.metrics import NotMeasuredError, metrics_items, usage_notes
from rebalancer.kube.pages import Listing, read_pages, restarting
from rebalancer.kube.read import read_version
from rebalancer.kube.resources import (
    AFTER_PODS,
    ESSENTIAL,
    INDEPENDENT,
    METRICS,
    NODE_METRICS,
    PODS,
    Resource,
)
from rebalancer.snapshot.file_format import Capture
from rebalancer.snapshot.store import write_snapshot
from rebalancer.wire.lists import decode_raw

_KINDS = (PODS, *INDEPENDENT, *AFTER_PODS)


@dataclass(frozen=True, slots=True)
class Captured:
    """What a snapshot file holds."""

    counts: Mapping[str, int]
    """Kind -> objects."""
    seconds: float
    read_bytes: int
    notes: tuple[str, ...]


def write_cluster_snapshot(
    client: Client,
    target: Path | BinaryIO,
    *,
    clock: Callable[[], float],
    page_size: int = 500,
    usage: bool = False,
) -> Captured:
    """Write the cluster as it is now to ``target`` (see ``rebalancer.snapshot.store``).

    Lists are read one after the other, pods first (without finished ones), a page at a time. With ``usage``,
    what the metrics API has measured comes last; where it does not answer, a note says so.

    Raises:
        ForbiddenError: some lists are forbidden; every one of them is named.
        ClusterReadError: a list could not be read; no file is left behind.
        PolicyError: the file cannot be written.
    """
    started = client.monotonic()
    version = read_version(client).numbers

    def attempt(may_restart: bool) -> Captured:
        # What has gone down a pipe cannot be taken back.
        restartable = may_restart and isinstance(target, Path)
        listings = [Listing(resource) for resource in _KINDS]
        measured = [Listing(resource) for resource in METRICS] if usage else []
        notes: list[str] = []
        counts: Counter[str] = Counter()
        pods = _pages(client, listings[0], page_size, may_restart=restartable)
        first = next(pods)
        date = listings[0].server_date
        capture = Capture(
            captured_at=clock() if date is None else date,
            version=version,
            resource_version=listings[0].items_version,
            kinds=tuple(resource.kind for resource in _KINDS),
        )

        def items() -> Iterator[tuple[str, bytes | Raw]]:
            yield from _counted(PODS, first, counts)
            for page in pods:
                yield from _counted(PODS, page, counts)
            for listing in listings[1:]:
                for page in _pages(client, listing, page_size, may_restart=restartable):
                    yield from _counted(listing.resource, page, counts)
            for resource, found in _metrics(client, measured, notes):
                yield from _counted(resource, found, counts)

        write_snapshot(items(), target, capture)
        return Captured(
            counts=dict(counts),
            seconds=client.monotonic() - started,
            read_bytes=sum(listing.read_bytes for listing in (*listings, *measured)),
            notes=(*(note for listing in listings for note in listing.notes), *notes),
        )

    try:
        return restarting(attempt)
    except ForbiddenError as error:
        raise ForbiddenError({*error.missing, *missing_lists(client, usage=usage)}) from None


def _metrics(
    client: Client, listings: Sequence[Listing], notes: list[str]
) -> Iterator[tuple[Resource, Sequence[bytes]]]:
    """Yield the metrics of pods as they come, then those of all nodes: without these, nothing was measured.

    So a list that breaks off leaves a file of which nobody takes a part for the whole.
    """
    troubles: list[tuple[Resource, str]] = []
    for listing in reversed(listings):
        resource = listing.resource
        try:
            if resource == NODE_METRICS:
                found = list(metrics_items(client, listing))
                if not troubles:
                    yield resource, found
                continue
            for item in metrics_items(client, listing):
                yield resource, (item,)
        except NotMeasuredError as error:
            troubles.append((resource, str(error)))
    notes += usage_notes(troubles)


def _counted(
    resource: Resource, page: Sequence[bytes | Raw], counts: Counter[str]
) -> Iterator[tuple[str, bytes | Raw]]:
    counts[resource.kind] += len(page)
    return ((resource.kind, item) for item in page)


def _pages(
    client: Client, listing: Listing, page_size: int, *, may_restart: bool
) -> Iterator[tuple[Raw, ...]]:
    try:
        yield from read_pages(
            client,
            listing,
            lambda response: decode_raw(response.body),
            page_size=page_size,
            selector=UNFINISHED if listing.resource == PODS else "",
            may_restart=may_restart,
        )
    except StatusError as error:
        if error.status != 404 or listing.resource in ESSENTIAL:
            raise
