"""The pods that are still on nodes to be emptied."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rebalancer.base.plain_text import and_more
from rebalancer.kube.client import Client
from rebalancer.kube.node_pods import NodePods, read_node_pods
from rebalancer.machines.drain.triage import (
    EVERY,
    Fate,
    FateReason,
    Orders,
    Triaged,
    triage_pods,
)
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
    """Evicted only if a flag says so; they came after the pre-flight."""

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
