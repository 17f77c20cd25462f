"""The utilisation of nodes: the requested share of their resources (Cluster Autoscaler: ``simulator/utilization``)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rebalancer.planner.draft import Draft
from rebalancer.snapshot.columns import Floats
from rebalancer.snapshot.model import Snapshot

GPUS = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915")
"""Of a node that has one of these, nothing else counts."""
_WEIGHED = ("cpu", "memory")


def utilisation_of(draft: Draft) -> dict[str, Floats]:
    """Return resource -> share (N,) that living pods request; -1 if a node has none of the resource.

    Pods of DaemonSets and static pods count; terminating ones do not.
    """
    snapshot: Snapshot = draft.snapshot
    shares: dict[str, Floats] = {}
    for name in (*_WEIGHED, *GPUS):
        if name in snapshot.resources:
            row = snapshot.resources.index(name)
            room = snapshot.nodes.allocatable[row]
            share = draft.state.lasting[row] / np.maximum(1, room)
            shares[name] = np.where(room > 0, share, -1.0)
    return shares


def counted(utilisation: Mapping[str, Floats], node: int) -> dict[str, float]:
    """Return resource -> share, for the resources that count: cpu and memory; with GPUs, only these."""
    shares = {name: float(share[node]) for name, share in utilisation.items()}
    gpus = {name: share for name, share in shares.items() if name in GPUS and share >= 0}
    return gpus or {name: shares[name] for name in _WEIGHED if shares.get(name, -1) >= 0}
