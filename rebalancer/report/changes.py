"""What the moves of a report change, step by step: pods per workload and domain, and load of nodes.

The steps of a plan are "now" and "planned"; those of a real run are "before", "planned" and "now", the current
cluster. In the planned step, a replacement counts on each node of its zone by its probability there: if the
scheduler chooses among equal nodes, none of them is shown as certain. A run that is held, or plans no move, has
one step: "now".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from rebalancer.plan.plan import Move, Outcome, Status
from rebalancer.report.model import RunReport
from rebalancer.snapshot.columns import Floats, Int32s, Ints, sum_by_node
from rebalancer.snapshot.model import PodFlag, Snapshot

NO_ZONE = "no zone"
_NOT_LEFT = frozenset({Status.DROPPED, Status.GONE, Status.CHANGED})

Shares = Sequence[tuple[str, float]]
"""The place of a replacement: nodes with the share of it on each; empty without a node."""


@dataclass(frozen=True, slots=True)
class ReportStep:
    """The cluster at one step: a snapshot, changed by the moves up to this step."""

    name: str
    snapshot: Snapshot
    moved: Mapping[str, Shares] = field(default_factory=dict)
    """uid of a pod of the snapshot -> the place of its replacement."""


@dataclass(frozen=True, slots=True)
class WorkloadChange:
    """The pods of one workload per domain, for the domains that its moves concern."""

    owner: str
    """The workload as ``Kind/namespace/name``."""
    moves: int
    by: str
    """The topology, ``zone`` or ``node``."""
    domains: tuple[str, ...]
    counts: tuple[tuple[float, ...], ...]
    """Pods in each domain, at each step."""

    def list_changes(self) -> Iterator[tuple[str, tuple[float, ...]]]:
        """Yield each domain whose pods differ between the steps, with its pods per step.

        Without the nodes that only may get a pod: of many alike, each has a small share of the landings.
        """
        for name, *counts in zip(self.domains, *self.counts, strict=True):
            gains = self.by == "node" and counts[-1] > counts[0]
            if len(set(counts)) > 1 and not (gains and counts[-1] % 1):
                yield name, tuple(counts)


@dataclass(frozen=True, slots=True)
class Story:
    """Workloads whose pods per domain are the same at each step."""

    changes: tuple[WorkloadChange, ...]

    @property
    def first(self) -> WorkloadChange:
        """Any one of the workloads, for the numbers that all share."""
        return self.changes[0]

    @property
    def owners(self) -> tuple[str, ...]:
        """The workloads."""
        return tuple(change.owner for change in self.changes)

    @property
    def moves(self) -> int:
        """The number of moves of these workloads."""
        return sum(change.moves for change in self.changes)


def group_alike(changes: Iterable[WorkloadChange]) -> tuple[Story, ...]:
    """Group workloads with the same pods per zone at each step; the stories with most moves first.

    By node, the numbers of pods count on the nodes that lose some, not their names.
    """
    alike: dict[object, list[WorkloadChange]] = {}
    for change in changes:
        by_domain = tuple(zip(*change.counts, strict=True))
        fewer = tuple(sorted(counts for counts in by_domain if counts[-1] < counts[0]))
        key = by_domain if change.by == "zone" else fewer
        alike.setdefault((change.by, key), []).append(change)
    return tuple(sorted(map(Story, map(tuple, alike.values())), key=lambda story: -story.moves))


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """The requests on a node at each step as shares of its allocatable (1.0 is full), without terminating pods."""

    name: str
    zone: str
    cpu: tuple[float, ...]
    memory: tuple[float, ...]
    pods: tuple[float, ...]


def select_outcomes(report: RunReport) -> Sequence[Outcome]:
    """Return the outcomes of the moves. A reviewed plan omits moves whose pods are gone or are not moved."""
    if report.reviewed is None:
        return report.outcomes
    return [outcome for outcome in report.outcomes if outcome.status not in _NOT_LEFT]


class Changes:
    """The changes that the moves of a report make, each computed once.

    The deletion of finished pods is not included.
    """

    def __init__(self, report: RunReport) -> None:
        self._report = report
        self._outcomes = [one for one in select_outcomes(report) if one.move.has_replacement]
        self.steps = _steps(report, self._outcomes)
        self.zones, self._zones = _zones(report, self.steps)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the steps."""
        return tuple(step.name for step in self.steps)

    @property
    def has_zones(self) -> bool:
        """Whether there is more than one zone."""
        return len(self.zones) > 1

    def zone_of(self, node: str) -> str:
        """Return the zone of a node, or the label for nodes without a zone."""
        return self._zones.get(node, NO_ZONE)

    # -- workloads ---------------------------------------------------------------------------------

    @cached_property
    def workloads(self) -> tuple[WorkloadChange, ...]:
        """The workloads with moves, those with most moves first."""
        if len(self.steps) == 1:
            return ()
        moves: dict[str, list[Outcome]] = {}
        for outcome in self._outcomes:
            moves.setdefault(outcome.move.owner, []).append(outcome)
        stand = [self._by_owner(step, moves) for step in self.steps]
        changes = [
            self._workload(owner, [of[owner] for of in stand], of) for owner, of in moves.items()
        ]
        return tuple(sorted(changes, key=lambda change: (-change.moves, change.owner)))

    @cached_property
    def still(self) -> tuple[WorkloadChange, ...]:
        """The largest workloads without moves, for comparison; only those with pods in a zone."""
        if not self.has_zones:
            return ()
        moved = {change.owner for change in self.workloads}
        owners = [owner.ref for owner in self.steps[0].snapshot.owners if owner.ref not in moved]
        stand = [self._by_owner(step, owners) for step in self.steps]
        present = [owner for owner in owners if stand[0][owner]]
        most = sorted(present, key=lambda owner: (-sum(stand[0][owner].values()), owner))[
            :_MAX_STILL
        ]
        return tuple(self._workload(owner, [of[owner] for of in stand], ()) for owner in most)

    def _by_owner(self, step: ReportStep, owners: Iterable[str]) -> dict[str, _Pods]:
        pods = {owner: _Pods(float) for owner in owners}
        names = step.snapshot.nodes.names
        for owner, nodes in nodes_by_owner(step.snapshot, pods).items():
            for node in nodes.tolist():
                pods[owner][names[node]] += 1
        for outcome in self._outcomes if step.moved else ():
            move = outcome.move
            if move.uid in step.moved and move.owner in pods:
                _shift(pods[move.owner], move.node, step.moved[move.uid])
        return pods

    def _workload(
        self, owner: str, stand: Sequence[_Pods], outcomes: Sequence[Outcome]
    ) -> WorkloadChange:
        by_zone = [self._by_zone(each) for each in stand]
        # What is made for nodes may be less even over zones: the nodes are what it is to show.
        evener = not outcomes or _skew(by_zone[:2][-1]) <= _skew(by_zone[0])
        if self.has_zones and evener and not (outcomes and len(set(by_zone)) == 1):
            return WorkloadChange(owner, len(outcomes), "zone", self.zones, tuple(by_zone))
        names = sorted(
            {name for of in stand for name in of if len({_whole(each[name]) for each in stand}) > 1}
        )
        counts = tuple(tuple(_whole(each[name]) for name in names) for each in stand)
        return WorkloadChange(owner, len(outcomes), "node", tuple(names), counts)

    def _by_zone(self, by_node: Mapping[str, float]) -> tuple[float, ...]:
        pods: dict[str, float] = dict.fromkeys(self.zones, 0.0)
        for node, number in by_node.items():
            zone = self.zone_of(node)
            pods[zone] = pods.get(zone, 0.0) + number
        return tuple(_whole(pods[zone]) for zone in self.zones)

    # -- nodes -------------------------------------------------------------------------------------

    @cached_property
    def nodes(self) -> tuple[NodeLoad, ...]:
        """All nodes of all steps, by zone and name."""
        steps = [_loads(step, self._outcomes) for step in self.steps]
        names = dict.fromkeys(name for of in steps for name in of)
        changes = [
            NodeLoad(
                name,
                self.zone_of(name),
                *zip(*(of.get(name, _NOTHING) for of in steps), strict=True),
            )
            for name in names
        ]
        return tuple(sorted(changes, key=lambda node: (node.zone, node.name)))


