"""What is seen in one workload: where its pods stand, its rules and budgets, and what the plan does about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rebalancer.cost.groups import Group
from rebalancer.cost.guards import attractions
from rebalancer.cost.telling import Grouped, Told
from rebalancer.cost.term import Entry
from rebalancer.explaining.pods import PodFacts, facts_of, pod_data, pods_of_classes
from rebalancer.explaining.watched import Watched
from rebalancer.planner.planner import Planner
from rebalancer.report.as_json import plain
from rebalancer.report.model import RunReport
from rebalancer.snapshot.model import DisruptionBudget, Owner, Snapshot

_EVEN = 1e-9
"""Less than this of a pod is rounding."""


@dataclass(frozen=True, slots=True)
class RuleState:
    """How a rule stands."""

    standing: str
    unmet: float
    """Pods that still have to move, as far as that mends anything."""
    unsatisfiable: str | None
    """What of it no placement can mend, and why."""


@dataclass(slots=True, kw_only=True)
class Rule:
    """One rule that the workload's pods are counted by."""

    strategy: str | None
    """None for a rule that is kept, and that nothing is moved for."""
    entry: Entry
    weight: float
    observed: bool
    group: Group
    least: float
    """The fewest moves that mend what can be mended."""
    now: RuleState
    after: RuleState | None = None
    """Once the planned moves are made."""

    @property
    def wish(self) -> str:
        """What it asks for."""
        return self.group.wish() if isinstance(self.group, Told) else ""


@dataclass(frozen=True, slots=True)
class Place:
    """How many of the workload's pods are somewhere."""

    name: str | None
    """Of a zone or a node; None for nodes without a zone."""
    zone: str | None
    now: int
    after: int
    """Once each planned move has landed where it most probably does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFacts:
    """One workload, as the plan sees it."""

    owner: Owner
    waiting: int
    """Pods without a node."""
    terminating: int
    zones: tuple[Place, ...]
    nodes: tuple[Place, ...]
    """Those that hold a pod now or after the plan."""
    rules: tuple[Rule, ...]
    budgets: tuple[tuple[DisruptionBudget, int], ...]
    """PodDisruptionBudgets, each with how many of the pods it selects."""
    pods: tuple[PodFacts, ...]
    """By name."""


class WatchedWorkload(Watched):
    """An onlooker that also sees how a workload's rules stand before the plan and after."""

    def __init__(self, snapshot: Snapshot, owner: int) -> None:
        mine = [cls for cls, of in enumerate(snapshot.classes) if of.owner == owner]
        super().__init__(np.array(mine, np.int32))
        self.owner = owner
        self.rules: list[Rule] = []

    def before(self, planner: Planner) -> None:
        """See Onlooker."""
        super().before(planner)
        self.rules = list(self._rules(planner))

    def after(self, planner: Planner) -> None:
        """See Onlooker."""
        super().after(planner)
        for rule in self.rules:
            rule.after = _state(rule.group)

    def _rules(self, planner: Planner) -> Iterator[Rule]:
        for weighted, observed in planner.all_terms():
            term = weighted.term
            for group in term.groups_of(self.classes) if isinstance(term, Grouped) else ():
                weight = weighted.weight * group.weight
                yield _rule(group, weighted.strategy, term.entry, weight, observed=observed)
        for group in attractions(planner.view, self.classes.tolist()):
            yield _rule(group, None, Entry.HARD, group.weight, observed=False)


def _rule(
    group: Group, strategy: str | None, entry: Entry, weight: float, *, observed: bool
) -> Rule:
    state = _state(group)
    return Rule(
        strategy=strategy,
        entry=entry,
        weight=weight,
        observed=observed,
        group=group,
        least=group.minimum() if state.unmet else 0.0,
        now=state,
    )


def _state(group: Group) -> RuleState:
    unmet = group.potential()
    return RuleState(
        standing=group.standing() if isinstance(group, Told) else "",
        unmet=unmet if unmet > _EVEN else 0.0,
        unsatisfiable=group.unsatisfiable(),
    )


