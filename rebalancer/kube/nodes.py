"""Read one Node, and change our fields of it: the cordon, annotations, taints.

A change is a merge patch with the uid and the resourceVersion that were read as preconditions, so that it never
overwrites a concurrent change of another client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.failures import StatusError, TransportError, says_missing
from rebalancer.kube.resources import AccessRule
from rebalancer.wire.kinds import NODES

Annotated = TypeVar("Annotated", bound=msgspec.Struct)
TaintJson = Mapping[str, Any]
"""A taint as in JSON."""

READ_NODE = AccessRule("get", "", NODES.plural)
CHANGE_NODE = AccessRule("patch", "", NODES.plural)
_SECONDS = 10.0
"""For one read or change: an API server that answers takes milliseconds, and a pod may be waiting for a mark."""
_ATTEMPTS = 5
"""The kubelet and the node controller write a node every few seconds."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """A Node at one moment."""

    name: str
    uid: str
    resource_version: str
    unschedulable: bool
    annotations: Mapping[str, str]
    provider_id: str
    """Name of the machine at its provider; may be empty."""
    taints: tuple[TaintJson, ...]
    """With every field that the server sent: ``timeAdded`` of another client's taint is not to be lost."""
    labels: Mapping[str, str] = field(default_factory=dict)
    kubelet: str = ""
    """Version of the kubelet, empty where it is not known."""
    volumes: tuple[str, ...] = ()
    """Those that are attached to it, as the attach-detach controller names them."""

    def parse_annotation(self, name: str, kind: type[Annotated]) -> Annotated | None:
        """Return the parsed content of our annotation; None if it is missing or malformed."""
        text = self.annotations.get(name)
        try:
            return None if text is None else msgspec.json.decode(text, type=kind)
        except (ValueError, RecursionError):
            return None


@dataclass(frozen=True, slots=True)
class NodeChange:
    """The fields of a Node to change; other fields stay."""

    unschedulable: bool | None = None
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    """Name -> value; None removes the annotation."""
    taints: tuple[TaintJson, ...] | None = None
    """All taints that the node is to have, those of others included."""
    labels: Mapping[str, str | None] = field(default_factory=dict)
    """Name -> value; None removes the label."""

    def body(self, node: NodeView) -> bytes:
        """Return the merge patch that changes ``node``."""
        metadata: dict[str, Any] = {"uid": node.uid, "resourceVersion": node.resource_version}
        if self.annotations:
            metadata["annotations"] = dict(self.annotations)
        if self.labels:
            metadata["labels"] = dict(self.labels)
        spec: dict[str, Any] = {}
        if self.unschedulable is not None:
            spec["unschedulable"] = self.unschedulable or None
        if self.taints is not None:
            spec["taints"] = list(self.taints) or None
        return msgspec.json.encode({"metadata": metadata, **({"spec": spec} if spec else {})})


def read_node(client: Client, name: str) -> NodeView | None:
    """Return the current Node of this name; None if there is none.

    Raises:
        ClusterReadError: it could not be read.
    """
    response = client.get(NODES.path(name=name), seconds=_SECONDS)
    if says_missing(response.status, response.body):
        return None
    return _view(client.expect(response, READ_NODE).body)


def change_node(
    client: Client, name: str, wanted: Callable[[NodeView], NodeChange | None]
) -> NodeView | None:
    """Change the Node of this name; return its new version, or None if there is none.

    ``wanted`` returns the change for the Node as read, or None to change nothing. It is called again with a newer
    version after a conflict with another client, or after a lost response.

    Raises:
        ClusterReadError: the Node could not be read or written.
    """
    trouble = ClusterReadError(f"node {name} changes faster than it can be written")
    for _ in range(_ATTEMPTS):
        node = read_node(client, name)
        change = None if node is None else wanted(node)
        if node is None or change is None:
            return node
        try:
            body = change.body(node)
            response = client.patch(NODES.path(name=name), body, seconds=_SECONDS)
        except TransportError as error:
            if not error.sent or error.final:
                raise
            trouble = error
            continue
        if response.status == 409:
            continue
        if response.status >= 500:
            trouble = StatusError(
                response.status, f"node {name} could not be patched: HTTP {response.status}"
            )
            continue
        return _view(client.expect(response, CHANGE_NODE).body)
    raise trouble


class _Spec(msgspec.Struct):
    unschedulable: bool = False
    provider_id: str = msgspec.field(default="", name="providerID")
    taints: tuple[dict[str, Any], ...] | None = None


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    uid: str
    resource_version: str
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None


class _Volume(msgspec.Struct):
    name: str = ""


class _NodeInfo(msgspec.Struct, rename="camel"):
    kubelet_version: str = ""


class _Status(msgspec.Struct, rename="camel"):
    node_info: _NodeInfo = msgspec.field(default_factory=_NodeInfo)
    volumes_attached: tuple[_Volume, ...] | None = None


class _Node(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_decoder = msgspec.json.Decoder(_Node)


def _view(body: bytes) -> NodeView:
    try:
        node = _decoder.decode(body)
    except (ValueError, RecursionError) as error:
        raise ClusterReadError(f"the API server's answer is not a node: {error}") from None
    meta = node.metadata
    return NodeView(
        meta.name,
        meta.uid,
        meta.resource_version,
        node.spec.unschedulable,
        meta.annotations or {},
        node.spec.provider_id,
        node.spec.taints or (),
        meta.labels or {},
        node.status.node_info.kubelet_version,
        tuple(volume.name for volume in node.status.volumes_attached or ()),
    )
