"""List the VolumeAttachments of one node: each stands until its volume is detached."""

from __future__ import annotations

import msgspec

from rebalancer.kube.client import Client
from rebalancer.kube.lists import PAGE, Listing, read_pages
from rebalancer.wire.kinds import VOLUME_ATTACHMENTS
from rebalancer.wire.lists import JsonDecoder
from rebalancer.wire.objects import ListMeta


def list_attachments(client: Client, node: str) -> list[str]:
    """Return the names of the volumes that are attached to a node, or are being detached from it, sorted.

    The API server selects them by no field of theirs, so that those of all nodes are listed, in pages.

    Raises:
        ForbiddenError: we may not list them.
        ClusterReadError: they could not be listed.
    """
    pages = read_pages(
        client,
        Listing(VOLUME_ATTACHMENTS),
        lambda response: _decode(response.body),
        page_size=PAGE,
        may_restart=False,
    )
    return sorted(
        one.spec.source.persistent_volume_name or one.metadata.name
        for page in pages
        for one in page
        if one.spec.node_name == node
    )


class _Meta(msgspec.Struct):
    name: str


class _Source(msgspec.Struct, rename="camel"):
    persistent_volume_name: str | None = None
    """None where the volume stands in a pod."""


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str
    source: _Source


class _Attachment(msgspec.Struct):
    metadata: _Meta
    spec: _Spec


class _Page(msgspec.Struct):
    items: tuple[_Attachment, ...]
    metadata: ListMeta


_pages = JsonDecoder(_Page)


def _decode(body: bytes) -> tuple[tuple[_Attachment, ...], ListMeta]:
    page = _pages.decode(body)
    return page.items, page.metadata
