"""What the moves of a report change: pods of each workload by domain, what nodes hold, pods between zones.

``before`` is the snapshot, ``planned`` the state in which every replacement stands where it most probably lands,
``after`` the outcome of it: replacements where they landed, and pods that were not evicted where they were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rebalancer.plan.outcome import Outcome, Status
from rebalancer.plan.plan import Move
from rebalancer.report.model import RunReport
from rebalancer.snapshot.columns import Int32s, Ints, summed_by_node
from rebalancer.snapshot.model import PodFlag, Snapshot

NO_ZONE = "no zone"
_NOT_LEFT = frozenset({Status.DROPPED, Status.GONE, Status.CHANGED})


@dataclass(frozen=True, slots=True)
class WorkloadChange:
    """One workload's pods over the domains that its moves are about."""

    owner: str
    """``Kind/namespace/name``."""
    moves: int
    by: str
    """``zone`` or ``node``."""
    domains: tuple[str, ...]
    before: tuple[int, ...]
    """Pods in each domain."""
    planned: tuple[int, ...]
    after: tuple[int, ...] | None
    """None where nothing was tried."""

    def changed(self, steps: Iterable[tuple[int, ...]]) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield the domains in which ``steps``, pods in each domain, differ, with their pods at each step."""
        for name, *counts in zip(self.domains, *steps, strict=True):
            if len(set(counts)) > 1:
                yield name, tuple(counts)


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """What a node holds, before and as planned; shares of its allocatable, 1.0 is full."""

    name: str
    zone: str
    cpu: tuple[float, float]
    memory: tuple[float, float]
    pods: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Flow:
    """Moves from one zone to another, or within one."""

    source: str
    target: str
    moves: int


def left_of_plan(report: RunReport) -> Sequence[Outcome]:
    """Return the outcome of the moves; of a reviewed plan without those whose pods are not where they were, or stay."""
    if report.reviewed is None:
        return report.outcomes
    return [outcome for outcome in report.outcomes if outcome.status not in _NOT_LEFT]


class Changes:
    """Computes them from a report, each once. Pods that have ended stand nowhere: their removal changes nothing here."""

    def __init__(self, report: RunReport) -> None:
        self._report = report
        self._outcomes = [one for one in left_of_plan(report) if one.move.has_replacement]
        self._snapshot: Snapshot = report.snapshot
        self.zones, self._zone_of = _zones(report)

    @property
    def has_zones(self) -> bool:
        """Whether there is more than one zone."""
        return len(self.zones) > 1

    def zone_of(self, node: str) -> str:
        """Return the zone of a node, or that it has none."""
        index = self._snapshot.nodes.index.get(node)
        return NO_ZONE if index is None else self.zones[self._zone_of[index]]

    # -- workloads ---------------------------------------------------------------------------------

    @cached_property
    def workloads(self) -> tuple[WorkloadChange, ...]:
        """The workloads that have moves, those with most moves first."""
        moves: dict[str, list[Outcome]] = {}
        for outcome in self._outcomes:
            moves.setdefault(outcome.move.owner, []).append(outcome)
        nodes = self._nodes_by_owner(moves)
        changes = [self._workload(owner, nodes.get(owner), of) for owner, of in moves.items()]
        return tuple(sorted(changes, key=lambda change: (-change.moves, change.owner)))

    @cached_property
    def still(self) -> tuple[WorkloadChange, ...]:
        """The largest workloads without moves that have pods in a zone: what the others stand beside."""
        if not self.has_zones:
            return ()
        moved = {outcome.move.owner for outcome in self._outcomes}
        owners = [owner.ref for owner in self._snapshot.owners if owner.ref not in moved]
        nodes = self._nodes_by_owner(owners)
        most = sorted(nodes, key=lambda owner: (-len(nodes[owner]), owner))[:_MOST_STILL]
        return tuple(self._workload(owner, nodes[owner], ()) for owner in most)

    def _nodes_by_owner(self, owners: Iterable[str]) -> dict[str, Int32s]:
        """Return the node of each living pod of these owners."""
        snapshot, pods = self._snapshot, self._snapshot.pods
        wanted = set(owners)
        refs = {i: owner.ref for i, owner in enumerate(snapshot.owners) if owner.ref in wanted}
        of_class = np.array([cls.owner for cls in snapshot.classes] or [-1], np.int64)
        living = (pods.node >= 0) & ((pods.flags & PodFlag.TERMINATING) == 0)
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

    def _workload(
        self, owner: str, nodes: Int32s | None, outcomes: Sequence[Outcome]
    ) -> WorkloadChange:
        stand = Counter(self._snapshot.nodes.names[node] for node in _listed(nodes))
        planned = Counter(stand)
        for outcome in outcomes:
            _shift(planned, outcome.move.node, likely(outcome.move))
        after = self._after(stand, outcomes)
        if self.has_zones:
            by_zone = [self._by_zone(each) for each in (stand, planned)]
            if by_zone[0] != by_zone[1] or not outcomes:
                landed = None if after is None else self._counts(self._by_zone(after))
                before, then = (self._counts(each) for each in by_zone)
                return WorkloadChange(
                    owner, len(outcomes), "zone", self.zones, before, then, landed
                )
        names = sorted(
            {
                name
                for name in stand | planned | (after or Counter())
                if stand[name] != planned[name]
            }
        )
        rows = [tuple(each[name] for name in names) for each in (stand, planned)]
        landed = None if after is None else tuple(after[name] for name in names)
        return WorkloadChange(owner, len(outcomes), "node", tuple(names), rows[0], rows[1], landed)

    def _after(self, stand: Counter[str], outcomes: Sequence[Outcome]) -> Counter[str] | None:
        if self._report.dry_run or not outcomes:
            return None
        after = Counter(stand)
        for outcome in outcomes:
            if outcome.status.may_have_evicted:
                _shift(after, outcome.move.node, outcome.landed)
        return after

    def _by_zone(self, by_node: Mapping[str, int]) -> Counter[str]:
        pods: Counter[str] = Counter()
        for node, number in by_node.items():
            pods[self.zone_of(node)] += number
        return pods

    def _counts(self, by_zone: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(by_zone.get(zone, 0) for zone in self.zones)

    # -- nodes -------------------------------------------------------------------------------------

    @cached_property
    def nodes(self) -> tuple[NodeLoad, ...]:
        """All nodes, by zone and name."""
        snapshot, pods = self._snapshot, self._snapshot.pods
        placed = pods.node >= 0
        names, size = snapshot.nodes.names, len(snapshot.nodes)
        rows = [snapshot.resources.index(name) for name in ("cpu", "memory")]
        requests = snapshot.requests[rows]
        used = summed_by_node(requests, pods.cls[placed], pods.node[placed], size)
        number = np.bincount(pods.node[placed], minlength=size)
        moved, moved_number = self._moved(requests, size)
        room = snapshot.nodes.allocatable[rows]
        shares = [_shares(each, room) for each in (used, used + moved)]
        changes = [
            NodeLoad(
                names[node],
                self.zone_of(names[node]),
                (float(shares[0][0, node]), float(shares[1][0, node])),
                (float(shares[0][1, node]), float(shares[1][1, node])),
                (int(number[node]), int(number[node] + moved_number[node])),
            )
            for node in range(size)
        ]
        return tuple(sorted(changes, key=lambda node: (node.zone, node.name)))

    def _moved(self, requests: Ints, size: int) -> tuple[Ints, Ints]:
        """Return what the moves add to the requests (2, N) and to the pods (N,) of nodes."""
        snapshot = self._snapshot
        moved, number = np.zeros((2, size), np.int64), np.zeros(size, np.int64)
        column, index = snapshot.pods.uid, snapshot.nodes.index
        by_uid = {outcome.move.uid: outcome.move for outcome in self._outcomes}
        for pod in column.rows_of(set(by_uid)).tolist():
            move = by_uid[column[pod]]
            cls = int(snapshot.pods.cls[pod])
            replacement = snapshot.classes[cls].replacement
            for node, of_class, sign in ((move.node, cls, -1), (likely(move), replacement, 1)):
                if node is not None and (place := index.get(node)) is not None:
                    moved[:, place] += sign * requests[:, of_class]
                    number[place] += sign
        return moved, number

    # -- flows -------------------------------------------------------------------------------------

    @cached_property
    def flows(self) -> tuple[Flow, ...]:
        """Moves by zone of origin and of the most probable landing, or of the real one; most first."""
        moves_by_zones = Counter(self._ends(self._outcomes))
        ranked = sorted(moves_by_zones.items(), key=lambda item: (-item[1], item[0]))
        return tuple(Flow(source, target, moves) for (source, target), moves in ranked)

    def _ends(self, outcomes: Iterable[Outcome]) -> Iterator[tuple[str, str]]:
        for outcome in outcomes:
            target = outcome.landed or likely(outcome.move)
            if target is not None:
                yield self.zone_of(outcome.move.node), self.zone_of(target)


_MOST_STILL = 60


def likely(move: Move) -> str | None:
    """Return the node where the replacement most probably lands, None if that is not predicted."""
    return move.landings[0].node if move.landings else None


def _shift(counts: Counter[str], source: str, target: str | None) -> None:
    # Of a reviewed plan, a pod may be gone from where it was.
    if counts[source] > 0:
        counts[source] -= 1
        if target is not None:
            counts[target] += 1


def _zones(report: RunReport) -> tuple[tuple[str, ...], list[int]]:
    """Return the zones by name, those without one last, and the zone of each node (N,)."""
    of_node = [report.domain_of(name) or NO_ZONE for name in report.snapshot.nodes.names]
    zones = sorted(set(of_node), key=lambda zone: (zone == NO_ZONE, zone))
    place = {zone: i for i, zone in enumerate(zones)}
    return tuple(zones), [place[zone] for zone in of_node]


def _listed(nodes: Int32s | None) -> list[int]:
    return [] if nodes is None else nodes.tolist()


def _shares(used: Ints, room: Ints) -> Ints:
    shares = np.divide(used, room, out=np.zeros(used.shape, np.float64), where=room > 0)
    return np.maximum(shares, 0.0)
