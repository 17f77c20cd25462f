"""Make the problem and the settings of a plan, from the policy and from what earlier runs have recorded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from rebalancer.cost.room_term import KEPT_FREE, Ask, kept_free
from rebalancer.cost.strategy import Emptiable, Ended, Strategy
from rebalancer.cost.streaks import Streaks
from rebalancer.cost.term import Term
from rebalancer.cost.view import View
from rebalancer.plan.plan import Pace
from rebalancer.planner.buffers import keep_buffers
from rebalancer.planner.karpenter import with_claims
from rebalancer.planner.methods import with_methods
from rebalancer.planner.problem import Contribution, Problem, Scoped
from rebalancer.planner.safety import standstill
from rebalancer.planner.scheduler_profile import scheduler_profile
from rebalancer.planner.settings import Settings
from rebalancer.policy.kube_scheduler import KubeSchedulerConfiguration
from rebalancer.policy.load import LoadedPolicy
from rebalancer.policy.model import Mode, Policy, Protect, Steer
from rebalancer.policy.namespace import NamespacePolicy
from rebalancer.registry import Registry
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.columns import Bools, Int32s
from rebalancer.snapshot.marks import as_planned_on, to_be_empty, with_lasting_marks
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.prices import node_prices
from rebalancer.snapshot.protect import (
    BY_NAMESPACE,
    LEFT_OUT,
    NONE_ENDED,
    Scope,
    find_done,
    protect,
    protect_ended,
)
from rebalancer.snapshot.requests import COUNTS_FOR
from rebalancer.snapshot.selected import Selected, select_pods, with_avoided
from rebalancer.snapshot.zones import closed_zones

Protections = Callable[[Snapshot, Protect, Scope], Int32s]
"""Returns the protections of each pod (P,), see :func:`rebalancer.snapshot.protect.protect`."""


@dataclass(frozen=True, slots=True)
class History:
    """The records of earlier runs that this run uses."""

    cooling: Mapping[str, str] = field(default_factory=dict)
    """Owner -> why its pods are not moved again yet."""
    moved_last_hour: int = 0
    """Evictions by earlier runs in the last hour."""
    streaks: Mapping[str, Streaks] | None = None
    """Strategy -> nodes on which its condition held, with the number of runs in a row; None if this run leaves no memory."""
    hour_unknown: str | None = None
    """Why the evictions of the hour are unknown: then nothing is moved, unless the budget is lifted."""
    pace: Pace = field(default_factory=Pace)
    resting: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Strategy -> owner -> why that strategy does not move its pods again yet."""
    nodes_fell: str | None = None
    """Why nothing is moved after a sudden fall in the number of nodes; None: there was none."""
    zones: tuple[str, ...] = ()
    """Zones that had nodes."""


NO_HISTORY = History()


