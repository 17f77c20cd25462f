"""The explanation of a workload as data: where its pods run, its rules and budgets, its moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rebalancer.base.data_text import plain_number
from rebalancer.cost.guards import attractions
from rebalancer.cost.term import Described, Entry, Group
from rebalancer.explain.pods import PodFacts, facts_of, pod_data, pods_of_classes
from rebalancer.explain.watched import Recorder
from rebalancer.planner.draft import Draft
from rebalancer.planner.rendering import Chosen
from rebalancer.report.model import RunReport
from rebalancer.snapshot.model import DisruptionBudget, Owner, Snapshot

_EVEN = 1e-9
"""Less than this of a pod is rounding."""


@dataclass(frozen=True, slots=True)
class RuleState:
    """The state of a rule."""

    standing: str
    unmet: float
    """Pods that still have to move, without those of which no move fixes the rule."""
    unsatisfiable: str | None
    """What no placement can fix and why, without the label; None if there is nothing."""


@dataclass(slots=True, kw_only=True)
class WorkloadRule:
    """One rule that concerns the workload's pods."""

    strategy: str | None
    """None for a rule that moves must not break, but that no strategy fixes."""
    entry: Entry
    weight: float
    observed: bool
    group: Group
    least: float
    """Lower limit of the moves that fix it as far as possible."""
    now: RuleState
    after: RuleState | None = None
    """After the planned moves."""

    @property
    def target(self) -> str:
        """The requirement of the rule as text."""
        return self.group.requirement() if isinstance(self.group, Described) else ""


@dataclass(frozen=True, slots=True)
class Place:
    """The number of the workload's pods in a zone or on a node."""

    name: str | None
    """Name of the zone or node; None for nodes without a zone."""
    zone: str | None
    now: int
    after: int
    """After the planned moves, each landed on its most probable node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFacts:
    """The explanation of one workload."""

    owner: Owner
    waiting: int
    """Pods without a node."""
    terminating: int
    zones: tuple[Place, ...]
    nodes: tuple[Place, ...]
    """Nodes with a pod now or after the plan."""
    rules: tuple[WorkloadRule, ...]
    budgets: tuple[tuple[DisruptionBudget, int], ...]
    """PodDisruptionBudgets, each with the number of the workload's pods that it selects."""
    pods: tuple[PodFacts, ...]
    """By name."""


class WorkloadRecorder(Recorder):
    """A recorder that also records the state of a workload's rules before and after the moves."""

    def __init__(self, snapshot: Snapshot, owner: int) -> None:
        classes = [cls for cls, of in enumerate(snapshot.classes) if of.owner == owner]
        super().__init__(np.array(classes, np.int32))
        self.owner = owner
        self.rules: list[WorkloadRule] = []

    def before(self, draft: Draft) -> None:
        """Record the rules before the moves (PlanObserver)."""
        super().before(draft)
        self.rules = list(self._rules(draft))

    def after(self, draft: Draft, chosen: Sequence[Chosen]) -> None:
        """Record the rules after the moves (PlanObserver)."""
        super().after(draft, chosen)
        for rule in self.rules:
            rule.after = _state(rule.group)

    def _rules(self, draft: Draft) -> Iterator[WorkloadRule]:
        for weighted in draft.terms:
            term, observed = weighted.term, weighted.observed
            for group in term.groups_of(self.classes):
                weight = weighted.weight * group.weight
                yield _rule(group, weighted.strategy, term.entry, weight, observed=observed)
        for group in attractions(draft.view, self.classes.tolist()):
            yield _rule(group, None, Entry.HARD, group.weight, observed=False)


def _rule(
    group: Group, strategy: str | None, entry: Entry, weight: float, *, observed: bool
) -> WorkloadRule:
    state = _state(group)
    return WorkloadRule(
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
        standing=group.standing() if isinstance(group, Described) else "",
        unmet=unmet if unmet > _EVEN else 0.0,
        unsatisfiable=group.unsatisfiable(),
    )


def workload_facts(report: RunReport, recorder: WorkloadRecorder) -> WorkloadFacts:
    """Return the explanation of the recorder's workload, after the plan was made."""
    pods = facts_of(report, recorder, pods_of_classes(report, recorder))
    zones, nodes = _places(report, pods)
    return WorkloadFacts(
        owner=report.snapshot.owners[recorder.owner],
        waiting=sum(pod.node is None for pod in pods),
        terminating=sum(pod.terminating for pod in pods),
        zones=zones,
        nodes=nodes,
        rules=tuple(recorder.rules),
        budgets=tuple(_budgets(report.snapshot, recorder)),
        pods=tuple(sorted(pods, key=lambda pod: pod.ref)),
    )


def _places(report: RunReport, pods: list[PodFacts]) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
    """Return the numbers of pods per zone and per node, without terminating pods."""
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
    snapshot: Snapshot, recorder: WorkloadRecorder
) -> Iterator[tuple[DisruptionBudget, int]]:
    for budget in snapshot.budgets:
        covered = np.intersect1d(budget.classes, recorder.classes)
        if len(covered):
            yield budget, int(np.count_nonzero(np.isin(snapshot.pods.cls, covered)))


def workload_data(facts: WorkloadFacts) -> dict[str, Any]:
    """Return the explanation as plain data."""
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


def _rule_data(rule: WorkloadRule) -> dict[str, Any]:
    return {
        "strategy": rule.strategy,
        "entry": rule.entry.name.lower(),
        "weight": plain_number(rule.weight),
        "observed": rule.observed,
        "rule": rule.group.label,
        "wants": rule.target,
        "leastMoves": plain_number(rule.least),
        "now": _state_data(rule, rule.now),
        "after": _state_data(rule, rule.after or rule.now),
    }


def _state_data(rule: WorkloadRule, state: RuleState) -> dict[str, Any]:
    cause = state.unsatisfiable
    return {
        "standing": state.standing,
        "unmet": plain_number(state.unmet),
        "unsatisfiable": None if cause is None else f"{rule.group.label}: {cause}",
    }
