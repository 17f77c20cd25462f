"""The explanation of a workload as data and as text: where its pods run, its rules and budgets, its moves."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rebalancer.base.data_text import plain_number
from rebalancer.base.plain_text import WIDTH, and_more, count, more
from rebalancer.cost.guards import attractions
from rebalancer.cost.term import Described, Entry, Group
from rebalancer.explain.pods import (
    PodDecision,
    PodFacts,
    Recorder,
    facts_of,
    pod_data,
    pods_of_classes,
)
from rebalancer.explain.text import MAX_ENTRIES, breach_words, head, pod_lines
from rebalancer.kube.events import MoveEvent
from rebalancer.planner.draft import Draft
from rebalancer.planner.rendering import Chosen
from rebalancer.report import words
from rebalancer.report.document import UNBROKEN, Block, Passage, Table, join_sections
from rebalancer.report.model import RunReport
from rebalancer.run.memory.document import ActingRun, Document, MoveRecord
from rebalancer.snapshot.columns import Int32s
from rebalancer.snapshot.model import DisruptionBudget, Owner, Snapshot
from rebalancer.wire.times import rfc3339

_EVEN = 1e-9
"""Less than this of a pod is rounding."""


@dataclass(frozen=True, slots=True)
class RuleState:
    """The state of a rule."""

    standing: str
    unmet: float
    """Pods that still have to move, without those that no move can fix."""
    unsatisfiable: str | None
    """The violations that no placement can fix, with the reason, without the label; None if there are none."""


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
    after: float
    """After the planned moves, by expectation: a pod that may land on one of two nodes counts a half on each."""


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
    budgets: tuple[BudgetState, ...]
    """PodDisruptionBudgets that select its pods."""
    pods: tuple[PodFacts, ...]
    """The pods of the workload, by name."""


@dataclass(frozen=True, slots=True)
class BudgetState:
    """The disruptions of the workload's pods that a PodDisruptionBudget allows."""

    budget: DisruptionBudget
    """The PodDisruptionBudget, with the number of disruptions that the API server allows."""
    pods: int
    """The workload's pods that it selects."""
    in_open_zones: int
    """The disruptions that runs allow of pods outside of closed zones: pods in closed zones do not serve."""
    closed: str
    """The closed zones where it counts healthy pods; empty where there are none."""


class WorkloadRecorder(Recorder):
    """A recorder that also records the state of a workload's rules before and after the moves."""

    def __init__(self, snapshot: Snapshot, owner: int) -> None:
        classes = [cls for cls, of in enumerate(snapshot.classes) if of.owner == owner]
        super().__init__(np.array(classes, np.int32))
        self.owner = owner
        self.rules: list[WorkloadRule] = []
        self.budgets: list[BudgetState] = []

    def before(self, draft: Draft) -> None:
        """Record the rules before the moves (PlanObserver)."""
        super().before(draft)
        self.rules = list(self._rules(draft))
        self.budgets = list(_budgets(draft, self.classes))

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
        budgets=tuple(recorder.budgets),
        pods=tuple(sorted(pods, key=lambda pod: pod.ref)),
    )


def _places(report: RunReport, pods: list[PodFacts]) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
    """Return the numbers of pods per zone and per node, without terminating pods."""
    now = Counter(pod.node for pod in pods if pod.node is not None and not pod.terminating)
    after: dict[str, float] = defaultdict(float, now)
    for pod in pods:
        if pod.move is not None and pod.node is not None and pod.move.move.landings:
            after[pod.node] -= 1
            for landing in pod.move.move.landings:
                after[landing.node] += landing.probability
    names = sorted(now.keys() | after.keys())
    nodes = [
        Place(name, report.domain_of(name), now[name], round(after[name], 6)) for name in names
    ]
    nodes = [place for place in nodes if place.now or place.after]
    every = {report.domain_of(name) for name in report.snapshot.nodes.names} - {None}
    by_zone: dict[str | None, list[Place]] = {zone: [] for zone in every}
    for place in nodes:
        by_zone.setdefault(place.zone, []).append(place)
    zones = [
        Place(zone, zone, sum(p.now for p in places), round(sum(p.after for p in places), 3))
        for zone, places in sorted(by_zone.items(), key=lambda item: (item[0] is None, item[0]))
    ]
    nodes.sort(key=lambda p: (p.zone is None, p.zone or "", -p.now, p.name or ""))
    return tuple(zones), tuple(nodes)


