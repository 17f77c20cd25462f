"""The report on the machines of a cluster, as plain data and for people; and the machines that spread rules lack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from rebalancer.base.data_text import plain_number
from rebalancer.base.plain_text import and_more, count, more, percent
from rebalancer.cost.spread_group import SpreadGroup
from rebalancer.machines.capacity.groups import Groups
from rebalancer.machines.capacity.removal import NodeRemoval
from rebalancer.machines.capacity.scale_out_plan import (
    NO_INPUTS,
    PodVerdict,
    ScaleOutInputs,
    ScaleOutPlan,
)
from rebalancer.machines.reasons import PodCode, RemovalCode
from rebalancer.planner.draft import Draft
from rebalancer.planner.pins import Pins
from rebalancer.providers.contract import NodeGroup
from rebalancer.report.document import Block, Passage, Table, join_sections
from rebalancer.snapshot.autoscalers import Autoscaler
from rebalancer.snapshot.columns import Ints
from rebalancer.snapshot.model import Snapshot

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class MissingMachine:
    """What one rule lacks, and the machine that would provide it."""

    rule: str
    """The unmet rule that needs this machine, in words, with its workload."""
    lack: str
    key: str
    """Label of the domains."""
    domains: tuple[str, ...]
    """Those that are known to have no node; empty if only their number is known."""
    nodes: int
    """The number of domains without a node."""
    pods: int
    """The largest number of pods on one of these machines."""
    cpu: int
    """Millicores that each of the pods requests."""
    memory: int
    """Memory of the machine in bytes."""
    moves: int
    """Moves that the rule needs once the nodes are there."""

    def __str__(self) -> str:
        where = f"in {and_more(list(self.domains), 3)}" if self.domains else "in another one"
        nodes = "a node" if self.nodes == 1 else f"{self.nodes} nodes, each"
        room = f"{self.pods * self.cpu}m cpu and {self.pods * self.memory // _MIB}Mi memory"
        return (
            f"{self.rule}: {self.lack}. It takes {nodes} {where} ({self.key}) with {room} free,"
            f" for {count(self.pods, 'pod')}; then {count(self.moves, 'move')} repair it"
        )


def find_missing(draft: Draft) -> tuple[MissingMachine, ...]:
    """Return the machines that the spread rules of the policy's strategies lack, by rule."""
    return tuple(sorted(_find(draft), key=lambda one: one.rule))


def _find(draft: Draft) -> Iterator[MissingMachine]:
    snapshot = draft.snapshot
    classes = np.arange(len(snapshot.classes), dtype=np.int32)
    cpu, memory = (snapshot.resources.index(name) for name in ("cpu", "memory"))
    for one in draft.terms:
        for group in one.term.groups_of(classes):
            if not (isinstance(group, SpreadGroup) and len(group.movers) and group.lack()):
                continue
            new = max(len(group.without_nodes), group.missing_domains)
            domains = group.domains
            now = draft.state.counts_by(group.members, domains.of_node, len(domains.names))
            counts = np.append(now, np.zeros(new, np.int64))
            pods, moves = _spread_over(counts, group.max_skew, new)
            if not pods:
                continue
            asked = snapshot.requests[:, group.movers].max(axis=1)
            yield MissingMachine(
                group.label,
                group.lack(),
                group.key,
                tuple(group.without_nodes),
                new,
                pods,
                int(asked[cpu]),
                int(asked[memory]),
                moves,
            )


