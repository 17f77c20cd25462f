"""The effects of a policy on a cluster: what each select matches, and settings that can never have an effect."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rebalancer.plan.plan import NEVER_ALLOWS
from rebalancer.planner.disruption import DisruptionBudgets
from rebalancer.planner.notices import pods_selected, scope_notes, selects_of
from rebalancer.planner.rules import NEEDS_MARKS, find_emptier
from rebalancer.policy.model import Budgets, Mode, Policy, Steer, StrategyBudgets
from rebalancer.policy.values import Direction, Limit
from rebalancer.registry import Registry
from rebalancer.snapshot.autoscalers import autoscalers
from rebalancer.snapshot.columns import Bools
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.protect import Scope, protect


@dataclass(frozen=True, slots=True)
class Findings:
    """The output of ``policy check`` for a policy on a snapshot."""

    selects: Mapping[str, int]
    """Key of a select in the file -> the pods that it matches, including protected ones."""
    movable: int
    """Pods that no protection keeps in place."""
    warnings: tuple[str, ...]
    """Settings without effect, or that work against another one; a line each."""


def findings(policy: Policy, snapshot: Snapshot, registry: Registry) -> Findings:
    """Return the findings for ``policy`` on ``snapshot``."""
    protected = protect(snapshot, policy.protect, Scope(policy_select=policy.select))
    movable = int(np.count_nonzero(protected == 0))
    warnings = [
        *policy_warnings(policy, snapshot, registry, movable),
        *(text for text, _ in closed_disruption_budgets(snapshot)),
        *against_autoscalers(policy, snapshot),
    ]
    selects = {
        key: int(np.count_nonzero(pods_selected(snapshot, select)))
        for key, select in selects_of(policy)
    }
    return Findings(selects, movable, tuple(warnings))


def policy_warnings(
    policy: Policy, snapshot: Snapshot, registry: Registry, movable: int
) -> Iterator[str]:
    """Yield the settings of the policy without effect, or that contradict each other, on ``snapshot``, of which ``movable`` pods may move."""
    yield from scope_notes(policy, snapshot)
    yield from _idle_budgets(policy, movable)
    yield from _without_marks(policy, registry)
    yield from _too_slow_for_signals(policy, snapshot, movable)
    yield from _contradictions(policy, snapshot, registry)


# -- budgets -------------------------------------------------------------------------------------------


def _idle_budgets(policy: Policy, movable: int) -> Iterator[str]:
    """Yield the budgets of the file that forbid all moves, or that another budget makes ineffective."""
    yield from _idle("budgets", policy.budgets, policy.budgets.model_fields_set, movable)
    for name, strategy in sorted(policy.strategies.items()):
        own, key = strategy.budgets, f"strategies.{name}.budgets"
        yield from _idle(key, policy.budgets_of(name), own.model_fields_set, movable)
        for field in sorted(own.model_fields_set):
            mine, outer = getattr(own, field), getattr(policy.budgets, field)
            if mine is not None and outer is not None and _at_least(mine, outer):
                alias = _alias(field)
                yield f"{key}.{alias} {mine} is never used up: budgets.{alias} {outer} is before it"


_BEFORE = {
    "in_flight": "per_run",
    "per_run": "per_hour",
    "per_node": "in_flight",
    "per_owner": "in_flight",
    "per_zone": "in_flight",
    "per_namespace": "per_run",
    "per_node_in_run": "per_run",
}
"""Budget -> the one that it is a part of: what is not smaller is never used up."""


def _idle(key: str, budgets: Budgets, written: set[str], movable: int) -> Iterator[str]:
    for field in sorted(written & set(StrategyBudgets.model_fields)):
        limit: Limit | None = getattr(budgets, field)
        if limit is None:
            continue
        if limit.of(1_000_000) == 0:
            yield f"{key}.{_alias(field)} is {limit}: nothing is ever moved"
            continue
        outer: Limit | None = getattr(budgets, _BEFORE[field]) if field in _BEFORE else None
        # Counts alone can be compared: a share is of a node's, an owner's or a namespace's pods.
        if outer is not None and limit.count is not None:
            most = _most(budgets, _BEFORE[field], movable)
            if limit.count > most:
                yield f"{key}.{_alias(field)} {limit} is never used up: {_alias(_BEFORE[field])} allows {most}"


def _most(budgets: Budgets, field: str, movable: int) -> int:
    of = {
        "in_flight": budgets.in_flight_of,
        "per_run": budgets.per_run_of,
        "per_hour": budgets.per_hour_of,
    }
    return of[field](movable)


def _at_least(one: Limit, other: Limit) -> bool:
    if one.count is not None and other.count is not None:
        return one.count >= other.count
    return one.share is not None and other.share is not None and one.share >= other.share


def _alias(field: str) -> str:
    return Budgets.model_fields[field].alias or field


def closed_disruption_budgets(snapshot: Snapshot) -> Iterator[tuple[str, bool]]:
    """Yield (text, whether it selects no pod) of the PodDisruptionBudgets that can never allow an eviction."""
    for budget in snapshot.budgets:
        if not len(budget.classes):
            yield f"PodDisruptionBudget {budget.ref} selects no pod", True
        elif budget.never_allows:
            text = (
                f"PodDisruptionBudget {budget.ref} {NEVER_ALLOWS}: of {budget.expected} pods "
                f"{budget.desired} have to be healthy"
            )
            yield text, False
    for text in sorted({text for _, text in DisruptionBudgets(snapshot).conflicts()}):
        yield text, False


def _too_slow_for_signals(policy: Policy, snapshot: Snapshot, movable: int) -> Iterator[str]:
    """Yield that a node keeps pods until its machine ends, because budgets allow fewer evictions than it has pods."""
    if not policy.signals:
        return
    pods = snapshot.pods
    per_node = np.array([one.per_node for one in snapshot.classes] or [False], bool)
    leaving = pods.living & ~per_node[pods.cls]
    of_nodes = np.bincount(pods.node[leaving], minlength=len(snapshot.nodes))
    for field in ("per_run", "per_hour"):
        most = _most(policy.budgets, field, movable)
        if len(of_nodes) and of_nodes.max() > most:
            node = snapshot.nodes.names[int(of_nodes.argmax())]
            yield (
                f"budgets.{_alias(field)} allows {most} evictions, and {node} has {of_nodes.max()} pods: if it is announced to go,"
                " some end with it"
            )


def _without_marks(policy: Policy, registry: Registry) -> Iterator[str]:
    """Yield the strategies that do nothing, or only observe, unless the policy marks nodes."""
    if policy.steer is Steer.MARKS:
        return
    for name in _active(policy):
        strategy = registry.strategy(policy.strategy_of(name))
        if find_emptier(policy, registry, name) is not None:
            yield f"{name}: {NEEDS_MARKS}"
        elif strategy.makes_room and policy.mode_of(name) is Mode.ENFORCE:
            yield f"{name} only observes without steer: marks, for others would take the room"


# -- strategies ----------------------------------------------------------------------------------------


def _active(policy: Policy) -> list[str]:
    return [name for name in sorted(policy.strategies) if policy.mode_of(name) is not Mode.OFF]


def _pods_of(policy: Policy, name: str, snapshot: Snapshot) -> Bools:
    return pods_selected(snapshot, policy.select) & pods_selected(
        snapshot, policy.strategies[name].select
    )


def _contradictions(policy: Policy, snapshot: Snapshot, registry: Registry) -> Iterator[str]:
    """Yield the strategies that pull the same pods to different places."""
    for one, other in itertools.combinations(_active(policy), 2):
        both = _pods_of(policy, one, snapshot) & _pods_of(policy, other, snapshot)
        shared = int(np.count_nonzero(both))
        if not shared:
            continue
        pods = "1 pod" if shared == 1 else f"{shared} pods"
        directions = {policy.strategies[name].params.direction for name in (one, other)}
        if directions == {Direction.SPREAD, Direction.PACK}:
            yield f"{one} and {other} pull against each other: one spreads, one packs, and both select {pods}"
            continue
        named = policy.strategy_of(one), policy.strategy_of(other)
        if named[0] != named[1]:
            continue
        strategy = registry.strategy(named[0])
        params = policy.strategies[one].params, policy.strategies[other].params
        why = strategy.contradiction(snapshot, *params)
        if why is not None:
            yield f"{one} and {other} pull against each other: {why}, and both select {pods}"
        # What a strategy only observes is not counted twice.
        elif params[0] == params[1] and Mode.OBSERVE not in map(policy.mode_of, (one, other)):
            yield f"{one} and {other} are the same {named[0]}, and both select {pods}: these count twice"


def against_autoscalers(policy: Policy, snapshot: Snapshot) -> Iterator[str]:
    """Yield the strategies that spread pods which an autoscaler packs."""
    for name in _active(policy):
        if policy.strategies[name].params.direction is Direction.SPREAD:
            for one in autoscalers(snapshot):
                yield (
                    f"{name} spreads pods over nodes that {one.name} packs and takes away ({one.sign}): each may undo "
                    "what the other does; let it take empty nodes only, or leave this strategy out"
                )
