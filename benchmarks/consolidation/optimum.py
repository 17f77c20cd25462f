"""The most nodes that can be emptied at all: an integer programme over classes and nodes, solved by HiGHS.

Only pods on the nodes that are emptied move, anywhere; those that may not move hold their node. It knows requests, taints
and node affinity (by the scheduler model's static mask), required anti-affinity over nodes and hard zone spread. The order
in which pods go, and who chooses their nodes, it does not know: nothing can do better.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from benchmarks.consolidation.clusters import Cluster
from benchmarks.decisions.programme import Programme
from rebalancer.policy.protect import Protect
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.protect import Scope, protect


def most_emptied(cluster: Cluster, seconds: float = 60.0) -> tuple[int, int]:
    """Return how many nodes can be without pods that do not belong to them, and no more than how many can.

    The two are equal where the optimum is proven.
    """
    model = _Model(cluster)
    solved = model.programme.minimise(dict.fromkeys(model.emptied, -1.0), seconds)
    return round(-solved.value), int(-solved.bound + 1e-6)


def most_saved(
    cluster: Cluster, hourly: NDArray[np.float64], seconds: float = 60.0
) -> tuple[float, float, int]:
    """Return the largest price of nodes that can be without pods, no less than it can be (a bound), and the fewest moves for it.

    ``hourly`` (N,): the price of each node.
    """
    model = _Model(cluster)
    here = model.movable
    # So little for a move that it never counts for more than money.
    each = 1e-6 * float(hourly.min())
    costs = {one: each * float(here[n]) - float(hourly[n]) for n, one in enumerate(model.emptied)}
    solved = model.programme.minimise(costs, seconds)
    if solved.variables is None:
        raise RuntimeError(f"no solution within {seconds:.0f} s: {solved.status}")
    gone = np.round(solved.variables[model.emptied]).astype(bool)
    moves = int(here[gone].sum())
    return float(hourly[gone].sum()), -solved.bound + each * moves, moves


class _Model:
    """The programme: one variable per node, 1 where it is emptied, and one per class and node, its pods there."""

    def __init__(self, cluster: Cluster) -> None:
        self._snapshot = snapshot = cluster.snapshot
        self._scheduler = SchedulerModel(snapshot, SchedulerProfile.for_version(snapshot.version))
        self._rules = {one.name: one.rule for one in cluster.workloads}
        self.classes = [i for i, cls in enumerate(snapshot.classes) if not cls.per_node]
        self._own = np.isin(snapshot.pods.cls, self.classes, invert=True)
        self._nodes = range(len(snapshot.nodes))
        self._zone = snapshot.nodes.labels.column("topology.kubernetes.io/zone")
        self._here: dict[int, NDArray[np.int64]] = {}
        self._x: dict[tuple[int, int], int] = {}
        self.programme = Programme()
        stays = (protect(snapshot, Protect(), Scope()) != 0) & ~self._own
        kept = set(snapshot.pods.node[stays].tolist())
        self.emptied = [
            self.programme.variable(0, 0 if n in kept else 1, whole=True) for n in self._nodes
        ]
        self.movable = np.bincount(snapshot.pods.node[~self._own], minlength=len(snapshot.nodes))
        """(N,) the pods that have to leave a node that is emptied."""
        for cls in self.classes:
            self._place(cls)
        self._fit()

    def _place(self, cls: int) -> None:
        """Add the pods of a class: on a node that is kept they stay, an empty one has none."""
        snapshot, programme = self._snapshot, self.programme
        pods = snapshot.pods
        here = np.bincount(pods.node[pods.cls == cls], minlength=len(snapshot.nodes))
        self._here[cls], total = here, int(here.sum())
        rule = self._rules[snapshot.owners[snapshot.classes[cls].owner].name]
        mask = self._scheduler.static_mask(cls)
        for n in self._nodes:
            stands = int(here[n])
            most = min([1 if rule == "apart" else total, *_fitting(snapshot, cls, n)])
            most = max(stands, most if mask[n] else 0)
            x = self._x[cls, n] = programme.variable(0, most, whole=True)
            programme.row({x: 1, self.emptied[n]: stands}, low=stands)
            programme.row({x: 1, self.emptied[n]: most}, high=most)
        programme.row({self._x[cls, n]: 1 for n in self._nodes}, low=total, high=total)
        if rule == "spread":
            self._spread(cls)

    def _spread(self, cls: int) -> None:
        """Keep a class in any two zones within a skew of 1; what is skewed already need not be fixed."""
        here, zone = self._here[cls], self._zone
        for one, other in itertools.permutations(sorted(set(zone.tolist())), 2):
            row = {self._x[cls, n]: 1.0 for n in self._nodes if zone[n] == one}
            row |= {self._x[cls, n]: -1.0 for n in self._nodes if zone[n] == other}
            skew = int(here[zone == one].sum() - here[zone == other].sum())
            self.programme.row(row, high=max(1, skew))

    def _fit(self) -> None:
        """Let the requests on each node be no more than it has."""
        snapshot, pods = self._snapshot, self._snapshot.pods
        for n in self._nodes:
            own = pods.cls[self._own & (pods.node == n)]
            for asked, room in zip(snapshot.requests, snapshot.nodes.allocatable, strict=True):
                if room[n]:
                    left = 1.0 - float(asked[own].sum()) / float(room[n])
                    row = {self._x[c, n]: float(asked[c]) / float(room[n]) for c in self.classes}
                    self.programme.row({**row, self.emptied[n]: left}, high=left)
            most = int(snapshot.nodes.max_pods[n]) - len(own)
            row = {self._x[c, n]: 1.0 for c in self.classes}
            self.programme.row({**row, self.emptied[n]: most}, high=most)


def _fitting(snapshot: Snapshot, cls: int, node: int) -> list[int]:
    """Return how many pods of a class each resource of an empty node allows."""
    asked, room = snapshot.requests[:, cls], snapshot.nodes.allocatable[:, node]
    return (room[asked > 0] // asked[asked > 0]).tolist()
