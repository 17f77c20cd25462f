"""The simulated cluster: a snapshot that evictions change, with landings by the scheduler model.

A replacement exists at once; a victim uses its resources for some time longer. Controllers are assumed to replace
every pod; rollouts in progress do not progress.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rebalancer.kube.evict import PodView
from rebalancer.scheduler.explain import unschedulable_message
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.prediction import Prediction
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.columns import StringColumn, freeze
from rebalancer.snapshot.marks import with_lasting_marks
from rebalancer.snapshot.measured import with_usage_of
from rebalancer.snapshot.model import (
    DisruptionBudget,
    Nodes,
    Owner,
    PodFlag,
    Pods,
    Snapshot,
    too_few_ready,
)
from rebalancer.snapshot.state import ClusterState, TerminatingPod
from rebalancer.wire.pods import RUNNING


@dataclass(frozen=True, slots=True)
class Span:
    """A duration from ``least`` to ``most`` seconds."""

    least: float
    most: float

    def draw(self, random: np.random.Generator | None) -> float:
        """Draw a duration from the uniform distribution; without ``random`` return the middle."""
        if random is None or self.least == self.most:
            return (self.least + self.most) / 2
        return float(random.uniform(self.least, self.most))


MakeProfile = Callable[[Snapshot], SchedulerProfile]
APART = Span(0.08, 0.08)
"""From one eviction to the next in a wave, in seconds: the replacement is awaited until it has a node."""
GONE_AFTER = Span(0.0, 20.0)
"""Seconds until a victim's process has ended, unless set otherwise."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """The pod that the simulated controller made for an evicted one."""

    name: str
    uid: str
    node: str
    """Empty if none took it."""


@dataclass(frozen=True, slots=True)
class _Wave:
    """Data shared by the evictions of a wave: the scheduler's view of the cluster, and the position of each pod."""

    state: ClusterState
    model: SchedulerModel
    rows: dict[str, int]
    """uid -> row."""


@dataclass(frozen=True, slots=True)
class _Victim:
    name: str
    uid: str
    cls: int
    node: int
    created: float
    gone: float
    """When it releases its place."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The pods of one owner that are pending at the end, and why they fit on no node."""

    owner: str
    pods: int
    reason: str


