"""Read measured usage from the metrics API or another source.

metrics.k8s.io is served by another server behind the API server (usually metrics-server), or not at all.
metrics-server supports no pages (``limit`` has no effect), no versions and no watches: a list is one response about
the present. It could send protobuf, too; JSON is what all servers support. Without metrics a run continues, and
reports what it does not know.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from io import BytesIO
from typing import Protocol

from msgspec import DecodeError, Raw, Struct

from rebalancer.kube.access import USAGE_RULES
from rebalancer.kube.client import JSON, Client
from rebalancer.kube.failures import TransportError, refusal, status_of
from rebalancer.kube.pages import Listing
from rebalancer.kube.resources import AccessRule
from rebalancer.kube.transport import Stream
from rebalancer.snapshot.build import Fold
from rebalancer.wire.decoder import JsonDecoder
from rebalancer.wire.kinds import NODE_METRICS, Resource
from rebalancer.wire.lists import item_decoder
from rebalancer.wire.metrics import NodeMetrics, PodMetrics

_PIECE = 1 << 19
_MAX_REFUSAL = 1 << 14


class NotMeasuredError(Exception):
    """A list of measurements is missing or incomplete; the message says why."""


class UsageSource(Protocol):
    """A source of NodeMetrics and PodMetrics."""

    rules: tuple[AccessRule, ...]
    """What has to be allowed at the API server."""
    advice: str
    """What to do where it gives nothing."""

    def name(self, resource: Resource) -> str:
        """Return this list's name for messages."""

    def items(
        self, listing: Listing, stopped: Callable[[], bool]
    ) -> Generator[bytes | Raw, None, None]:
        """Yield the objects of a list in JSON, until ``stopped``; ``listing`` names the list and is filled.

        Raises:
            NotMeasuredError: the list does not exist, is incomplete, or contains no node.
            ForbiddenError: RBAC denied it; names the rule.
            ClusterReadError: our credentials were rejected.
        """


@dataclass(slots=True)
class MetricsList:
    """One list of the metrics API as it was read."""

    listing: Listing
    fold: Fold
    """Holds nothing but what was measured."""
    trouble: str | None = None
    """Why nothing is known, if so."""


def read_metrics(source: UsageSource, resource: Resource, stop: threading.Event) -> MetricsList:
    """Read NodeMetrics or PodMetrics in one attempt; if it fails, ``trouble`` says why.

    ``stop`` aborts reading.

    Raises:
        ForbiddenError: RBAC denied it; names the rule.
        ClusterReadError: our credentials were rejected.
    """
    metrics = MetricsList(Listing(resource), Fold())
    # Closed even if its end is not read: a stream holds a place among the requests in flight.
    with closing(source.items(metrics.listing, stop.is_set)) as items:
        try:
            metrics.fold.add(resource.kind, _decode(resource.kind, items))
        except NotMeasuredError as error:
            metrics.trouble = str(error)
    return metrics


def _decode(kind: str, items: Iterable[bytes | Raw]) -> Iterator[NodeMetrics | PodMetrics]:
    """Yield the decoded objects; a malformed one counts as not measured."""
    decoder = item_decoder(kind)
    for item in items:
        try:
            yield decoder.decode(item)
        except (ValueError, RecursionError):
            continue


def usage_notes(
    source: UsageSource, troubles: Iterable[tuple[Resource, str | None]]
) -> tuple[str, ...]:
    """Return notes for the report on missing lists, and what to do about them."""
    by_trouble: dict[str, list[str]] = {}
    for resource, trouble in sorted(troubles, key=lambda pair: pair[0].plural):
        if trouble is not None:
            by_trouble.setdefault(trouble, []).append(source.name(resource))
    if not by_trouble:
        return ()
    said = "; ".join(f"{' and '.join(names)}: {why}" for why, names in by_trouble.items())
    return (f"usage is not known: {said}. {source.advice}",)


class MetricsApi:
    """The metrics API as a usage source."""

    rules: tuple[AccessRule, ...] = USAGE_RULES
    advice = (
        "Install metrics-server (https://github.com/kubernetes-sigs/metrics-server); where it is installed,"
        " `kubectl describe apiservice v1beta1.metrics.k8s.io` says why it does not answer"
    )

    def __init__(self, client: Client) -> None:
        self._client = client

    def name(self, resource: Resource) -> str:
        """Return this list's name for messages."""
        return f"{resource.plural}.{resource.group}"

    def items(
        self, listing: Listing, stopped: Callable[[], bool]
    ) -> Generator[bytes | Raw, None, None]:
        """Yield the objects of a list in JSON, see :meth:`UsageSource.items`."""
        body: bytes | None = None
        try:
            stream = self._client.open_list(listing.resource.path(), accept=JSON)
            try:
                _require_list(stream, listing.resource, self._client.server)
                body = _read_body(stream, stopped)
            finally:
                stream.end(complete=body is not None)
        except (TransportError, ValueError) as error:
            raise NotMeasuredError(str(error)) from None
        if body is None:
            return
        listing.read_bytes = len(body)
        yield from _decode_list(body, listing.resource)
        listing.pages = 1


def _require_list(stream: Stream, resource: Resource, server: str) -> None:
    if stream.status == 200:
        return
    body = stream.read_up_to(_MAX_REFUSAL)
    if stream.status in (401, 403):
        rule = AccessRule("list", resource.group, resource.plural)
        raise refusal(stream.status, body, rule, server)
    if stream.status == 404:
        raise NotMeasuredError("the API server does not serve them")
    raise NotMeasuredError(f"HTTP {stream.status} ({status_of(body).message or 'no text'})")


class _List(Struct):
    kind: str = ""
    items: tuple[Raw, ...] | None = None


_lists = JsonDecoder(_List)


def _read_body(stream: Stream, stopped: Callable[[], bool]) -> bytes | None:
    """Return the response body; None if ``stopped`` before its end."""
    body = BytesIO()
    while piece := stream.read_up_to(_PIECE):
        if stopped():
            return None
        body.write(piece)
    return body.getvalue()


def _decode_list(body: bytes, resource: Resource) -> Sequence[Raw]:
    try:
        read = _lists.decode(body)
    except DecodeError:
        read = _List()
    if read.kind != f"{resource.kind}List":
        raise NotMeasuredError(f"what was answered is no list of {resource.kind}, or broke off")
    if not read.items and resource == NODE_METRICS:
        raise NotMeasuredError("no node has been measured yet")
    return read.items or ()
