"""The scheduler's queue: which pods that wait get a node, in which order (``queuesort.PrioritySort``).

A pod that gets none leaves the queue, and comes back once a pod lands that its rules concern (``QueueingHint``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rebalancer.core.counts import add_pod, remove_pod
from rebalancer.core.prediction import FILTERS, ClusterArrays, PodArrays, find_feasible, predict
from rebalancer.core.resources import fits, hold
from rebalancer.core.views import flags, ints, minus_ones

_MAX_TAKERS = 64
"""So many pods at most are looked for behind one move."""
_ROOM = FILTERS.index("NodeResourcesFit")
_OUT, _QUEUED, _REFUSED = 0, 1, 2
"""The values of ``Queue.place``: a class is not concerned, is in the queue, or waits for a change."""


@dataclass(eq=False, repr=False)
class Queue:
    """The Q classes of pods that wait, in one state of the cluster."""

    classes: memoryview
    """(Q,) their numbers in the snapshot."""
    start: memoryview
    """(Q + 1,) where the pods of each begin."""
    pods: memoryview
    """(M,) the pods, class by class, each class in the order of the queue."""
    rank: memoryview
    """(M,) the place of each in the queue."""
    affected_start: memoryview
    """(C + 1,) where those begin that the pods of each class of the snapshot affect."""
    affected: memoryview
    """(A,) the places among Q of classes that pods affect by other means than requests."""
    lowered: list[PodArrays]
    """(Q,) the waiting classes in the core's form."""
    clusters: list[ClusterArrays]
    """(Q,) the nodes, as the scheduler's profile for each class has them."""
    node_of: memoryview
    """(P,) the node of each pod of the snapshot; -1: it has none."""
    roomy: memoryview = field(init=False)
    """(Q,) whether some node has room for a class, which then waits for something else; -1: not known."""
    fitting: memoryview = field(init=False)
    """(Q,) whether a class fits on some node, and so waits for nothing; -1: not known."""
    concerned: memoryview = field(init=False)
    """(Q,) the classes whose pods may get a node."""
    place: memoryview = field(init=False)
    """(Q,) the status of each class: not concerned, in the queue, or waiting for a change."""
    next: memoryview = field(init=False)
    """(Q,) the pod of each class that is tried next, as its place in ``pods``."""
    left: memoryview = field(init=False)
    """(Q,) classes that :func:`find_concerned` has still to look at."""
    takers: memoryview = field(init=False)
    """(3, 64) for each pod that has got a node: the pod, its class as a place among Q, and its node."""

    def __post_init__(self) -> None:
        size = len(self.classes)
        self.roomy, self.fitting = minus_ones(size), minus_ones(size)
        self.concerned, self.place = flags(size), flags(size)
        self.next, self.left, self.takers = ints(size), ints(size), ints(3, _MAX_TAKERS)


def find_concerned(queue: Queue, cls: int, replacement: int, node: int, leaving: memoryview) -> int:
    """Find the classes that fit nowhere now, but may once a pod of ``cls``, or one of them, has a new node.

    ``leaving``: the classes of all pods that leave ``node`` with it. They are ``concerned`` then; returns their number.
    """
    _find_given_room(queue, node, leaving)
    _find_affected(queue, cls)
    _find_affected(queue, replacement)
    count, more = 0, 1
    while more:
        more = 0
        for number in range(len(queue.classes)):
            if queue.left[number]:
                queue.left[number], more = 0, 1
                queue.next[number] = queue.start[number]
                if _find_next(queue, number) >= 0 and not _fits(queue, number):
                    queue.concerned[number] = 1
                    count += 1
                    _find_affected(queue, queue.classes[number])
    return count


def _find_given_room(queue: Queue, node: int, leaving: memoryview) -> None:
    """Note the classes whose requests fit on a node only once some pods have left."""
    for number in range(len(queue.classes)):
        queue.concerned[number] = 0
        queue.left[number] = not _is_on(queue.clusters[number], queue.lowered[number], node)
    _hold(queue.clusters[0], node, leaving, -1)
    for number in range(len(queue.classes)):
        if queue.left[number]:
            queue.left[number] = _is_on(queue.clusters[number], queue.lowered[number], node)
    _hold(queue.clusters[0], node, leaving, 1)


def _is_on(cluster: ClusterArrays, pod: PodArrays, node: int) -> bool:
    return pod.alone[node] != 0 and fits(cluster.loads, pod.requests, node)