@dataclass(frozen=True, slots=True)
class RunRules:
    """The policy of a run, and everything else that does not change during the run."""

    loaded: LoadedPolicy
    registry: Registry
    scope: Scope
    """The pods that the run may move by its flags, apart from the policy's selects."""
    lifted: bool = False
    """Whether budgets are lifted."""
    seconds: float = math.inf
    """The time of the run; no more is planned than can be carried out in it."""
    protections: Protections = protect
    """Returns which pods may not be moved."""
    runs: frozenset[str] | None = None
    """The names in the marks of this run, see :func:`rebalancer.snapshot.marks.as_planned_on`."""
    marks: bool = True
    """Whether nodes can be marked."""
    going: Mapping[str, float] = field(default_factory=dict)
    """Name of a node -> Unix seconds at which its machine ends."""
    narrowed: Mapping[str, NamespacePolicy] = field(default_factory=dict)
    """Namespace -> its own policy, which applies to its pods beside this one."""
    ordered: frozenset[str] = frozenset()
    """All nodes that a command empties or replaces, including those whose turn is later."""

    @property
    def policy(self) -> Policy:
        """The policy with all changes of this run applied."""
        policy = self.loaded.policy
        return policy if self.marks else policy.model_copy(update={"steer": Steer.OFF})

    def with_scheduler(self, configuration: KubeSchedulerConfiguration) -> RunRules:
        """Return these rules with the configuration in the ConfigMap that ``scheduler.fromConfig`` names."""
        return replace(self, loaded=self.loaded.with_scheduler(configuration))

    def without_marks(self) -> RunRules:
        """Return these rules for a run that cannot mark nodes."""
        return replace(self, marks=False)

    @property
    def requests_count_for(self) -> float:
        """For how many seconds an EvictionRequest is in flight."""
        return (self.policy.method.eviction_requests or COUNTS_FOR).total_seconds()

    @property
    def needs_usage(self) -> bool:
        """Whether a strategy of the policy needs measured usage."""
        return reads_usage(self.policy, self.registry)

    @property
    def finished(self) -> frozenset[str]:
        """The phases of finished pods that strategies of the policy look at."""
        return finished_phases(self.policy, self.registry)

    @property
    def autoscalers(self) -> bool:
        """Whether the policy needs HorizontalPodAutoscalers."""
        return self.policy.protect.after_scaling is not None

    @property
    def makes_room(self) -> bool:
        """Whether a strategy of the policy makes room for pods that wait."""
        return math.isfinite(room_after(self.policy, self.registry))

    @property
    def namespace(self) -> str | None:
        """The only namespace whose pods may move; None: all namespaces."""
        return self.scope.namespace

    @property
    def counts_the_hour(self) -> bool:
        """Whether the budget perHour applies, which needs the memory."""
        return not self.lifted

    @property
    def steers(self) -> bool:
        """Whether nodes are marked."""
        return self.policy.steer is Steer.MARKS

    def scheduler_profile(self, snapshot: Snapshot) -> SchedulerProfile:
        """Return the profile of the cluster's scheduler."""
        return scheduler_profile(self.policy, snapshot)

    def standstill(
        self,
        snapshot: Snapshot,
        clock_skew: float,
        history: History = NO_HISTORY,
        *,
        moves: bool = True,
    ) -> list[str]:
        """Return why nothing may be done on this snapshot; empty if all is well.

        ``moves``: see :func:`rebalancer.planner.safety.standstill`.
        """
        profile = partial(self.scheduler_profile, snapshot)
        reasons = standstill(snapshot, self.policy.safety, clock_skew, profile, moves=moves)
        if moves and history.nodes_fell is not None:
            reasons.append(history.nodes_fell)
        if moves and history.hour_unknown is not None and self.counts_the_hour:
            reasons.append(f"what perHour allows is not known: {history.hour_unknown}")
        return reasons

    def problem(
        self, snapshot: Snapshot, history: History = NO_HISTORY, marked: Bools | None = None
    ) -> Problem:
        """Return the problem for ``snapshot`` under the policy's strategies and protections.

        ``marked``: exactly these nodes (N,) are marked to be emptied; None: those of the snapshot.
        """
        policy, scope = self.policy, self.scope_with(history)
        snapshot = as_planned_on(snapshot, removes_stale=self.steers, runs=self.runs)
        snapshot = self.with_zones(snapshot, history)
        kept = to_be_empty(snapshot)
        if marked is not None:
            snapshot = with_lasting_marks(snapshot, marked)
        snapshot = with_avoided(with_methods(policy, snapshot, self.going), policy.landings)
        ended = snapshot.finished
        profile = self.scheduler_profile(snapshot)
        snapshot = with_claims(snapshot, profile)
        protected = self._protect(snapshot, self.protections, scope)
        buffers = keep_buffers(snapshot, profile) if policy.capacity.buffers else ()
        held = closed_zones(snapshot)
        contributions = [*self._contributions(snapshot, history, buffers), *buffers]
        return Problem(
            snapshot,
            SchedulerModel(snapshot, profile),
            [_hold(of, held, kept) for of in contributions] if held else contributions,
            protected,
            NONE_ENDED if ended is None else self._protect(ended, protect_ended, scope),
            held,
            Scoped(scope.flags, snapshot, (protected & LEFT_OUT) == 0) if scope.flags else None,
            self.loaded.left_out,
        )

    def _protect(self, snapshot: Snapshot, protections: Protections, scope: Scope) -> Int32s:
        """Return the protections (P,) of each pod by the policy, and by that of its namespace."""
        bits = protections(snapshot, self.policy.protect, scope).copy()
        made: dict[str, Int32s] = {}
        for namespace, of in self.narrowed.items():
            # Most teams protect alike, and each look is at all pods.
            if (key := of.protect.model_dump_json()) not in made:
                made[key] = protections(snapshot, of.protect, scope)
            mine = snapshot.in_namespace(namespace)[snapshot.pods.cls]
            bits[mine] |= made[key][mine]
            bits[mine] |= 0 if of.moves(snapshot.captured_at) else BY_NAMESPACE
        return bits

    def _select(self, name: str, snapshot: Snapshot) -> Selected | None:
        """Return the pods that a strategy may move, by its ``select`` and the policies of namespaces; None for all."""
        selected = select_pods(snapshot, self.policy.strategies[name].select)
        for namespace, of in self.narrowed.items():
            if not of.moves_by(name, snapshot.captured_at):
                selected = selected or Selected.all_of(snapshot)
                others = ~snapshot.in_namespace(namespace)
                selected = replace(selected, classes=selected.classes & others)
        return selected

    def with_zones(self, snapshot: Snapshot, history: History) -> Snapshot:
        """Return the snapshot with the data that decide the states of its zones: zones of earlier runs and the policy, nodes of a command."""
        known = {*snapshot.earlier_zones, *history.zones, *self.policy.zones}
        return replace(snapshot, earlier_zones=tuple(sorted(known)), ordered=self.ordered)

    def scope_with(self, history: History) -> Scope:
        """Return the scope of pods that may move, without owners in a cool-down."""
        select = self.loaded.policy.select
        return replace(self.scope, policy_select=select, cooling=history.cooling)

    def settings(
        self,
        history: History = NO_HISTORY,
        planned: frozenset[str] = frozenset(),
        movable: int | None = None,
    ) -> Settings:
        """Return the policy's budgets and thresholds, and their use by earlier runs.

        ``planned``: uids of the pods that a finished plan moves; ``movable``: the number of unprotected pods at
        planning.
        """
        policy = self.policy
        return Settings(
            eagerness=policy.eagerness,
            budgets=policy.budgets,
            of_strategy={name: policy.budgets_of(name) for name in _active(policy)},
            of_namespace={name: of.budgets for name, of in self.narrowed.items()},
            lifted=self.lifted,
            moved_last_hour=history.moved_last_hour,
            cooling=history.cooling,
            seconds=self.seconds,
            pace=history.pace,
            planned=planned,
            movable=movable,
            steer=self.steers,
            startup_taints=frozenset(policy.capacity.startup_taints),
        )

    def _contributions(
        self, snapshot: Snapshot, history: History, buffers: Sequence[Contribution]
    ) -> Iterator[Contribution]:
        remembered = history.streaks
        for name in _active(self.policy):
            of_strategy = self.policy.strategies[name]
            observes = self.policy.mode_of(name) is Mode.OBSERVE
            # Nodes whose marks no run renews would be emptied in part, and filled again.
            observes = observes or (self._emptier(name) is not None and not self.steers)
            # Room that is not marked would be taken by others.
            observes = observes or (self._asks(name) is not None and not self.steers)
            yield Contribution(
                strategy=name,
                weight=of_strategy.weight,
                observed=observes or not self.policy.allows(name, snapshot.captured_at),
                terms=_terms(self.registry, self.policy.strategy_of(name), of_strategy.params),
                streaks=None if remembered is None else remembered.get(name, Streaks()),
                selected=self._select(name, snapshot),
                resting=_find_resting(snapshot, history.resting.get(name, {})),
                emptiable=self._emptiable(name, buffers),
                asks=self._asks(name),
                ended=self._find_ended(name, snapshot),
                not_judged=self._explain_not_judged(name, snapshot),
            )

    def _explain_not_judged(self, name: str, snapshot: Snapshot) -> str:
        """Return why a strategy that deletes finished pods cannot judge the snapshot; empty if it can."""
        strategy = self.registry.strategy(self.policy.strategy_of(name))
        unknown = strategy.phases(self.policy.strategies[name].params) - snapshot.finished_phases
        if not unknown:
            return ""
        return f"the file holds no pods that have ended ({', '.join(sorted(unknown))}): write it with `rebalancer snapshot --finished`"

    def _find_ended(self, name: str, snapshot: Snapshot) -> Ended | None:
        """Return the finished pods that a strategy deletes: no longer needed, and selected by it."""
        strategy = self.registry.strategy(self.policy.strategy_of(name))
        finished, of = snapshot.finished, self.policy.strategies[name]
        if finished is None or not strategy.phases(of.params):
            return None
        ended = strategy.ended(finished, of.params)
        mine = find_done(finished, self.policy.protect)
        if (picked := self._select(name, finished)) is not None:
            mine &= picked.pods(finished)
        return Ended(ended.pods[mine[ended.pods]], ended.reason)

    def _asks(self, name: str) -> Callable[[View], Sequence[Ask]] | None:
        """Return what a strategy that makes room by moves wants it for."""
        strategy = self.registry.strategy(self.policy.strategy_of(name))
        params = self.policy.strategies[name].params
        if not strategy.makes_room:
            return None
        return lambda view: strategy.asks(view, params)

    def _emptiable(
        self, name: str, buffers: Sequence[Contribution]
    ) -> Callable[[View], Emptiable] | None:
        if (strategy := self._emptier(name)) is None:
            return None
        params = self.policy.strategies[name].params
        rooms = [
            _terms(
                self.registry,
                self.policy.strategy_of(other),
                self.policy.strategies[other].params,
            )
            for other in _active(self.policy)
            if self.registry.strategy(self.policy.strategy_of(other)).makes_room
        ]
        rooms += [one.terms for one in buffers]

        def emptiable(view: View) -> Emptiable:
            prices = node_prices(self.policy.prices, view.snapshot)
            return _but_for(rooms, view, replace(strategy.emptiable(view, params), prices=prices))

        return emptiable

    def emptying(self) -> list[str]:
        """Return the strategies that empty nodes, enforced ones first. Only the first one is used."""
        names = [name for name in _active(self.policy) if self._emptier(name) is not None]
        return sorted(names, key=lambda name: self.policy.mode_of(name) is not Mode.ENFORCE)

    def _emptier(self, name: str) -> Strategy | None:
        return find_emptier(self.policy, self.registry, name)


