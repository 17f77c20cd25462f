"""Make the plan of a run, and judge its remaining moves again between waves."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rebalancer.base.environment import Timings, collector_paused
from rebalancer.cost.streaks import Streaks
from rebalancer.plan.plan import Move, NodeCode, Outcome, Plan, Score, UnmetRule
from rebalancer.planner.draft import Draft
from rebalancer.planner.notices import list_flag_notes, scope_notes
from rebalancer.planner.pins import find_pins
from rebalancer.planner.plan import Callbacks, Decision, PlanObserver, never, plan
from rebalancer.planner.problem import Problem
from rebalancer.planner.recheck import recheck
from rebalancer.planner.rules import NEEDS_MARKS, NO_HISTORY, History, RunRules
from rebalancer.planner.settings import Settings
from rebalancer.planner.unmet import scores_of, unmet_of
from rebalancer.planner.whole_nodes import find_freed, with_empty_nodes, with_reviewed_nodes
from rebalancer.snapshot.columns import Bools
from rebalancer.snapshot.in_flight import as_ended, with_requests
from rebalancer.snapshot.marks import to_be_empty
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.prices import node_prices
from rebalancer.snapshot.requests import REQUESTER, EvictionRequest, request_name


@dataclass(frozen=True, slots=True)
class Reviewed:
    """A plan that people have reviewed: only its moves may be planned, see :mod:`rebalancer.planner.review`."""

    moves: Sequence[Move]
    empty: Collection[str] = ()
    """Names of the nodes without pods that it marks."""


@dataclass(frozen=True, slots=True)
class ClusterNow:
    """The cluster after a run, scored by the terms of its plan."""

    snapshot: Snapshot
    scores: Mapping[str, Score]
    """Strategy -> its score of the cluster."""
    unmet: tuple[UnmetRule, ...]
    """The rules that are unmet, as many as ``scores`` count, without reasons."""


def score(problem: Problem, settings: Settings) -> ClusterNow:
    """Score a cluster without planning; return the cluster with its scores."""
    draft = Draft(problem, settings)
    return ClusterNow(problem.snapshot, scores_of(draft), unmet_of(draft))


@dataclass(frozen=True, slots=True)
class Planned:
    """A snapshot and its plan, with the reasons why the plan must not be executed, if any."""

    snapshot: Snapshot
    plan: Plan
    standstill: tuple[str, ...]
    rules: RunRules
    """The rules by which it was planned, and is judged again."""
    history: History = NO_HISTORY
    streaks: Mapping[str, Streaks] = field(default_factory=dict)
    """Strategy -> its measurements, each with the number of runs in a row, this one included."""
    ended: Mapping[str, Outcome] = field(default_factory=dict)
    """Of a reviewed plan: uid of the pod -> why its move is not to be tried any more."""
    observer: PlanObserver | None = None
    """The object that has observed the plan while it was made."""
    movable: int | None = None
    """Unprotected pods when it was made, the total for shares in budgets."""
    emptied: frozenset[str] | None = None
    """Names of the nodes that are marked as to be empty; None: those that are so in the snapshot."""

    @property
    def left(self) -> tuple[Move, ...]:
        """The moves of the plan that are still to be tried."""
        return tuple(move for move in self.plan.moves if move.uid not in self.ended)

    def revalidate(
        self,
        snapshot: Snapshot,
        moves: Sequence[Move],
        clock_skew: float = 0.0,
        asked: Iterable[Move] = (),
    ) -> Sequence[tuple[Move, str | None]]:
        """Judge the remaining moves on the current cluster; see :func:`rebalancer.planner.recheck.recheck`.

        ``asked``: moves for which this run has sent requests; those that have not ended count like moves of earlier runs.
        """
        if reasons := self.rules.standstill(snapshot, clock_skew, self.history):
            return [(move, f"standing still: {reasons[0]}") for move in moves]
        requests = [_request_for(move, snapshot.captured_at) for move in asked]
        return recheck(self._problem(snapshot, requests), self._settings(), moves)

    def score(self, snapshot: Snapshot) -> ClusterNow:
        """Return the current cluster, scored by the terms of the plan."""
        return score(self._problem(snapshot), self._settings())

    def _problem(self, snapshot: Snapshot, asked: Iterable[EvictionRequest] = ()) -> Problem:
        """Return the problem on the current cluster, with the nodes marked that the plan empties."""
        # Pictures of the cluster between waves have none of these.
        if not snapshot.pod_groups:
            snapshot = replace(snapshot, pod_groups=self.snapshot.pod_groups)
        if snapshot.node_claims is None:
            snapshot = replace(snapshot, node_claims=self.snapshot.node_claims)
        if snapshot.buffers is None:
            snapshot = replace(snapshot, buffers=self.snapshot.buffers)
        before = self.snapshot.eviction_requests
        if snapshot.eviction_requests is None and before is not None:
            requests = [*before.values(), *asked]
            snapshot = as_ended(with_requests(snapshot, requests, self.rules.requests_count_for))
        marked = None
        if self.emptied is not None:
            marked = np.array([name in self.emptied for name in snapshot.nodes.names], bool)
        return self.rules.problem(snapshot, self.history, marked)

    def _settings(self) -> Settings:
        planned = frozenset(move.uid for move in self.plan.moves)
        return self.rules.settings(self.history, planned, self.movable)


def _request_for(move: Move, at: float) -> EvictionRequest:
    """Return the request that this run has sent for the pod of a move."""
    name = request_name(move.uid)
    return EvictionRequest(
        move.namespace, name, move.pod, move.uid, REQUESTER, withdrawn=False, asked_at=at
    )


def make_plan(
    rules: RunRules,
    snapshot: Snapshot,
    timings: Timings,
    *,
    history: History = NO_HISTORY,
    clock_skew: float = 0.0,
    reviewed: Reviewed | None = None,
    observe: Callable[[], PlanObserver] | None = None,
    stop: Callable[[], str | None] = never,
) -> Planned:
    """Return the plan on ``snapshot``. Deterministic except for the timings, unless ``stop`` ends it early.

    ``reviewed``: plan no moves but these, in whatever time they take.
    """
    snapshot = rules.with_zones(snapshot if rules.ordered else as_ended(snapshot), history)
    if reviewed is not None:
        rules = replace(rules, seconds=math.inf)
    callbacks = Callbacks(stop=stop, observe=observe, phase=timings.phase)
    making = _Making(rules, history, snapshot, reviewed, callbacks)
    with collector_paused():
        problem, made = making.decide()
    emptied = None
    if made.plan.emptied is not None:
        names, marked = problem.snapshot.nodes.names, to_be_empty(problem.snapshot)
        emptied = frozenset(names[node] for node in np.flatnonzero(marked).tolist())
    scope = rules.scope_with(history)
    notes = (*_idle(rules), *scope_notes(rules.policy, snapshot, scope))
    return Planned(
        snapshot,
        _with_pins(
            rules,
            replace(
                made.plan,
                warnings=(*list_flag_notes(snapshot, scope), *made.plan.warnings, *notes),
            ),
            problem,
            history,
            marks=reviewed is None,
        ),
        tuple(rules.standstill(snapshot, clock_skew, history)),
        rules,
        history,
        made.streaks,
        made.ended,
        made.observer,
        problem.unprotected,
        emptied,
    )


def _with_pins(
    rules: RunRules, plan: Plan, problem: Problem, history: History, *, marks: bool
) -> Plan:
    """Return the plan with its lines about pods that pin nodes; ``marks``: it may mark such nodes.

    It marks those that the strategy would empty if the pods were together: elsewhere a mark would repel pods without benefit.
    """
    nodes = problem.snapshot.nodes
    held = [nodes.index[n] for n, of in plan.nodes.items() if of.code is NodeCode.POD_STAYS]
    freed: list[int] = []
    if held:
        # A draft of its own, for that of the plan has moved its pods; it takes as long as all terms, so only now.
        draft = Draft(problem, rules.settings(history))
        pins = find_pins(draft, held, node_prices(rules.policy.prices, problem.snapshot))
        if pins is not None and pins.saved:
            plan = replace(plan, pinned=f"{pins.line} (`rebalancer capacity`).")
            if plan.emptied is not None and marks:
                freed = find_freed(draft, next(iter(rules.emptying())), pins)
    if plan.emptied is None or not marks:
        return plan
    return replace(plan, pinned_nodes=tuple(nodes.names[node] for node in freed))


@dataclass(frozen=True, slots=True)
class _Making:
    rules: RunRules
    history: History
    snapshot: Snapshot
    reviewed: Reviewed | None
    callbacks: Callbacks

    def decide(self) -> tuple[Problem, Decision]:
        rules, reviewed, phase = self.rules, self.reviewed, self.callbacks.phase
        settings, emptying = rules.settings(self.history), next(iter(rules.emptying()), None)

        def made_on(marked: Bools | None) -> Problem:
            with phase("terms"):
                return rules.problem(self.snapshot, self.history, marked)

        if emptying is None or not settings.steer:
            problem = made_on(None)
            made = self._search_or_review(problem, settings)
            return problem, made if emptying is None else _with_note(
                made, f"{emptying}: {NEEDS_MARKS}; nodes that are marked stay so"
            )

        def decided(problem: Problem) -> Decision:
            return self._search_or_review(problem, settings)

        if reviewed is None:
            problem, made = with_empty_nodes(emptying, made_on, decided, settings, phase)
        else:
            problem, made = with_reviewed_nodes(
                emptying, made_on, decided, settings, phase, reviewed.moves, reviewed.empty
            )
        strategy = rules.registry.strategy(rules.policy.strategy_of(emptying))
        lasts = strategy.marks_last(rules.policy.strategies[emptying].params)
        return problem, replace(made, plan=replace(made.plan, empty_for=lasts or 0.0))

    def _search_or_review(self, problem: Problem, settings: Settings) -> Decision:
        """Search for a plan, or judge the reviewed one: the only difference between the two."""
        if self.reviewed is None:
            return plan(problem, settings, self.callbacks)
        from rebalancer.planner.review import review  # noqa: PLC0415

        return review(self.reviewed.moves, problem, settings, self.callbacks)


def _idle(rules: RunRules) -> list[str]:
    """Return a sentence for each node-emptying strategy that is not used."""
    first, *others = rules.emptying() or [""]
    return [
        f"{name}: it empties no node, for {first} does: only one strategy of a policy can"
        for name in others
    ]


def _with_note(made: Decision, note: str) -> Decision:
    return replace(made, plan=replace(made.plan, warnings=(*made.plan.warnings, note)))
