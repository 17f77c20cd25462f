"""Safety holds: the conditions under which a run stands still, or can judge nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from rebalancer.base.plain_text import and_more, count
from rebalancer.planner.karpenter import find_changing
from rebalancer.policy.cluster import Safety
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.columns import Int32s
from rebalancer.snapshot.model import PodFlag, Snapshot

_SHOWN = 3
"""Names of nodes in a sentence."""


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
    """Return a phrase on pods whose nodes are not in the snapshot; empty if there are none."""
    lost = _count_lost(snapshot)
    if not lost:
        return ""
    are = "pod is" if len(snapshot.pods) == 1 else "pods are"
    return f"{lost} of {len(snapshot.pods)} {are} on nodes that do not exist"


def _count_lost(snapshot: Snapshot) -> int:
    return int(np.count_nonzero(snapshot.pods.flags & PodFlag.LOST_NODE))


def standstill(
    snapshot: Snapshot,
    safety: Safety,
    clock_skew: float,
    profile: Callable[[], SchedulerProfile],
    *,
    moves: bool = True,
) -> list[str]:
    """Return why no plan may be executed on this snapshot; empty if one may.

    ``clock_skew``: the difference in seconds between our clock and the API server's. ``moves``: pods will be moved,
    so NotReady and missing nodes and many pending pods are reasons, too. They are no reasons against adding machines.
    ``profile`` returns that of the cluster's scheduler.
    """
    reasons: list[str] = []
    if moves:
        reasons += _not_ready(snapshot, safety)
        reasons += _changing(snapshot, safety)
        reasons += _waiting(snapshot, safety, profile)
    most_skew = safety.max_clock_skew.total_seconds()
    if abs(clock_skew) > most_skew:
        reasons.append(
            f"our clock and the API server's are {abs(clock_skew):.0f} s apart, "
            f"safety.maxClockSkew allows {most_skew:.0f} s"
        )
    return reasons


def _not_ready(snapshot: Snapshot, safety: Safety) -> Iterator[str]:
    """Yield that too many nodes are NotReady, or missing although pods are bound to them.

    A missing node counts as a NotReady one: its pods are about to be created elsewhere.
    """
    nodes, missing = snapshot.nodes, snapshot.pods.lost_nodes
    every = len(nodes) + len(missing)
    not_ready = int(np.count_nonzero(~nodes.ready & ~nodes.leaving))
    most = safety.not_ready_nodes_of(every)
    if not_ready + len(missing) <= most:
        return
    allows = f"safety.maxNotReadyNodes allows {most}"
    if not missing:
        yield f"{not_ready} of {every} nodes are NotReady, {allows}"
        return
    do = "does" if len(missing) == 1 else "do"
    beside = f", {not_ready} {'is' if not_ready == 1 else 'are'} NotReady" if not_ready else ""
    names = and_more(missing, _SHOWN)
    yield f"{len(missing)} of {every} nodes {do} not exist, though pods are on them ({names}){beside}: {allows}"


def _changing(snapshot: Snapshot, safety: Safety) -> Iterator[str]:
    """Yield that Karpenter is adding and removing too many nodes: where pods land now is not known.

    A pod may wait for a node that is being launched, and the pods of a removed node need room on others. A node and its
    replacement count as one.
    """
    coming, going = find_changing(snapshot)
    most = safety.not_ready_nodes_of(len(snapshot.nodes))
    if max(coming, going) > most:
        yield (
            f"Karpenter is adding {count(coming, 'node')} and removing {going} with pods,"
            f" safety.maxNotReadyNodes allows {most}"
        )


def _waiting(
    snapshot: Snapshot, safety: Safety, profile: Callable[[], SchedulerProfile]
) -> Iterator[str]:
    """Yield that too many pods wait for room, those on missing nodes among them."""
    waiting = np.flatnonzero(snapshot.awaiting_a_node())
    lost = np.flatnonzero(snapshot.lost_pods())
    most = safety.pending_pods_of(len(snapshot.pods))
    if len(waiting) + len(lost) <= most:
        return
    model = SchedulerModel(snapshot, profile())
    classes, of = np.unique(snapshot.pods.cls[waiting], return_inverse=True)
    for_room = np.array([_waits_for_room(model, cls) for cls in classes.tolist()], bool)[of]
    counted = np.concatenate([waiting[for_room], lost])
    number = _count_by_namespace(snapshot, counted, most)
    if number > most:
        beside = "; ".join(
            f"{more} more {why}"
            for more, why in (
                (len(waiting) + len(lost) - len(counted), "wait for something else than room"),
                (len(counted) - number, "are too many of one namespace to count"),
            )
            if more
        )
        where = " or are on a node that does not exist" if len(lost) else ""
        but = f" ({beside})" if beside else ""
        yield f"{number} pods wait for a node{where}{but}, safety.maxPendingPods allows {most}"


def _count_by_namespace(snapshot: Snapshot, waiting: Int32s, most: int) -> int:
    """Return how many of the pods ``waiting`` (K,) count against ``most``.

    In a namespace with less than half of the pods on nodes, no more count than it has on nodes, or than half of ``most``:
    else a client that creates pods which never fit would keep all others from being moved.
    """
    _, of_class = np.unique([cls.namespace for cls in snapshot.classes], return_inverse=True)
    of_pod, size = of_class[snapshot.pods.cls], int(of_class.max(initial=-1)) + 1
    on_nodes = np.bincount(of_pod[snapshot.pods.node >= 0], minlength=size)
    number = np.bincount(of_pod[waiting], minlength=size)
    few = 2 * on_nodes < on_nodes.sum()
    bounded = np.minimum(number, np.maximum(on_nodes, -(-most // 2)))
    return int(np.where(few, bounded, number).sum())


def _waits_for_room(model: SchedulerModel, cls: int) -> bool:
    """Return whether a pending pod of a class lacks room on some node, so that it indicates how full the cluster is.

    It does not if the scheduler examines no node for it (a scheduling gate, a claim that is missing or not bound), or if no
    node with the labels that it requires has room for it when empty. Nodes that are tainted, cordoned or not Ready count:
    the limit is made for such nodes.
    """
    if model.rejection(cls):
        return False
    holds = model.node_affinity_mask(cls) & model.of(cls).resources.fits_empty(cls)
    return bool(holds.any())
