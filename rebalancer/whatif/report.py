"""A simulation as a document, and as data: before, after the what-if changes, at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from rebalancer import API_VERSION
from rebalancer.base.plain_text import and_more, count, percent
from rebalancer.plan.plan import Cost, Score
from rebalancer.report import words
from rebalancer.report.as_json import unmet_data
from rebalancer.report.changes import NO_ZONE, WorkloadChange, group_alike, nodes_by_owner
from rebalancer.report.document import Block, Table
from rebalancer.report.model import group_rules
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.state import ClusterState
from rebalancer.whatif.cycles import Cycle, Simulation, total
from rebalancer.wire.times import rfc3339

_HEAD = (
    "CYCLE",
    "TIME",
    "EVICTED",
    "AS PREDICTED",
    "TWICE",
    "PENDING",
    "UNMET",
)


_LEAST = 0.001
"""Of an entry of the cost: less is rounding, or nothing that a move would change."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The effects of the what-if changes by themselves, before the first run."""

    edits: Sequence[str]
    """The changes in words."""
    placed: Mapping[str, int]
    """Node -> pods that were recreated or added, and have it now; by name."""
    waiting: int
    """Pods that fit on no node."""
    by_zone: Mapping[str, int]
    fullest: Fullest | None
    before: Fullest | None
    """The fullest node in the file."""

    @property
    def pods(self) -> int:
        """The pods that were recreated or added."""
        return sum(self.placed.values()) + self.waiting

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "changes": list(self.edits),
            "pods": self.pods,
            "waiting": self.waiting,
            "nodes": dict(self.placed),
            "fullest": None if self.fullest is None else asdict(self.fullest),
            "fullestBefore": None if self.before is None else asdict(self.before),
        }


@dataclass(frozen=True, slots=True)
class Fullest:
    """The node with the largest requested share."""

    node: str
    resource: str
    share: float
    """The requested share of allocatable."""

    @property
    def words(self) -> str:
        """``node-a1, 83% of its cpu``."""
        return f"{self.node}, {percent(self.share)} of its {self.resource}"


def what_if(steps: SimulatedSteps, edits: Sequence[str]) -> WhatIf | None:
    """Return the effects of the what-if changes by themselves; None without a change."""
    if not edits:
        return None
    changed, settled = steps.changed, steps.settled
    of_file = steps.in_file.pods
    waited = {of_file.uid[pod] for pod in np.flatnonzero(of_file.node < 0).tolist()}
    # A simulated cluster has its pods in the rows of its first snapshot.
    nodes = settled.pods.node[
        [
            pod
            for pod in np.flatnonzero(changed.pods.node < 0).tolist()
            if changed.pods.uid[pod] not in waited
        ]
    ]
    names, zone_of = settled.nodes.names, _zones(settled)
    placed = Counter(names[node] for node in nodes[nodes >= 0].tolist())
    by_zone: Counter[str] = Counter()
    for name, number in placed.items():
        by_zone[zone_of[name]] += number
    return WhatIf(
        edits=tuple(edits),
        placed=dict(sorted(placed.items())),
        waiting=int((nodes < 0).sum()),
        by_zone=dict(sorted(by_zone.items())),
        fullest=_fullest(settled),
        before=_fullest(steps.in_file),
    )


def _fullest(snapshot: Snapshot) -> Fullest | None:
    used, room = ClusterState(snapshot).used, snapshot.nodes.allocatable
    best: tuple[float, str, str] | None = None
    for row, name in enumerate(snapshot.resources[:_WEIGHED]):
        shares = used[row] / np.maximum(1, room[row])
        if len(shares) and (best is None or shares.max() > best[0]):
            best = float(shares.max()), snapshot.nodes.names[int(shares.argmax())], name
    return None if best is None else Fullest(best[1], best[2], float(f"{best[0]:.9g}"))


