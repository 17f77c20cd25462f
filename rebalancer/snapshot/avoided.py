"""Nodes on which the policy wants no replacement, though the scheduler may put one there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rebalancer.policy.cluster import Landings
from rebalancer.snapshot.columns import frozen
from rebalancer.snapshot.model import Snapshot


def with_avoided(snapshot: Snapshot, landings: Landings) -> Snapshot:
    """Return the snapshot in which the nodes are noted that ``landings`` leaves out."""
    nodes = snapshot.nodes
    avoided = np.zeros(len(nodes), bool)
    if landings.min_node_age is not None:
        # A node that comes back is as new as one that was made: what runs on every node has yet to start.
        since = np.maximum(nodes.created, nodes.ready_since)
        avoided |= snapshot.captured_at - since < landings.min_node_age.total_seconds()
    if landings.exclude is not None:
        avoided |= snapshot.nodes_matching(landings.exclude)
    if not avoided.any():
        return snapshot
    return replace(snapshot, nodes=replace(nodes, avoided=frozen(avoided)))
