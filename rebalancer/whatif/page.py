"""A simulation as one self-contained HTML page: before, after the what-if changes, and at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rebalancer.base.plain_text import and_more, count
from rebalancer.report import words
from rebalancer.report.changes import NO_ZONE, WorkloadChange, group_alike, nodes_by_owner
from rebalancer.report.html_page import render_page
from rebalancer.snapshot.model import Snapshot
from rebalancer.whatif.cycles import Simulation
from rebalancer.whatif.show import end_lines, head_of_cycles, rows_of_cycles, scores_of_end

_FEW = 10
_MAX_ROWS = 150
_MAX_NAMES = 20


@dataclass(frozen=True, slots=True)
class SimulatedSteps:
    """The cluster in the file, after the what-if changes, and at the end."""

    in_file: Snapshot
    changed: Snapshot
    last: Snapshot

    def with_names(self) -> tuple[tuple[str, Snapshot], ...]:
        """Return the steps with their names: two without what-if changes, else three."""
        if self.changed is self.in_file:
            return ("Now", self.in_file), ("At the end", self.last)
        return ("Now", self.in_file), ("What if", self.changed), ("At the end", self.last)


def simulation_page(
    simulation: Simulation, steps: SimulatedSteps, edits: Sequence[str], *, source: str
) -> str:
    """Return the page. ``edits``: the what-if changes in words."""
    named = steps.with_names()
    zones = sorted({zone for _, snapshot in named for zone in _zones(snapshot).values()})
    changes = list(_changes(named, zones, simulation))
    return render_page(
        "simulation.html.j2",
        ["report.css"],
        title=f"What if {and_more(edits, 3)}?" if edits else "What the next runs would do",
        source=source,
        lines=end_lines(simulation),
        warnings=simulation.warnings,
        waiting=[
            f"{one.owner}: {count(one.pods, 'pod')}, {one.reason}" for one in simulation.waiting
        ],
        numbers=[
            (f"{name}: nodes, pods", f"{len(snapshot.nodes):,}, {_count_on_nodes(snapshot):,}")
            for name, snapshot in named
        ],
        zones=zones,
        steps=[name for name, _ in named],
        few=_FEW,
        rows=[
            {
                "names": [*story.owners[:_MAX_NAMES]],
                "more": max(0, len(story.owners) - _MAX_NAMES),
                "counts": ["/".join(map(words.number, of)) for of in story.first.counts],
                "moves": f"{story.moves:,}",
            }
            for story in group_alike(changes)[:_MAX_ROWS]
        ],
        head=head_of_cycles(),
        cycles=rows_of_cycles(simulation),
        scores=scores_of_end(simulation),
    )


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
    """Return node -> zone."""
    zones, names = snapshot.nodes.labels.zones()
    return {
        node: NO_ZONE if zone < 0 else names[zone]
        for node, zone in zip(snapshot.nodes.names, zones.tolist(), strict=True)
    }


def _count_on_nodes(snapshot: Snapshot) -> int:
    return int((snapshot.pods.node >= 0).sum())