def what_if_lines(change: WhatIf, simulation: Simulation) -> list[str]:
    """Return the answer to the question in sentences: where displaced pods are, what waits, which node is fullest."""
    edits = and_more(change.edits, _MAX_UNMET)
    then = f"then the runs make {count(_evictions(simulation), 'eviction')}"
    if not change.pods:
        lines = [f"{edits}: no pod has to be recreated; {then}."]
    else:
        waits = f"{change.waiting:,} {'waits' if change.waiting == 1 else 'wait'}"
        zones = ", ".join(f"{zone} {number:,}" for zone, number in change.by_zone.items())
        where = f" ({zones})" if zones else ""
        placed = sum(change.placed.values())
        lands = "lands" if placed == 1 else "land"
        on = f"{count(placed, 'pod')} {lands} on {count(len(change.placed), 'node')}{where}"
        lines = [f"{edits}: {on}, {waits}; {then}."]
    if change.fullest is not None:
        before = f" (before: {change.before.words})" if change.before is not None else ""
        lines.append(f"The fullest node is then {change.fullest.words}{before}.")
    return lines


def format_simulation(
    simulation: Simulation, change: WhatIf | None, *, source: str, policy: str
) -> list[Block]:
    """Return the simulation for people."""
    warnings = [f"Warning: {text}" for text in simulation.warnings]
    answer = [] if change is None else [*what_if_lines(change, simulation), ""]
    return [
        *answer,
        f"Simulation of {source}, {policy}",
        *warnings,
        "",
        Table([_HEAD, *map(_row, simulation.cycles)], "", range(len(_HEAD))),
        "",
        *(f"  {name}: {_score_words(score)}" for name, score in _end(simulation).items()),
        *_unmet_lines(simulation),
        *(
            f"Waiting: {count(one.pods, 'pod')} of {one.owner}: {one.reason}"
            for one in simulation.waiting
        ),
        *_pauses(simulation.cycles),
        _sum_line(simulation),
        _silence_line(simulation),
    ]


def as_data(
    simulation: Simulation, change: WhatIf | None, *, source: str, policy: str
) -> dict[str, Any]:
    """Return ``apiVersion: rebalancer/v1, kind: Simulation``."""
    cycles = simulation.cycles
    return {
        "apiVersion": API_VERSION,
        "kind": "Simulation",
        "source": source,
        "policy": policy,
        "whatIf": None if change is None else change.as_data(),
        "pods": simulation.pods,
        "evictions": _evictions(simulation),
        "movedTwice": cycles[-1].moved_twice if cycles else 0,
        "lowerBound": cycles[0].lower_bound if cycles else 0,
        "silent": simulation.silent,
        "later": simulation.later,
        "waiting": [
            {"owner": one.owner, "pods": one.pods, "reason": one.reason}
            for one in simulation.waiting
        ],
        "unmet": [unmet_data(rule) for rule in simulation.unmet],
        "warnings": list(simulation.warnings),
        "cycles": [
            {
                "cycle": cycle.number,
                "at": rfc3339(cycle.at),
                "evictions": cycle.evictions,
                "asPredicted": cycle.as_predicted,
                "waves": cycle.waves,
                "movedTwice": cycle.moved_twice,
                "pending": cycle.pending,
                "idleSeconds": cycle.idle,
                "resting": cycle.resting,
                "lowerBound": cycle.lower_bound,
                "before": _cost(total(cycle.before)),
                "after": _cost(total(cycle.after)),
                "stopped": cycle.stopped,
                "moves": [
                    {
                        "pod": outcome.move.ref,
                        "owner": outcome.move.owner,
                        "strategy": outcome.move.strategy,
                        "from": outcome.move.node,
                        "landed": outcome.landed,
                        "predicted": outcome.predicted,
                        "outcome": outcome.status.value,
                        "message": outcome.message,
                    }
                    for outcome in cycle.outcomes
                ],
            }
            for cycle in cycles
        ],
        "end": _scores(_end(simulation)),
    }


