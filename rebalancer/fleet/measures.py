"""The measures of a simulation: each is one number per task; lower is better for some, higher for others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rebalancer.plan.plan import Cost, Method, Outcome
from rebalancer.snapshot.model import Snapshot
from rebalancer.whatif.cycles import Played


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure: its name, its words in reports, and which direction is better."""

    key: str
    """Its key in JSON."""
    head: str
    """The title of its column in tables."""
    words: str
    better: str = "fewer"
    """The word before ``words`` where a policy is better: fewer, less, more."""

    @property
    def more_is_better(self) -> bool:
        """Whether a larger value is better."""
        return self.better == "more"


MEASURES = (
    Measure("evictions", "EVICTED", "evictions"),
    Measure("movedTwice", "TWICE", "pods moved more than once"),
    Measure("hardLeft", "HARD LEFT", "pods left to move for hard rules"),
    Measure("softLeft", "SOFT LEFT", "pods left to move for soft rules"),
    Measure("unevenness", "UNEVEN", "unevenness of requested cpu and memory", "less"),
    Measure("waiting", "WAITING", "pods without a node"),
    Measure("workloadShare", "GONE AT ONCE", "of a workload gone at once", "less"),
    Measure("budgetShare", "PDB USED", "of a PodDisruptionBudget used at once", "less"),
    Measure("runs", "RUNS", "runs until silence"),
    Measure("nodesEmpty", "EMPTY", "empty nodes at the end", "more"),
)
BY_KEY = {measure.key: measure for measure in MEASURES}


def measure(played: Played, left: Cost) -> dict[str, float]:
    """Return key -> value of all measures; ``left`` is the cost at the end by the rules of the judge."""
    cycles = played.simulation.cycles
    return {
        "evictions": float(sum(cycle.evictions for cycle in cycles)),
        "movedTwice": float(cycles[-1].moved_twice if cycles else 0),
        "hardLeft": round_value(left.hard),
        "softLeft": round_value(left.soft),
        "unevenness": round_value(unevenness(played.last)),
        "waiting": float(sum(one.pods for one in played.simulation.waiting)),
        "workloadShare": round_value(max(_workload_shares(played), default=0.0)),
        "budgetShare": round_value(max(_budget_shares(played), default=0.0)),
        "runs": float(len(cycles)),
        "nodesEmpty": float(_empty_nodes(played.last)),
    }


def unevenness(snapshot: Snapshot) -> float:
    """Return the standard deviation over the nodes of the requested share, the mean of cpu and memory.

    Nodes that are not Ready, or cordoned, do not count: nothing can be evened out there. 0 without nodes.
    """
    nodes, pods = snapshot.nodes, snapshot.pods
    counted = nodes.ready & ~nodes.unschedulable
    if not counted.any():
        return 0.0
    placed = np.flatnonzero(pods.node >= 0)
    total = 0.0
    for resource in (0, 1):
        asked = np.bincount(
            pods.node[placed],
            weights=snapshot.requests[resource, pods.cls[placed]],
            minlength=len(nodes),
        )
        room = np.maximum(nodes.allocatable[resource], 1)
        total += float(np.std((asked / room)[counted]))
    return total / 2


def _empty_nodes(snapshot: Snapshot) -> int:
    """Return the number of nodes without pods, not counting pods that are bound to their node."""
    pods = snapshot.pods
    others = (pods.node >= 0) & ~snapshot.per_node
    return len(snapshot.nodes) - len(np.unique(pods.node[others]))


def _waves(played: Played) -> Iterator[list[Outcome]]:
    """Yield the evictions of each wave. A restart does not count: the new pod is Ready before the old one goes."""
    for cycle in played.simulation.cycles:
        waves: dict[int, list[Outcome]] = {}
        for outcome in cycle.outcomes:
            if outcome.status.is_carried_out and outcome.move.method is not Method.RESTART:
                waves.setdefault(outcome.move.wave, []).append(outcome)
        yield from waves.values()


def _workload_shares(played: Played) -> Iterator[float]:
    """Yield, wave by wave, the largest share of the replicas of a workload that was evicted at once."""
    replicas = {owner.ref: owner.replicas for owner in played.first.owners}
    for wave in _waves(played):
        evicted = Counter(outcome.move.owner for outcome in wave if outcome.move.has_replacement)
        yield max(
            (_share(number, replicas.get(owner, 0)) for owner, number in evicted.items()),
            default=0.0,
        )


def _budget_shares(played: Played) -> Iterator[float]:
    """Yield, wave by wave, the largest share of a PodDisruptionBudget's allowed disruptions that was used at once."""
    allowed: Mapping[str, int] = {budget.ref: budget.allowed for budget in played.first.budgets}
    for wave in _waves(played):
        used = Counter(ref for outcome in wave for ref in outcome.move.budgets)
        yield max(
            (_share(number, allowed.get(ref, 0)) for ref, number in used.items()), default=0.0
        )


def _share(number: int, of: int) -> float:
    return min(1.0, number / of) if of > 0 else 1.0


def round_value(value: float) -> float:
    """Round ``value`` to nine decimals, so that smaller differences count as equal."""
    return round(value, 9)
