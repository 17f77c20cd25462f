"""Filter and scores of requests: NodeResourcesFit and NodeResourcesBalancedAllocation.

Source: ``plugins/noderesources`` (``fit.go``, ``least_allocated.go``, ``most_allocated.go``,
``requested_to_capacity_ratio.go``, ``balanced_allocation.go``). All divisions of arrays are Go's on non-negative
integers, so ``//`` is the same.

A pod may request an extended resource that no device plug-in offers; if a DeviceClass names it, the scheduler
allocates devices for it (KEP-5004). DeviceClasses and ResourceSlices are not read.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.columns import Bools, Floats, Ints
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.nodes import DEFAULT_SCORED, pod_requests
from rebalancer.snapshot.state import ClusterState

_NATIVE = ("cpu", "memory", "ephemeral-storage")
_MAX = 100
_MAX_POINTS = 10
"""The largest score in a shape."""


def is_checked(resource: str) -> bool:
    """Return whether the scheduler checks a resource (``IsScalarResourceName``, and the native ones)."""
    return (
        resource in _NATIVE
        or "/" in resource
        or resource.startswith(("hugepages-", "attachable-volumes-"))
    )


def is_extended(resource: str) -> bool:
    """Return whether device plug-ins can offer a resource (``IsExtendedResourceName``)."""
    return (
        "/" in resource
        and "kubernetes.io/" not in resource
        and not resource.startswith("requests.")
    )


def _score_new(snapshot: Snapshot) -> Ints:
    """Return cpu and memory (2, C) that LeastAllocated adds for a new pod.

    Its scorer ignores pod-level resources of a new pod and sums up the containers, while running pods count with
    their pod-level requests (``fit.go``: the scorer is created without ``enablePodLevelResources``, in 1.34 to
    1.37).
    """
    scored = snapshot.scored.copy()
    for cls, of_class in enumerate(snapshot.classes):
        if of_class.spec.resources is not None and of_class.unreadable is None:
            spec = msgspec.structs.replace(of_class.spec, resources=None)
            amounts = pod_requests(spec, DEFAULT_SCORED)
            scored[:, cls] = amounts["cpu"], amounts["memory"]
    return scored


def _table(shape: Sequence[tuple[int, int]]) -> Ints:
    """Return the score at each utilisation from 0 to 100, linear between the points of ``shape`` (``shape_score.go``)."""
    points = [(at, score * _MAX // _MAX_POINTS) for at, score in shape] or [(0, 0)]
    scores = []
    for used in range(_MAX + 1):
        after = next((index for index, point in enumerate(points) if used <= point[0]), -1)
        score = points[after][1]
        if after > 0:
            (left, low), (right, high) = points[after - 1 : after + 1]
            # Go's division cuts towards zero, also where the shape falls.
            score = low + int((high - low) * (used - left) / (right - left))
        scores.append(score)
    return np.array(scores, np.int64)


class Resources:
    """The filter NodeResourcesFit, and the scores of requested resources."""

    def __init__(self, snapshot: Snapshot, profile: SchedulerProfile) -> None:
        self._scoring = profile.scoring
        self.ratios = _table(profile.scoring.shape)
        """(101,) the score of RequestedToCapacityRatio at each utilisation in per cent."""
        self._requests = snapshot.requests
        self.scored = _score_new(snapshot)
        """(2, C) cpu and memory that LeastAllocated adds for a new pod."""
        self._allocatable = snapshot.nodes.allocatable
        self._max_pods = snapshot.nodes.max_pods.astype(np.int64)
        self.names = snapshot.resources
        ignored = profile.ignored_resources
        self.rows = tuple(
            row
            for row, name in enumerate(self.names)
            if is_checked(name) and not (is_extended(name) and {name, name.split("/")[0]} & ignored)
        )
        """Those that the filter checks."""
        self._checked = np.array(self.rows, np.intp)
        scored = [
            (self.names.index(name), weight)
            for name, weight in profile.scoring.resources
            if name in self.names
        ]
        self.scored_rows = np.array([row for row, _ in scored], np.intp)
        """Those that NodeResourcesFit scores."""
        self._scored_rows = self.scored_rows[:, None]
        self.weights = np.array([weight for _, weight in scored], np.int64)
        """Of each of them."""
        self._weights = self.weights[:, None]
        balanced = [self.names.index(name) for name in profile.balanced if name in self.names]
        self.balanced_rows = np.array(balanced, np.intp)
        """Those whose balance is scored."""
        self._balanced = self.balanced_rows[:, None]
        self.counted = self._requests > 0
        """(R, C) whether a resource is scored for a class; an extended resource only if the class requests it."""
        for row, name in enumerate(self.names):
            self.counted[row] = name in _NATIVE or (
                self.counted[row] if is_checked(name) else False
            )

    def requested_rows(self, cls: int) -> list[int]:
        """Return the rows of the resources that a class requests and the scheduler checks."""
        return [row for row in self.rows if self._requests[row, cls] > 0]

    def negative(self, cls: int) -> list[str]:
        """Return the resources of which a class requests a negative amount."""
        return [name for row, name in enumerate(self.names) if self._requests[row, cls] < 0]

    def fits_empty(self, cls: int) -> Bools:
        """Return the nodes (N,) that could hold a pod of the class if they were empty."""
        mask = self._max_pods >= 1
        for row in self.requested_rows(cls):
            mask = mask & (self._requests[row, cls] <= self._allocatable[row])
        return mask

    def shortages(self, state: ClusterState, cls: int, node: int) -> list[str]:
        """Return the resources that ``node`` lacks for the class, in the scheduler's words."""
        reasons = ["Too many pods"] if state.pod_count[node] >= self._max_pods[node] else []
        free = self._allocatable[:, node] - state.used[:, node]
        short = [row for row in self.requested_rows(cls) if self._requests[row, cls] > free[row]]
        return reasons + [f"Insufficient {self.names[row]}" for row in short]

    def alike(self, cls: int) -> bytes:
        """Return a key that is equal for classes with equal requests."""
        return self._requests[:, cls].tobytes() + self.scored[:, cls].tobytes()

    def fits(self, state: ClusterState, cls: int) -> Bools:
        """Return which nodes (N,) have room for one more pod of the class."""
        rows = self._checked
        wanted = self._requests[rows, cls][:, None]
        free = self._allocatable[rows] - state.used[rows]
        room = state.pod_count < self._max_pods
        return np.asarray(room & ((wanted <= free) | (wanted <= 0)).all(axis=0))

    def allocation(self, state: ClusterState, cls: int) -> Ints:
        """Return the score of NodeResourcesFit of each node (N,): the weighted mean over the scored resources."""
        rows = self._scored_rows
        allocatable = self._allocatable[rows[:, 0]]
        score = self._score(self._with_pod(state, cls), allocatable)
        by_ratio = self._scoring.type == "RequestedToCapacityRatio"
        # What a ratio gives no score for does not count at all.
        counts = self.counted[rows, cls] & (allocatable != 0)
        shares = self._weights * (counts & (score > 0) if by_ratio else counts)
        total, size = (shares * score).sum(axis=0), np.maximum(shares.sum(axis=0), 1)
        if by_ratio:
            return np.floor(total / size + 0.5).astype(np.int64)
        return np.asarray(total // size)

    def _with_pod(self, state: ClusterState, cls: int) -> Ints:
        """Return the requested amounts (scored resources, N) with one more pod; cpu and memory have default requests."""
        amounts = np.empty((len(self._scored_rows), len(self._max_pods)), np.int64)
        for of_row, row in zip(amounts, self._scored_rows[:, 0].tolist(), strict=True):
            if row < len(self.scored):
                of_row[:] = state.scored_used[row] + self.scored[row, cls]
            else:
                of_row[:] = state.used[row] + self._requests[row, cls]
        return amounts

    def _score(self, requested: Ints, allocatable: Ints) -> Ints:
        """Return the score of one resource."""
        size = np.maximum(allocatable, 1)
        if self._scoring.type == "LeastAllocated":
            return np.maximum(allocatable - requested, 0) * _MAX // size
        used = np.minimum(requested, allocatable) * _MAX // size
        if self._scoring.type == "MostAllocated":
            return used
        score: Ints = self.ratios[np.where(requested > allocatable, _MAX, used)]
        return score

    def balances(self, cls: int) -> bool:
        """Return whether BalancedAllocation scores a class: it requests one of the resources."""
        rows = self._balanced[:, 0]
        return bool((self._requests[rows, cls] * self.counted[rows, cls]).any())

    def balanced_score(self, state: ClusterState, cls: int, *, improvement: bool) -> Ints:
        """Return the BalancedAllocation score of each node (N,), for a class that it scores.

        Until 1.35 the score is the balance with the pod; from 1.36 on it is the ``improvement`` of the balance
        (kubernetes PR 135573).
        """
        rows, counted = self._balanced[:, 0], self.counted[self._balanced, cls]
        pod = self._requests[self._balanced, cls] * counted
        allocatable, used = self._allocatable[rows] * counted, state.used[rows]
        if not improvement:
            return _balance(used + pod, allocatable)
        both = np.concatenate([used, used + pod], axis=1)
        balance = _balance(both, np.concatenate([allocatable, allocatable], axis=1))
        before, after = balance[: used.shape[1]], balance[used.shape[1] :]
        return _MAX // 2 + (_MAX // 2 + after - before) // 2


def _balance(used: Ints, allocatable: Ints) -> Ints:
    """Return how evenly (K,) the resources (R, K) of nodes are used: 100 minus the standard deviation of the shares.

    A resource that a node does not have is ignored.
    """
    # Nothing is below 0 but what no API server would have let in.
    share: Floats = np.minimum(np.maximum(used / np.maximum(allocatable, 1), 0.0), 1.0)
    has = allocatable != 0
    count = has.sum(axis=0)
    deviation = np.zeros(len(count))
    if len(share) > 1:
        # The scheduler takes another formula for two, which rounds otherwise.
        pair = share
        if len(share) > 2:
            pair = np.take_along_axis(share, np.argsort(~has, axis=0, kind="stable")[:2], axis=0)
        one, other = pair
        deviation = np.where(count == 2, np.abs((one - other) / 2), 0.0)
    if len(share) > 2:
        # One after the other, as Go adds them: the order of additions decides the last bit.
        size = np.maximum(count, 1)
        mean = sum(np.where(has, share, 0.0)) / size
        squares = sum(np.where(has, (share - mean) * (share - mean), 0.0))
        deviation = np.where(count > 2, np.sqrt(squares / size), deviation)
    return ((1.0 - deviation) * float(_MAX)).astype(np.int64)


class UnofferedResources:
    """Finds the extended resources that, at least in part, do not come from device plug-ins."""

    def __init__(
        self, snapshot: Snapshot, resources: Resources, offered: frozenset[str] = frozenset()
    ) -> None:
        """``offered``: those that come from device plug-ins although no node has any yet."""
        self._snapshot, self._resources, self._offered = snapshot, resources, offered
        self._unoffered: dict[int, bool] = {}

    def of(self, cls: int) -> list[str]:
        """Return the resources of a class that may be allocated without appearing in the node's allocatable."""
        names = self._resources.names
        return [
            names[row]
            for row in self._resources.requested_rows(cls)
            if _is_extended(names[row]) and self._is_unoffered(row)
        ]

    def _is_unoffered(self, row: int) -> bool:
        unoffered = self._unoffered.get(row)
        if unoffered is None:
            offered = self._snapshot.nodes.allocatable[row] > 0
            pods = self._snapshot.pods
            using = (pods.node >= 0) & (self._snapshot.requests[row] > 0)[pods.cls]
            elsewhere = not offered[pods.node[using]].all()
            plugged = np.any(offered) or self._resources.names[row] in self._offered
            unoffered = self._unoffered[row] = elsewhere or not plugged
        return unoffered


def _is_extended(name: str) -> bool:
    """Return whether a DeviceClass may provide a resource (``IsDRAExtendedResourceName``)."""
    return name.startswith("deviceclass.resource.kubernetes.io/") or is_extended(name)
