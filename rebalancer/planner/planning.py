"""Make problems and plans from a policy and the memory of earlier runs, for a run and between its waves."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rebalancer.base.environment import Timings, collector_paused
from rebalancer.cost.room_term import KEPT_FREE, Ask, kept_free
from rebalancer.cost.strategy import Emptiable, Ended, Strategy
from rebalancer.cost.streaks import Streaks
from rebalancer.cost.term import Term, View
from rebalancer.plan.plan import Method, Move, Outcome, Pace, Plan, Score, UnmetRule
from rebalancer.planner.draft import Draft
from rebalancer.planner.notices import scope_notes
from rebalancer.planner.plan import Callbacks, Decision, PlanObserver, never, plan
from rebalancer.planner.problem import Contribution, Problem
from rebalancer.planner.recheck import recheck
from rebalancer.planner.safety import standstill
from rebalancer.planner.scheduler_profile import scheduler_profile
from rebalancer.planner.settings import Settings
from rebalancer.planner.unmet import unmet_of
from rebalancer.planner.whole_nodes import with_empty_nodes, with_reviewed_nodes
from rebalancer.policy.kube_scheduler import KubeSchedulerConfiguration
from rebalancer.policy.load import LoadedPolicy
from rebalancer.policy.model import Mode, Policy, Protect, Steer
from rebalancer.registry import Registry
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.columns import Bools, Int32s
from rebalancer.snapshot.marks import as_planned_on, to_be_empty, with_empty_marks
from rebalancer.snapshot.model import GangKey, PodGroup, Snapshot
from rebalancer.snapshot.owners import with_restarts
from rebalancer.snapshot.protect import NONE_ENDED, Scope, find_done, protect, protect_ended
from rebalancer.snapshot.selected import select_pods, with_avoided


@dataclass(frozen=True, slots=True)
class Planned:
    """A snapshot and its plan, with the reasons why the plan must not be executed, if any."""

    snapshot: Snapshot
    plan: Plan
    standstill: tuple[str, ...]
    streaks: Mapping[str, Streaks] = field(default_factory=dict)
    """Strategy -> what it has seen for how many runs in a row, this one included."""
    ended: Mapping[str, Outcome] = field(default_factory=dict)
    """Of a reviewed plan: uid of the pod -> why its move is not to be tried any more."""
    observer: PlanObserver | None = None
    """What has looked at the plan while it was made."""

    @property
    def left(self) -> tuple[Move, ...]:
        """The moves of the plan that are still to be tried."""
        return tuple(move for move in self.plan.moves if move.uid not in self.ended)


@dataclass(frozen=True, slots=True)
class ClusterNow:
    """The cluster after a run, scored by the terms of its plan."""

    snapshot: Snapshot
    scores: Mapping[str, Score]
    """Strategy -> what it sees."""
    unmet: tuple[UnmetRule, ...]
    """The rules that are unmet, as many as ``scores`` count, without reasons."""


Protections = Callable[[Snapshot, Protect, Scope], Int32s]
"""Returns what holds each pod (P,), see :func:`rebalancer.snapshot.protect.protect`."""


class Planning:
    """Plans on snapshots under one policy, once for the plan and again between waves."""

    def __init__(
        self,
        loaded: LoadedPolicy,
        registry: Registry,
        scope: Scope,
        *,
        lifted: bool = False,
        reviewed: Sequence[Move] | None = None,
        empty: Collection[str] = (),
        seconds: float = math.inf,
        protections: Protections = protect,
        runs: Collection[str] | None = None,
    ) -> None:
        """``reviewed``: plan no moves but these, which people have seen; see :mod:`rebalancer.planner.review`.

        ``empty``: names of the nodes without pods that the reviewed plan marks. ``seconds``: the time of the run; no
        more is planned than can be carried out in it. ``protections`` says which pods may not be moved. ``runs`` are the
        names in the marks of this run, see :func:`rebalancer.snapshot.marks.as_planned_on`.
        """
        self._protections, self._runs = protections, runs
        self.seconds, self._pace = seconds, Pace()
        self._reviewed, self._empty = reviewed, empty
        self.loaded = loaded
        """With what ``scheduler.fromConfig`` names, once that is read."""
        self._policy, self._registry = loaded.policy, registry
        self._scope = replace(scope, policy_select=loaded.policy.select)
        self._lifted = lifted
        self._moved_last_hour = 0
        self._hour_unknown: str | None = None
        self._streaks: Mapping[str, Streaks] | None = None
        self._planned: frozenset[str] = frozenset()
        self._groups: Mapping[GangKey, PodGroup] = {}
        """The PodGroups of the plan's snapshot: pictures of the cluster between waves have none."""
        self._movable: int | None = None
        self._emptied: frozenset[str] | None = None
        """Between waves: the nodes that are marked as to be empty, None: those that are so in the snapshot."""

    @property
    def needs_usage(self) -> bool:
        """Whether a strategy of the policy needs measured usage."""
        return reads_usage(self._policy, self._registry)

    @property
    def finished(self) -> frozenset[str]:
        """The phases of finished pods that strategies of the policy look at."""
        return finished_phases(self._policy, self._registry)

    @property
    def autoscalers(self) -> bool:
        """Whether the policy needs HorizontalPodAutoscalers."""
        return self._policy.protect.after_scaling is not None

    @property
    def makes_room(self) -> bool:
        """Whether a strategy of the policy makes room for pods that wait."""
        return math.isfinite(room_after(self._policy, self._registry))

    @property
    def namespace(self) -> str | None:
        """The only namespace whose pods may move; None: all namespaces."""
        return self._scope.namespace

    @property
    def counts_the_hour(self) -> bool:
        """Whether the budget perHour applies, which needs the memory."""
        return not self._lifted

    @property
    def steers(self) -> bool:
        """Whether nodes are marked: as the policy says, unless :meth:`give_up_marks` was called."""
        return self._policy.steer is Steer.MARKS

    def give_up_marks(self) -> None:
        """Plan without marks from now on, because nodes cannot be marked."""
        self._policy = self._policy.model_copy(update={"steer": Steer.OFF})

    def schedule_by(self, configuration: KubeSchedulerConfiguration) -> None:
        """Predict with the configuration in the ConfigMap that ``scheduler.fromConfig`` names, from now on."""
        self.loaded = self.loaded.with_scheduler(configuration)
        scheduler = self.loaded.policy.scheduler
        self._policy = self._policy.model_copy(update={"scheduler": scheduler})

    def scheduler_profile(self, snapshot: Snapshot) -> SchedulerProfile:
        """Return the profile of the cluster's scheduler."""
        return scheduler_profile(self._policy, snapshot)

    def remember(
        self,
        cooling: Mapping[str, str],
        moved_last_hour: int,
        streaks: Mapping[str, Streaks] | None = None,
        hour_unknown: str | None = None,
        pace: Pace | None = None,
    ) -> None:
        """Store the memory of earlier runs: owners in a cool-down, evictions of the hour, streaks, pace.

        ``streaks`` is None if this run leaves no memory. ``hour_unknown``: why the evictions of the hour are
        unknown; then nothing is moved, unless the budget is lifted.
        """
        self._hour_unknown = hour_unknown
        self._pace = pace or Pace()
        self._scope = replace(self._scope, cooling=cooling)
        self._moved_last_hour = moved_last_hour
        self._streaks = streaks

    def plan(
        self,
        snapshot: Snapshot,
        clock_skew: float,
        timings: Timings,
        observe: Callable[[], PlanObserver] | None = None,
        stop: Callable[[], str | None] = never,
    ) -> Planned:
        """Return the plan on ``snapshot``. Deterministic except for the timings, unless ``stop`` ends it early."""
        self._planned, self._movable, self._emptied = frozenset(), None, None
        self._groups = snapshot.pod_groups
        callbacks = Callbacks(stop=stop, observe=observe, phase=timings.phase)
        with collector_paused():
            problem, made = self._made(snapshot, callbacks)
        if made.plan.emptied is not None:
            names, marked = problem.snapshot.nodes.names, to_be_empty(problem.snapshot)
            self._emptied = frozenset(names[node] for node in np.flatnonzero(marked).tolist())
        self._planned = frozenset(move.uid for move in made.plan.moves)
        self._movable = problem.unprotected
        reasons = tuple(self.standstill(snapshot, clock_skew))
        notes = tuple(scope_notes(self._policy, snapshot, self._scope))
        noted = replace(made.plan, warnings=(*made.plan.warnings, *self._idle(), *notes))
        return Planned(snapshot, noted, reasons, made.streaks, made.ended, made.observer)

    def _made(self, snapshot: Snapshot, callbacks: Callbacks) -> tuple[Problem, Decision]:
        """Return the problem and the decision."""
        settings, emptying = self.settings(), next(iter(self._emptying()), None)

        def made_on(marked: Bools | None) -> Problem:
            with callbacks.phase("terms"):
                return self.problem(snapshot, marked)

        if emptying is None or not settings.steer:
            problem = made_on(None)
            made = self._decide(problem, settings, callbacks)
            return problem, made if emptying is None else _noted(
                made, f"{emptying}: {_NEEDS_MARKS}"
            )

        def decided(problem: Problem) -> Decision:
            return self._decide(problem, settings, callbacks)

        if self._reviewed is None:
            problem, made = with_empty_nodes(emptying, made_on, decided, settings, callbacks.phase)
        else:
            problem, made = with_reviewed_nodes(
                emptying, made_on, decided, settings, callbacks.phase, self._reviewed, self._empty
            )
        strategy = self._registry.strategy(self._policy.strategy_of(emptying))
        lasts = strategy.marks_last(self._policy.strategies[emptying].params)
        return problem, replace(made, plan=replace(made.plan, empty_for=lasts or 0.0))

    def _emptying(self) -> list[str]:
        """Return the strategies that empty nodes, enforced ones first. Only the first one is used."""
        names = [name for name in _active(self._policy) if self._emptier(name) is not None]
        return sorted(names, key=lambda name: self._policy.mode_of(name) is not Mode.ENFORCE)

    def _idle(self) -> list[str]:
        """Return a sentence for each node-emptying strategy that is not used."""
        first, *others = self._emptying() or [""]
        return [
            f"{name}: it empties no node, for {first} does: only one strategy of a policy can"
            for name in others
        ]

    def _emptier(self, name: str) -> Strategy | None:
        strategy = self._registry.strategy(self._policy.strategy_of(name))
        params = self._policy.strategies[name].params
        return strategy if strategy.marks_last(params) is not None else None

    def _decide(self, problem: Problem, settings: Settings, callbacks: Callbacks) -> Decision:
        """Search for a plan, or judge the reviewed one: the only difference between the two."""
        if self._reviewed is None:
            return plan(problem, settings, callbacks)
        from rebalancer.planner.review import review  # noqa: PLC0415

        return review(self._reviewed, problem, settings, callbacks)

    def standstill(self, snapshot: Snapshot, clock_skew: float, *, moves: bool = True) -> list[str]:
        """Return why nothing may be done on this snapshot; empty if all is well.

        ``moves``: see :func:`rebalancer.planner.safety.standstill`.
        """
        reasons = standstill(snapshot, self._policy.safety, clock_skew, moves=moves)
        if moves and self._hour_unknown is not None and self.counts_the_hour:
            reasons.append(f"what perHour allows is not known: {self._hour_unknown}")
        return reasons

    def rechecked(
        self, snapshot: Snapshot, moves: Sequence[Move], clock_skew: float
    ) -> Sequence[tuple[Move, str | None]]:
        """Judge the remaining moves on the current cluster; see :func:`rebalancer.planner.recheck.recheck`."""
        if reasons := self.standstill(snapshot, clock_skew):
            return [(move, f"standing still: {reasons[0]}") for move in moves]
        return recheck(self.problem(snapshot), self.settings(), moves)

    def scored(self, snapshot: Snapshot) -> ClusterNow:
        """Return the cluster after a run with its scores."""
        draft = Draft(self.problem(snapshot), self.settings())
        return ClusterNow(snapshot, draft.scores(), unmet_of(draft))

    def problem(self, snapshot: Snapshot, marked: Bools | None = None) -> Problem:
        """Return the problem for ``snapshot`` under the policy's strategies and protections.

        ``marked``: exactly these nodes (N,) are marked to be emptied; None: those of the plan, else of the snapshot.
        """
        policy = self._policy
        if not snapshot.pod_groups:
            snapshot = replace(snapshot, pod_groups=self._groups)
        snapshot = as_planned_on(snapshot, removes_stale=self.steers, runs=self._runs)
        if marked is None and self._emptied is not None:
            marked = np.array([name in self._emptied for name in snapshot.nodes.names], bool)
        if marked is not None:
            snapshot = with_empty_marks(snapshot, marked)
        snapshot = with_avoided(with_methods(policy, snapshot), policy.landings)
        ended = snapshot.finished
        return Problem(
            snapshot,
            SchedulerModel(snapshot, self.scheduler_profile(snapshot)),
            list(self._contributions(snapshot)),
            self._protections(snapshot, policy.protect, self._scope),
            NONE_ENDED if ended is None else protect_ended(ended, policy.protect, self._scope),
        )

    def settings(self) -> Settings:
        """Return the policy's budgets and thresholds, and their use by earlier runs."""
        policy = self._policy
        return Settings(
            eagerness=policy.eagerness,
            budgets=policy.budgets,
            of_strategy={name: policy.budgets_of(name) for name in _active(policy)},
            lifted=self._lifted,
            moved_last_hour=self._moved_last_hour,
            cooling=self._scope.cooling,
            seconds=self.seconds if self._reviewed is None else math.inf,
            pace=self._pace,
            planned=self._planned,
            movable=self._movable,
            steer=self.steers,
        )

    def _contributions(self, snapshot: Snapshot) -> Iterator[Contribution]:
        remembered = self._streaks
        for name in _active(self._policy):
            of_strategy = self._policy.strategies[name]
            observes = self._policy.mode_of(name) is Mode.OBSERVE
            # Nodes whose marks no run renews would be emptied in part, and filled again.
            observes = observes or (self._emptier(name) is not None and not self.steers)
            # Room that is not marked would be taken by others.
            observes = observes or (self._asks(name) is not None and not self.steers)
            yield Contribution(
                strategy=name,
                weight=of_strategy.weight,
                observed=observes or not self._policy.allows(name, snapshot.captured_at),
                terms=_terms(self._registry, self._policy.strategy_of(name), of_strategy.params),
                streaks=None if remembered is None else remembered.get(name, Streaks()),
                selected=select_pods(snapshot, of_strategy.select),
                emptiable=self._emptiable(name),
                asks=self._asks(name),
                ended=self._ended(name, snapshot),
            )

    def _ended(self, name: str, snapshot: Snapshot) -> Ended | None:
        """Return the finished pods that a strategy deletes: no longer needed, and selected by it."""
        strategy = self._registry.strategy(self._policy.strategy_of(name))
        finished, of = snapshot.finished, self._policy.strategies[name]
        if finished is None or not strategy.phases(of.params):
            return None
        ended = strategy.ended(finished, of.params)
        mine = find_done(finished, self._policy.protect)
        if (picked := select_pods(finished, of.select)) is not None:
            mine &= picked.pods(finished)
        return Ended(ended.pods[mine[ended.pods]], ended.reason)

    def _asks(self, name: str) -> Callable[[View], Sequence[Ask]] | None:
        """Return what a strategy that makes room wants it for."""
        strategy = self._registry.strategy(self._policy.strategy_of(name))
        if not strategy.makes_room:
            return None
        params = self._policy.strategies[name].params
        return lambda view: strategy.asks(view, params)

    def _emptiable(self, name: str) -> Callable[[View], Emptiable] | None:
        if (strategy := self._emptier(name)) is None:
            return None
        params = self._policy.strategies[name].params
        rooms = [
            _terms(
                self._registry,
                self._policy.strategy_of(other),
                self._policy.strategies[other].params,
            )
            for other in _active(self._policy)
            if self._asks(other) is not None
        ]
        return lambda view: _but_for(rooms, view, strategy.emptiable(view, params))