class SimulatedCluster:
    """A cluster that starts as a snapshot and changes."""

    def __init__(
        self,
        snapshot: Snapshot,
        make_profile: MakeProfile,
        random: np.random.Generator | None,
        *,
        gone_after: Span = GONE_AFTER,
        apart: Span = APART,
    ) -> None:
        """``random`` draws each landing from its distribution; None chooses the most probable node.

        ``gone_after``: seconds until a victim has left its node; ``apart``: seconds between two evictions of one
        wave. Both are drawn if landings are drawn, else their middle is used.
        """
        self._make_profile, self._random = make_profile, random
        self._gone_after, self._apart = gone_after, apart
        self._victims: list[_Victim] = []
        self._first = snapshot
        self._removed: set[str] = set()
        """uids of the pods that had ended and are gone."""
        pods = snapshot.pods
        self.node, self._cls = pods.node.copy(), pods.cls.copy()
        self._created, self._ready = pods.created.copy(), pods.ready_since.copy()
        self._flags, self._deletion_cost = pods.flags.copy(), pods.deletion_cost.copy()
        self._states_of_pods, self._states = pods.state.copy(), (*pods.states, RUNNING)
        self._base_names, self._base_uids = list(pods.name), _uids(snapshot)
        self._names, self._uids = list(self._base_names), list(self._base_uids)
        self.moves: np.ndarray = np.zeros(len(pods), np.int64)
        """(P,) how often each pod, or its replacement, was moved."""
        self.now = snapshot.captured_at
        self._unready_at_first = self._unready_by_class()
        self._drop_terminating()
        self._snapshot = self._living = snapshot
        self._wave: _Wave | None = None
        self._marked = np.zeros(0, np.int32)
        self._renew()

    @property
    def pending(self) -> int:
        """The number of pods that wait for a node."""
        return int(self._waits().sum())

    def waiting(self) -> list[Waiting]:
        """Return the pods that wait for a node, by owner, with the scheduler's reason."""
        self._come_to_now()
        model = SchedulerModel(self._living, self._make_profile(self._living))
        state, pods = self._state(), np.flatnonzero(self._waits())
        of_owners: dict[tuple[str, str], int] = {}
        for cls, number in zip(*np.unique(self._cls[pods], return_counts=True), strict=True):
            one = self._living.classes[int(cls)]
            owner = self._living.owners[one.owner].ref if one.owner >= 0 else one.namespace
            key = owner, unschedulable_message(model, state, int(cls))
            of_owners[key] = of_owners.get(key, 0) + int(number)
        return [Waiting(owner, number, why) for (owner, why), number in sorted(of_owners.items())]

    @property
    def nodes(self) -> Nodes:
        """The nodes, which do not change."""
        return self._first.nodes

    @property
    def snapshot(self) -> Snapshot:
        """The current cluster."""
        self._come_to_now()
        return self._snapshot

    def wait(self, seconds: float) -> None:
        """Advance the clock by ``seconds``."""
        self.now += seconds
        self._stale = True

    def draw(self, span: Span) -> float:
        """Return a duration from the span, random if landings are drawn."""
        return span.draw(self._random)

    def terminating(self) -> Collection[str]:
        """Return the uids of the victims that still use their resources."""
        return {victim.uid for victim in self._victims if victim.gone > self.now}

    def schedule(self) -> int:
        """Place the pending pods; return how many got a node."""
        self._come_to_now()
        self._wave = None
        if not self.pending:
            return 0
        model = SchedulerModel(self._living, self._make_profile(self._living))
        with model.marking(self._marked):
            placed = self._place_waiting(self._state(), model)
        self._renew()
        return placed

    def _place_waiting(self, state: ClusterState, model: SchedulerModel) -> int:
        """Place the pending pods, highest priority first, then oldest; return how many got a node."""
        waiting = np.flatnonzero(self._waits())
        classes = self._living.classes
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

    def begin_wave(self) -> None:
        """Fix the cluster state by which the following evictions are judged."""
        self._wave = None

    def pod(self, uid: str) -> PodView | None:
        """Return the living pod of this uid."""
        row = self._of_wave().rows.get(uid)
        if row is None or self._uids[row] != uid:  # it was evicted in this wave
            return None
        node = int(self.node[row])
        return PodView(
            uid=uid,
            node=self.nodes.names[node] if node >= 0 else "",
            deleting=False,
            ready=bool(self._flags[row] & PodFlag.READY),
        )

    def find_ended(self, uid: str) -> PodView | None:
        """Return the finished pod with this uid; None if there is none."""
        finished = self._first.finished
        if finished is None or uid in self._removed:
            return None
        for pod in finished.pods.uid.rows_of({uid}).tolist():
            node = int(finished.pods.node[pod])
            name = self.nodes.names[node] if node >= 0 else ""
            phase = finished.pods.states[int(finished.pods.state[pod])].phase
            return PodView(uid=uid, node=name, deleting=False, ready=False, phase=phase)
        return None

    def remove(self, uid: str) -> None:
        """Delete a finished pod, which is not replaced."""
        self._removed.add(uid)
        self.wait(self._apart.draw(self._random))

    def mark(self, nodes: Collection[str]) -> None:
        """Set steering marks on exactly these nodes."""
        self._marked = np.array([self.nodes.index[node] for node in nodes], np.int32)

    def keep_marked(self, reason: str, nodes: Collection[str]) -> None:
        """Set marks that outlast a run, for ``reason``, on exactly these nodes."""
        marked = np.array([name in nodes for name in self.nodes.names], bool)
        first = replace(self._first, captured_at=self.now)
        self._first = with_lasting_marks(first, marked, reason)
        self._wave = None
        self._renew()

    def evict(self, uid: str) -> Replaced:
        """Evict a pod and place its replacement; advance the clock to the next eviction."""
        with self._of_wave().model.marking(self._marked):
            return self._replace_pod(uid)

    def restart(self, uid: str, starts: float) -> Replaced:
        """Restart the rollout of a pod: its replacement lands beside it, and is Ready after ``starts`` seconds.

        If the replacement fits on no node, nothing changes.
        """
        with self._of_wave().model.marking(self._marked):
            return self._replace_pod(uid, starts)

    def _replace_pod(self, uid: str, starts: float | None = None) -> Replaced:
        wave = self._of_wave()
        state = wave.state
        self._let_go(state)
        pod = wave.rows[uid]
        cls = int(self._cls[pod])
        of_class = self._living.classes[cls]
        node = -1
        if starts is not None:
            node = self._draw(wave.model.predict(state, of_class.replacement))
            if node < 0:
                return Replaced(f"{self._names[pod]}-waiting", f"{uid}-waiting", "")
        self._evict(state, pod, starts or 0.0)
        if self._living.waits(cls):
            state.reap(state.terminating_pods[-1])
            self._victims.pop()
            self._place_waiting(state, wave.model)
        if starts is None:
            node = self._draw(wave.model.predict(state, of_class.replacement))
        self.moves[pod] += 1
        self._settle(pod, of_class.replacement, node)
        if node >= 0:
            state.place(pod, of_class.replacement, node)
        self.wait(self._apart.draw(self._random))
        name = self.nodes.names[node] if node >= 0 else ""
        return Replaced(self._names[pod], self._uids[pod], name)

    def _of_wave(self) -> _Wave:
        if self._wave is None:
            self._come_to_now()
            model = SchedulerModel(self._living, self._make_profile(self._living))
            rows = {uid: row for row, uid in enumerate(self._uids)}
            self._wave = _Wave(self._state(), model, rows)
        return self._wave

    def _state(self) -> ClusterState:
        """Return the scheduler's view of the cluster, including terminating victims."""
        state = ClusterState(self._living)
        for victim in self._victims:
            state.linger(victim.cls, victim.node)
        return state

    def _evict(self, state: ClusterState, pod: int, later: float = 0.0) -> None:
        """Let a pod terminate; ``later``: the seconds until then."""
        state.evict(pod)
        self._victims.append(
            _Victim(
                name=self._names[pod],
                uid=self._uids[pod],
                cls=int(self._cls[pod]),
                node=int(self.node[pod]),
                created=float(self._created[pod]),
                gone=self.now + later + self._gone_after.draw(self._random),
            )
        )

    def _let_go(self, state: ClusterState | None = None) -> None:
        """Remove the victims whose time has come, also in ``state``."""
        gone = [victim for victim in self._victims if victim.gone <= self.now]
        self._victims = [victim for victim in self._victims if victim.gone > self.now]
        if state is not None:
            for victim in gone:
                state.reap(TerminatingPod(victim.cls, victim.node))

    def _draw(self, prediction: Prediction) -> int:
        if not len(prediction.nodes):
            return -1
        if self._random is None:
            return int(prediction.nodes[0])
        return int(self._random.choice(prediction.nodes, p=prediction.probability))

    def _settle(self, pod: int, cls: int, node: int) -> None:
        """Place the replacement of ``pod`` on ``node``, Ready; -1 leaves it pending."""
        self._cls[pod], self.node[pod] = cls, node
        self._created[pod] = self.now
        self._ready[pod] = self.now if node >= 0 else 0.0
        self._flags[pod] = PodFlag.OWNED | (PodFlag.READY if node >= 0 else 0)
        self._states_of_pods[pod] = len(self._states) - 1
        count = int(self.moves[pod])
        self._uids[pod] = f"{self._base_uids[pod]}+{count}"
        if self.snapshot.classes[cls].controller_kind != "StatefulSet":
            self._names[pod] = f"{self._base_names[pod]}-r{count}"

    def _waits(self) -> np.ndarray:
        return (self.node < 0) & self._lives()

    def _lives(self) -> np.ndarray:
        gated = np.array([bool(c.spec.scheduling_gates) for c in self._first.classes], bool)
        lost = (self._flags & (PodFlag.LOST_NODE | PodFlag.TERMINATING)) != 0
        of_pods = gated[self._cls] if len(self._cls) else np.zeros(0, bool)
        return ~lost & ~of_pods

    def _unready_by_class(self) -> np.ndarray:
        without = (self.node < 0) | ((self._flags & PodFlag.READY) == 0)
        return np.bincount(self._cls[without & self._lives()], minlength=len(self._first.classes))

    def _drop_terminating(self) -> None:
        """Remove terminating pods of the first snapshot: replaced, or pending if the owner waits for them."""
        going = np.flatnonzero((self._flags & PodFlag.TERMINATING) != 0)
        for pod in going.tolist():
            cls = int(self._cls[pod])
            self.node[pod] = -1
            if self._first.waits(cls):
                self._cls[pod] = self._first.classes[cls].replacement
                self._flags[pod] = PodFlag.OWNED

    # -- the next snapshot -------------------------------------------------------------------------

    def _come_to_now(self) -> None:
        if self._stale:
            self._let_go()
            self._renew()

    def _renew(self) -> None:
        first = self._first
        more_ready = self._unready_at_first - self._unready_by_class()
        living = replace(
            first,
            captured_at=self.now,
            pods=self._pods(()),
            owners=tuple(
                _owner(owner, int(count))
                for owner, count in zip(first.owners, self._per_owner(more_ready), strict=True)
            ),
            budgets=tuple(
                _budget(budget, int(more_ready[budget.classes].sum())) for budget in first.budgets
            ),
            finished=self._list_finished(),
        )
        self._snapshot = self._living = set_measured_at(with_usage_of(first, living), self.now)
        self._stale = False
        if self._victims:
            both = replace(living, pods=self._pods(self._victims))
            self._snapshot = set_measured_at(with_usage_of(first, both), self.now)

    def _list_finished(self) -> Snapshot | None:
        """Return the finished pods that have not been deleted."""
        finished = self._first.finished
        if finished is None:
            return None
        gone = np.zeros(len(finished.pods), bool)
        gone[finished.pods.uid.rows_of(self._removed)] = True
        return replace(finished, captured_at=self.now, pods=finished.pods.without(gone))

    def _pods(self, victims: Sequence[_Victim]) -> Pods:
        """Return the pods in their constant rows, followed by the terminating victims."""
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
            state=_with(self._states_of_pods, [len(self._states) - 1] * more),
            states=self._states,
            lost_nodes=self._first.pods.lost_nodes,
        )

    def _per_owner(self, per_class: np.ndarray) -> np.ndarray:
        total = np.zeros(len(self._first.owners), np.int64)
        for cls in np.flatnonzero(per_class).tolist():
            if (owner := self._first.classes[cls].owner) >= 0:
                total[owner] += per_class[cls]
        return total


