"""The order in which the ReplicaSet controller deletes pods when the number of replicas is reduced.

Source: ``k8s.io/kubernetes/pkg/controller/controller_utils.go: ActivePodsWithRanks.Less`` with its feature gates
PodDeletionCost and LogarithmicScaleDown, both on by default since 1.22, in 1.36 and 1.37; the rank is that of
``pkg/controller/replicaset/replica_set.go: getPodsRankedByRelatedPodsOnSameNode``. It also applies to ReplicationControllers.

Pods that were created in the same second, and became Ready in the same second, may be equal by all rules. The controller's
sort is not stable, so that their order is open; here it is that of their uids.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cmp_to_key
from typing import Any, NamedTuple

from rebalancer.wire.pods import DELETION_COST
from rebalancer.wire.times import unix_seconds

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_NUMBER = re.compile(r"(?:0|-[0-9]+|[1-9][0-9]*)\Z", re.ASCII)
_MAX_DIGITS = 64
_NANOSECONDS = 1e9


class Replica(NamedTuple):
    """The properties of one pod that the controller compares."""

    uid: str
    node: str
    """Empty while it has none."""
    phase: str
    ready: bool
    cost: int
    """The deletion cost, see :func:`parse_deletion_cost`."""
    together: int
    """Active pods on its node of all ReplicaSets with the same controller, itself included."""
    ready_since: float
    """Unix seconds, 0 if unknown."""
    restarts: tuple[int, int]
    """The most restarts of one container; the same of sidecars."""
    created: float
    """Unix seconds, 0 if unknown."""


def parse_deletion_cost(text: str | None) -> int:
    """Return the value of ``controller.kubernetes.io/pod-deletion-cost``; 0 for text that is no int32, as in the controller.

    Source: ``pkg/apis/core/helper/helpers.go: GetDeletionCostFromPodAnnotations``: no plus sign, no leading zeros.
    """
    if text is None or len(text) > _MAX_DIGITS or _NUMBER.match(text) is None:
        return 0
    cost = int(text)
    return cost if -(2**31) <= cost < 2**31 else 0


def read_replicas(pods: Sequence[Mapping[str, Any]]) -> list[Replica]:
    """Return the compared properties of the active pods of one ReplicaSet, given as JSON; no other ReplicaSet has its controller."""
    together = Counter(pod["spec"].get("nodeName", "") for pod in pods)
    return [_read_replica(pod, together) for pod in pods]


def _read_replica(pod: Mapping[str, Any], together: Mapping[str, int]) -> Replica:
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    conditions = status.get("conditions") or ()
    ready = [c for c in conditions if c.get("type") == "Ready" and c.get("status") == "True"]
    node = spec.get("nodeName") or ""
    inits = spec.get("initContainers") or ()
    sidecars = {one.get("name") for one in inits if one.get("restartPolicy") == "Always"}
    of_sidecars = [
        one for one in status.get("initContainerStatuses") or () if one.get("name") in sidecars
    ]
    return Replica(
        uid=metadata.get("uid", ""),
        node=node,
        phase=status.get("phase", ""),
        ready=bool(ready),
        cost=parse_deletion_cost((metadata.get("annotations") or {}).get(DELETION_COST)),
        together=together[node],
        ready_since=unix_seconds(ready[0].get("lastTransitionTime")) if ready else 0.0,
        restarts=(_most(status.get("containerStatuses") or ()), _most(of_sidecars)),
        created=unix_seconds(metadata.get("creationTimestamp")),
    )


def _most(statuses: Sequence[Mapping[str, Any]]) -> int:
    return max((int(one.get("restartCount") or 0) for one in statuses), default=0)


def sort_replicas(replicas: Sequence[Replica], now: float) -> list[int]:
    """Return the rows of ``replicas``, first the one that is deleted first; ``now``: Unix seconds."""

    def compare(one: int, other: int) -> int:
        return _compare(replicas[one], replicas[other], now)

    # By uid first: what the rules leave open is the same in each order of the input.
    by_uid = sorted(range(len(replicas)), key=lambda row: replicas[row].uid)
    return sorted(by_uid, key=cmp_to_key(compare))


def _compare(one: Replica, other: Replica, now: float) -> int:
    """Return a negative number if ``one`` is deleted before ``other``."""
    first = _of_rules_1_to_5(one), _of_rules_1_to_5(other)
    if first[0] != first[1]:
        return -1 if first[0] < first[1] else 1
    if one.ready and one.ready_since != other.ready_since:
        return _compare_ages(one, other, now, lambda pod: pod.ready_since)
    if one.restarts != other.restarts:
        return -1 if one.restarts > other.restarts else 1
    if one.created != other.created:
        return _compare_ages(one, other, now, lambda pod: pod.created)
    return 0


def _of_rules_1_to_5(pod: Replica) -> tuple[bool, int, bool, int, int]:
    return bool(pod.node), _PHASES.get(pod.phase, 0), pod.ready, pod.cost, -pod.together


def _compare_ages(
    one: Replica, other: Replica, now: float, since: Callable[[Replica], float]
) -> int:
    """Compare ages by powers of two, the younger first, and equal ones by uid; what has no time comes first."""
    if not (since(one) and since(other)):
        return -1 if not since(one) else 1
    ranks = [_rank(now - since(pod)) for pod in (one, other)]
    if ranks[0] != ranks[1]:
        return ranks[0] - ranks[1]
    return -1 if one.uid < other.uid else 1


def _rank(age: float) -> int:
    """Return the power of two of an age in nanoseconds, as Go's int64(math.Log2(age)) does."""
    return int(math.log2(age * _NANOSECONDS)) if age > 0 else -1
