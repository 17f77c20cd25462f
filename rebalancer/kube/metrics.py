"""What is really used, from the metrics API into a fold.

metrics.k8s.io is served by another server behind the API server (metrics-server, most often), or by none.
It knows no pages, no protobuf, no versions and no watches: a list is one answer, decoded while it comes,
and is of the moment. Without it a run goes on, and says what it does not know.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from rebalancer.kube.client import JSON, Client
from rebalancer.kube.failures import TransportError, refusal, status_of
from rebalancer.kube.pages import Listing
from rebalancer.kube.resources import NODE_METRICS, Resource, Rule
from rebalancer.kube.transport import Stream
from rebalancer.snapshot.build import Fold
from rebalancer.snapshot.feed import feed
from rebalancer.snapshot.items import ItemScanner
from rebalancer.wire.lists import item_decoder
from rebalancer.wire.metrics import NodeMetrics, PodMetrics

_PIECE = 1 << 19
_LONGEST_REFUSAL = 1 << 14
_ADVICE = (
    "Install metrics-server (https://github.com/kubernetes-sigs/metrics-server); where it is installed,"
    " `kubectl describe apiservice v1beta1.metrics.k8s.io` says why it does not answer"
)


@dataclass(slots=True)
class MetricsList:
    """One list of the metrics API as it was read."""

    listing: Listing
    fold: Fold
    """Holds nothing but what was measured."""
    count: int = 0
    trouble: str | None = None
    """Why nothing is known, if so."""


def read_metrics(client: Client, resource: Resource, stop: threading.Event) -> MetricsList:
    """Read NodeMetrics or PodMetrics. There is one attempt: if it fails, ``trouble`` says why.

    ``stop`` ends it before its end.

    Raises:
        ForbiddenError: RBAC; names the rule.
        ClusterReadError: our credentials were not accepted.
    """
    found = MetricsList(Listing(resource), Fold())
    started = client.monotonic()
    try:
        stream = client.open_list(resource.path(), accept=JSON)
        complete = False
        try:
            _require_list(stream, resource, client.server)
            feed(found.fold, resource.kind, _objects(client, stream, found, stop))
            complete = not stop.is_set()
        finally:
            if complete:
                stream.give_back()
            else:
                stream.close()
    except (TransportError, _NoListError) as error:
        found.trouble = str(error)
    found.listing.seconds = client.monotonic() - started
    return found


def usage_notes(lists: Sequence[MetricsList]) -> tuple[str, ...]:
    """Return what a report should say of lists that are not there, and what to do about it."""
    troubles: dict[str, list[str]] = {}
    for found in lists:
        if found.trouble is not None:
            resource = found.listing.resource
            troubles.setdefault(found.trouble, []).append(f"{resource.plural}.{resource.group}")
    if not troubles:
        return ()
    said = "; ".join(f"{' and '.join(names)}: {why}" for why, names in troubles.items())
    return (f"usage is not known: {said}. {_ADVICE}",)


class _NoListError(Exception):
    """What was answered is no list; says why."""


def _require_list(stream: Stream, resource: Resource, server: str) -> None:
    if stream.status == 200:
        return
    body = stream.read_up_to(_LONGEST_REFUSAL)
    if stream.status in (401, 403):
        rule = Rule("list", resource.group, resource.plural)
        raise refusal(stream.status, body, rule, server)
    if stream.status == 404:
        raise _NoListError("the API server does not serve them")
    raise _NoListError(f"HTTP {stream.status} ({status_of(body).message or 'no text'})")


def _objects(
    client: Client, stream: Stream, found: MetricsList, stop: threading.Event
) -> Iterator[NodeMetrics | PodMetrics]:
    """Yield the objects of a list; one that is none was not measured."""
    kind, listing, deadline = found.listing.resource.kind, found.listing, client.deadline()
    scanner, decoder = ItemScanner(), item_decoder(found.listing.resource.kind)
    while piece := stream.read_up_to(_PIECE):
        listing.read_bytes += len(piece)
        if stop.is_set():
            return
        if client.monotonic() > deadline:
            raise _NoListError(f"too slow: {listing.read_bytes} bytes until the deadline")
        for item in scanner.feed(piece):
            found.count += 1
            try:
                yield decoder.decode(item.text)
            except msgspec.DecodeError:
                continue
    if not scanner.complete or _kind_of(bytes(scanner.envelope)) != f"{kind}List":
        raise _NoListError(f"what was answered is no list of {kind}, or broke off")
    if not found.count and found.listing.resource is NODE_METRICS:
        raise _NoListError("no node has been measured yet")
    listing.pages = 1


class _Kind(msgspec.Struct):
    kind: str = ""


def _kind_of(envelope: bytes) -> str:
    try:
        return msgspec.json.decode(envelope, type=_Kind).kind
    except msgspec.DecodeError:
        return ""