def _budgets(draft: Draft, classes: Int32s) -> Iterator[BudgetState]:
    snapshot, disruptions = draft.snapshot, draft.problem.disruptions
    for index, budget in enumerate(snapshot.budgets):
        covered = np.intersect1d(budget.classes, classes)
        if len(covered):
            pods = int(np.count_nonzero(np.isin(snapshot.pods.cls, covered)))
            closed = " and ".join(disruptions.closed_zones) if disruptions.idle(index) else ""
            yield BudgetState(budget, pods, disruptions.allowed(index), closed)


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
            {"zone": place.zone, "pods": place.now, "after": plain_number(place.after)}
            for place in facts.zones
        ],
        "nodes": [
            {
                "node": place.name,
                "zone": place.zone,
                "pods": place.now,
                "after": plain_number(place.after),
            }
            for place in facts.nodes
        ],
        "rules": [
            {
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
            for rule in facts.rules
        ],
        "budgets": [
            {
                "name": of.budget.ref,
                "pods": of.pods,
                "allowed": of.budget.allowed,
                "allowedInOpenZones": of.in_open_zones,
                "healthy": of.budget.healthy,
                "desired": of.budget.desired,
            }
            for of in facts.budgets
        ],
        "pods": [pod_data(pod) for pod in facts.pods],
    }


def _state_data(rule: WorkloadRule, state: RuleState) -> dict[str, Any]:
    cause = state.unsatisfiable
    return {
        "standing": state.standing,
        "unmet": plain_number(state.unmet),
        "unsatisfiable": None if cause is None else f"{rule.group.label}: {cause}",
    }


_MAX_NODES = 12


def format_workload(report: RunReport, facts: WorkloadFacts) -> list[Block]:
    """Return the explanation for people."""
    return join_sections(
        head(facts.owner.ref, report),
        _counts(facts),
        _place_lines(facts),
        _rules(facts),
        _budget_lines(facts),
        _evictable(facts),
        _moves(report, facts),
        _stays(facts),
        _others(facts),
    )


def _counts(facts: WorkloadFacts) -> Iterator[Block]:
    owner = facts.owner
    parts = [f"{owner.replicas} wanted", f"{owner.ready} ready"]
    parts += [f"{facts.waiting} without a node"] * bool(facts.waiting)
    parts += [f"{facts.terminating} terminating"] * bool(facts.terminating)
    state = f"not settled: {owner.unsettled}" if owner.unsettled else "settled"
    yield Passage(f"{', '.join(parts)}; {state}", "  ", "    ")


# -- places --------------------------------------------------------------------------------------------


def _place_lines(facts: WorkloadFacts) -> Iterator[Block]:
    moves = any(place.now != place.after for place in facts.nodes)
    rows = [["Where its pods are", "now", *["after the plan"] * moves]]
    room = _MAX_NODES
    for zone in facts.zones:
        rows.append(_place(zone, "  ", moves=moves))
        of_zone = [place for place in facts.nodes if place.zone == zone.name][:room]
        rows += [_place(place, "    ", moves=moves) for place in of_zone]
        room -= len(of_zone)
    yield Table(rows, "")
    yield from more(len(facts.nodes) - _MAX_NODES, "    ")


def _place(place: Place, indent: str, *, moves: bool) -> list[str]:
    name = indent + (place.name if place.name is not None else "no zone")
    return [name, str(place.now), *[words.number(place.after)] * moves]


# -- rules ---------------------------------------------------------------------------------------------


def _rules(facts: WorkloadFacts) -> Iterator[Block]:
    if not facts.rules:
        yield "Rules: none of the policy's strategies counts its pods."
        return
    unmet = sum(rule.now.unmet > 0 for rule in facts.rules)
    impossible = sum(rule.now.unsatisfiable is not None for rule in facts.rules)
    cannot = f", {impossible} cannot hold" if impossible else ""
    yield f"Rules: {len(facts.rules)}, {unmet} unmet{cannot}"
    for rule in facts.rules[:MAX_ENTRIES]:
        yield ""
        yield Passage(f"{_strategy(rule)}: {rule.group.label}", "  ", "      ")
        if rule.target:
            yield Passage(f"asks for {rule.target}", "      ", "        ")
        for line in _states(rule):
            yield Passage(line, "      ", "        ")
    yield from more(len(facts.rules) - MAX_ENTRIES)


def _strategy(rule: WorkloadRule) -> str:
    if rule.strategy is None:
        return "kept by every move"
    return f"{rule.strategy} (observe)" if rule.observed else rule.strategy