def _uids(snapshot: Snapshot) -> list[str]:
    """Return the uid of each pod; one that a generated file lacks is made of the pod's namespace and name."""
    pods = snapshot.pods
    return [
        uid or f"{snapshot.classes[cls].namespace}/{name}"
        for uid, cls, name in zip(pods.uid, pods.cls.tolist(), pods.name, strict=True)
    ]


def set_measured_at(snapshot: Snapshot, now: float) -> Snapshot:
    """Return ``snapshot`` with its usage, if any, dated ``now``."""
    usage = snapshot.usage
    return snapshot if usage is None else replace(snapshot, usage=replace(usage, at=now))


def _with(column: np.ndarray, more: Sequence[float]) -> np.ndarray:
    return freeze(np.concatenate([column, np.array(more, column.dtype)]))


def _owner(owner: Owner, more_ready: int) -> Owner:
    """Return the owner with ``more_ready`` (may be negative) more Ready pods than at first."""
    waited = owner.unsettled in (None, too_few_ready(owner.ready, owner.replicas))
    if not more_ready or not waited:
        return owner
    ready = min(owner.replicas, max(0, owner.ready + more_ready))
    return replace(owner, ready=ready, unsettled=too_few_ready(ready, owner.replicas))


def _budget(budget: DisruptionBudget, more_ready: int) -> DisruptionBudget:
    """Return the budget with ``more_ready`` (may be negative) more healthy pods than at first."""
    if budget.allowed != max(0, budget.healthy - budget.desired):
        return budget  # Its status was not up to date: what it will be is not known.
    healthy = budget.healthy + more_ready
    return replace(budget, healthy=healthy, allowed=max(0, healthy - budget.desired))
