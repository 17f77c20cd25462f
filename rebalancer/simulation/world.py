"""The cluster of a simulation: one snapshot after another, changed by what the scheduler model says.

Between cycles all is well: victims are gone, replacements that found a node are Ready. Controllers are
taken to replace every pod; rollouts that were under way stay so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from rebalancer.evictor.executor import as_predicted
from rebalancer.evictor.outcomes import Outcome, Status
from rebalancer.planner.plan import Move
from rebalancer.scheduler.model import Prediction, SchedulerModel
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.columns import StringColumn, frozen
from rebalancer.snapshot.model import DisruptionBudget, Owner, PodFlag, Pods, Snapshot
from rebalancer.snapshot.state import ClusterState

MakeProfile = Callable[[Snapshot], SchedulerProfile]


class World:
    """A snapshot that goes on living."""

    def __init__(
        self, snapshot: Snapshot, make_profile: MakeProfile, random: np.random.Generator | None
    ) -> None:
        """``random`` draws each landing from its distribution; None takes the most probable node."""
        self._make_profile, self._random = make_profile, random
        self._first = snapshot
        pods = snapshot.pods
        self.node, self._cls = pods.node.copy(), pods.cls.copy()
        self._created, self._ready = pods.created.copy(), pods.ready_since.copy()
        self._flags, self._deletion_cost = pods.flags.copy(), pods.deletion_cost.copy()
        self._names, self._uids = list(pods.name), list(pods.uid)
        self._base_names = list(pods.name)
        self.moves: np.ndarray = np.zeros(len(pods), np.int64)
        """(P,) how often each pod, or its replacement, was moved."""
        self.now = snapshot.captured_at
        self._waiting_at_first = self._waiting_by_class()
        self._drop_terminating()
        self.snapshot = snapshot
        self._renew()

    @property
    def pending(self) -> int:
        """Pods that want a node and have none."""
        return int(self._waits().sum())

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        self._renew()

    def schedule(self) -> int:
        """Place the pods that wait, highest priority first; return how many found a node."""
        waiting = np.flatnonzero(self._waits())
        if not len(waiting):
            return 0
        classes = self.snapshot.classes
        priority = np.array([classes[int(self._cls[pod])].priority for pod in waiting])
        state = ClusterState(self.snapshot)
        model = SchedulerModel(self.snapshot, self._make_profile(self.snapshot))
        placed = 0
        for pod in waiting[np.argsort(-priority, kind="stable")].tolist():
            cls = int(self._cls[pod])
            node = self._draw(model.predict(state, cls))
            if node >= 0:
                state.place(pod, cls, node)
                self._settle(pod, cls, node)
                placed += 1
        self._renew()
        return placed

    def carry_out(self, moves: Sequence[Move]) -> list[Outcome]:
        """Evict the pods of one wave and land their replacements, one after the other."""
        rows = {uid: row for row, uid in enumerate(self._uids)}
        state = ClusterState(self.snapshot)
        model = SchedulerModel(self.snapshot, self._make_profile(self.snapshot))
        outcomes: list[Outcome] = []
        for move in moves:
            pod = rows[move.uid]
            of_class = self.snapshot.classes[int(self._cls[pod])]
            state.evict(pod)
            if of_class.owner >= 0 and self.snapshot.owners[of_class.owner].waits:
                state.reap(state.ghosts[-1])
            node = self._draw(model.predict(state, of_class.replacement))
            self.moves[pod] += 1
            self._settle(pod, of_class.replacement, node)
            if node >= 0:
                state.place(pod, of_class.replacement, node)
            outcomes.append(self._outcome(move, pod, node))
        self._renew()
        return outcomes

    def _outcome(self, move: Move, pod: int, node: int) -> Outcome:
        text = f"replaced by {self._names[pod]}"
        if node < 0:
            return Outcome(move, Status.EVICTED, f"{text}, which found no node")
        nodes = self.snapshot.nodes
        name = nodes.names[node]
        predicted = as_predicted(move, nodes.labels_of(name), name)
        return Outcome(move, Status.EVICTED, text, landed=name, predicted=predicted)

    def _draw(self, prediction: Prediction) -> int:
        if not len(prediction.nodes):
            return -1
        if self._random is None:
            return int(prediction.nodes[0])
        return int(self._random.choice(prediction.nodes, p=prediction.probability))

    def _settle(self, pod: int, cls: int, node: int) -> None:
        """Let the replacement of ``pod`` stand on ``node``, Ready; -1 leaves it waiting."""
        self._cls[pod], self.node[pod] = cls, node
        self._created[pod] = self.now
        self._ready[pod] = self.now if node >= 0 else 0.0
        self._flags[pod] = PodFlag.OWNED | (PodFlag.READY if node >= 0 else 0)
        count = int(self.moves[pod])
        self._uids[pod] = f"{self._first.pods.uid[pod]}+{count}"
        if self.snapshot.classes[cls].controller_kind != "StatefulSet":
            self._names[pod] = f"{self._base_names[pod]}-r{count}"

    def _waits(self) -> np.ndarray:
        gated = np.array([bool(c.spec.scheduling_gates) for c in self._first.classes], bool)
        lost = (self._flags & (PodFlag.LOST_NODE | PodFlag.TERMINATING)) != 0
        of_pods = gated[self._cls] if len(self._cls) else np.zeros(0, bool)
        return (self.node < 0) & ~lost & ~of_pods

    def _waiting_by_class(self) -> np.ndarray:
        waiting = self._cls[self._waits()]
        return np.bincount(waiting, minlength=len(self._first.classes))

    def _drop_terminating(self) -> None:
        """Let what terminates be gone: replaced already, or waiting to be if the owner waits for it."""
        going = np.flatnonzero((self._flags & PodFlag.TERMINATING) != 0)
        for pod in going.tolist():
            of_class = self._first.classes[int(self._cls[pod])]
            self.node[pod] = -1
            if of_class.owner >= 0 and self._first.owners[of_class.owner].waits:
                self._cls[pod], self._flags[pod] = of_class.replacement, PodFlag.OWNED

    # -- the next snapshot -------------------------------------------------------------------------

    def _renew(self) -> None:
        first = self._first
        waiting = self._waiting_by_class()
        self.snapshot = replace(
            first,
            captured_at=self.now,
            pods=Pods(
                name=StringColumn(self._names),
                uid=StringColumn(self._uids),
                cls=frozen(self._cls.copy()),
                node=frozen(self.node.copy()),
                created=frozen(self._created.copy()),
                ready_since=frozen(self._ready.copy()),
                deletion_cost=frozen(self._deletion_cost.copy()),
                flags=frozen(self._flags.copy()),
            ),
            owners=tuple(
                _owner(owner, int(count))
                for owner, count in zip(first.owners, self._per_owner(waiting), strict=True)
            ),
            budgets=tuple(
                _budget(budget, int((waiting - self._waiting_at_first)[budget.classes].sum()))
                for budget in first.budgets
            ),
        )

    def _per_owner(self, per_class: np.ndarray) -> np.ndarray:
        total = np.zeros(len(self._first.owners), np.int64)
        for cls in np.flatnonzero(per_class).tolist():
            if (owner := self._first.classes[cls].owner) >= 0:
                total[owner] += per_class[cls]
        return total


def _owner(owner: Owner, waiting: int) -> Owner:
    if not waiting or owner.unsettled is not None:
        return owner
    ready = max(0, owner.replicas - waiting)
    return replace(owner, ready=ready, unsettled=f"{ready} of {owner.replicas} replicas ready")


def _budget(budget: DisruptionBudget, more_waiting: int) -> DisruptionBudget:
    """Return the budget with so many fewer healthy pods than at first."""
    if budget.allowed != max(0, budget.healthy - budget.desired):
        return budget  # Its status was not up to date: what it will be is not known.
    healthy = budget.healthy - more_waiting
    return replace(budget, healthy=healthy, allowed=max(0, healthy - budget.desired))
