"""One ConfigMap that runs keep something in: read it, replace its data, never create it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.resources import AccessRule
from rebalancer.wire.kinds import CONFIG_MAPS

MAX_BYTES = 1_000_000
"""Bytes of data; the API's limit is 1 MiB for the whole object."""


class ConfigMapConflictError(ClusterReadError):
    """Another client has changed the ConfigMap since it was read: read it again."""


@dataclass(frozen=True, slots=True)
class StoredMap:
    """The ConfigMap as it was read."""

    data: Mapping[str, str]
    resource_version: str
    _object: Mapping[str, Any]
    """All of it, so that labels and annotations of others survive."""

    @property
    def uid(self) -> str:
        """Its uid, empty if the server has named none."""
        return str(self._object.get("metadata", {}).get("uid") or "")


class ConfigMapStore:
    """The ConfigMap ``name`` in ``namespace``."""

    def __init__(
        self, client: Client, namespace: str, name: str, *, after_stop: bool = True
    ) -> None:
        """``after_stop``: calls may go on for some seconds after the client's stop: the outcome of a run is kept also then."""
        self._client = client.last_words if after_stop else client
        self._namespace, self._name = namespace, name
        self._path = CONFIG_MAPS.path(namespace, name)

    def read(self) -> StoredMap | None:
        """Return what is in it; None if there is no such ConfigMap (not installed by the chart).

        Raises:
            ClusterReadError: it could not be read.
        """
        response = self._client.get(self._path)
        if response.status == 404:
            return None
        return self._decode(self._client.expect(response, self._rule("get")).body)

    def write(
        self,
        known: StoredMap,
        data: Mapping[str, str],
        annotations: Mapping[str, str] | None = None,
    ) -> StoredMap:
        """Replace the data of the ConfigMap as it was ``known``, and set ``annotations``; return what it is now.

        Raises:
            ConfigMapConflictError: it has changed meanwhile, or is gone.
            ClusterReadError: it could not be written.
        """
        size = sum(len(key.encode()) + len(value.encode()) for key, value in data.items())
        if size > MAX_BYTES:
            raise ClusterReadError(
                f"its data has grown to {size} bytes; ConfigMap {self._namespace}/{self._name} holds"
                f" {MAX_BYTES}"
            )
        # The version it was read at makes this a compare-and-swap.
        changed = {**known._object, "data": dict(data)}  # noqa: SLF001
        if annotations:
            metadata = changed["metadata"]
            all_of_them = {**(metadata.get("annotations") or {}), **annotations}
            changed["metadata"] = {**metadata, "annotations": all_of_them}
        response = self._client.put(self._path, msgspec.json.encode(changed))
        if response.status in (404, 409):
            raise ConfigMapConflictError(
                f"ConfigMap {self._namespace}/{self._name} was changed by another client meanwhile"
            )
        return self._decode(self._client.expect(response, self._rule("update")).body)

    def _rule(self, verb: str) -> AccessRule:
        return AccessRule(verb, "", CONFIG_MAPS.plural, self._namespace, self._name)

    def _decode(self, body: bytes) -> StoredMap:
        try:
            shape = msgspec.json.decode(body, type=_Shape)
            whole = msgspec.json.decode(body, type=dict[str, Any])
        except (ValueError, RecursionError):
            raise ClusterReadError(
                f"what was answered for ConfigMap {self._namespace}/{self._name} is no ConfigMap"
            ) from None
        return StoredMap(
            data=shape.data or {}, resource_version=shape.metadata.resource_version, _object=whole
        )


class _Shape(msgspec.Struct):
    """The fields that a ConfigMap must have."""

    class Meta(msgspec.Struct, rename="camel"):
        resource_version: str

    metadata: Meta
    data: dict[str, str] | None = None