def _but_for(
    rooms: Sequence[Callable[[View], Sequence[Term]]], view: View, emptiable: Emptiable
) -> Emptiable:
    """Return what may be emptied without the nodes that are kept free for pods to come."""
    every = (term for terms in rooms for term in terms(view))
    kept = kept_free(every, len(view.snapshot.nodes)) & emptiable.nodes
    if not kept.any():
        return emptiable
    why = dict.fromkeys(np.flatnonzero(kept).tolist(), KEPT_FREE)
    return replace(emptiable, nodes=emptiable.nodes & ~kept, kept={**emptiable.kept, **why})


_NEEDS_MARKS = "no node is emptied without steer: marks, for the scheduler would fill it again; nodes that are marked stay so"


def _noted(made: Decision, note: str) -> Decision:
    return replace(made, plan=replace(made.plan, warnings=(*made.plan.warnings, note)))


def reads_usage(policy: Policy, registry: Registry) -> bool:
    """Return whether a strategy of the policy needs measured usage."""
    return any(
        registry.strategy(policy.strategy_of(name)).needs_usage(policy.strategies[name].params)
        for name in _active(policy)
    )


def room_after(policy: Policy, registry: Registry) -> float:
    """Return the seconds after which some strategy of the policy makes room for a pod that waits; infinite: none does."""
    waits = (
        registry.strategy(policy.strategy_of(name)).room_after(policy.strategies[name].params)
        for name in _active(policy)
    )
    return min((seconds for seconds in waits if seconds is not None), default=math.inf)


def finished_phases(policy: Policy, registry: Registry) -> frozenset[str]:
    """Return the phases of finished pods that strategies of the policy look at."""
    return frozenset().union(
        *(
            registry.strategy(policy.strategy_of(name)).phases(policy.strategies[name].params)
            for name in _active(policy)
        )
    )


def _active(policy: Policy) -> list[str]:
    """Return the strategies that are not off."""
    return [name for name in sorted(policy.strategies) if policy.mode_of(name) is not Mode.OFF]


def _terms(registry: Registry, name: str, params: object) -> Callable[[View], Sequence[Term]]:
    strategy = registry.strategy(name)
    return lambda view: strategy.terms(view, params)


def with_methods(policy: Policy, snapshot: Snapshot) -> Snapshot:
    """Return the snapshot in which classes are moved by the methods that the policy configures."""
    restarts = policy.method.single_replicas is Method.RESTART
    return with_restarts(snapshot) if restarts else snapshot
