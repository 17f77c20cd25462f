"""The pods left on a node that is emptied, and reasons to delay the end of its machine once it is empty."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rebalancer.base.plain_text import and_more
from rebalancer.kube.client import Client
from rebalancer.kube.failures import ForbiddenError
from rebalancer.kube.node_pods import NodePods, read_node_pods
from rebalancer.kube.nodes import read_node
from rebalancer.kube.seldom_read import list_attachments
from rebalancer.machines.drain.triage import (
    EVERY,
    Fate,
    Orders,
    Triaged,
    triage_pods,
)
from rebalancer.machines.reasons import FateReason
from rebalancer.snapshot.model import Snapshot


@dataclass(frozen=True, slots=True)
class RemainingPods:
    """Pods that are still on the nodes, as ``node: namespace/name``."""

    to_evict: tuple[str, ...] = ()
    batch: tuple[str, ...] = ()
    """Their work comes to an end by itself, as does the time of an annotation."""
    terminating: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    """Finished, and their result is not read yet."""
    refused: tuple[str, ...] = ()
    """Pods that are evicted only with a flag, and came after the pre-flight."""

    @property
    def pods(self) -> int:
        """The number of pods."""
        every = (self.to_evict, self.batch, self.terminating, self.unread, self.refused)
        return sum(map(len, every))

    def __bool__(self) -> bool:
        return self.pods > 0

    def text(self) -> str:
        """Return the remaining pods as text."""
        parts = [
            ("to evict", self.to_evict),
            ("batch", self.batch),
            ("terminating", self.terminating),
            ("finished, not read yet", self.unread),
            ("refused", self.refused),
        ]
        return "; ".join(f"{len(pods)} {what}: {name_few(pods)}" for what, pods in parts if pods)


def name_few(pods: Sequence[str]) -> str:
    """Return the first of some pods, and how many more there are."""
    return and_more(pods, 3)


def list_remaining(pods: NodePods, orders: Orders) -> RemainingPods:
    """Return the pods that are still on nodes.

    A deleted pod counts until its object is gone, even if its containers have ended. kubectl waits for that, too,
    except for pods whose end is overdue for longer than the order allows.
    """
    longest = orders.skip_wait_for_delete or math.inf
    given_up = {ref for ref, seconds in pods.overdue.items() if seconds > longest}
    unread = {
        f"{one.node}: {one.namespace}/{one.name}": one.unread
        for one in pods.finished
        if one.unread is not None
    }
    every = list(_name_awaited(pods.living, orders, given_up))
    ended = (
        ()
        if pods.living.finished is None
        else _name_awaited(pods.living.finished, orders, given_up)
    )

    def of(fate: Fate, *why: FateReason) -> Iterator[str]:
        return (pod for one, pod in every if one.fate is fate and (not why or one.why in why))

    return RemainingPods(
        to_evict=tuple(of(Fate.EVICT)),
        # What waits for a rollout is no batch, but keeps its node as batch does.
        batch=tuple(of(Fate.WAIT, FateReason.BATCH, FateReason.OPTED_OUT, FateReason.ROLLOUT)),
        terminating=(
            *of(Fate.WAIT, FateReason.TERMINATING),
            *(pod for one, pod in ended if one.why is FateReason.TERMINATING and pod not in unread),
        ),
        unread=tuple(f"{pod} ({by})" for pod, by in unread.items()),
        refused=tuple(of(Fate.REFUSE)),
    )


def _name_awaited(
    snapshot: Snapshot, orders: Orders, given_up: Collection[str]
) -> Iterator[tuple[Triaged, str]]:
    """Yield (pod and its fate, ``node: namespace/name``), without pods that are no longer awaited."""
    for one in triage_pods(snapshot, np.ones(len(snapshot.nodes), bool), orders):
        node = snapshot.nodes.names[int(snapshot.pods.node[one.pod])]
        if one.why is not FateReason.TERMINATING or snapshot.pod_ref(one.pod) not in given_up:
            yield one, f"{node}: {snapshot.pod_ref(one.pod)}"


def describe_remaining(
    client: Client,
    name: str,
    *,
    clock: Callable[[], float],
    version: tuple[int, int],
    ready: bool,
) -> str:
    """Describe the pods that still block the termination; empty if all pods are bound to the node.

    On a node that is not ``ready`` no pod ever finishes terminating. That no pod is left is confirmed by a second
    read.

    Raises:
        ClusterReadError: the pods could not be read.
    """
    for _ in range(2):
        left = list_remaining(read_node_pods(client, [name], clock=clock, version=version), EVERY)
        if not ready:
            left = replace(left, terminating=(), unread=())
        if left:
            break
    return left.text()


MAX_DELAY = 120.0
"""Seconds for which an empty node is waited for at most (Cluster Autoscaler's ``--node-deletion-delay-timeout``), as
there: then its machine is ended all the same."""
EXCLUDED = 15.0
"""Seconds from the node's exclusion from load balancers to its end: connections that come through the node would break."""
_DELAYS = "delay-deletion.cluster-autoscaler.kubernetes.io/"
"""How the annotations begin by which clients delay the end of a machine (Cluster Autoscaler's FAQ)."""
_SHOWN = 2


def delay_of(client: Client, name: str, warn: Callable[[str], None]) -> str | None:
    """Return why the end of an empty node's machine is delayed; None if it is not.

    A client may ask for a delay by an annotation, such as Cluster Autoscaler's; and a volume that is still attached
    could not be attached elsewhere for minutes. The node's status names a volume until its detachment begins, the
    VolumeAttachment exists until it has ended (the attach-detach controller's reconciler). Without the right to list
    these only the status is used, and ``warn`` gets a sentence about it.

    Raises:
        ClusterReadError: the node or the VolumeAttachments could not be read.
    """
    node = read_node(client, name)
    if node is None:
        return None
    for key in sorted(node.annotations):
        if key.startswith(_DELAYS):
            return f"it is annotated {key}"
    if node.volumes:
        return f"volumes are attached to it: {and_more(node.volumes, _SHOWN)}"
    try:
        attached = list_attachments(client, name)
    except ForbiddenError as error:
        warn(f"VolumeAttachments are not waited for: {error}")
        return None
    return f"volumes are detached from it: {and_more(attached, _SHOWN)}" if attached else None
