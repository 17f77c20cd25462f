"""Pending pods, and which of them take the room that a move frees.

The scheduler retries pending pods as soon as a pod is gone whose end may help them (``QueueingHint`` of each
plug-in), in the order of ``queuesort.PrioritySort``: highest priority first, then longest waiting time. They are in
the queue before the replacement of a deleted pod is even created. The replacement of a pod that is still terminating
comes before them, because the room is not free yet.

When a pending pod lands, pods for which its affinity or spread matters are retried (``AssignedPodAdded``). They,
too, waited before the replacement was created, and go first if both are in the queue.

Back-off times (at most 10 s) and nominated nodes cannot be read from any object; the age of a pod is used as its
waiting time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Protocol

import numpy as np

from rebalancer.scheduler.filters import Filters
from rebalancer.scheduler.placement import Supposed
from rebalancer.scheduler.prediction import Prediction, Taker
from rebalancer.snapshot.columns import Bools, Int32s, Ints
from rebalancer.snapshot.model import PodFlag, Snapshot
from rebalancer.snapshot.state import ClusterState

# So many pending pods at most are looked for behind one move.
_MAX_TAKERS = 64


class Scheduling(Protocol):
    """The part of the scheduler model that :class:`Pending` uses."""

    supposed: Supposed

    def filters_of(self, cls: int) -> Filters:
        """Return the filters that apply to pods of a class."""

    def feasible(self, state: ClusterState, cls: int) -> Bools:
        """Return the nodes (N,) that pass all filters."""

    def with_room(self, state: ClusterState, cls: int) -> Bools:
        """Return the nodes (N,) that pass all filters except those on other pods' rules and volumes."""

    def find_unmodelled(self, cls: int) -> tuple[str, ...]:
        """Return why pods of a class cannot be predicted; empty if they can."""

    def rejection(self, cls: int) -> str:
        """Return why pods of the class are rejected before any node is evaluated; empty if they are not."""

    def predict(self, state: ClusterState, cls: int) -> Prediction:
        """Return the distribution of landings of a pod of the class if it is scheduled now."""

    def predict_replacement(self, state: ClusterState, pod: int) -> Prediction:
        """Return the distribution of landings of the replacement if ``pod`` is evicted now."""