def workload_facts(report: RunReport, watched: WatchedWorkload) -> WorkloadFacts:
    """Return what is to be told of a workload, once it is planned."""
    pods = facts_of(report, watched, pods_of_classes(report, watched))
    zones, nodes = _places(report, pods)
    return WorkloadFacts(
        owner=report.snapshot.owners[watched.owner],
        waiting=sum(pod.node is None for pod in pods),
        terminating=sum(pod.terminating for pod in pods),
        zones=zones,
        nodes=nodes,
        rules=tuple(watched.rules),
        budgets=tuple(_budgets(report.snapshot, watched)),
        pods=tuple(sorted(pods, key=lambda pod: pod.ref)),
    )


def _places(report: RunReport, pods: list[PodFacts]) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
    """Return how many pods, terminating ones not, are in each zone and on each node."""
    now = Counter(pod.node for pod in pods if pod.node is not None and not pod.terminating)
    after = now.copy()
    for pod in pods:
        if pod.move is not None and pod.node is not None and pod.move.move.landings:
            after[pod.node] -= 1
            after[pod.move.move.landings[0].node] += 1
    names = sorted(now.keys() | after.keys())
    nodes = [Place(name, report.domain_of(name), now[name], after[name]) for name in names]
    nodes = [place for place in nodes if place.now or place.after]
    every = {report.domain_of(name) for name in report.snapshot.nodes.names} - {None}
    by_zone: dict[str | None, list[Place]] = {zone: [] for zone in every}
    for place in nodes:
        by_zone.setdefault(place.zone, []).append(place)
    zones = [
        Place(zone, zone, sum(p.now for p in places), sum(p.after for p in places))
        for zone, places in sorted(by_zone.items(), key=lambda item: (item[0] is None, item[0]))
    ]
    nodes.sort(key=lambda p: (p.zone is None, p.zone or "", -p.now, p.name or ""))
    return tuple(zones), tuple(nodes)


def _budgets(
    snapshot: Snapshot, watched: WatchedWorkload
) -> Iterator[tuple[DisruptionBudget, int]]:
    for budget in snapshot.budgets:
        covered = np.intersect1d(budget.classes, watched.classes)
        if len(covered):
            yield budget, int(np.count_nonzero(np.isin(snapshot.pods.cls, covered)))


def workload_data(facts: WorkloadFacts) -> dict[str, Any]:
    """Return the facts of a workload as data."""
    owner = facts.owner
    return {
        "workload": owner.ref,
        "replicas": owner.replicas,
        "ready": owner.ready,
        "waiting": facts.waiting,
        "terminating": facts.terminating,
        "unsettled": owner.unsettled,
        "zones": [
            {"zone": place.zone, "pods": place.now, "after": place.after} for place in facts.zones
        ],
        "nodes": [
            {"node": place.name, "zone": place.zone, "pods": place.now, "after": place.after}
            for place in facts.nodes
        ],
        "rules": [_rule_data(rule) for rule in facts.rules],
        "budgets": [
            {
                "name": budget.ref,
                "pods": pods,
                "allowed": budget.allowed,
                "healthy": budget.healthy,
                "desired": budget.desired,
            }
            for budget, pods in facts.budgets
        ],
        "pods": [pod_data(pod) for pod in facts.pods],
    }


def _rule_data(rule: Rule) -> dict[str, Any]:
    return {
        "strategy": rule.strategy,
        "entry": rule.entry.name.lower(),
        "weight": plain(rule.weight),
        "observed": rule.observed,
        "rule": rule.group.label,
        "wants": rule.wish,
        "leastMoves": plain(rule.least),
        "now": _state_data(rule, rule.now),
        "after": _state_data(rule, rule.after or rule.now),
    }


def _state_data(rule: Rule, state: RuleState) -> dict[str, Any]:
    cause = state.unsatisfiable
    return {
        "standing": state.standing,
        "unmet": plain(state.unmet),
        "unsatisfiable": None if cause is None else f"{rule.group.label}: {cause}",
    }
