"""Read the pods of a few nodes only, for a drain that waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.failures import says_missing
from rebalancer.kube.lists import Listing, read_pages, restarting
from rebalancer.kube.resources import AccessRule
from rebalancer.kube.transport import Response
from rebalancer.snapshot.build import Fold
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire import objects as o
from rebalancer.wire.kinds import PODS, Resource
from rebalancer.wire.objects import ListMeta
from rebalancer.wire.pods import FINISHED, PodRecord, decode_page
from rebalancer.wire.times import unix_seconds

DAEMON_SETS = Resource("DaemonSet", "apps", "v1", "daemonsets")
READ_DAEMON_SET = AccessRule.of("get", DAEMON_SETS)
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

    If the pod is deleted before, its result is lost: the Job or the Workflow would count the work as failed.
    """


@dataclass(frozen=True, slots=True)
class NodePods:
    """The pods on some nodes."""

    living: Snapshot
    """The snapshot of these nodes and their living pods; finished pods are in its ``finished``."""
    finished: tuple[Finished, ...]
    overdue: Mapping[str, float] = field(default_factory=dict)
    """``namespace/name`` of the pods that are being deleted -> seconds since the end of their grace period."""


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
            for pod in page.items or ()
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
    if says_missing(response.status, response.body):
        return True
    client.expect(response, READ_DAEMON_SET)
    return False


class _Meta(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    deletion_timestamp: str = msgspec.field(default="", name="deletionTimestamp")
    labels: dict[str, str] | None = None
    finalizers: tuple[str, ...] | None = None


class _Status(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    status: _Status = msgspec.field(default_factory=_Status)


class _Page(msgspec.Struct):
    items: tuple[_Pod, ...] | None
    kind: str = ""


_pages = msgspec.json.Decoder(_Page)


def _list_finished(page: _Page, node: str) -> list[Finished]:
    return [
        Finished(pod.metadata.namespace, pod.metadata.name, node, _unread(pod.metadata))
        for pod in page.items or ()
        if pod.status.phase in FINISHED
    ]


def _unread(meta: _Meta) -> str | None:
    if meta.finalizers:
        # The Job controller counts a pod before it takes its finalizer away; so does Argo's.
        return f"finalizer {meta.finalizers[0]}"
    labels = meta.labels or {}
    if _WORKFLOW in labels and labels.get(_WORKFLOW_READ) != "true":
        return f"Workflow {labels[_WORKFLOW]}"
    return None