class Pending:
    """The pending pods of a snapshot, by class.

    Pods that the scheduler ignores (scheduling gates, a missing claim) and pods whose landing cannot be predicted
    are excluded.
    """

    def __init__(self, snapshot: Snapshot, model: Scheduling) -> None:
        self._snapshot, self._model = snapshot, model
        pods = snapshot.pods
        lost = (pods.flags & (PodFlag.TERMINATING | PodFlag.LOST_NODE)) != 0
        rows = np.flatnonzero((pods.node < 0) & ~lost)
        self._queues: dict[int, Int32s] = {}
        """Class -> its pods, in the scheduler's order; classes in order."""
        for cls in np.unique(pods.cls[rows]).tolist():
            if not model.find_unmodelled(cls) and not model.rejection(cls):
                mine = rows[pods.cls[rows] == cls]
                order = np.lexsort((mine, pods.created[mine]))
                self._queues[cls] = mine[order].astype(np.int32)
        self._classes = np.array(list(self._queues), np.int32)
        self._answers: dict[tuple[int, int], bool] = {}
        self._asked_in: tuple[ClusterState, int, int] | None = None
        """The state of the answers, its version, and that of what is assumed."""

    @property
    def has_any(self) -> bool:
        """Whether any pods are pending."""
        return bool(self._queues)

    # -- asked by explanations and by the planner --------------------------------------------------

    def foresee(self, state: ClusterState, pod: int) -> Prediction:
        """Return the landing of the replacement if ``pod`` is evicted now, with the pending pods that take its room."""
        concerned = self.find_concerned(state, pod)
        if not concerned:
            return self._model.predict_replacement(state, pod)
        return self.foresee_with(state, pod, concerned)

    def foresee_with(self, state: ClusterState, pod: int, concerned: Sequence[int]) -> Prediction:
        """Return :meth:`foresee` of a pod, given the classes that may take room."""
        cls = int(state.cls_of[pod])
        with self._before_landing(state, pod, concerned) as first:
            prediction = self._model.predict(state, self._snapshot.classes[cls].replacement)
        then: tuple[Taker, ...] = ()
        if len(prediction.nodes) and not prediction.unmodelled:
            then = self._after_landing(state, pod, concerned, first, int(prediction.nodes[0]))
        return replace(prediction, takers=first + then)

    def takers(self, state: ClusterState) -> tuple[Taker, ...]:
        """Return the pending pods that the scheduler places in this state, in its order."""
        with ExitStack() as stack:
            return self._take(state, list(self._queues), stack)

    @contextmanager
    def before_landing(self, state: ClusterState, pod: int) -> Iterator[None]:
        """Hold the state in which the scheduler places the replacement of ``pod``; see ``ClusterState.evicted``.

        The victim is terminating; or it is gone and pending pods have taken its room; or, with a restart, it still
        runs.
        """
        concerned = self.find_concerned(state, pod)
        with self._before_landing(state, pod, concerned):
            yield

    @contextmanager
    def before_turn(self, state: ClusterState, pod: int) -> Iterator[tuple[Taker, ...]]:
        """Hold the state in which the scheduler comes to ``pod``, which is pending; yield the pods that it places before."""
        takers = self.takers(state)
        turn = next((n for n, taker in enumerate(takers) if taker.pod == pod), len(takers))
        with ExitStack() as stack:
            for taker in takers[:turn]:
                of_pod = int(state.cls_of[taker.pod])
                stack.enter_context(state.filled(taker.pod, of_pod, taker.node))
            yield takers[:turn]

    @staticmethod
    @contextmanager
    def placed(state: ClusterState, takers: Sequence[Taker]) -> Iterator[None]:
        """Place the pending pods on their nodes within the context, to evaluate terms of the cost."""
        for taker in takers:
            state.place(taker.pod, int(state.cls_of[taker.pod]), taker.node)
        try:
            yield
        finally:
            for taker in reversed(takers):
                state.unplace(taker.pod)

    # -- pods that take room ----------------------------------------------------------------------------

    @contextmanager
    def _before_landing(
        self, state: ClusterState, pod: int, concerned: Sequence[int]
    ) -> Iterator[tuple[Taker, ...]]:
        """Set the state of :meth:`before_landing` within the context; pods of the ``concerned`` classes take the free room."""
        cls = int(state.cls_of[pod])
        if self._snapshot.classes[cls].restarts:
            yield ()
            return
        gone = self._snapshot.waits(cls)
        with state.evicted(pod, gone=gone):
            if not (gone and concerned):
                yield ()
                return
            with ExitStack() as stack:
                yield self._take(state, concerned, stack)

    def _after_landing(
        self,
        state: ClusterState,
        pod: int,
        concerned: Sequence[int],
        first: tuple[Taker, ...],
        landing: int,
    ) -> tuple[Taker, ...]:
        """Return the pending pods that take room after the victim is gone and its replacement is placed."""
        cls, node = int(state.cls_of[pod]), int(state.node_of[pod])
        gone = [victim for victim in state.terminating_pods if victim.node == node]
        with ExitStack() as stack:
            stack.enter_context(state.evicted(pod, gone=True))
            stack.enter_context(state.without(gone))
            replacement = self._snapshot.classes[cls].replacement
            for taker in (*first, Taker(pod, landing)):
                of_pod = replacement if taker.pod == pod else int(state.cls_of[taker.pod])
                stack.enter_context(state.filled(taker.pod, of_pod, taker.node))
            return self._take(state, concerned, stack)

    def _take(
        self, state: ClusterState, classes: Sequence[int], stack: ExitStack
    ) -> tuple[Taker, ...]:
        """Place pods of ``classes`` one after the other until ``stack`` is closed; return where they land."""
        queue = [key for cls in classes if (key := self._next(state, cls)) is not None]
        heapq.heapify(queue)
        takers: list[Taker] = []
        refused: set[int] = set()
        while queue and len(takers) < _MAX_TAKERS:
            *_, pod, cls = heapq.heappop(queue)
            nodes = self._model.predict(state, cls).nodes
            if not len(nodes):
                refused.add(cls)  # the others of its class fit nowhere either
                continue
            takers.append(Taker(pod, int(nodes[0])))
            stack.enter_context(state.filled(pod, cls, int(nodes[0])))
            retried = refused & self._interacting.get(cls, set())
            refused -= retried
            for other in (cls, *retried):
                if (key := self._next(state, other)) is not None:
                    heapq.heappush(queue, key)
        return tuple(takers)

    def _next(self, state: ClusterState, cls: int) -> tuple[int, float, int, int] | None:
        """Return (order by priority, age, pod, class) of the next pod of a class to be tried; None if none is left."""
        queue = self._queues[cls]
        left = np.flatnonzero(state.node_of[queue] < 0)
        if not len(left):
            return None
        pod = int(queue[left[0]])
        return (
            -self._snapshot.classes[cls].priority,
            float(self._snapshot.pods.created[pod]),
            pod,
            cls,
        )

    # -- classes that may be concerned ----------------------------------------------------------------------

    def find_concerned(self, state: ClusterState, pod: int) -> list[int]:
        """Return the pending classes that fit nowhere now, but may once ``pod`` or one of them has a new node."""
        if not self._queues:
            return []
        cls, node = int(state.cls_of[pod]), int(state.node_of[pod])
        replacement = self._snapshot.classes[cls].replacement
        others = self._interacting.get(cls, set()) | self._interacting.get(replacement, set())
        left = [other for other in others if self._has_room(state, other)]
        left += self._find_given_room(state, cls, node)
        concerned: set[int] = set()
        while left:
            other = left.pop()
            waits = self._next(state, other) is not None and not self._fits(state, other)
            if other not in concerned and waits:
                concerned.add(other)
                then = self._interacting.get(other, set()) - concerned
                left += [following for following in then if self._has_room(state, following)]
        return sorted(concerned)

    def _find_given_room(self, state: ClusterState, cls: int, node: int) -> list[int]:
        """Return the pending classes whose requests fit on ``node`` only after a pod of ``cls`` has left.

        Terminating victims on the node count as gone.
        """
        nodes, requests = self._snapshot.nodes, self._snapshot.requests
        free = nodes.allocatable[:, node] - state.used[:, node]
        places = int(nodes.max_pods[node]) - int(state.pod_count[node])
        before = self._fit_into(free, places)
        leaving = [cls, *(victim.cls for victim in state.terminating_pods if victim.node == node)]
        after = self._fit_into(free + requests[:, leaving].sum(axis=1), places + len(leaving))
        given = self._classes[after & ~before].tolist()
        return [other for other in given if self._model.filters_of(other).static(other)[node]]

    def _fit_into(self, free: Ints, places: int) -> Bools:
        """Return which pending classes fit into the free resources (R,) of a node with ``places`` pod slots."""
        if places <= 0:
            return np.zeros(len(self._classes), bool)
        fits = (self._asked <= free[:, None]) | (self._asked <= 0)
        return np.asarray(fits.all(axis=0))

    @cached_property
    def _asked(self) -> Ints:
        """The requests (R, C) of each pending class, for the resources that the scheduler checks."""
        requests = self._snapshot.requests
        asked = np.zeros((len(requests), len(self._classes)), np.int64)
        for column, cls in enumerate(self._queues):
            rows = self._model.filters_of(cls).resources.requested_rows(cls)
            asked[rows, column] = requests[rows, cls]
        return asked

    @cached_property
    def _interacting(self) -> dict[int, set[int]]:
        """Class -> pending classes that its pods affect by other means than requests."""
        pending_of: dict[int, set[int]] = {}
        for pending in self._queues:
            for other in self._model.filters_of(pending).interacting(pending):
                pending_of.setdefault(other, set()).add(pending)
        return pending_of

    def _has_room(self, state: ClusterState, cls: int) -> bool:
        """Return whether some node has room for a class; then the class waits for something else."""
        return self._recall(state, cls, 0)

    def _fits(self, state: ClusterState, cls: int) -> bool:
        """Return whether pods of a class fit on some node already, so that they do not wait for room."""
        return self._recall(state, cls, 1)

    def _recall(self, state: ClusterState, cls: int, question: int) -> bool:
        asked_in = state, state.version, self._model.supposed.version
        if asked_in != self._asked_in:
            self._asked_in = asked_in
            self._answers.clear()
        answer = self._answers.get((cls, question))
        if answer is None:
            ask = self._model.feasible if question else self._model.with_room
            answer = self._answers[cls, question] = bool(ask(state, cls).any())
        return answer
