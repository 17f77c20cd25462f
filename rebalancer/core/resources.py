"""NodeResourcesFit and NodeResourcesBalancedAllocation: whether requests fit on a node, and its score for them.

Source: ``plugins/noderesources`` (``fit.go``, ``least_allocated.go``, ``most_allocated.go``,
``requested_to_capacity_ratio.go``, ``balanced_allocation.go``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rebalancer.core.numbers import truncate

STRATEGIES = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
"""The strategies of NodeResourcesFit, by their numbers."""
_LEAST, _MOST, _RATIO = 0, 1, 2
_MAX = 100
_DEFAULTED = 2
"""cpu and memory, the first resources, are scored with default requests for containers without requests."""


@dataclass(eq=False, repr=False)
class Loads:
    """What nodes have, and what the pods on them request. R resources, N nodes; the load changes with the cluster's state."""

    allocatable: memoryview
    """(R, N) amounts that pods may request."""
    used: memoryview
    """(R, N) amounts that pods request, terminating ones included."""
    scored_used: memoryview
    """(2, N) cpu and memory with the scheduler's defaults for missing requests."""
    max_pods: memoryview
    """(N,) the number of pods that each node allows."""
    pod_count: memoryview
    """(N,) pods on each node, terminating ones included."""
    requests: memoryview
    """(R, C) the requests of a pod of each class."""
    scored: memoryview
    """(2, C) the same with the scheduler's defaults."""


@dataclass(eq=False, repr=False)
class Scoring:
    """How a scheduler profile scores requests."""

    strategy: int
    """The number of the scoring strategy in ``STRATEGIES``."""
    resources: memoryview
    """(S,) rows of the resources that NodeResourcesFit scores."""
    weights: memoryview
    """(S,) the weight of each."""
    ratios: memoryview
    """(101,) the score at each utilisation in per cent, for RequestedToCapacityRatio."""
    balanced: memoryview
    """(B,) rows of the resources whose balance is scored."""
    improvement: bool
    """Whether a balance is compared with that without the pod (1.36)."""
    fit_weight: int
    balance_weight: int


@dataclass(eq=False, repr=False)
class Requests:
    """The requests of one pod."""

    amounts: memoryview
    """(R,) the requested amounts."""
    scored: memoryview
    """(2,) cpu and memory with the scheduler's defaults."""
    checked: memoryview
    """(K,) rows of the resources that it requests and the filter checks."""
    counted: memoryview
    """(R,) whether each resource is scored for it."""
    balances: bool
    """Whether BalancedAllocation scores it: it requests one of the balanced resources."""


def hold(loads: Loads, cls: int, node: int, sign: int) -> None:
    """Add (``sign`` +1) or remove (-1) a pod of a class on a node."""
    for row in range(len(loads.requests)):
        loads.used[row, node] += sign * loads.requests[row, cls]
    for row in range(len(loads.scored)):
        loads.scored_used[row, node] += sign * loads.scored[row, cls]
    loads.pod_count[node] += sign


def fits(loads: Loads, requests: Requests, node: int) -> bool:
    """Return whether a node has room for one more pod with these requests."""
    if loads.pod_count[node] >= loads.max_pods[node]:
        return False
    for index in range(len(requests.checked)):
        if is_short(loads, requests, node, requests.checked[index]):
            return False
    return True


def is_short(loads: Loads, requests: Requests, node: int, row: int) -> bool:
    """Return whether a node has too little of one resource."""
    return requests.amounts[row] > loads.allocatable[row, node] - loads.used[row, node]


def score(loads: Loads, scoring: Scoring, requests: Requests, node: int) -> int:
    """Return the weighted score of a node with the requests of its pods and of one more pod."""
    total = scoring.fit_weight * score_fit(loads, scoring, requests, node)
    if requests.balances:
        total += scoring.balance_weight * score_balance(loads, scoring, requests, node)
    return total


def score_fit(loads: Loads, scoring: Scoring, requests: Requests, node: int) -> int:
    """Return the score of NodeResourcesFit: the weighted mean over the scored resources."""
    total = size = 0
    for index in range(len(scoring.resources)):
        row = scoring.resources[index]
        allocatable = loads.allocatable[row, node]
        if not requests.counted[row] or allocatable == 0:
            continue
        if row < _DEFAULTED:
            requested = loads.scored_used[row, node] + requests.scored[row]
        else:
            requested = loads.used[row, node] + requests.amounts[row]
        one = _score_one(scoring, requested, allocatable)
        # What a ratio gives no score for does not count at all.
        if scoring.strategy != _RATIO or one > 0:
            total += scoring.weights[index] * one
            size += scoring.weights[index]
    if size <= 0:
        return 0
    if scoring.strategy == _RATIO:
        return truncate(float(total) / float(size) + 0.5)
    return total // size


def _score_one(scoring: Scoring, requested: int, allocatable: int) -> int:
    """Return the score of one resource."""
    if scoring.strategy == _LEAST:
        if requested >= allocatable:
            return 0
        return (allocatable - requested) * _MAX // allocatable
    used = min(max(requested, 0), allocatable) * _MAX // allocatable
    if scoring.strategy == _MOST:
        return used
    return scoring.ratios[_MAX if requested > allocatable else used]


def score_balance(loads: Loads, scoring: Scoring, requests: Requests, node: int) -> int:
    """Return the score of NodeResourcesBalancedAllocation: until 1.35 the balance with the pod, from 1.36 on its improvement."""
    after = _balance(loads, scoring, requests, node, 1)
    if not scoring.improvement:
        return after
    before = _balance(loads, scoring, requests, node, 0)
    return _MAX // 2 + (_MAX // 2 + after - before) // 2


def _balance(loads: Loads, scoring: Scoring, requests: Requests, node: int, pods: int) -> int:
    """Return how evenly a node's resources are used with the pod (``pods`` 1) or without (0): 100 minus the standard deviation.

    A resource that the node does not have is ignored.
    """
    count = 0
    first = second = 0.0
    for index in range(len(scoring.balanced)):
        row = scoring.balanced[index]
        if requests.counted[row] and loads.allocatable[row, node] != 0:
            second = _share(loads, requests, node, row, pods)
            if count == 0:
                first = second
            count += 1
    if count < 2:
        return _MAX
    # The scheduler takes another formula for two, which rounds otherwise.
    deviation = abs((first - second) / 2)
    if count > 2:
        deviation = _deviate(loads, scoring, requests, node, pods)
    return truncate((1.0 - deviation) * float(_MAX))


def _deviate(loads: Loads, scoring: Scoring, requests: Requests, node: int, pods: int) -> float:
    """Return the standard deviation of the shares of more than two resources."""
    # One after the other, as Go adds them: the order of additions decides the last bit.
    total, squares, shares = 0.0, 0.0, 0
    for index in range(len(scoring.balanced)):
        row = scoring.balanced[index]
        if requests.counted[row] and loads.allocatable[row, node] != 0:
            total += _share(loads, requests, node, row, pods)
            shares += 1
    mean = total / shares
    for index in range(len(scoring.balanced)):
        row = scoring.balanced[index]
        if requests.counted[row] and loads.allocatable[row, node] != 0:
            difference = _share(loads, requests, node, row, pods) - mean
            squares += difference * difference
    return math.sqrt(squares / shares)


def _share(loads: Loads, requests: Requests, node: int, row: int, pods: int) -> float:
    """Return the share of a resource that is used, with or without the pod; nothing is below 0 but what no API server lets in."""
    used = loads.used[row, node] + pods * requests.amounts[row]
    return min(max(float(used) / float(loads.allocatable[row, node]), 0.0), 1.0)
