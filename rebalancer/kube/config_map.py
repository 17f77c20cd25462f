"""The ConfigMaps in which runs store data: find that of an installed release, read it and replace its data, never create it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from rebalancer.base.errors import ClusterReadError, PolicyError
from rebalancer.kube.failures import ForbiddenError, says_missing
from rebalancer.kube.resources import AccessRule
from rebalancer.wire.kinds import CONFIG_MAPS

if TYPE_CHECKING:
    # Commands that only name a ConfigMap start without the client.
    from rebalancer.kube.client import Client

MAX_BYTES = 1_000_000
"""Bytes of data; the API's limit is 1 MiB for the whole object."""
MAX_ATTEMPTS = 3
"""To write: others may write at the same moment, and replies may be lost."""


class ConfigMapMissingError(ClusterReadError):
    """The ConfigMap does not exist."""


class ConfigMapConflictError(ClusterReadError):
    """Another client has changed the ConfigMap since it was read."""


@dataclass(frozen=True, slots=True)
class StoredMap:
    """A ConfigMap as it was read or written."""

    data: Mapping[str, str]
    resource_version: str
    _object: Mapping[str, Any]
    """All of it, so that labels and annotations of others survive."""

    @property
    def uid(self) -> str:
        """The uid of the ConfigMap; empty if the server sent none."""
        return str(self._object.get("metadata", {}).get("uid") or "")


class ConfigMapStore:
    """The ConfigMap ``name`` in ``namespace``."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        *,
        advice: str = "",
        after_stop: bool = True,
        attempts: int = MAX_ATTEMPTS,
    ) -> None:
        """``advice``: what to do if the ConfigMap is missing, for messages.

        ``after_stop``: calls may continue for some seconds after the client's stop, so that the outcome of a run is
        stored.
        """
        self._client = client.last_words if after_stop else client
        self._attempts = attempts
        self._namespace, self._name, self._advice = namespace, name, advice
        self.name = f"{namespace}/{name}"
        self._path = CONFIG_MAPS.path(namespace, name)
        self._known: StoredMap | None = None
        """As it was read or written last; None after a write that failed."""

    def read(self) -> StoredMap | None:
        """Return the ConfigMap; None if it does not exist (not installed by the chart).

        Raises:
            ClusterReadError: it could not be read.
        """
        response = self._client.get(self._path)
        if says_missing(response.status, response.body):
            return None
        self._known = self._decode(self._client.expect(response, self._rule("get")).body)
        return self._known

    def require(self) -> StoredMap:
        """Return the ConfigMap as last read or written; read it if necessary.

        Raises:
            ConfigMapMissingError: it does not exist.
            ClusterReadError: it could not be read.
        """
        known = self._known or self.read()
        if known is None:
            raise ConfigMapMissingError(
                f"there is no ConfigMap {self.name}: create it (the chart does)"
                f"{self._advice and ', '}{self._advice}"
            )
        return known

    def update(
        self,
        change: Callable[[Mapping[str, str]], Mapping[str, str]],
        annotations: Mapping[str, str] | None = None,
        *,
        always: bool = False,
    ) -> StoredMap:
        """Replace the data by ``change(data)`` and set ``annotations``; return the new ConfigMap.

        After a failed write the ConfigMap is read and changed again: another client may have written, or the
        response was lost. So ``change`` must be idempotent. If neither data nor annotations change, nothing is
        written, unless ``always``: a write shows that the ConfigMap can be written.

        Raises:
            ConfigMapMissingError: the ConfigMap does not exist.
            ConfigMapConflictError: others changed it again and again.
            ClusterReadError: it could not be read or written, or ``change`` raised this.
        """
        left = self._attempts
        while True:
            left -= 1
            try:
                known = self.require()
                data = change(known.data)
                if data == known.data and not annotations and not always:
                    return known
                self._known = self.write(known, data, annotations)
            except ClusterReadError as error:
                self._known = None
                if not left or isinstance(error, ConfigMapMissingError):
                    raise
            else:
                return self._known

    def write(
        self,
        known: StoredMap,
        data: Mapping[str, str],
        annotations: Mapping[str, str] | None = None,
    ) -> StoredMap:
        """Replace the data of the ConfigMap in its version ``known``, and set ``annotations``; return the new version.

        Raises:
            ConfigMapConflictError: it was changed or deleted in the meantime.
            ClusterReadError: it could not be written.
        """
        size = sum(len(key.encode()) + len(value.encode()) for key, value in data.items())
        if size > MAX_BYTES:
            raise ClusterReadError(
                f"its data has grown to {size} bytes; ConfigMap {self.name} holds {MAX_BYTES}"
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
                f"ConfigMap {self.name} was changed by another client meanwhile"
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
                f"what was answered for ConfigMap {self.name} is no ConfigMap"
            ) from None
        return StoredMap(
            data=shape.data or {}, resource_version=shape.metadata.resource_version, _object=whole
        )


class _Shape(msgspec.Struct):
    class Meta(msgspec.Struct, rename="camel"):
        resource_version: str

    metadata: Meta
    data: dict[str, str] | None = None


LABEL = "app.kubernetes.io/name=kube-rebalancer"
"""A label of all objects of the chart."""
_OF_MEMORY = "-memory"
_MAX_FLAGS = 5
"""In a message: whoever may make ConfigMaps may make many with our label."""
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

Reference = tuple[str, str]
"""Namespace and name of an object."""


class _Metadata(msgspec.Struct):
    name: str
    namespace: str


class _Item(msgspec.Struct):
    metadata: _Metadata


class _Items(msgspec.Struct):
    items: list[_Item] | None
    """An API server answers null for an empty list of metadata."""


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
    rule = AccessRule.of("list", CONFIG_MAPS, namespace)
    try:
        items = msgspec.json.decode(client.expect(response, rule).body, type=_Items).items or ()
    except (ValueError, RecursionError):
        raise ClusterReadError("what was answered for a list of ConfigMaps is none") from None
    every = ((one.metadata.namespace, one.metadata.name) for one in items)
    return sorted(ref for ref in every if is_memory(ref))


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
            "the memory is searched for by the chart's label: name it with --memory NAMESPACE/NAME, or",
            *error.lines,
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
    """Return the flags that name each of these ConfigMaps, or the first and how to list all."""
    flags = " or ".join(f"--memory {'/'.join(one)}" for one in memories[:_MAX_FLAGS])
    if (more := len(memories) - _MAX_FLAGS) <= 0:
        return flags
    return f"{flags}, or one of {more} more: kubectl get configmaps -A -l {LABEL}"


def is_memory(reference: Reference) -> bool:
    """Return whether a ConfigMap has the name that the chart gives a memory."""
    return reference[1].endswith(_OF_MEMORY)


def lease_of(memory: Reference) -> Reference:
    """Return the Lease of the release that has this memory: the chart names both after the release."""
    namespace, name = memory
    return namespace, name.removesuffix(_OF_MEMORY)
