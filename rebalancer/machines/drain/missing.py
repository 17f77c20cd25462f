"""The number of nodes that are missing for pods without room."""

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
    """The nodes that would be needed for pods without room."""

    pods: int
    nodes: int
    """By first fit, the largest pod first, on empty nodes with their DaemonSets' pods; 0 if not even one would do."""
    like: str
    """Name of the node that the missing ones are like."""


def missing_nodes(
    snapshot: Snapshot, checks: Sequence[NodeCheck], old: Collection[str]
) -> Missing | None:
    """Return the number of missing nodes; None if every pod has room, or more nodes would not help.

    New nodes are modelled on a node that stays and lacks only room for the pods: the one that would help most pods,
    the newest among equals. Pods that the scheduler refuses there for another reason are not counted.
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
    """Return the requests (R + 1,) of pods bound to the node; the last entry is their number."""
    here = np.flatnonzero(snapshot.pods.node == node)
    classes = [cls for cls in snapshot.pods.cls[here].tolist() if snapshot.classes[cls].per_node]
    taken = snapshot.requests[:, classes].sum(axis=1) if classes else 0 * snapshot.requests[:, 0]
    return np.append(taken, len(classes))


def _first_fit(asked: Ints, room: Ints) -> int:
    """Return how many bins of size ``room`` (K,) first fit needs for ``asked`` (P, K); 0 if a row is too large."""
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
