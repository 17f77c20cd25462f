"""Pending pods, and which of them are placed in the room that a move frees.

The scheduler retries pending pods as soon as a pod is gone whose end may help them (``QueueingHint`` of each
plug-in), in the order of ``queuesort.PrioritySort``: highest priority first, then longest waiting time. They are in
the queue before the replacement of a deleted pod is even created. The replacement of a pod that is still terminating
comes before them, because the room is not free yet.

When a pending pod lands, pods for which its affinity or spread matters are retried (``AssignedPodAdded``). They,
too, waited before the replacement was created, and are placed first if both are in the queue.

Back-off times (at most 10 s) and nominated nodes cannot be read from any object; the age of a pod is used as its
waiting time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Protocol

import numpy as np

from rebalancer.core.prediction import ClusterArrays, PodArrays
from rebalancer.core.queue import Queue, find_concerned, take
from rebalancer.core.views import view_of
from rebalancer.scheduler.filters import Filters
from rebalancer.scheduler.placement import Supposed
from rebalancer.scheduler.prediction import Prediction, Taker
from rebalancer.snapshot.columns import Ints
from rebalancer.snapshot.model import PodFlag, Snapshot
from rebalancer.snapshot.state import ClusterState


class Scheduling(Protocol):
    """The part of the scheduler model that :class:`Pending` uses."""

    supposed: Supposed

    def filters_of(self, cls: int) -> Filters:
        """Return the filters that apply to pods of a class."""

    def lower(self, state: ClusterState, cls: int) -> tuple[PodArrays, ClusterArrays]:
        """Return a class, and the nodes, for predictions by the core alone."""

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
        waits = (pods.node < 0) & ~lost
        self._classes = np.array(
            [
                cls
                for cls in np.unique(pods.cls[waits]).tolist()
                if not model.find_unmodelled(cls) and not model.rejection(cls)
            ],
            np.int32,
        )
        priority = np.array([of.priority for of in snapshot.classes], np.int64)
        rows = np.flatnonzero(waits & np.isin(pods.cls, self._classes))
        rows = rows[np.lexsort((rows, pods.created[rows], -priority[pods.cls[rows]]))]
        self._rank = np.argsort(pods.cls[rows], kind="stable")
        """(M,) places in the queue, class by class."""
        self._pods = rows[self._rank].astype(np.int32)
        self._start = np.searchsorted(pods.cls[self._pods], [*self._classes, len(snapshot.classes)])
        self._queue: Queue | None = None
        self._asked_in: tuple[ClusterState, int, int] | None = None
        """The state of the queue, its version, and that of what is assumed."""

    @property
    def has_any(self) -> bool:
        """Whether any pods are pending."""
        return len(self._classes) > 0

    def forget(self) -> None:
        """Find the rules of all classes again."""
        self._queue = None

    # -- asked by explanations and by the planner --------------------------------------------------

    def foresee(self, state: ClusterState, pod: int) -> Prediction:
        """Return the landing of the replacement if ``pod`` is evicted now, with the pending pods that take its room."""
        concerned = self.find_concerned(state, pod)
        if not concerned:
            return self._model.predict_replacement(state, pod)
        return self.foresee_with(state, pod, concerned)

    def foresee_with(self, state: ClusterState, pod: int, concerned: Sequence[int]) -> Prediction:
        """Return :meth:`foresee` of a pod, given the classes that may take room."""
        cls, node = int(state.cls_of[pod]), int(state.node_of[pod])
        replacement = self._snapshot.classes[cls].replacement
        with self._before_landing(state, pod, concerned) as first:
            prediction = self._model.predict(state, replacement)
        then: tuple[Taker, ...] = ()
        if len(prediction.nodes) and not prediction.unmodelled:
            landing = int(prediction.nodes[0])
            gone = [victim for victim in state.terminating_pods if victim.node == node]
            with (
                state.evicted(pod, gone=True),
                state.without(gone),
                self._fill(state, first),
                state.filled(pod, replacement, landing),
            ):
                then = self._take(state, concerned)
        return replace(prediction, takers=first + then)

    def takers(self, state: ClusterState) -> tuple[Taker, ...]:
        """Return the pending pods that the scheduler places in this state, in its order."""
        return self._take(state, range(len(self._classes)))

    @contextmanager
    def before_landing(self, state: ClusterState, pod: int) -> Iterator[None]:
        """Change ``state``, within a ``with`` block, to what the scheduler sees when it places the replacement of ``pod``; see ``ClusterState.evicted``.

        The victim is terminating; or it is gone and pending pods have taken its room; or, with a restart, it still
        runs.
        """
        concerned = self.find_concerned(state, pod)
        with self._before_landing(state, pod, concerned):
            yield

    @contextmanager
    def before_turn(self, state: ClusterState, pod: int) -> Iterator[tuple[Taker, ...]]:
        """Keep the state, within a ``with`` block, in which the scheduler places the pending ``pod``; yield the pods that it places before."""
        takers = self.takers(state)
        turn = next((n for n, taker in enumerate(takers) if taker.pod == pod), len(takers))
        with self._fill(state, takers[:turn]):
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

    def find_concerned(self, state: ClusterState, pod: int) -> list[int]:
        """Return the pending classes that fit nowhere now, but may once ``pod`` or one of them has a new node.

        They are given by their places among the pending classes.
        """
        if not self.has_any:
            return []
        cls, node = int(state.cls_of[pod]), int(state.node_of[pod])
        leaving = [cls, *(victim.cls for victim in state.terminating_pods if victim.node == node)]
        asked, queue = (state, state.version, self._model.supposed.version), self._find_queue(state)
        if asked != self._asked_in:
            self._asked_in = asked
            np.asarray(queue.roomy)[:] = np.asarray(queue.fitting)[:] = -1
        replacement = self._snapshot.classes[cls].replacement
        leave = view_of(np.array(leaving, np.int32))
        if not find_concerned(queue, cls, replacement, node, leave):
            return []
        return np.flatnonzero(queue.concerned).tolist()

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
            first = self._take(state, concerned) if gone and concerned else ()
            with self._fill(state, first):
                yield first

    @staticmethod
    @contextmanager
    def _fill(state: ClusterState, takers: Sequence[Taker]) -> Iterator[None]:
        """Put pending pods on their nodes within the context, for predictions."""
        with ExitStack() as stack:
            for taker in takers:
                cls = int(state.cls_of[taker.pod])
                stack.enter_context(state.filled(taker.pod, cls, taker.node))
            yield

    def _take(self, state: ClusterState, concerned: Sequence[int]) -> tuple[Taker, ...]:
        """Return where pods of these classes land one after the other."""
        if not len(concerned):
            return ()
        queue = self._find_queue(state)
        flags = np.asarray(queue.concerned)
        flags[:] = 0
        flags[concerned] = 1
        count = take(queue)
        pods, _, nodes = np.asarray(queue.takers)[:, :count].tolist()
        return tuple(map(Taker, pods, nodes))

    def _find_queue(self, state: ClusterState) -> Queue:
        """Return the queue in a state, as the core reads it.

        It keeps all waiting classes, lowered, because each move is checked against all of them. 3000 classes on 3000
        nodes need 59 MB, and 0.95 s at the first check.
        """
        if self._queue is None or self._asked_in is None or self._asked_in[0] is not state:
            starts, affected = self._affected
            lowered = [self._model.lower(state, cls) for cls in self._classes.tolist()]
            self._queue = Queue(
                view_of(self._classes),
                view_of(self._start),
                view_of(self._pods),
                view_of(self._rank),
                view_of(starts),
                view_of(affected),
                [pod for pod, _ in lowered],
                [cluster for _, cluster in lowered],
                view_of(state.node_of),
            )
            self._asked_in = state, -1, -1
        return self._queue

    @cached_property
    def _affected(self) -> tuple[Ints, Ints]:
        """For each class (C + 1,) where those begin that its pods affect by other means than requests, and these (A,)."""
        pairs = sorted(
            (other, place)
            for place, cls in enumerate(self._classes.tolist())
            for other in self._model.filters_of(cls).interacting(cls)
        )
        columns = np.array(pairs, np.int64).reshape(-1, 2)
        starts = np.searchsorted(columns[:, 0], np.arange(len(self._snapshot.classes) + 1))
        return starts, np.ascontiguousarray(columns[:, 1])
