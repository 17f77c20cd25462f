"""Stuck: pods that do not become Ready on a node, while their siblings on other nodes do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from rebalancer.api import (
    Duration,
    Params,
    PodState,
    PodTerm,
    Snapshot,
    Strategy,
    Term,
    View,
)

_NOT_READY = ("False", "Unknown")


class StuckParams(Params):
    """Options of stuck."""

    after: Duration = Field(
        default=timedelta(minutes=10),
        description="Pods that have not been Ready for at least this time.",
    )
    reasons: tuple[str, ...] = Field(
        default=(
            "CrashLoopBackOff",
            "ImagePullBackOff",
            "ErrImagePull",
            "CreateContainerConfigError",
            "CreateContainerError",
            "RunContainerError",
            "ContainerCreating",
            "PodInitializing",
        ),
        description="Only pods with a container, or init container, that waits or ended for one of these.",
    )
    not_ready: bool = Field(
        default=True, description="Also pods whose containers run, but are not Ready."
    )


class Stuck(Strategy):
    """Moves pods that do not become Ready off a node that is at fault: their siblings elsewhere are Ready.

    Siblings are the pods of the same owner and template. If a sibling is Ready on the same node, or if more nodes
    have stuck siblings than Ready ones, the program is at fault and nothing is moved.
    """

    Params = StuckParams

    def terms(self, view: View, params: StuckParams) -> Sequence[Term]:
        """Return one soft term: each stuck pod still has to move to another node."""
        snapshot = view.snapshot
        since = _not_ready_since(snapshot)
        lasted = snapshot.captured_at - since
        asked = snapshot.pods.where(lambda state: _matches(params, state))
        stuck = asked & (since > 0) & (lasted >= params.after.total_seconds())
        pods = np.flatnonzero(stuck & _node_at_fault(snapshot, stuck)).astype(np.int32)
        return [
            PodTerm(
                view,
                pods=pods,
                worth=lasted[pods],
                reason=lambda pod: _reason(snapshot, pod, float(since[pod])),
                by_state=True,
                elsewhere=True,
            )
        ]


def _matches(params: StuckParams, state: PodState) -> bool:
    if any(reason in params.reasons for reason in state.reasons(init=True)):
        return True
    waits = any(container.waiting or container.terminated for container in state.containers)
    return params.not_ready and state.phase == "Running" and not waits


def _not_ready_since(snapshot: Snapshot) -> NDArray[np.float64]:
    """Return since when each pod (P,) is not Ready, in Unix seconds.

    0 if the pod is Ready, or if its node is not Ready.
    """
    pods, nodes = snapshot.pods, snapshot.nodes
    conditions = [
        next(
            (c.since for c in state.conditions if c.type == "Ready" and c.status in _NOT_READY), 0.0
        )
        for state in pods.states
    ]
    of_state = np.array(conditions or [0.0])
    since = np.maximum(of_state[pods.state], pods.created)
    living = pods.living & ~pods.ready
    living[living] = nodes.ready[pods.node[living]]
    result: NDArray[np.float64] = np.where(living, since, 0.0)
    return result


def _node_at_fault(snapshot: Snapshot, stuck: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which pods (P,) have Ready siblings, but only on other nodes.

    Siblings must be Ready on at least as many nodes as they are stuck on.
    """
    pods = snapshot.pods
    if not len(pods):
        return np.zeros(0, bool)
    ready = pods.living & pods.ready
    size = max(1, len(snapshot.nodes))
    group = snapshot.siblings[pods.cls]
    pair = group.astype(np.int64) * size + pods.node
    ready_pairs, stuck_pairs = np.unique(pair[ready]), np.unique(pair[stuck])
    count = len(snapshot.classes)
    nodes_ready = np.bincount(ready_pairs // size, minlength=count)
    nodes_stuck = np.bincount(stuck_pairs // size, minlength=count)
    enough = (nodes_ready >= nodes_stuck) & (nodes_ready > 0)
    at_fault: NDArray[np.bool_] = enough[group] & ~np.isin(pair, ready_pairs)
    return at_fault


def _reason(snapshot: Snapshot, pod: int, since: float) -> str:
    state = snapshot.pods.states[int(snapshot.pods.state[pod])]
    why = ", ".join(dict.fromkeys(state.reasons(init=True))) or "not Ready"
    node = snapshot.nodes.names[int(snapshot.pods.node[pod])]
    return (
        f"{snapshot.pod_ref(pod)} is not Ready on {node} for {snapshot.time_since(since)} "
        f"({why}), while its siblings elsewhere are"
    )
