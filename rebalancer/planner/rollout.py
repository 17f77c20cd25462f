"""A rollout as a plan predicts it: where the new pods of a Deployment land while the old ones end one after the other.

With a maxUnavailable of 0 a rolling update keeps ``replicas + maxSurge`` pods: it starts maxSurge new ones, and for
each that is available ends an old one and starts the next
(``k8s.io/kubernetes/pkg/controller/deployment/rolling.go``). Its ReplicaSet chooses which old
pod ends (``pkg/controller/controller_utils.go: ActivePodsWithRanks``); a client that empties a node cannot.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack

from rebalancer.base.plain_text import count
from rebalancer.planner.draft import Draft
from rebalancer.planner.refusal import Refusal, Why
from rebalancer.scheduler.prediction import Prediction
from rebalancer.snapshot.state import TerminatingPod

_NANOSECONDS = 1e9


def foresee_rollout(
    draft: Draft, pods: Sequence[int], named: Collection[int]
) -> Mapping[int, Prediction] | Refusal:
    """Return old pod -> landing of its successor, in the order in which old pods end; or why the rollout may never end.

    ``pods``: all pods of the Deployment; ``named``: those that have to leave their nodes. The ReplicaSet may end
    these first, against its own order: then no room is made on other nodes before the end. A rollout that could
    stall in either order is not begun. The state of the draft is left as it was.
    """
    expected = _roll(draft, pods, ())
    if isinstance(expected, Refusal) or not 0 < len(named) < len(pods):
        return expected
    worst = _roll(draft, pods, named)
    return worst if isinstance(worst, Refusal) else expected


def _roll(
    draft: Draft, pods: Sequence[int], first: Collection[int]
) -> Mapping[int, Prediction] | Refusal:
    with ExitStack() as stack:
        rollout = _Rollout(draft, pods, first, stack)
        landings: list[Prediction] = []
        for number in range(len(pods)):
            if number >= rollout.surge:
                rollout.end_next()
            landings.append(rollout.start_next())
            if not len(landings[-1].nodes):
                old = count(rollout.running, "old pod")
                return Refusal.of(Why.ROLLOUT_STALLS, number=number + 1, of=len(pods), old=old)
        while rollout.running:
            rollout.end_next()
        return dict(zip(rollout.ended, landings, strict=True))


class _Rollout:
    """A rollout under way, in the state of a draft until ``stack`` is closed."""

    def __init__(
        self, draft: Draft, pods: Sequence[int], first: Collection[int], stack: ExitStack
    ) -> None:
        snapshot = draft.snapshot
        of_class = snapshot.classes[int(snapshot.pods.cls[pods[0]])]
        self.surge, self._new = of_class.membership.surge, of_class.replacement
        self.ended: list[int] = []
        """The old pods, in the order in which they end."""
        self._draft, self._state, self._stack = draft, draft.state, stack
        self._running, self._first = set(pods), first
        self._terminating: list[TerminatingPod] = []
        """Old pods that may still occupy their room."""
        self._on = Counter(int(self._state.node_of[pod]) for pod in pods)
        """Node -> how many pods of the Deployment run there, old and new."""

    @property
    def running(self) -> int:
        return len(self._running)

    def start_next(self) -> Prediction:
        """Start a new pod, and return its landing; without a node if it fits on none, even once all terminating pods are gone."""
        scheduler, state = self._draft.scheduler, self._state
        prediction = scheduler.predict(state, self._new)
        if not len(prediction.nodes) and self._terminating:
            self._stack.enter_context(state.without(self._terminating))
            self._terminating = []
            prediction = scheduler.predict(state, self._new)
        if len(prediction.nodes):
            node = int(prediction.nodes[0])
            self._stack.enter_context(state.with_one_more(self._new, node))
            self._on[node] += 1
        return prediction

    def end_next(self) -> None:
        """Let the next old pod terminate."""
        pod = min(self._running, key=self._rank)
        self._running.remove(pod)
        self.ended.append(pod)
        self._on[int(self._state.node_of[pod])] -= 1
        self._stack.enter_context(self._state.evicted(pod, gone=False))
        self._terminating.append(self._state.terminating_pods[-1])

    def _rank(self, pod: int) -> tuple[bool, int, int, int, str]:
        """Return the rank of a pod that runs and is Ready: the least is ended first."""
        pods = self._draft.snapshot.pods
        ready = self._draft.snapshot.captured_at - float(pods.ready_since[pod])
        return (
            pod not in self._first,
            int(pods.deletion_cost[pod]),
            -self._on[int(self._state.node_of[pod])],
            # LogarithmicScaleDown: ages are compared by powers of two, and equal ones by uid.
            int(math.log2(ready * _NANOSECONDS)) if ready > 0 else -1,
            pods.uid[pod],
        )
