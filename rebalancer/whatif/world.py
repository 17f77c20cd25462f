"""The cluster of a simulation: one snapshot after another, changed by what the scheduler model says.

Replacements that found a node are Ready when the next wave begins; a victim holds its place for a while
longer or less. Controllers are taken to replace every pod; rollouts that were under way stay so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rebalancer.evictor.executor import as_predicted
from rebalancer.plan.outcome import Outcome, Status
from rebalancer.plan.plan import Move
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.prediction import Prediction
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.carried import with_usage_of
from rebalancer.snapshot.columns import StringColumn, frozen
from rebalancer.snapshot.model import DisruptionBudget, Owner, PodFlag, Pods, Snapshot
from rebalancer.snapshot.state import ClusterState, Ghost
from rebalancer.whatif.span import Span

MakeProfile = Callable[[Snapshot], SchedulerProfile]
APART = Span(0.08, 0.08)
"""From one eviction to the next in a wave, in seconds: the replacement is awaited until it has a node."""
GONE_AFTER = Span(0.0, 20.0)
"""Seconds until a victim's process has ended, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class _Victim:
    """A pod on its way out, as it was."""

    name: str
    uid: str
    cls: int
    node: int
    created: float
    gone: float
    """When it lets go of its place."""


class World:
    """A snapshot that goes on living."""

    def __init__(
        self,
        snapshot: Snapshot,
        make_profile: MakeProfile,
        random: np.random.Generator | None,
        *,
        gone_after: Span = GONE_AFTER,
        apart: Span = APART,
    ) -> None:
        """``random`` draws each landing from its distribution; None takes the most probable node.

        ``gone_after``: seconds for which a victim still holds its place; ``apart``: from one eviction to the next in a
        wave. Both are drawn where landings are drawn, else the middle.
        """
        self._make_profile, self._random = make_profile, random
        self._gone_after, self._apart = gone_after, apart
        self._victims: list[_Victim] = []
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
        self.snapshot = self._living = snapshot
        self._renew()

    @property
    def pending(self) -> int:
        """Pods that want a node and have none."""
        return int(self._waits().sum())

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self._wait_until(self.now + seconds)

    def wait_within(self, span: Span) -> None:
        """Let a time of the span pass, drawn where landings are drawn."""
        self.wait(span.draw(self._random))

    def wait_until_gone(self, uids: Collection[str], most: float) -> None:
        """Let time pass until those of the victims are gone, at most so many seconds."""
        last = max((victim.gone for victim in self._victims if victim.uid in uids), default=0.0)
        if last > self.now:
            self._wait_until(min(last, self.now + most))

    def _wait_until(self, now: float) -> None:
        self.now = now
        self._let_go()
        self._renew()

    def schedule(self) -> int:
        """Place the pods that wait; return how many got a node."""
        if not self.pending:
            return 0
        model = SchedulerModel(self._living, self._make_profile(self._living))
        placed = self._place_waiting(self._state(), model)
        self._renew()
        return placed

    def _place_waiting(self, state: ClusterState, model: SchedulerModel) -> int:
        """Place the pods that wait, highest priority first, then the oldest; return how many got a node."""
        waiting = np.flatnonzero(self._waits())
        classes = self.snapshot.classes
        priority = np.array([classes[cls].priority for cls in self._cls[waiting].tolist()], int)
        without: set[int] = set()
        placed = 0
        for pod in waiting[np.lexsort((self._created[waiting], -priority))].tolist():
            cls = int(self._cls[pod])
            node = self._draw(model.predict(state, cls)) if cls not in without else -1
            if node < 0:
                without.add(cls)
                continue
            state.place(pod, cls, node)
            self._settle(pod, cls, node)
            placed += 1
        return placed

    def carry_out(self, moves: Sequence[Move]) -> list[Outcome]:
        """Evict the pods of one wave and land their replacements, one after the other."""
        rows = {uid: row for row, uid in enumerate(self._uids)}
        state = self._state()
        model = SchedulerModel(self._living, self._make_profile(self._living))
        outcomes: list[Outcome] = []
        for move in moves:
            self._let_go(state)
            pod = rows[move.uid]
            cls = int(self._cls[pod])
            of_class = self._living.classes[cls]
            self._evict(state, pod)
            if self._living.waits(cls):
                state.reap(state.ghosts[-1])
                self._victims.pop()
                self._place_waiting(state, model)
            node = self._draw(model.predict(state, of_class.replacement))
            self.moves[pod] += 1
            self._settle(pod, of_class.replacement, node)
            if node >= 0:
                state.place(pod, of_class.replacement, node)
            outcomes.append(self._outcome(move, pod, node))
            self.now += self._apart.draw(self._random)
        self._renew()
        return outcomes

    def _state(self) -> ClusterState:
        """Return the cluster as the scheduler sees it, victims that still hold their places included."""
        state = ClusterState(self._living)
        for victim in self._victims:
            state.linger(victim.cls, victim.node)
        return state

    def _evict(self, state: ClusterState, pod: int) -> None:
        state.evict(pod)
        self._victims.append(
            _Victim(
                name=self._names[pod],
                uid=self._uids[pod],
                cls=int(self._cls[pod]),
                node=int(self.node[pod]),
                created=float(self._created[pod]),
                gone=self.now + self._gone_after.draw(self._random),
            )
        )

    def _let_go(self, state: ClusterState | None = None) -> None:
        """Let the victims be gone whose time has come, in ``state`` too."""
        gone = [victim for victim in self._victims if victim.gone <= self.now]
        self._victims = [victim for victim in self._victims if victim.gone > self.now]
        if state is not None:
            for victim in gone:
                state.reap(Ghost(victim.cls, victim.node))

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
            cls = int(self._cls[pod])
            self.node[pod] = -1
            if self._first.waits(cls):
                self._cls[pod] = self._first.classes[cls].replacement
                self._flags[pod] = PodFlag.OWNED

    # -- the next snapshot -------------------------------------------------------------------------

    def _renew(self) -> None:
        first = self._first
        waiting = self._waiting_by_class()
        living = replace(
            first,
            captured_at=self.now,
            pods=self._pods(()),
            owners=tuple(
                _owner(owner, int(count))
                for owner, count in zip(first.owners, self._per_owner(waiting), strict=True)
            ),
            budgets=tuple(
                _budget(budget, int((waiting - self._waiting_at_first)[budget.classes].sum()))
                for budget in first.budgets
            ),
        )
        self.snapshot = self._living = measured_at(with_usage_of(first, living), self.now)
        if self._victims:
            both = replace(living, pods=self._pods(self._victims))
            self.snapshot = measured_at(with_usage_of(first, both), self.now)

    def _pods(self, victims: Sequence[_Victim]) -> Pods:
        """Return the pods, in the rows that they always have, and after them the terminating victims."""
        more = len(victims)
        going = np.full(more, PodFlag.OWNED | PodFlag.READY | PodFlag.TERMINATING)
        return Pods(
            name=StringColumn([*self._names, *(victim.name for victim in victims)]),
            uid=StringColumn([*self._uids, *(victim.uid for victim in victims)]),
            cls=_with(self._cls, [victim.cls for victim in victims]),
            node=_with(self.node, [victim.node for victim in victims]),
            created=_with(self._created, [victim.created for victim in victims]),
            ready_since=_with(self._ready, [victim.created for victim in victims]),
            deletion_cost=_with(self._deletion_cost, [0] * more),
            flags=_with(self._flags, going.tolist()),
        )

    def _per_owner(self, per_class: np.ndarray) -> np.ndarray:
        total = np.zeros(len(self._first.owners), np.int64)
        for cls in np.flatnonzero(per_class).tolist():
            if (owner := self._first.classes[cls].owner) >= 0:
                total[owner] += per_class[cls]
        return total


def measured_at(snapshot: Snapshot, now: float) -> Snapshot:
    """Return ``snapshot`` as if what is used had just been measured, if it was at all."""
    usage = snapshot.usage
    return snapshot if usage is None else replace(snapshot, usage=replace(usage, at=now))


def _with(column: np.ndarray, more: Sequence[float]) -> np.ndarray:
    return frozen(np.concatenate([column, np.array(more, column.dtype)]))


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
