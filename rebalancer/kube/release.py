"""Find the objects of an installed release by the chart's labels, for people who do not know their names."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rebalancer.base.errors import ClusterReadError, PolicyError
from rebalancer.kube.client import Client
from rebalancer.kube.failures import ForbiddenError
from rebalancer.kube.resources import AccessRule
from rebalancer.wire.kinds import CONFIG_MAPS

LABEL = "app.kubernetes.io/name=kube-rebalancer"
"""Of all objects of the chart."""
_OF_MEMORY = "-memory"
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

Reference = tuple[str, str]
"""Namespace and name."""


class _Metadata(msgspec.Struct):
    name: str
    namespace: str


class _Item(msgspec.Struct):
    metadata: _Metadata


class _Items(msgspec.Struct):
    items: list[_Item]


def list_memories(client: Client) -> list[Reference]:
    """Return the ConfigMaps with the memory of each release, of all namespaces, or else of the context's.

    Raises:
        ClusterReadError: our account may not list ConfigMaps there, or they could not be read.
    """
    try:
        return _list(client, "")
    except ForbiddenError:
        if not client.namespace:
            raise
        return _list(client, client.namespace)


def _list(client: Client, namespace: str) -> list[Reference]:
    path = CONFIG_MAPS.path(namespace)
    response = client.get(path, query={"labelSelector": LABEL}, accept=_METADATA)
    rule = AccessRule("list", CONFIG_MAPS.group, CONFIG_MAPS.plural, namespace)
    try:
        items = msgspec.json.decode(client.expect(response, rule).body, type=_Items).items
    except (ValueError, RecursionError):
        raise ClusterReadError("what was answered for a list of ConfigMaps is none") from None
    every = ((one.metadata.namespace, one.metadata.name) for one in items)
    return sorted(ref for ref in every if ref[1].endswith(_OF_MEMORY))


def find_memory(client: Client) -> Reference:
    """Return the ConfigMap with the memory of the release in this cluster.

    Raises:
        PolicyError: there are several.
        ClusterReadError: there is none, or it could not be searched for.
    """
    try:
        memories = list_memories(client)
    except ForbiddenError as error:
        raise ClusterReadError(
            f"the memory is searched for by the chart's label: name it with --memory NAMESPACE/NAME, or\n{error}"
        ) from error
    if not memories:
        raise ClusterReadError(
            f"no release has a memory here: no ConfigMap with the label {LABEL} has a name that ends with"
            f" {_OF_MEMORY}; --memory NAMESPACE/NAME names another"
        )
    if len(memories) > 1:
        raise PolicyError([f"there are several releases; write {list_flags(memories)}"])
    return memories[0]


def list_flags(memories: Sequence[Reference]) -> str:
    """Return the flags that name each of these ConfigMaps."""
    return " or ".join(f"--memory {'/'.join(one)}" for one in memories)


def lease_of(memory: Reference) -> Reference:
    """Return the Lease of the release that has this memory: the chart names both after the release."""
    namespace, name = memory
    return namespace, name.removesuffix(_OF_MEMORY)
