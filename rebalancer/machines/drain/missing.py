"""How many nodes are missing for pods that no node has room for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.machines.drain.preflight import DrainVerdict, NodeCheck
from rebalancer.machines.drain.triage import Fate
from rebalancer.snapshot.columns import Ints
from rebalancer.snapshot.model import Snapshot


@dataclass(frozen=True, slots=True)
class Missing:
    """What it takes to hold the pods that have no room."""

    pods: int
    nodes: int
    """By first fit, the largest pod first, on empty nodes with their DaemonSets' pods; 0 if not even one would do."""
    like: str
    """Name of the node that the missing ones are like."""


def missing_nodes(
    snapshot: Snapshot, checks: Sequence[NodeCheck], old: Collection[str]
) -> Missing | None:
    """Return how many nodes are missing; None if every pod has room, or more nodes would not help.

    More nodes would be like one that stays and that only room keeps from taking the pods: of those that would help most
    pods, like the newest. Pods that the scheduler refuses for another reason there are not counted.
    """
    lacking = [
        one
        for check in checks
        for one in check.pods
        if one.fate is Fate.EVICT and one.verdict is DrainVerdict.NO_ROOM and one.full
    ]
    nodes = snapshot.nodes
    helped = Counter(name for one in lacking for name in one.full)
    stays = [
        node
        for node, name in enumerate(nodes.names)
        if name in helped
        and name not in old
        and not nodes.unschedulable[node]
        and nodes.ready[node]
    ]
    if not stays:
        return None
    like = max(stays, key=lambda n: (helped[nodes.names[n]], nodes.created[n], nodes.names[n]))
    pods = [one.pod for one in lacking if nodes.names[like] in one.full]
    room = np.append(nodes.allocatable[:, like], nodes.max_pods[like]) - _own(snapshot, like)
    asked = np.array([[*snapshot.requests[:, cls], 1] for cls in snapshot.pods.cls[pods].tolist()])
    return Missing(len(pods), _first_fit(asked, room), nodes.names[like])


def _own(snapshot: Snapshot, node: int) -> Ints:
    """Return what pods that belong to the node take of it (R + 1,), the last entry being their number."""
    here = np.flatnonzero(snapshot.pods.node == node)
    classes = [cls for cls in snapshot.pods.cls[here].tolist() if snapshot.classes[cls].per_node]
    taken = snapshot.requests[:, classes].sum(axis=1) if classes else 0 * snapshot.requests[:, 0]
    return np.append(taken, len(classes))


def _first_fit(asked: Ints, room: Ints) -> int:
    """Return the bins of size ``room`` (K,) that first fit takes for the rows of ``asked`` (P, K); 0 if one is too large."""
    if (asked > room).any():
        return 0
    share = (asked / np.maximum(1, room)).max(axis=1)
    bins: list[Ints] = []
    for row in asked[np.argsort(-share, kind="stable")]:
        place = next((index for index, left in enumerate(bins) if (row <= left).all()), None)
        if place is None:
            bins.append(room - row)
        else:
            bins[place] = bins[place] - row
    return len(bins)
