"""Read a few Nodes and their pods, and change our fields of a Node: the cordon, annotations, taints.

A change is a merge patch with the uid and the resourceVersion that were read as preconditions, so that it never
overwrites a concurrent change of another client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.failures import StatusError, TransportError, status_of
from rebalancer.kube.lists import Listing, read_pages, restarting
from rebalancer.kube.resources import AccessRule
from rebalancer.kube.transport import Response
from rebalancer.snapshot.build import Fold
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire import objects as o
from rebalancer.wire.kinds import NODES, PODS, Resource
from rebalancer.wire.objects import ListMeta
from rebalancer.wire.pods import FINISHED, PodRecord, decode_page
from rebalancer.wire.times import unix_seconds

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
    if response.status == 404 and status_of(response.body).code == 404:
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


DAEMON_SETS = Resource("DaemonSet", "apps", "v1", "daemonsets")
READ_DAEMON_SET = AccessRule("get", DAEMON_SETS.group, DAEMON_SETS.plural)
_KIND = "PodList"
_PAGE = 500
"""Pods of one answer; few nodes have more."""
_WORKFLOW = "workflows.argoproj.io/workflow"
_WORKFLOW_READ = "workflows.argoproj.io/completed"


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished pod that is still on its node."""

    namespace: str
    name: str
    node: str
    unread: str | None
    """The controller that has not read its result yet, in words; None once all have.

    Its result would be lost with it: the Job or the Workflow would take the work for failed.
    """


@dataclass(frozen=True, slots=True)
class NodePods:
    """The pods on some nodes."""

    living: Snapshot
    """Of these nodes and their pods alone; those that have ended are in its ``finished``."""
    finished: tuple[Finished, ...]
    overdue: Mapping[str, float] = field(default_factory=dict)
    """``namespace/name`` of the pods that are being deleted -> the seconds for which their time to end is over."""


def read_node_pods(
    client: Client, names: Sequence[str], *, clock: Callable[[], float], version: tuple[int, int]
) -> NodePods:
    """Return the pods on the nodes ``names``. Only complete lists count: machines are terminated if they are empty.

    Raises:
        ClusterReadError: the pods could not be read, or the list of a node's pods is incomplete.
    """
    fold = Fold(FINISHED)
    fold.add("Node", [o.Node(metadata=o.ObjectMeta(name=name)) for name in names])
    finished, ends = list[Finished](), dict[str, float]()
    now = clock()
    for name in names:
        read = restarting(partial(_read, client, name))
        now = read.date or now
        fold.add_pods(read.records)
        finished += read.finished
        ends |= read.ends
    overdue = {ref: now - end for ref, end in ends.items() if end < now}
    return NodePods(fold.finish(captured_at=now, version=version), tuple(finished), overdue)


@dataclass(slots=True)
class _Pods:
    """All pods of one node."""

    date: float | None = None
    """The server's time, Unix seconds."""
    records: list[PodRecord] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)
    ends: dict[str, float] = field(default_factory=dict)
    """``namespace/name`` of the pods that are being deleted -> by when they should have ended, Unix seconds."""


def _read(client: Client, name: str, may_restart: bool) -> _Pods:
    listing, pods = Listing(PODS), _Pods()
    pages = read_pages(
        client,
        listing,
        partial(_decode, name),
        page_size=_PAGE,
        selector=f"spec.nodeName={name}",
        may_restart=may_restart,
    )
    for records, page in pages:
        pods.records += records
        pods.finished += _list_finished(page, name)
        # It is when the pod's grace period ends ("deletionTimestamp" in the API reference).
        pods.ends |= {
            f"{pod.metadata.namespace}/{pod.metadata.name}": unix_seconds(end)
            for pod in page.items
            if (end := pod.metadata.deletion_timestamp)
        }
    pods.date = listing.server_date
    return pods


def _decode(name: str, response: Response) -> tuple[tuple[list[PodRecord], _Page], ListMeta]:
    try:
        page = _pages.decode(response.body)
        records, meta = decode_page(response.body)
        pods = list(records)
    except (ValueError, RecursionError) as error:
        raise ClusterReadError(f"the pods of node {name} are not understood: {error}") from None
    if page.kind != _KIND:
        what = page.kind or "object without a kind"
        raise ClusterReadError(f"the pods of node {name} were asked for, and a {what} was answered")
    if (other := next((pod.node for pod in pods if pod.node != name), None)) is not None:
        raise ClusterReadError(f"the pods of node {name} were asked for, and one of {other!r} came")
    return (pods, page), meta


def is_missing(client: Client, namespace: str, name: str) -> bool:
    """Return whether no DaemonSet of this name exists.

    Raises:
        ClusterReadError: it could not be read.
    """
    response = client.get(DAEMON_SETS.path(namespace, name))
    if response.status == 404:
        return True
    client.expect(response, READ_DAEMON_SET)
    return False


class _PodMeta(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    deletion_timestamp: str = msgspec.field(default="", name="deletionTimestamp")
    labels: dict[str, str] | None = None
    finalizers: tuple[str, ...] | None = None


class _PodStatus(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _PodMeta = msgspec.field(default_factory=_PodMeta)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _Page(msgspec.Struct):
    kind: str = ""
    items: tuple[_Pod, ...] = ()


_pages = msgspec.json.Decoder(_Page)


def _list_finished(page: _Page, node: str) -> list[Finished]:
    return [
        Finished(pod.metadata.namespace, pod.metadata.name, node, _unread(pod.metadata))
        for pod in page.items
        if pod.status.phase in FINISHED
    ]


def _unread(meta: _PodMeta) -> str | None:
    if meta.finalizers:
        # The Job controller counts a pod before it takes its finalizer away; so does Argo's.
        return f"finalizer {meta.finalizers[0]}"
    labels = meta.labels or {}
    if _WORKFLOW in labels and labels.get(_WORKFLOW_READ) != "true":
        return f"Workflow {labels[_WORKFLOW]}"
    return None