def _hold(cluster: ClusterArrays, node: int, classes: memoryview, sign: int) -> None:
    for index in range(len(classes)):
        hold(cluster.loads, classes[index], node, sign)


def _find_affected(queue: Queue, cls: int) -> None:
    """Note the classes that a pod of a class affects, and that do not wait for room."""
    for index in range(queue.affected_start[cls], queue.affected_start[cls + 1]):
        number = queue.affected[index]
        if queue.roomy[number] < 0:
            queue.roomy[number] = _has_room(queue.clusters[number], queue.lowered[number])
        if queue.roomy[number] and not queue.concerned[number]:
            queue.left[number] = 1


def _has_room(cluster: ClusterArrays, pod: PodArrays) -> bool:
    """Return whether some node has room for a class; if no filter checks room, whether some node accepts it."""
    for node in range(len(pod.alone)):
        if pod.alone[node] and (
            not cluster.checks[_ROOM] or fits(cluster.loads, pod.requests, node)
        ):
            return True
    return False


def _fits(queue: Queue, number: int) -> bool:
    """Return whether a class fits on some node."""
    if queue.fitting[number] < 0:
        nodes = find_feasible(queue.clusters[number], queue.lowered[number])
        queue.fitting[number] = nodes > 0
    return queue.fitting[number] > 0


def take(queue: Queue) -> int:
    """Let pods of the ``concerned`` classes get nodes, one after the other; return how many do.

    They are in ``takers`` then, and the state is as before.
    """
    for number in range(len(queue.classes)):
        queue.place[number] = _QUEUED if queue.concerned[number] else _OUT
        queue.next[number] = queue.start[number]
    count = 0
    try:
        number = _find_first(queue)
        while number >= 0 and count < _MAX_TAKERS:
            node = _land(queue.clusters[number], queue.lowered[number])
            if node < 0:
                # The others of its class fit nowhere either.
                queue.place[number] = _REFUSED
            else:
                queue.takers[0, count] = queue.pods[queue.next[number]]
                queue.takers[1, count], queue.takers[2, count] = number, node
                _put(queue, queue.clusters[number], count, 1)
                count += 1
                _retry(queue, queue.classes[number])
            number = _find_first(queue)
    finally:
        for index in range(count):
            _put(queue, queue.clusters[0], count - 1 - index, -1)
    return count


def _find_first(queue: Queue) -> int:
    """Return the class whose next pod is the first in the queue; -1: the queue is empty."""
    best = -1
    for number in range(len(queue.classes)):
        if queue.place[number] == _QUEUED and _find_next(queue, number) >= 0:
            rank = queue.rank[queue.next[number]]
            if best < 0 or rank < queue.rank[queue.next[best]]:
                best = number
    return best


def _find_next(queue: Queue, number: int) -> int:
    """Return the next pod of a class that has no node, as its place in ``pods``; -1: all have one."""
    place, end = queue.next[number], queue.start[number + 1]
    while place < end and queue.node_of[queue.pods[place]] >= 0:
        place += 1
    queue.next[number] = place
    return place if place < end else -1


def _land(cluster: ClusterArrays, pod: PodArrays) -> int:
    """Return the most probable node for a pod; -1: there is none."""
    predict(cluster, pod)
    if cluster.landings.count == 0 or (pod.fails_to_score and cluster.ring.count > 1):
        return -1
    return cluster.landings.nodes[0]


def _put(queue: Queue, cluster: ClusterArrays, index: int, sign: int) -> None:
    """Put a taker on its node, or take it off again (``sign`` -1)."""
    cls, node = queue.classes[queue.takers[1, index]], queue.takers[2, index]
    queue.node_of[queue.takers[0, index]] = node if sign > 0 else -1
    hold(cluster.loads, cls, node, sign)
    if sign > 0:
        add_pod(cluster.living, cls, node)
        add_pod(cluster.existing, cls, node)
    else:
        remove_pod(cluster.living, cls, node)
        remove_pod(cluster.existing, cls, node)


def _retry(queue: Queue, cls: int) -> None:
    """Put the refused classes that a pod of a class affects back into the queue."""
    for index in range(queue.affected_start[cls], queue.affected_start[cls + 1]):
        if queue.place[queue.affected[index]] == _REFUSED:
            queue.place[queue.affected[index]] = _QUEUED
