"""The pending pods and their reasons: which of them may trigger a scale-out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rebalancer.machines.capacity.codes import PodCode
from rebalancer.machines.capacity.packing import Packing
from rebalancer.scheduler.messages import unschedulable_message
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.columns import Bools
from rebalancer.snapshot.model import PodFlag, Snapshot
from rebalancer.wire.pod_state import PodState

EXPENDABLE = -10
"""Pods of a lower priority trigger no scale-out (Cluster Autoscaler: ``--expendable-pods-priority-cutoff``)."""


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod without a node."""

    pod: int
    code: PodCode | None
    """None: only a new node might take it."""
    message: str
    """Why no node takes it now, as the scheduler says it, or what else is the matter."""
    node: str | None = None
    """The node that is there and has room for it."""


def pending_pods(
    snapshot: Snapshot, profile: SchedulerProfile, triggering: Bools | None = None
) -> list[PendingPod]:
    """Return the pending pods in the scheduler's order; pods that fit take their room first, one after the other.

    A class that fits nowhere is tried once, since later pods only find less room. ``triggering`` (P,): pods that may
    trigger a scale-out; None: all.
    """
    packing = Packing(snapshot, profile, (), {})
    model, state = packing.model, packing.state
    refused: dict[int, PendingPod] = {}
    pending: list[PendingPod] = []
    for pod in _queue(snapshot):
        cls = int(snapshot.pods.cls[pod])
        if snapshot.classes[cls].priority < EXPENDABLE:
            text = f"priority {snapshot.classes[cls].priority} is below {EXPENDABLE}"
            pending.append(PendingPod(pod, PodCode.EXPENDABLE, text))
        elif text := model.rejection(cls):
            pending.append(PendingPod(pod, PodCode.REJECTED, text))
        elif unmodelled := model.unmodelled(cls):
            pending.append(PendingPod(pod, PodCode.UNPREDICTABLE, "; ".join(unmodelled)))
        elif cls in refused:
            pending.append(_unschedulable(refused[cls], pod, triggering))
        elif len(nodes := model.predict(state, cls).nodes):
            node = int(nodes[0])
            state.place(pod, cls, node)
            name = snapshot.nodes.names[node]
            text = f"{name} has room for it; the scheduler has not placed it yet"
            pending.append(PendingPod(pod, PodCode.FITS, text, name))
            refused.clear()  # one that it has affinity to may be there now
        else:
            code = PodCode.OF_NODE if snapshot.classes[cls].per_node else None
            refused[cls] = PendingPod(
                pod, code, unschedulable_message(packing.model, packing.state, cls)
            )
            pending.append(_unschedulable(refused[cls], pod, triggering))
    return pending


def _unschedulable(refused: PendingPod, pod: int, triggering: Bools | None) -> PendingPod:
    """Return the result for a pod of a class that fits nowhere."""
    young = refused.code is None and triggering is not None and not triggering[pod]
    return PendingPod(pod, PodCode.TOO_YOUNG if young else refused.code, refused.message)


def unschedulable_for(snapshot: Snapshot, seconds: float) -> Bools:
    """Return the pods (P,) that are Unschedulable and at least ``seconds`` old.

    The age of the pod counts, as for Cluster Autoscaler's ``--new-pod-scale-up-delay``.
    """
    pods = snapshot.pods
    old: Bools = pods.created <= snapshot.captured_at - seconds
    return old & pods.where(_is_unschedulable)


def _is_unschedulable(state: PodState) -> bool:
    return any(
        one.type == "PodScheduled" and one.reason == "Unschedulable" for one in state.conditions
    )


def _queue(snapshot: Snapshot) -> Iterator[int]:
    """Yield the pending pods in the order of ``queuesort.PrioritySort``: highest priority first, then oldest."""
    pods = snapshot.pods
    lost = (pods.flags & (PodFlag.TERMINATING | PodFlag.LOST_NODE)) != 0
    rows = np.flatnonzero((pods.node < 0) & ~lost)
    priority = np.array([cls.priority for cls in snapshot.classes] or [0], np.int64)
    yield from rows[np.lexsort((rows, pods.created[rows], -priority[pods.cls[rows]]))].tolist()
