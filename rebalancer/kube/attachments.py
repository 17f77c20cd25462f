"""List the VolumeAttachments of one node: each stands until its volume is detached."""

from __future__ import annotations

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.resources import AccessRule
from rebalancer.wire.kinds import VOLUME_ATTACHMENTS

LIST_ATTACHMENTS = AccessRule("list", VOLUME_ATTACHMENTS.group, VOLUME_ATTACHMENTS.plural)
_PAGE = 500


def list_attachments(client: Client, node: str) -> list[str]:
    """Return the names of the volumes that are attached to a node, or are being detached from it, sorted.

    The API server selects them by no field of theirs, so that those of all nodes are listed, in pages.

    Raises:
        ForbiddenError: we may not list them.
        ClusterReadError: they could not be listed.
    """
    volumes: list[str] = []
    token: str | None = ""
    while token is not None:
        query: dict[str, str | int] = {"limit": _PAGE, **({"continue": token} if token else {})}
        response = client.get(VOLUME_ATTACHMENTS.path(), query=query)
        body = client.expect(response, LIST_ATTACHMENTS).body
        try:
            page = _pages.decode(body)
        except (ValueError, RecursionError) as error:
            raise ClusterReadError(
                f"the API server's answer is not a list of VolumeAttachments: {error}"
            ) from None
        of_node = (one for one in page.items if one.spec.node_name == node)
        volumes += (one.spec.source.persistent_volume_name or one.metadata.name for one in of_node)
        token = page.metadata.continue_ or None
    return sorted(volumes)


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


class _ListMeta(msgspec.Struct):
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    items: tuple[_Attachment, ...]
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


_pages = msgspec.json.Decoder(_Page)
