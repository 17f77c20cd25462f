"""The pods that wait for a node, and why: those for which a group may have to grow, and those for which none has to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rebalancer.capacity.codes import PodCode
from rebalancer.capacity.packing import Packing
from rebalancer.scheduler.messages import reasons
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.columns import Bools
from rebalancer.snapshot.model import PodFlag, Snapshot
from rebalancer.wire.pod_state import PodState

EXPENDABLE = -10
"""Pods of a lower priority may wait (Cluster Autoscaler: ``--expendable-pods-priority-cutoff``)."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pod that waits for a node."""

    pod: int
    code: PodCode | None
    """None: only a new node might take it."""
    message: str
    """Why no node takes it now, as the scheduler says it, or what else is the matter."""
    node: str | None = None
    """The node that is there and has room for it."""


def waiting_pods(
    snapshot: Snapshot, profile: SchedulerProfile, asking: Bools | None = None
) -> list[Waiting]:
    """Return the pods that wait, in the scheduler's order; those that fit take their room first, one after the other.

    A class that fits nowhere is asked about once: what the pods before it take leaves no more room. ``asking`` (P,):
    those for which a group may have to grow; None: all.
    """
    packing = Packing(snapshot, profile, (), {})
    model, state = packing.model, packing.state
    refused: dict[int, Waiting] = {}
    waiting: list[Waiting] = []
    for pod in _queue(snapshot):
        cls = int(snapshot.pods.cls[pod])
        if snapshot.classes[cls].priority < EXPENDABLE:
            text = f"priority {snapshot.classes[cls].priority} is below {EXPENDABLE}"
            waiting.append(Waiting(pod, PodCode.EXPENDABLE, text))
        elif text := model.rejection(cls):
            waiting.append(Waiting(pod, PodCode.REJECTED, text))
        elif unmodelled := model.unmodelled(cls):
            waiting.append(Waiting(pod, PodCode.UNPREDICTABLE, "; ".join(unmodelled)))
        elif cls in refused:
            waiting.append(_asks(refused[cls], pod, asking))
        elif len(nodes := model.predict(state, cls).nodes):
            node = int(nodes[0])
            state.place(pod, cls, node)
            name = snapshot.nodes.names[node]
            text = f"{name} has room for it; the scheduler has not placed it yet"
            waiting.append(Waiting(pod, PodCode.FITS, text, name))
            refused.clear()  # one that it has affinity to may be there now
        else:
            code = PodCode.OF_NODE if snapshot.classes[cls].per_node else None
            refused[cls] = Waiting(pod, code, _why(packing, cls))
            waiting.append(_asks(refused[cls], pod, asking))
    return waiting


def _asks(refused: Waiting, pod: int, asking: Bools | None) -> Waiting:
    """Return what is said of a pod of a class that fits nowhere."""
    young = refused.code is None and asking is not None and not asking[pod]
    return Waiting(pod, PodCode.TOO_YOUNG if young else refused.code, refused.message)


def refused_for(snapshot: Snapshot, seconds: float) -> Bools:
    """Return the pods (P,) that the scheduler has refused, and that are at least so old.

    Their age counts, as with Cluster Autoscaler's ``--new-pod-scale-up-delay``.
    """
    pods = snapshot.pods
    old: Bools = pods.created <= snapshot.captured_at - seconds
    return old & pods.where(_is_refused)


def _is_refused(state: PodState) -> bool:
    return any(
        one.type == "PodScheduled" and one.reason == "Unschedulable" for one in state.conditions
    )


def _queue(snapshot: Snapshot) -> Iterator[int]:
    """Yield the pods that wait, by ``queuesort.PrioritySort``: highest priority first, then the oldest."""
    pods = snapshot.pods
    lost = (pods.flags & (PodFlag.TERMINATING | PodFlag.LOST_NODE)) != 0
    rows = np.flatnonzero((pods.node < 0) & ~lost)
    priority = np.array([cls.priority for cls in snapshot.classes] or [0], np.int64)
    yield from rows[np.lexsort((rows, pods.created[rows], -priority[pods.cls[rows]]))].tolist()


def _why(packing: Packing, cls: int) -> str:
    """Return why no node takes a pod of a class, as the scheduler's condition says it."""
    counts: Counter[str] = Counter()
    evaluation = packing.model.evaluate(packing.state, cls)
    for words in reasons(packing.model, packing.state, cls, evaluation):
        counts.update(words)
    total = len(packing.snapshot.nodes)
    listed = ", ".join(f"{count} {text}" for text, count in sorted(counts.items()))
    return f"0/{total} nodes are available: {listed}" if listed else "there is no node"
