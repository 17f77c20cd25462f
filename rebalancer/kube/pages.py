"""Read lists page by page, as one consistent state."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import JSON, Client
from rebalancer.kube.failures import StatusError, status_of
from rebalancer.kube.resources import AccessRule
from rebalancer.kube.transport import Response
from rebalancer.wire.kinds import Resource
from rebalancer.wire.objects import ListMeta
from rebalancer.wire.protobuf import BrokenListError

T = TypeVar("T")

Decode = Callable[[Response], tuple[T, ListMeta]]
"""Turns one answer into whatever the reader wants of a page, and the list's metadata."""

_RESTARTS = 1


class ListExpiredError(ClusterReadError):
    """The list's version was compacted between two pages; the pages read so far must be discarded."""


@dataclass(slots=True)
class Listing:
    """One list being read: its size and version, filled while it is read."""

    resource: Resource
    items_version: str = ""
    """resourceVersion of the list: where a watch may go on from."""
    content_type: str = ""
    """In which it came."""
    server_date: float | None = None
    """The server's clock at the first page, Unix seconds."""
    local_date: float = 0.0
    """Our clock at the same moment, by the client's monotonic clock."""
    read_bytes: int = 0
    pages: int = 0
    notes: list[str] = field(default_factory=list)


def read_pages(
    client: Client,
    listing: Listing,
    decode: Decode[T],
    *,
    page_size: int,
    selector: str = "",
    accept: str = JSON,
    may_restart: bool = True,
) -> Generator[T, None, None]:
    """Yield the decoded pages of a list, each requested only when the previous one is used up.

    ``selector`` is a field selector. All pages belong to one version of the list (the server keeps it by the
    continue token). If that version is compacted, :class:`ListExpiredError` is raised and the caller starts again;
    with ``may_restart`` false the remaining pages come from a newer version, and a note says so.

    Raises:
        ListExpiredError: see above.
        ForbiddenError: RBAC denied it; names the rule.
        ClusterReadError: the list could not be read completely.
    """
    resource = listing.resource
    query: dict[str, str | int] = {"limit": page_size}
    query |= {"fieldSelector": selector} if selector else {}
    rule = AccessRule("list", resource.group, resource.plural)
    path = resource.path()
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
        decoded, meta = _decode(response, decode, resource)
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


def _decode(response: Response, decode: Decode[T], resource: Resource) -> tuple[T, ListMeta]:
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
        # An empty object decodes as an empty list; only a real list has a version.
        raise StatusError(
            response.status,
            f"the answer to list {resource.plural} has no resourceVersion: it is not a list of the API"
            f" server, or broke off",
        )
    return decoded, meta
