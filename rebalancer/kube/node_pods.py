"""The pods of a few nodes, read without all others: what a drain that waits looks at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.resources import PODS, AccessRule, Resource
from rebalancer.snapshot.build import Fold
from rebalancer.snapshot.feed import feed
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.pod_table import FINISHED
from rebalancer.wire import objects as o
from rebalancer.wire.pods import decode_page

DAEMON_SETS = Resource("DaemonSet", "apps", "v1", "daemonsets")
READ_DAEMON_SET = AccessRule("get", DAEMON_SETS.group, DAEMON_SETS.plural)
_LIST = AccessRule("list", "", PODS.plural)
_WORKFLOW = "workflows.argoproj.io/workflow"
_WORKFLOW_READ = "workflows.argoproj.io/completed"


@dataclass(frozen=True, slots=True)
class Finished:
    """A pod that has ended, and still is on its node."""

    namespace: str
    name: str
    node: str
    unread: str | None
    """The controller that has not read its result yet, in words; None once all have.

    Its result would be lost with it: the Job or the Workflow would take the work for failed.
    """


@dataclass(frozen=True, slots=True)
class NodePods:
    """What is on some nodes."""

    living: Snapshot
    """Of these nodes and their pods alone; those that have ended are in its ``finished``."""
    finished: tuple[Finished, ...]


def read_node_pods(
    client: Client, names: Sequence[str], *, clock: Callable[[], float], version: tuple[int, int]
) -> NodePods:
    """Return the pods on the nodes of these names.

    Raises:
        ClusterReadError: they could not be read.
    """
    fold = Fold(FINISHED)
    feed(fold, "Node", [o.Node(metadata=o.ObjectMeta(name=name)) for name in names])
    finished: list[Finished] = []
    now = clock()
    for name in names:
        response = client.get(PODS.path(), query={"fieldSelector": f"spec.nodeName={name}"})
        body = client.expect(response, _LIST).body
        now = response.date or now
        try:
            fold.add_pods(decode_page(body)[0])
            finished += _finished(body, name)
        except (ValueError, RecursionError) as error:
            raise ClusterReadError(f"the pods of node {name} are not understood: {error}") from None
    return NodePods(fold.finish(captured_at=now, version=version), tuple(finished))


def is_missing(client: Client, namespace: str, name: str) -> bool:
    """Return whether there is no DaemonSet of this name.

    Raises:
        ClusterReadError: that could not be read.
    """
    response = client.get(DAEMON_SETS.path(namespace, name))
    if response.status == 404:
        return True
    client.expect(response, READ_DAEMON_SET)
    return False


class _Meta(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
    finalizers: tuple[str, ...] | None = None


class _Status(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    status: _Status = msgspec.field(default_factory=_Status)


class _Page(msgspec.Struct):
    items: tuple[_Pod, ...] = ()


_pages = msgspec.json.Decoder(_Page)


def _finished(body: bytes, node: str) -> list[Finished]:
    return [
        Finished(pod.metadata.namespace, pod.metadata.name, node, _unread(pod.metadata))
        for pod in _pages.decode(body).items
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
