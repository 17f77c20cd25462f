"""What each node holds: the requests and the number of its pods, now and once those that terminate are gone."""

from __future__ import annotations

import numpy as np

from rebalancer.snapshot.columns import Bools, Ints, summed_by_node
from rebalancer.snapshot.model import PodFlag, Snapshot
from rebalancer.snapshot.usage import MEASURED


class NodeLoads:
    """Sums per node. A pod that terminates goes on holding its place, but not lastingly."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        pods, size = snapshot.pods, len(snapshot.nodes)
        placed = pods.node >= 0
        nodes, cls = pods.node[placed], pods.cls[placed]
        self.used = summed_by_node(snapshot.requests, cls, nodes, size)
        """(R, N) requested, terminating pods included."""
        self.scored_used = summed_by_node(snapshot.scored, cls, nodes, size)
        """(2, N) the same with the scheduler's defaults for missing requests."""
        self.pod_count = np.bincount(nodes, minlength=size).astype(np.int64)
        """(N,) pods on each node, terminating ones included."""
        living = placed & ((pods.flags & PodFlag.TERMINATING) == 0)
        self.lasting = summed_by_node(snapshot.requests, pods.cls[living], pods.node[living], size)
        """(R, N) requested once all terminating pods are gone."""
        self.lasting_usage = self._measured(living)
        """(M, N) in use once all terminating pods are gone; zeros where nothing was measured (Snapshot.usage)."""
        self.lasting_count = np.bincount(pods.node[living], minlength=size).astype(np.int64)
        """(N,) pods once all terminating ones are gone."""

    def _measured(self, living: Bools) -> Ints:
        snapshot, usage = self._snapshot, self._snapshot.usage
        if usage is None:
            return np.zeros((len(MEASURED), len(snapshot.nodes)), np.int64)
        going = (snapshot.pods.node >= 0) & ~living
        cls, node = snapshot.pods.cls[going], snapshot.pods.node[going]
        return usage.nodes - summed_by_node(usage.classes, cls, node, len(snapshot.nodes))

    def hold(self, cls: int, node: int, sign: int) -> None:
        """Let a pod hold its place on a node (+1), or be gone (-1)."""
        self.used[:, node] += sign * self._snapshot.requests[:, cls]
        self.scored_used[:, node] += sign * self._snapshot.scored[:, cls]
        self.pod_count[node] += sign

    def last(self, cls: int, node: int, sign: int) -> None:
        """Let a pod hold its place lastingly (+1), or no longer (-1)."""
        self.lasting[:, node] += sign * self._snapshot.requests[:, cls]
        self.lasting_count[node] += sign
        if (usage := self._snapshot.usage) is not None:
            self.lasting_usage[:, node] += sign * usage.classes[:, cls]
