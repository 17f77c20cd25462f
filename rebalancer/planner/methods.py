"""How pods are moved: by eviction, or by a restart of their rollout if the policy requests it and time allows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rebalancer.plan.plan import Method
from rebalancer.planner.disruption import DisruptionBudgets
from rebalancer.policy.model import Policy
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.owners import with_restarts


def with_methods(
    policy: Policy, snapshot: Snapshot, going: Mapping[str, float] | None = None
) -> Snapshot:
    """Return the snapshot in which classes are moved by the methods that the policy configures.

    ``going``: name of a node -> Unix seconds at which its machine ends.
    """
    of = policy.method
    if not of.restarts:
        return snapshot
    longest = policy.safety.max_ready_time.total_seconds()
    return with_restarts(
        snapshot,
        _too_late(snapshot, going, longest) if going else None,
        singles=of.single_replicas is Method.RESTART,
        unevictable=DisruptionBudgets(snapshot).unevictable()
        if of.unevictable is Method.RESTART
        else (),
    )


def _too_late(snapshot: Snapshot, going: Mapping[str, float], longest: float) -> dict[int, str]:
    """Return class -> why its pod would have no Ready successor before its machine ends, if it could be evicted instead.

    The new pod is expected to take as long as this one took from its creation until it was Ready, and ``longest``
    seconds at most: a pod that was not Ready for a while in between seems to have taken longer.
    """
    index, pods = snapshot.nodes.index, snapshot.pods
    at = {index[name]: seconds for name, seconds in going.items() if name in index}
    disruptions = DisruptionBudgets(snapshot)
    late: dict[int, str] = {}
    for pod in np.flatnonzero(np.isin(pods.node, list(at))).tolist():
        cls, node = int(pods.cls[pod]), int(pods.node[pod])
        left = max(0.0, at[node] - snapshot.captured_at)
        took = min(longest, max(0.0, float(pods.ready_since[pod] - pods.created[pod])))
        if took > left and disruptions.forbidden(cls, node) is None:
            late[cls] = (
                f"its machine goes in {left:.0f} s, and the pod took {took:.0f} s to be Ready"
            )
    return late