def _states(rule: WorkloadRule) -> Iterator[str]:
    now, after = rule.now, rule.after or rule.now
    if now.unmet and rule.strategy is not None:
        least = words.number(rule.least)
        moves = f"{least} move{'' if least == '1' else 's'}"
        yield f"now {_with(now.standing)}{_unmet(now)}; at least {moves} would fix it"
    else:
        yield f"now {_with(now.standing)}{_unmet(now)}"
    if (after.standing, after.unmet) != (now.standing, now.unmet):
        yield f"after the plan most probably {_with(after.standing)}{_unmet(after)}"
    if now.unsatisfiable is not None:
        yield f"cannot hold: {now.unsatisfiable}"
    elif after.unsatisfiable is not None:
        yield f"cannot hold after the plan: {after.unsatisfiable}"


def _with(standing: str) -> str:
    return f"{standing}: " if standing else ""


def _unmet(state: RuleState) -> str:
    if state.unmet:
        return f"{words.number(state.unmet)} unmet"
    return "holds" if state.unsatisfiable is None else "holds as far as it can"


def _budget_lines(facts: WorkloadFacts) -> Iterator[Block]:
    if not facts.budgets:
        yield "PodDisruptionBudgets: none selects its pods."
        return
    yield "PodDisruptionBudgets"
    for of in facts.budgets:
        budget, closed = of.budget, ""
        if of.closed:
            closed = f"; {of.in_open_zones} of these outside of closed zone {of.closed}, whose pods may not serve"
        yield Passage(
            f"{budget.ref} allows {count(budget.allowed, 'disruption')} now "
            f"({budget.healthy} healthy, {budget.desired} desired), over {count(of.pods, 'pod')} of it{closed}",
            "  ",
            "      ",
        )


# -- pods ----------------------------------------------------------------------------------------------


def _evictable(facts: WorkloadFacts) -> Iterator[Block]:
    reasons: dict[str, int] = defaultdict(int)
    for pod in facts.pods:
        for name, text in pod.protections.items():
            reasons[f"{name}: {text}"] += 1
        if pod.forbidden is not None:
            reasons[f"{pod.forbidden[0].value}: {pod.forbidden[1]}"] += 1
    free = sum(pod.may_move for pod in facts.pods)
    held = sum(pod.forbidden is not None and not pod.protections for pod in facts.pods)
    yield f"May be moved: {free} of {count(len(facts.pods), 'pod')}" + (
        f"; {held} more once PodDisruptionBudgets allow it" if held else ""
    )
    for text, pods in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
        yield Passage(f"{count(pods, 'pod')} not, {text}", "  ", "      ")


def _moves(report: RunReport, facts: WorkloadFacts) -> Iterator[Block]:
    moving = [pod for pod in facts.pods if pod.move is not None]
    yield f"The plan moves {count(len(moving), 'pod')} of it"
    for pod in moving[:MAX_ENTRIES]:
        yield ""
        yield from pod_lines(report, pod, of_node=False)
    yield from more(len(moving) - MAX_ENTRIES)