def _spread_over(counts: Ints, max_skew: int, new: int) -> tuple[int, int]:
    """Return (the most pods in a new domain, the fewest moves) of a spread that meets the rule; the ``new`` domains come last."""
    best: tuple[int, Sequence[int]] = (0, ())
    for floor in range(int(counts.max(initial=0)) + 1):
        into = int(np.maximum(0, floor - counts).sum())
        out = int(np.maximum(0, counts - floor - max_skew).sum())
        moves = max(into, out)
        # What one domain lacks, another has to have above the floor.
        spare = int(np.maximum(0, counts - floor).sum())
        room = int(np.maximum(0, floor + max_skew - counts).sum())
        if spare < into or room < out or (best[1] and best[0] <= moves):
            continue
        each = max(floor, -(-(out - into) // new) + floor if out > into else floor)
        best = (moves, (each,))
    return (best[1][0] if best[1] else 0), best[0]


_SHOWN = 5
_LEFT = range(5)


@dataclass(frozen=True, slots=True)
class CapacityReport:
    """The output of ``rebalancer capacity``."""

    snapshot: Snapshot
    provider: str
    """Name of the provider, ``none`` where the policy names none."""
    groups: Groups
    autoscalers: tuple[Autoscaler, ...]
    nodes: tuple[NodeRemoval, ...]
    scale_out: ScaleOutPlan
    inputs: ScaleOutInputs = NO_INPUTS
    """The inputs of the scale-out plan."""
    moves: Mapping[str, int] = field(default_factory=dict)
    """uid of a pending pod -> number of moves by which a strategy that makes room would let it in."""

    pins: Pins | None = None
    """The pods that pin nodes; None if there are none."""
    missing: tuple[MissingMachine, ...] = ()
    """The machines that spread rules lack."""

    def moves_for(self, pod: int) -> int:
        """Return how many moves would let a pending pod in; 0: none are planned for it."""
        return self.moves.get(self.snapshot.pods.uid[pod], 0)

    def removable(self, group: NodeGroup) -> int:
        """Return how many nodes of a group can be removed."""
        return sum(one.removable and one.group == group.name for one in self.nodes)


# -- as data -----------------------------------------------------------------------------------------------


def capacity_data(report: CapacityReport) -> dict[str, Any]:
    """Return the report as plain data."""
    names = report.snapshot.nodes.names
    return {
        "provider": report.provider,
        "autoscalers": [asdict(one) for one in report.autoscalers],
        "groups": [_group_data(report, group) for group in report.groups.groups],
        "nodes": [
            {
                "name": names[one.node],
                "group": one.group,
                "removable": one.removable,
                "code": one.code.value,
                "message": one.message,
                "requested": {name: plain_number(share) for name, share in one.requested.items()},
                "blockedBy": [
                    {**_pod_data(report.snapshot, staying.pod), "message": staying.message}
                    for staying in one.pods
                ],
            }
            for one in report.nodes
        ],
        "pins": _pins_data(report),
        "missing": [asdict(one) for one in report.missing],
        "increases": [
            {
                "group": step.group,
                "nodes": len(step.nodes),
                "zones": dict(step.zones),
                "pods": step.pods,
                "waste": plain_number(step.waste),
            }
            for step in report.scale_out.increases
        ],
        "pending": [
            {**pending_data(report.snapshot, one), "moves": report.moves_for(one.pod) or None}
            for one in report.scale_out.pods
        ],
    }


def _pins_data(report: CapacityReport) -> dict[str, Any] | None:
    pins, names = report.pins, report.snapshot.nodes.names
    if pins is None:
        return None
    return {
        "nodes": [names[node] for node in pins.nodes],
        "pods": [_pod_data(report.snapshot, pod) for pod in pins.pods],
        "causes": [asdict(one) for one in pins.causes],
        "together": [names[node] for node in pins.together],
        "proven": pins.proven,
        "savedPerHour": None if pins.hourly is None else plain_number(pins.hourly, 4),
    }


def _group_data(report: CapacityReport, group: NodeGroup) -> dict[str, Any]:
    return {
        "name": group.name,
        "min": group.minimum,
        "max": group.maximum,
        "desired": group.desired,
        "upcoming": report.inputs.upcoming.get(group.name, 0),
        "nodes": len(report.groups.nodes_of(group)),
        "removable": report.removable(group),
        "increase": report.scale_out.increase_of(group.name),
        "options": dict(sorted(group.options.items())),
    }


def _pod_data(snapshot: Snapshot, pod: int) -> dict[str, Any]:
    cls = snapshot.classes[int(snapshot.pods.cls[pod])]
    owner = snapshot.owners[cls.owner].ref if cls.owner >= 0 else None
    return {"namespace": cls.namespace, "pod": snapshot.pods.name[pod], "owner": owner}


def pending_data(snapshot: Snapshot, one: PodVerdict) -> dict[str, Any]:
    """Return the verdict on a pending pod as plain data."""
    return {
        **_pod_data(snapshot, one.pod),
        "code": one.code.value,
        "message": one.message,
        "node": one.node if one.group is None else None,
        "group": one.group,
        "refusals": [
            {"group": of.group, "code": of.code.value, "message": of.message} for of in one.refusals
        ],
    }


# -- for people --------------------------------------------------------------------------------------------


def format_capacity(report: CapacityReport) -> list[Block]:
    """Return the report for people."""
    return join_sections(
        _head(report),
        _missing(report),
        _pins(report),
        _groups(report),
        _nodes(report),
        _pending(report),
    )


def _head(report: CapacityReport) -> Iterator[Block]:
    removable = sum(one.removable for one in report.nodes)
    ruled = sum(one.code is RemovalCode.RULE_BREAKS for one in report.nodes)
    more = f", {ruled} more if rules of the policy may break" if ruled else ""
    yield f"{removable} of {count(len(report.nodes), 'node')} can be removed{more}"
    new = sum(len(step.nodes) for step in report.scale_out.increases)
    helped = sum(one.code is PodCode.TRIGGERED for one in report.scale_out.pods)
    taking = f"; {count(new, 'new node')} would take {helped} of them" if new else ""
    yield f"{count(len(report.scale_out.pods), 'pending pod')}{taking}"
    for one in report.autoscalers:
        yield Passage(f"{one.name} runs here ({one.sign}): this is advice beside it.")


def _missing(report: CapacityReport) -> Iterator[Block]:
    yield from (Passage(str(one), "", "  ") for one in report.missing[:_SHOWN])
    yield from more(len(report.missing) - _SHOWN)


def _pins(report: CapacityReport) -> Iterator[Block]:
    """Yield which pods pin more nodes than they need together, and what may be done about it; for others each node's line has it."""
    if (pins := report.pins) is None or not pins.saved:
        return
    yield Passage(pins.line, "", "  ")
    for one in pins.causes:
        yield Passage(f"{one.words}: {one.cure}", "  ", "    ")


def _groups(report: CapacityReport) -> Iterator[Block]:
    if not report.groups.groups:
        return
    rows: list[tuple[str, ...]] = [
        ("GROUP", "NODES", "MIN", "MAX", "DESIRED", "UPCOMING", "REMOVABLE", "INCREASE")
    ]
    for group in report.groups.groups:
        sizes = (group.minimum, group.maximum, group.desired)
        rows.append(
            (
                group.name,
                str(len(report.groups.nodes_of(group))),
                *("?" if size is None else str(size) for size in sizes),
                str(report.inputs.upcoming.get(group.name, 0)),
                str(report.removable(group)),
                str(report.scale_out.increase_of(group.name)),
            )
        )
    yield Table(rows, "", (0,))
    if any(not group.is_sized for group in report.groups.groups):
        yield "?: not known, so that no limit is judged"


def _nodes(report: CapacityReport) -> Iterator[Block]:
    rows = [("NODE", "GROUP", "REQUESTED", "REMOVABLE", "WHY")]
    for one in report.nodes:
        used = ", ".join(f"{name} {percent(share)}" for name, share in one.requested.items())
        name, group = report.snapshot.nodes.names[one.node], one.group or "-"
        rows.append((name, group, used, "yes" if one.removable else "no", one.code.value))
    notes = {number: list(_keeps(report, one)) for number, one in enumerate(report.nodes)}
    yield Table(rows, "", _LEFT, notes=notes)


def _keeps(report: CapacityReport, one: NodeRemoval) -> Iterator[Block]:
    if one.removable:
        return
    if not one.pods:
        yield Passage(one.message, "    ", "    ")
    for staying in one.pods[:_SHOWN]:
        text = f"{report.snapshot.pod_ref(staying.pod)}: {staying.message}"
        yield Passage(text, "    ", "      ")
    yield from more(len(one.pods) - _SHOWN, "    ")


def _pending(report: CapacityReport) -> Iterator[Block]:
    if not report.scale_out.pods:
        return
    rows = [("PENDING POD", "CODE", "HELPED BY")]
    for one in report.scale_out.pods:
        by = helper_of(one) or "-"
        rows.append((report.snapshot.pod_ref(one.pod), one.code.value, by))
    notes = {number: list(_wants(report, one)) for number, one in enumerate(report.scale_out.pods)}
    yield Table(rows, "", _LEFT, notes=notes)


def _wants(report: CapacityReport, one: PodVerdict) -> Iterator[Block]:
    if one.code is PodCode.FITS:
        return
    if moves := report.moves_for(one.pod):
        yield Passage(f"{count(moves, 'move')} instead of a machine: see run", "    ", "      ")
    for text in pending_words(one):
        yield Passage(text, "    ", "      ")


def helper_of(one: PodVerdict) -> str | None:
    """Return a phrase on the node that would take a pending pod; None if none would."""
    return f"a new node of {one.group}" if one.group is not None else one.node


def pending_words(one: PodVerdict) -> list[str]:
    """Return why a pending pod fits on no node, and why no group is scaled up for it."""
    return [one.message, *(f"{of.group}: {of.message}" for of in one.refusals)]
