"""The model's prediction for one pod: where it will land, and which other pods are affected."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rebalancer.snapshot.columns import Floats, Int32s
from rebalancer.snapshot.model import Snapshot


@dataclass(frozen=True, slots=True)
class Taker:
    """A pending pod that gets a node because another pod leaves."""

    pod: int
    node: int


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted landing of a pod."""

    nodes: Int32s
    """(K,) most probable first, ties by node; empty if nothing is feasible."""
    probability: Floats
    """(K,) sums to 1."""
    unmodelled: tuple[str, ...] = field(default=())
    """Why the pod cannot be predicted; then every feasible node is equally probable."""
    takers: tuple[Taker, ...] = ()
    """Pending pods that the eviction of its predecessor feeds, in the order in which they get their nodes."""


def uniform(nodes: Int32s, unmodelled: tuple[str, ...] = ()) -> Prediction:
    """Return a prediction with equal probabilities on ``nodes`` (K,)."""
    return Prediction(nodes, np.full(len(nodes), 1 / max(1, len(nodes))), unmodelled)


def takers_text(snapshot: Snapshot, prediction: Prediction) -> str:
    """Return a phrase on the pending pods that take freed room; empty if there are none."""
    if not prediction.takers:
        return ""
    first, *others = prediction.takers
    more = f" and {len(others)} more pending" if others else ""
    return f"pending {snapshot.pod_ref(first.pod)} takes room on {snapshot.nodes.names[first.node]}{more}"