def _stays(facts: WorkloadFacts) -> Iterator[Block]:
    """Yield the pods that are not moved although a rule requires it, grouped by rule and reason."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for pod in facts.pods:
        if pod.decision is PodDecision.STAYS:
            groups[_reason(pod)].append(f"{pod.ref} ({pod.node})")
    if not groups:
        return
    yield f"A rule asks for a move, but they stay: {count(sum(map(len, groups.values())), 'pod')}"
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[1]))
    for (why, breaks), pods in ordered[:MAX_ENTRIES]:
        yield ""
        yield Passage(and_more(pods, 4), "  ", "      ")
        yield Passage(why, "      ", "        ")
        if breaks:
            yield Passage(breaks, "      ", "        ")
    yield from more(len(ordered) - MAX_ENTRIES)


def _reason(pod: PodFacts) -> tuple[str, str]:
    why = f"{pod.code}: {pod.message}" if pod.code else pod.message
    # Without rules that the moves of others fix.
    return why, "; ".join(breach_words(breach) for breach in pod.breaches if breach.lasts)


def _others(facts: WorkloadFacts) -> Iterator[Block]:
    """Yield the numbers of the other pods that are not moved, and why."""
    for decision, heading in (
        (PodDecision.FIXED, "Break a rule that the moves of others fix"),
        (PodDecision.FINE, "No rule asks for a move"),
        (PodDecision.NOTHING, "Without a node, or terminating"),
    ):
        if number := sum(pod.decision is decision for pod in facts.pods):
            yield f"{heading}: {count(number, 'pod')}"


@dataclass(frozen=True, slots=True)
class MovedPod:
    """The records of a pod that a run has moved."""

    ref: str
    """The pod as ``namespace/name``."""
    at: float
    """Time of the move, in Unix seconds."""
    by: str
    """Name of the process, or of its pod; empty if it is not known."""
    owner: str
    """``Kind/namespace/name``; empty if it is not known."""
    why: str
    record: MoveRecord | None
    """The record in the memory; None if only an Event is known."""


def find_moved(ref: str, document: Document, events: Iterable[MoveEvent]) -> MovedPod | None:
    """Return the records in memory and Events of the last move of the pod ``[NAMESPACE/]NAME``; None if there are none."""
    recorded = _last_record(ref, document)
    event = max(events, key=lambda event: (event.at, event.pod), default=None)
    if recorded is None:
        if event is None:
            return None
        return MovedPod(event.pod, event.at, event.by, event.owner, event.note, None)
    run, move = recorded
    at, by = (run.at, run.by) if event is None else (event.at, run.by or event.by)
    return MovedPod(move.pod, at, by, move.owner, f"{move.strategy}: {move.reason}", move)


def _last_record(ref: str, document: Document) -> tuple[ActingRun, MoveRecord] | None:
    for run in reversed(document.history):
        for move in run.moves:
            named = move.pod == ref or ("/" not in ref and move.pod.endswith(f"/{ref}"))
            if named and move.moved:
                return run, move
    return None


def gone_data(moved: MovedPod, facts: WorkloadFacts | None) -> dict[str, Any]:
    """Return the fields of ``kind: PodExplanation`` for a pod that is gone."""
    record = moved.record
    return {
        "pod": moved.ref,
        "gone": True,
        "movedAt": rfc3339(moved.at),
        "by": moved.by or None,
        "owner": moved.owner or None,
        "reason": moved.why,
        "from": None if record is None else record.node,
        "landed": None if record is None else record.landed or None,
        "replacement": None if record is None else record.replacement or None,
        "predicted": None if record is None else record.predicted,
        "rulesUnmet": None if facts is None else _count_unmet(facts),
    }


def format_gone(moved: MovedPod, facts: WorkloadFacts | None) -> list[Block]:
    """Return the explanation for people."""
    sentences = (_what(moved), _why(moved), _was_right(moved, facts), _STOP)
    lines: list[Block] = [Passage(text, "", "  ", WIDTH) for text in sentences]
    return [*lines, Passage(_stop(moved), "  ", width=UNBROKEN)]


def _what(moved: MovedPod) -> str:
    by = f" by {moved.by}" if moved.by else ""
    text = f"{moved.ref} is gone: a run of kube-rebalancer{by} moved it at {rfc3339(moved.at)}"
    record = moved.record
    if record is None:
        return f"{text}."
    text += f" off {record.node}"
    if not record.landed:
        return f"{text}; where its replacement landed was not seen."
    how = "as predicted" if record.predicted else "not where it was predicted"
    named = f" {record.replacement}" if record.replacement else ""
    return f"{text}; its replacement{named} landed on {record.landed}, {how}."


def _why(moved: MovedPod) -> str:
    return f"Why: {moved.why}."


def _was_right(moved: MovedPod, facts: WorkloadFacts | None) -> str:
    if facts is None:
        owner = moved.owner or "its workload"
        return f"Was it right: not judged, since {owner} has no pods now."
    unmet = _count_unmet(facts)
    record = moved.record
    off = record is not None and record.landed and not record.predicted
    if not facts.rules:
        text = f"no rule concerns {moved.owner} now"
    elif not unmet:
        text = f"no rule of {moved.owner} is unmet now"
    else:
        moves = sum(pod.move is not None for pod in facts.pods)
        further = (
            f"the plan of now moves {count(moves, 'pod')} of it" if moves else "no move helps now"
        )
        text = f"{unmet:,} of the {count(len(facts.rules), 'rule')} of {moved.owner} are unmet now, and {further}"
    verdict = "not as hoped: the replacement landed elsewhere; " if off else ""
    return f"Was it right: {verdict}{text}."


def _count_unmet(facts: WorkloadFacts) -> int:
    return sum(bool(rule.now.unmet) or rule.now.unsatisfiable is not None for rule in facts.rules)


_STOP = "`rebalancer history` shows all moves. To keep the pods of this workload where they are:"


def _stop(moved: MovedPod) -> str:
    namespace = moved.ref.partition("/")[0]
    kind, _, name = moved.owner.partition("/")
    what = f"{kind.lower()} {name.rpartition('/')[2]}" if moved.owner else "WORKLOAD"
    return f"kubectl --namespace {namespace} annotate {what} rebalancer/evict=false"
