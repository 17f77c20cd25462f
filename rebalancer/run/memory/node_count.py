"""What the memory keeps of nodes: a sudden fall in their number, after which runs stand still, and the zones that had nodes."""

from __future__ import annotations

import math
from collections.abc import Collection

import msgspec
import numpy as np

from rebalancer.policy.cluster import Safety
from rebalancer.run.memory.document import FORGOTTEN_AFTER, NodeCountMemory
from rebalancer.snapshot.empty_zones import zones_with_nodes
from rebalancer.snapshot.marks import to_be_empty
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.times import rfc3339

SETTLES_AFTER = 600
"""Seconds after a fall: by then pods on nodes that went have others, or wait, which is counted by itself."""

_MAX_ZONES = 100
_WRITTEN_AGAIN_AFTER = 86_400
"""Seconds until the time of a zone is written again: an idle cluster is left alone."""


def count_in_use(snapshot: Snapshot, emptied: Collection[str] = ()) -> int:
    """Return the number of nodes whose loss would recreate pods elsewhere, and that nobody is taking away.

    ``emptied``: names of nodes that this run empties. Cordoned, leaving and marked nodes do not count either.
    """
    nodes, pods = snapshot.nodes, snapshot.pods
    in_use = np.zeros(len(nodes), bool)
    in_use[pods.node[pods.living & ~snapshot.per_node]] = True
    in_use &= ~(nodes.unschedulable | nodes.leaving | to_be_empty(snapshot))
    in_use[[nodes.index[name] for name in emptied if name in nodes.index]] = False
    return int(np.count_nonzero(in_use))


def see_nodes(
    known: NodeCountMemory | None, nodes: int, in_use: int, safety: Safety, now: float
) -> NodeCountMemory:
    """Return what is to be kept once ``nodes`` exist, ``in_use`` of them in use; ``known``: what earlier runs have kept.

    A difference that would not be a fall is not written down: an idle cluster is left alone.
    """
    if known is None:
        return NodeCountMemory(in_use)
    if _is_fall(known.in_use, nodes, safety):
        return NodeCountMemory(in_use, fell_from=known.in_use, fell_at=int(now))
    if describe_fall(known, nodes, safety, now):
        return known
    alike = abs(known.in_use - in_use) <= safety.not_ready_nodes_of(known.in_use)
    return NodeCountMemory(known.in_use if alike else in_use)


def describe_fall(known: NodeCountMemory, nodes: int, safety: Safety, now: float) -> str | None:
    """Return why a run stands still after a fall in the number of nodes; None if there was none, or it is over."""
    until = known.fell_at + SETTLES_AFTER
    if not known.fell_at or not now < until <= now + SETTLES_AFTER:
        return None
    if not _is_fall(known.fell_from, nodes, safety):
        return None
    most = safety.not_ready_nodes_of(known.fell_from)
    return (
        f"{nodes} nodes are left of {known.fell_from} that had pods when a run last looked, "
        f"safety.maxNotReadyNodes allows {most} to be missing; until {rfc3339(until)}, or until they are back"
    )


def _is_fall(before: int, nodes: int, safety: Safety) -> bool:
    return before - nodes > safety.not_ready_nodes_of(before)


def with_zones(
    seen: NodeCountMemory, known: NodeCountMemory | None, snapshot: Snapshot, now: float
) -> NodeCountMemory:
    """Return ``seen`` with the zones that have nodes now, and with those of earlier runs in ``known``.

    A zone is forgotten some days after it was last seen with nodes; of too many the newest are kept.
    """
    earlier = {} if known is None else known.zones
    kept = {zone: at for zone, at in earlier.items() if 0 <= now - at <= FORGOTTEN_AFTER}
    for zone in zones_with_nodes(snapshot):
        if now - kept.get(zone, -math.inf) > _WRITTEN_AGAIN_AFTER:
            kept[zone] = int(now)
    newest = sorted(kept.items(), key=lambda item: (-item[1], item[0]))[:_MAX_ZONES]
    return msgspec.structs.replace(seen, zones=dict(sorted(newest)))