def _cost(cost: Cost) -> dict[str, Any]:
    return {
        "hard": _number(cost.hard),
        "soft": _number(cost.soft),
        "imbalance": _number(cost.imbalance),
    }


def _number(value: float) -> float:
    return float(f"{value:.9g}")


def _scores(scores: Mapping[str, Score]) -> dict[str, Any]:
    return {
        name: {
            **_cost(score.cost),
            "violated": score.violated,
            "unsatisfiable": list(score.unsatisfiable),
            "nodes": None
            if score.nodes is None
            else {"holding": score.nodes.holding, "needed": score.nodes.needed},
        }
        for name, score in scores.items()
    }


def _end(simulation: Simulation) -> dict[str, Score]:
    return dict(sorted(simulation.cycles[-1].after.items())) if simulation.cycles else {}


def _cost_words(cost: Cost) -> str:
    parts = [
        f"{value:.3g} {name}"
        for name, value in zip(("hard", "soft", "imbalance"), cost.as_tuple(), strict=True)
        if value >= _LEAST
    ]
    return ", ".join(parts) or "0"


def _score_words(score: Score) -> str:
    words = f"{_cost_words(score.cost)} ({score.violated} unmet)" if score.violated else "holds"
    impossible = len(score.unsatisfiable)
    words = f"{words}, {impossible} cannot hold" if impossible else words
    if score.nodes is None:
        return words
    return f"{words}, pods on {count(score.nodes.holding, 'node')}, at least {score.nodes.needed} needed"


def _unmet_lines(simulation: Simulation) -> Iterator[str]:
    """Yield which rules remain unmet at the end, and why, those of one reason together."""
    groups = group_rules(simulation.unmet)
    for group in groups[:_FEW]:
        why = f": {group.why}" if group.why else ""
        yield f"Unmet: {group.heading}: {and_more(group.names, _MAX_UNMET)}{why}"
    if (left := len(groups) - _FEW) > 0:
        yield f"... and {left:,} more reasons (-o json has all)"


def _evictions(simulation: Simulation) -> int:
    return sum(cycle.evictions for cycle in simulation.cycles)


def _row(cycle: Cycle) -> tuple[str, ...]:
    return (
        str(cycle.number),
        rfc3339(cycle.at)[11:19],
        str(cycle.evictions),
        str(cycle.as_predicted),
        str(cycle.moved_twice),
        str(cycle.pending),
        words.change(unmet_rules(cycle.before), unmet_rules(cycle.after)),
    )


def unmet_rules(scores: Mapping[str, Score]) -> int:
    """Return the number of unmet rules of all strategies."""
    return sum(score.violated for score in scores.values())


def _sum_line(simulation: Simulation) -> str:
    cycles, evictions = simulation.cycles, _evictions(simulation)
    twice = cycles[-1].moved_twice if cycles else 0
    share = f" ({percent(twice / evictions)})" if twice else ""
    bound = cycles[0].lower_bound if cycles else 0
    # Of pods that are not Ready no fewest number is known: 0 says nothing then.
    least = f" (a state as good as the first run plans takes at least {bound:,})" if bound else ""
    return (
        f"{count(evictions, 'eviction')} in {count(len(cycles), 'cycle')}{least}; "
        f"{count(twice, 'pod')} moved more than once{share}."
    )


def _pauses(cycles: Sequence[Cycle]) -> list[str]:
    """Return sentences on the times without moves, and their reasons, where a later run continued."""
    return [
        f"No moves from {rfc3339(cycle.at)} to {rfc3339(following.at)}: {cycle.stopped}"
        for cycle, following in pairwise(cycles)
        if cycle.idle
    ]