NEEDS_MARKS = "no node is emptied without steer: marks, for the scheduler would fill it again"
"""The note on a strategy that empties nodes under a policy that marks none."""


def find_emptier(policy: Policy, registry: Registry, name: str) -> Strategy | None:
    """Return the strategy that the policy has as ``name`` if it empties nodes (and marks them); else None."""
    strategy = registry.strategy(policy.strategy_of(name))
    params = policy.strategies[name].params
    return strategy if strategy.marks_last(params) is not None else None


def _find_resting(snapshot: Snapshot, owners: Mapping[str, str]) -> Mapping[int, str]:
    """Return class -> why it rests, of the classes of ``owners``."""
    if not owners:
        return {}
    refs = [snapshot.owners[one.owner].ref if one.owner >= 0 else "" for one in snapshot.classes]
    return {cls: owners[ref] for cls, ref in enumerate(refs) if ref in owners}


def _hold(of: Contribution, why: str, begun: Bools) -> Contribution:
    """Return a contribution that makes no room, and empties no node but those ``begun`` (N,), which keep their marks."""
    of_strategy = of.emptiable
    if of_strategy is None:
        return replace(of, asks=None)

    def emptiable(view: View) -> Emptiable:
        given = of_strategy(view)
        kept = dict.fromkeys(np.flatnonzero(given.nodes & ~begun).tolist(), why)
        return replace(given, nodes=given.nodes & begun, kept={**given.kept, **kept})

    return replace(of, asks=None, emptiable=emptiable)


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


def reads_usage(policy: Policy, registry: Registry) -> bool:
    """Return whether a strategy of the policy needs measured usage."""
    return any(
        registry.strategy(policy.strategy_of(name)).needs_usage(policy.strategies[name].params)
        for name in _active(policy)
    )


def room_after(policy: Policy, registry: Registry) -> float:
    """Return after how many seconds a strategy makes room for a pending pod; infinite if none does."""
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
    return [name for name in sorted(policy.strategies) if policy.mode_of(name) is not Mode.OFF]


def _terms(registry: Registry, name: str, params: object) -> Callable[[View], Sequence[Term]]:
    strategy = registry.strategy(name)
    return lambda view: strategy.terms(view, params)
