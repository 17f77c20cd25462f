"""Read one Node, and change our fields of it: the cordon, annotations, taints, conditions.

A change is a patch with the uid and the resourceVersion that were read as preconditions, so that it never overwrites
a concurrent change of another client. Conditions are changed by a strategic merge patch of the status: the API server
merges them by type, so that the conditions of other clients are kept. The kubelet patches in the same way, and keeps ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.failures import StatusError, TransportError, says_missing
from rebalancer.kube.resources import AccessRule
from rebalancer.wire.kinds import NODES

TaintJson = Mapping[str, Any]
"""A taint as in JSON."""

READ_NODE = AccessRule.of("get", NODES)
CHANGE_NODE = AccessRule.of("patch", NODES)
CHANGE_CONDITIONS = AccessRule("patch", "", f"{NODES.plural}/status")
ConditionJson = Mapping[str, Any]
"""A condition in JSON; in a patch, fields that are not named are kept, and ``$patch: delete`` removes the condition of that type."""
_SECONDS = 10.0
"""Seconds for one read or change: a responsive API server needs milliseconds, and a pod may be waiting for a mark."""
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
    """The volumes that are attached to it, by the attach-detach controller's names."""
    conditions: tuple[ConditionJson, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeChange:
    """The fields of a Node to change; other fields are not changed."""

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

    def patch(node: NodeView) -> _Patch | None:
        change = wanted(node)
        return None if change is None else _Patch(NODES.path(name=name), change.body(node))

    return _patch_node(client, name, patch)


def change_conditions(
    client: Client, name: str, wanted: Callable[[NodeView], Sequence[ConditionJson]]
) -> NodeView | None:
    """Change conditions of the Node of this name; return its new version, or None if there is none.

    ``wanted`` returns the conditions to merge into those of the Node as read; none changes nothing. It is called again
    as by :func:`change_node`.

    Raises:
        ClusterReadError: the Node could not be read, or its status not be written.
    """

    def patch(node: NodeView) -> _Patch | None:
        conditions = wanted(node)
        if not conditions:
            return None
        metadata = {"uid": node.uid, "resourceVersion": node.resource_version}
        body = msgspec.json.encode(
            {"metadata": metadata, "status": {"conditions": list(conditions)}}
        )
        return _Patch(f"{NODES.path(name=name)}/status", body, _STRATEGIC, CHANGE_CONDITIONS)

    return _patch_node(client, name, patch)


_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"


@dataclass(frozen=True, slots=True)
class _Patch:
    path: str
    body: bytes
    content_type: str = _MERGE
    rule: AccessRule = CHANGE_NODE


def _patch_node(
    client: Client, name: str, wanted: Callable[[NodeView], _Patch | None]
) -> NodeView | None:
    trouble = ClusterReadError(f"node {name} changes faster than it can be written")
    for _ in range(_ATTEMPTS):
        node = read_node(client, name)
        patch = None if node is None else wanted(node)
        if node is None or patch is None:
            return node
        try:
            response = client.patch(
                patch.path, patch.body, content_type=patch.content_type, seconds=_SECONDS
            )
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
        return _view(client.expect(response, patch.rule).body)
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
    conditions: tuple[dict[str, Any], ...] | None = None


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
        node.status.conditions or (),
    )