def _silence_line(simulation: Simulation) -> str:
    last = simulation.cycles[-1] if simulation.cycles else None
    if simulation.silent is None and last and last.resting and not last.evictions:
        resting = count(last.resting, "workload")
        return (
            f"No moves while the memory lets {resting} cool down; a run a day later without memory would "
            f"make {simulation.later} more."
        )
    if simulation.silent is None:
        return (
            f"Not at its end: a run a day later would make {count(simulation.later, 'more move')}."
        )
    return f"No more moves, also of a run a day later and without memory: {simulation.silent}"


_WEIGHED = 2
"""cpu and memory, the first two resources."""
_FEW = 10
_MAX_ROWS = 150
_MAX_NAMES = 20
_MAX_UNMET = 3


@dataclass(frozen=True, slots=True)
class SimulatedSteps:
    """The snapshots that a report on a simulation compares."""

    in_file: Snapshot
    changed: Snapshot
    settled: Snapshot
    """The cluster as the first run sees it: pods that waited are placed if they fit."""
    last: Snapshot

    def with_names(self) -> tuple[tuple[str, Snapshot], ...]:
        """Return the steps with their names: two without what-if changes, else three."""
        if self.changed is self.in_file:
            return ("Now", self.in_file), ("At the end", self.last)
        return ("Now", self.in_file), ("What if", self.settled), ("At the end", self.last)


def format_steps(steps: SimulatedSteps, simulation: Simulation) -> list[Block]:
    """Return nodes and pods at each step, and by zone the pods of each workload that changes; like changes share a row."""
    named = steps.with_names()
    names = [name for name, _ in named]
    zones = sorted({zone for _, snapshot in named for zone in _zones(snapshot).values()})
    stories = group_alike(_changes(named, zones, simulation))
    on_nodes = [int((snapshot.pods.node >= 0).sum()) for _, snapshot in named]
    rows = [
        (
            and_more(story.owners, _MAX_NAMES),
            *("/".join(map(words.number, of)) for of in story.first.counts),
            f"{story.moves:,}",
        )
        for story in stories[:_MAX_ROWS]
    ]
    return [
        "Steps",
        Table(
            [
                ("", *names),
                ("Nodes", *(f"{len(snapshot.nodes):,}" for _, snapshot in named)),
                ("Pods on nodes", *(f"{number:,}" for number in on_nodes)),
            ]
        ),
        f"Pods in {' / '.join(zones)}, of each workload that changes",
        Table([("Workload", *names, "Moves"), *rows]) if rows else "Nothing changes.",
    ]


def _changes(
    named: Sequence[tuple[str, Snapshot]], zones: Sequence[str], simulation: Simulation
) -> Iterator[WorkloadChange]:
    """Yield the workloads whose pods by zone change, or that were moved."""
    moved = Counter(
        outcome.move.owner
        for cycle in simulation.cycles
        for outcome in cycle.outcomes
        if outcome.status.is_carried_out
    )
    owners = list(dict.fromkeys(owner.ref for _, of in named for owner in of.owners))
    stand = [_by_zone(snapshot, owners) for _, snapshot in named]
    for owner in owners:
        counts = tuple(tuple(float(of.get((owner, zone), 0)) for zone in zones) for of in stand)
        if moved[owner] or len(set(counts)) > 1:
            yield WorkloadChange(owner, moved[owner], "zone", tuple(zones), counts)


def _by_zone(snapshot: Snapshot, owners: Sequence[str]) -> Counter[tuple[str, str]]:
    zone_of, names = _zones(snapshot), snapshot.nodes.names
    return Counter(
        (owner, zone_of[names[node]])
        for owner, nodes in nodes_by_owner(snapshot, owners).items()
        for node in nodes.tolist()
    )


def _zones(snapshot: Snapshot) -> dict[str, str]:
    zones, names = snapshot.nodes.labels.zones()
    return {
        node: NO_ZONE if zone < 0 else names[zone]
        for node, zone in zip(snapshot.nodes.names, zones.tolist(), strict=True)
    }
