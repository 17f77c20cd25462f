"""Safety holds: the conditions under which a run stands still, or can judge nothing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rebalancer.policy.cluster import Safety
from rebalancer.snapshot.model import PodFlag, Snapshot


def not_judged(snapshot: Snapshot) -> tuple[str, ...]:
    """Return why no strategy can judge any rule on this snapshot; empty if some can."""
    if not len(snapshot.nodes):
        return ("there is no node",)
    if not len(snapshot.pods):
        return ("there is no pod",)
    lost = _count_lost(snapshot)
    placed = int(np.count_nonzero(snapshot.pods.node >= 0))
    return (lost_pods(snapshot),) if lost and not placed else ()


def lost_pods(snapshot: Snapshot) -> str:
    """Return a sentence on pods whose nodes are not in the snapshot; empty if there are none."""
    lost = _count_lost(snapshot)
    if not lost:
        return ""
    are = "pod is" if len(snapshot.pods) == 1 else "pods are"
    return f"{lost} of {len(snapshot.pods)} {are} on nodes that are not in the snapshot"


def _count_lost(snapshot: Snapshot) -> int:
    return int(np.count_nonzero(snapshot.pods.flags & PodFlag.LOST_NODE))


def standstill(
    snapshot: Snapshot, safety: Safety, clock_skew: float, *, moves: bool = True
) -> list[str]:
    """Return why no plan may be executed on this snapshot; empty if one may.

    ``clock_skew``: the difference in seconds between our clock and the API server's. ``moves``: pods will be moved,
    so NotReady nodes and many pending pods are reasons, too. They are no reasons against adding machines.
    """
    reasons = [*_not_ready(snapshot, safety), *_waiting(snapshot, safety)] if moves else []
    most_skew = safety.max_clock_skew.total_seconds()
    if abs(clock_skew) > most_skew:
        reasons.append(
            f"our clock and the API server's are {abs(clock_skew):.0f} s apart, "
            f"safety.maxClockSkew allows {most_skew:.0f} s"
        )
    return reasons


def _not_ready(snapshot: Snapshot, safety: Safety) -> Iterator[str]:
    nodes = snapshot.nodes
    not_ready = int(np.count_nonzero(~nodes.ready & ~nodes.leaving))
    most = safety.not_ready_nodes_of(len(nodes))
    if not_ready > most:
        yield f"{not_ready} of {len(nodes)} nodes are NotReady, safety.maxNotReadyNodes allows {most}"


def _waiting(snapshot: Snapshot, safety: Safety) -> Iterator[str]:
    pods = snapshot.pods
    gated = np.array([bool(c.spec.scheduling_gates) for c in snapshot.classes], bool)
    waiting = snapshot.awaiting_a_node()
    count = int(np.count_nonzero(waiting & ~gated[pods.cls])) if len(pods) else 0
    most = safety.pending_pods_of(len(pods))
    if count > most:
        yield f"{count} pods wait for a node, safety.maxPendingPods allows {most}"
