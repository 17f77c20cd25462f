"""The one ConfigMap that remembers earlier moves: read it, replace it, never create it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.resources import CONFIG_MAPS, AccessRule

LARGEST = 1_000_000
"""Bytes of data; the API's limit is 1 MiB for the whole object."""


class MemoryConflictError(ClusterReadError):
    """Another client has changed the ConfigMap since it was read: read it again."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """The ConfigMap as it was read."""

    data: Mapping[str, str]
    resource_version: str
    _object: Mapping[str, Any]
    """All of it, so that labels and annotations of others survive."""


class MemoryStore:
    """The ConfigMap ``name`` in ``namespace``."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        # The outcome of a run is kept also after it had to end.
        self._client = client.last_words
        self._namespace, self._name = namespace, name
        self._path = CONFIG_MAPS.path(namespace, name)

    def read(self) -> Remembered | None:
        """Return what is remembered; None if there is no such ConfigMap (not installed by the chart).

        Raises:
            ClusterReadError: it could not be read.
        """
        response = self._client.get(self._path)
        if response.status == 404:
            return None
        return self._remembered(self._client.expect(response, self._rule("get")).body)

    def write(self, known: Remembered, data: Mapping[str, str]) -> Remembered:
        """Replace the data of the ConfigMap as it was ``known``; return what is remembered now.

        Raises:
            MemoryConflictError: it has changed meanwhile, or is gone.
            ClusterReadError: it could not be written.
        """
        size = sum(len(key.encode()) + len(value.encode()) for key, value in data.items())
        if size > LARGEST:
            raise ClusterReadError(
                f"the memory has grown to {size} bytes; ConfigMap {self._namespace}/{self._name} holds"
                f" {LARGEST}"
            )
        # The version it was read at makes this a compare-and-swap.
        changed = {**known._object, "data": dict(data)}  # noqa: SLF001
        response = self._client.put(self._path, msgspec.json.encode(changed))
        if response.status in (404, 409):
            raise MemoryConflictError(
                f"ConfigMap {self._namespace}/{self._name} was changed by another client meanwhile"
            )
        return self._remembered(self._client.expect(response, self._rule("update")).body)

    def _rule(self, verb: str) -> AccessRule:
        return AccessRule(verb, "", CONFIG_MAPS.plural, self._namespace, self._name)

    def _remembered(self, body: bytes) -> Remembered:
        try:
            shape = msgspec.json.decode(body, type=_Shape)
            whole = msgspec.json.decode(body, type=dict[str, Any])
        except (ValueError, RecursionError):
            raise ClusterReadError(
                f"what was answered for ConfigMap {self._namespace}/{self._name} is no ConfigMap"
            ) from None
        return Remembered(
            data=shape.data or {}, resource_version=shape.metadata.resource_version, _object=whole
        )


class _Shape(msgspec.Struct):
    """What an object must have to be worked with as a ConfigMap."""

    class Meta(msgspec.Struct, rename="camel"):
        resource_version: str

    metadata: Meta
    data: dict[str, str] | None = None