_MAX_STILL = 60
_NOTHING = (0.0, 0.0, 0.0)

_Pods = defaultdict[str, float]
"""Pods by node; shares of them where it is not certain on which node they are."""


def _steps(report: RunReport, outcomes: Sequence[Outcome]) -> tuple[ReportStep, ...]:
    snapshot, again = report.snapshot, report.read_again
    if report.standstill or not report.outcomes:
        return (ReportStep("Now", snapshot if again is None else again.snapshot),)
    planned = ReportStep(
        "As planned", snapshot, {o.move.uid: landing_shares(report, o.move) for o in outcomes}
    )
    if report.dry_run:
        return ReportStep("Now", snapshot), planned
    before = ReportStep("Before", snapshot)
    if again is not None:
        return before, planned, ReportStep("Now", again.snapshot)
    landed = {
        one.move.uid: [] if one.landed is None else [(one.landed, 1.0)]
        for one in outcomes
        if one.status.may_have_evicted
    }
    return before, planned, ReportStep("Now", snapshot, landed)


def landing_shares(report: RunReport, move: Move) -> Shares:
    """Return the probability of each node where the replacement may land; the sum is 1.

    If several zones are possible, only the nodes of the most probable zone are returned, because later moves are
    predicted with the replacement in that zone. Of very many nodes, only the most probable ones are returned, scaled
    to a sum of 1.
    """
    if not move.landings:
        return []
    zone = report.domain_of(move.landings[0].node)
    there = [one for one in move.landings if report.domain_of(one.node) == zone]
    listed = sum(landing.probability for landing in there)
    return [(landing.node, landing.probability / listed) for landing in there]


