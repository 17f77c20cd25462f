"""The pods that have to leave a node, read for this node only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.base.plain_text import and_more
from rebalancer.kube.node_pods import read_node_pods
from rebalancer.kube.nodes import read_node
from rebalancer.machines.drain.triage import Fate, FateReason, Orders, Triaged, triaged
from rebalancer.machines.interruption.model import StepContext
from rebalancer.snapshot.model import Snapshot

_ALL = Orders(
    force=True,
    delete_emptydir_data=True,
    ignore_daemonsets=True,
    evict_batch=True,
    evict_gangs=True,
)
"""With the machine every pod goes: only those that belong to the node stay to its end."""
_VERSION = (1, 36)
"""Pods are read for what they are, and not for where they would land: any version does."""


@dataclass(frozen=True, slots=True)
class PodToLeave:
    """A pod that has to leave."""

    namespace: str
    name: str
    uid: str
    terminating: bool
    grace: int
    """Its own grace period in seconds."""

    @property
    def ref(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


def pods_to_leave(context: StepContext) -> list[PodToLeave]:
    """Return the pods of the node that have to leave: no DaemonSet, static or finished pods.

    Empty if another Node has its name now: that Node's pods are not on the machine that goes.

    Raises:
        ClusterReadError: the pods could not be read.
    """
    pods = read_node_pods(context.client, [context.node], clock=context.unix, version=_VERSION)
    node = read_node(context.client, context.node)
    if node is not None and node.uid != context.interruption.uid:
        return []
    snapshot = pods.living
    every = triaged(snapshot, np.ones(len(snapshot.nodes), bool), _ALL)
    return [_pod(snapshot, one) for one in every if one.fate is not Fate.STAY]


def _pod(snapshot: Snapshot, one: Triaged) -> PodToLeave:
    namespace, _, name = snapshot.pod_ref(one.pod).partition("/")
    spec = snapshot.classes[int(snapshot.pods.cls[one.pod])].spec
    return PodToLeave(
        namespace,
        name,
        snapshot.pods.uid[one.pod],
        terminating=one.why is FateReason.TERMINATING,
        grace=_grace(spec.termination_grace_period_seconds),
    )


def _grace(seconds: int | None) -> int:
    # What the API server writes where a pod says nothing.
    return 30 if seconds is None else seconds


def shown(pods: Sequence[PodToLeave]) -> str:
    """Return the pods as text."""
    refs = [f"{pod.ref}{' (terminating)' if pod.terminating else ''}" for pod in pods]
    return f"{len(pods)} on the node: {and_more(refs, 5)}"
