"""Filter and scores of requests: NodeResourcesFit and NodeResourcesBalancedAllocation.

Source: ``plugins/noderesources`` (``fit.go``, ``least_allocated.go``, ``most_allocated.go``,
``requested_to_capacity_ratio.go``, ``balanced_allocation.go``).

A pod may request an extended resource that no device plug-in offers; if a DeviceClass names it, the scheduler
allocates devices for it (KEP-5004): if that was read, rows of devices represent them (``rebalancer.snapshot.devices``).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.columns import Bools, Ints
from rebalancer.snapshot.device_requests import may_be_of_devices
from rebalancer.snapshot.devices import is_unoffered
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.nodes import DEFAULT_SCORED, is_extended, pod_requests

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


def _score_new(snapshot: Snapshot) -> Ints:
    """Return the cpu and memory (2, C) that LeastAllocated adds for a new pod.

    Until 1.37 its scorer ignores pod-level resources of a new pod and sums up the containers, while running pods count
    with their pod-level requests (``fit.go``: the scorer is created without ``enablePodLevelResources``).
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
        self.ratios = _table(profile.scoring.shape)
        """(101,) the score of RequestedToCapacityRatio at each utilisation in per cent."""
        self._requests = snapshot.requests
        self.scored = snapshot.scored if profile.scores_pod_level_requests else _score_new(snapshot)
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
        scored = [
            (self.names.index(name), weight)
            for name, weight in profile.scoring.resources
            if name in self.names
        ]
        self.scored_rows = np.array([row for row, _ in scored], np.intp)
        """Those that NodeResourcesFit scores."""
        self.weights = np.array([weight for _, weight in scored], np.int64)
        """Of each of them."""
        balanced = [self.names.index(name) for name in profile.balanced if name in self.names]
        self.balanced_rows = np.array(balanced, np.intp)
        """Those whose balance is scored."""
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
        """Return the nodes (N,) that would have room for a pod of the class if they were empty."""
        mask = self._max_pods >= 1
        for row in self.requested_rows(cls):
            mask = mask & (self._requests[row, cls] <= self._allocatable[row])
        return mask

    def alike(self, cls: int) -> bytes:
        """Return a key that is equal for classes with equal requests."""
        return self._requests[:, cls].tobytes() + self.scored[:, cls].tobytes()

    def balances(self, cls: int) -> bool:
        """Return whether BalancedAllocation scores a class: it requests one of the resources."""
        rows = self.balanced_rows
        return bool((self._requests[rows, cls] * self.counted[rows, cls]).any())


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
            if may_be_of_devices(names[row]) and self._is_unoffered(row)
        ]

    def _is_unoffered(self, row: int) -> bool:
        unoffered = self._unoffered.get(row)
        if unoffered is None:
            plugged = self._resources.names[row] in self._offered
            unoffered = self._unoffered[row] = is_unoffered(self._snapshot, row, plugged=plugged)
        return unoffered