def _shift(counts: _Pods, source: str, targets: Shares) -> None:
    # Of a reviewed plan, a pod may be gone from where it was.
    if counts[source] > 0:
        counts[source] -= 1
        for target, share in targets:
            counts[target] += share


def _skew(counts: Sequence[float]) -> float:
    return max(counts) - min(counts)


def _whole(number: float) -> float:
    """Round a sum of probabilities to 4 decimals; a whole number becomes an int."""
    rounded = round(number, 4)
    return int(rounded) if rounded == int(rounded) else rounded


def nodes_by_owner(snapshot: Snapshot, owners: Iterable[str]) -> dict[str, Int32s]:
    """Return owner -> nodes (rows) of its pods that are not terminating."""
    pods = snapshot.pods
    wanted = set(owners)
    refs = {i: owner.ref for i, owner in enumerate(snapshot.owners) if owner.ref in wanted}
    of_class = np.array([cls.owner for cls in snapshot.classes] or [-1], np.int64)
    living = _living(snapshot)
    owner, node = of_class[pods.cls[living]], pods.node[living]
    order = np.argsort(owner, kind="stable")
    owner, node = owner[order], node[order]
    present, first = np.unique(owner, return_index=True)
    ends = [*first[1:], len(owner)]
    return {
        refs[o]: node[start:end]
        for o, start, end in zip(present.tolist(), first, ends, strict=False)
        if o in refs
    }


def _living(snapshot: Snapshot) -> Int32s:
    """Return the rows of the pods that are on a node and not terminating."""
    pods = snapshot.pods
    there = (pods.node >= 0) & ((pods.flags & PodFlag.TERMINATING) == 0)
    return np.flatnonzero(there).astype(np.int32)


def _loads(step: ReportStep, outcomes: Sequence[Outcome]) -> dict[str, tuple[float, float, float]]:
    """Return node -> (requested share of cpu, requested share of memory, pods) at one step."""
    snapshot, pods = step.snapshot, step.snapshot.pods
    living, size = _living(snapshot), len(snapshot.nodes)
    rows = [snapshot.resources.index(name) for name in ("cpu", "memory")]
    requests = snapshot.requests[rows]
    used = sum_by_node(requests, pods.cls[living], pods.node[living], size).astype(float)
    number = np.bincount(pods.node[living], minlength=size).astype(float)
    index = snapshot.nodes.index
    moves = {
        outcome.move.uid: outcome.move for outcome in outcomes if outcome.move.uid in step.moved
    }
    for pod in pods.uid.rows_of(set(moves)).tolist():
        move = moves[pods.uid[pod]]
        cls = int(pods.cls[pod])
        goes = ((move.node, -1.0, cls),)
        comes = ((n, p, snapshot.classes[cls].replacement) for n, p in step.moved[move.uid])
        for node, share, of_class in (*goes, *comes):
            if (place := index.get(node)) is not None:
                used[:, place] += share * requests[:, of_class]
                number[place] += share
    shares = _fullness(used, snapshot.nodes.allocatable[rows])
    return {
        name: (float(shares[0, node]), float(shares[1, node]), _whole(float(number[node])))
        for node, name in enumerate(snapshot.nodes.names)
    }


def _fullness(used: Floats, room: Ints) -> Floats:
    shares = np.divide(used, room, out=np.zeros(used.shape, np.float64), where=room > 0)
    return np.maximum(shares, 0.0)


def _zones(
    report: RunReport, steps: Sequence[ReportStep]
) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Return the zone names, the one for "no zone" last, and node -> zone over all steps."""
    names = dict.fromkeys(name for step in steps for name in step.snapshot.nodes.names)
    of_node = {name: report.domain_of(name) or NO_ZONE for name in names}
    zones = sorted(set(of_node.values()), key=lambda zone: (zone == NO_ZONE, zone))
    return tuple(zones), of_node
