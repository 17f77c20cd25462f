"""Small looks at the cluster while a run is under way."""

from __future__ import annotations

from typing import Any

import msgspec

from rebalancer.kube.client import Client
from rebalancer.kube.pages import Listing, read_pages, restarting
from rebalancer.kube.podview import NarrowPod, PodView
from rebalancer.kube.resources import BUDGETS, NODES, PODS, Resource
from rebalancer.kube.transport import Response
from rebalancer.wire import objects as o
from rebalancer.wire.lists import Page, decode_objects

_PAGE = 500
_pods = msgspec.json.Decoder(Page[NarrowPod])


def list_pods_of(
    client: Client, namespace: str = "", labels: str = ""
) -> tuple[list[PodView], str]:
    """Return the pods of a namespace (or of all) that a label selector selects, finished ones included.

    Second comes the resourceVersion of the list, from which a watch may go on.

    Raises:
        ClusterReadError: they could not be read.
    """

    def decode(response: Response) -> tuple[list[PodView], o.ListMeta]:
        page = _pods.decode(response.body)
        return [pod.view() for pod in page.items or ()], page.metadata

    def read(may_restart: bool) -> tuple[list[PodView], str]:
        listing = Listing(PODS)
        found: list[PodView] = []
        for page in read_pages(
            client,
            listing,
            decode,
            page_size=_PAGE,
            namespace=namespace,
            labels=labels,
            may_restart=may_restart,
        ):
            found.extend(page)
        return found, listing.items_version

    return restarting(read)


def read_budgets(client: Client) -> list[o.PodDisruptionBudget]:
    """Return all PodDisruptionBudgets as they are now. Raises ClusterReadError."""
    return _objects(client, BUDGETS)


def read_nodes_ready(client: Client) -> dict[str, bool]:
    """Return node name -> whether it is Ready now. Raises ClusterReadError."""
    return {
        node.metadata.name: any(
            condition.type == "Ready" and condition.status == "True"
            for condition in node.status.conditions or ()
        )
        for node in _objects(client, NODES)
    }


def _objects(client: Client, resource: Resource) -> list[Any]:
    def read(may_restart: bool) -> list[Any]:
        pages = read_pages(
            client,
            Listing(resource),
            lambda response: decode_objects(resource.kind, response.body),
            page_size=_PAGE,
            may_restart=may_restart,
        )
        return [item for page in pages for item in page]

    return restarting(read)
