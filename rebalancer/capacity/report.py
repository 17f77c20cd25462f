"""What is said of the machines of a cluster, as plain data and as a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rebalancer.base.data_text import plain_number
from rebalancer.base.plain_text import count
from rebalancer.base.text_lines import columns, lines_of, more
from rebalancer.capacity.codes import PodCode, RemovalCode
from rebalancer.capacity.groups import Groups
from rebalancer.capacity.growth import NO_OUTLOOK, Growth, Outlook, PendingPod
from rebalancer.capacity.removal import NodeRemoval
from rebalancer.providers.contract import NodeGroup
from rebalancer.snapshot.autoscalers import Autoscaler
from rebalancer.snapshot.model import Snapshot

_SHOWN = 5
_LEFT = range(5)


@dataclass(frozen=True, slots=True)
class CapacityReport:
    """Everything that ``rebalancer capacity`` says."""

    snapshot: Snapshot
    provider: str
    """Name of the provider, ``none`` where the policy names none."""
    groups: Groups
    autoscalers: tuple[Autoscaler, ...]
    nodes: tuple[NodeRemoval, ...]
    growth: Growth
    outlook: Outlook = NO_OUTLOOK
    """What was reckoned with."""

    def going(self, group: NodeGroup) -> int:
        """Return how many nodes of a group can go."""
        return sum(one.goes and one.group == group.name for one in self.nodes)


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
                "goes": one.goes,
                "code": one.code.value,
                "message": one.message,
                "requested": {name: plain_number(share) for name, share in one.used.items()},
                "blockedBy": [
                    {**_pod_data(report.snapshot, staying.pod), "message": staying.message}
                    for staying in one.pods
                ],
            }
            for one in report.nodes
        ],
        "growth": [
            {
                "group": step.group,
                "nodes": len(step.nodes),
                "zones": dict(step.zones),
                "pods": step.pods,
                "waste": plain_number(step.waste),
            }
            for step in report.growth.increases
        ],
        "pending": [pending_data(report.snapshot, one) for one in report.growth.pods],
    }


def _group_data(report: CapacityReport, group: NodeGroup) -> dict[str, Any]:
    return {
        "name": group.name,
        "min": group.minimum,
        "max": group.maximum,
        "desired": group.desired,
        "coming": report.outlook.coming.get(group.name, 0),
        "nodes": len(report.groups.nodes_of(group)),
        "canGo": report.going(group),
        "hasToGrow": report.growth.by(group.name),
    }


def _pod_data(snapshot: Snapshot, pod: int) -> dict[str, Any]:
    cls = snapshot.classes[int(snapshot.pods.cls[pod])]
    owner = snapshot.owners[cls.owner].ref if cls.owner >= 0 else None
    return {"namespace": cls.namespace, "pod": snapshot.pods.name[pod], "owner": owner}


def pending_data(snapshot: Snapshot, one: PendingPod) -> dict[str, Any]:
    """Return what is said of a pod that waits, as plain data."""
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


# -- as a table --------------------------------------------------------------------------------------------


def capacity_table(report: CapacityReport) -> str:
    """Return the report as text, ending in a newline."""
    sections = [_head(report), _groups(report), _nodes(report), _pending(report)]
    texts = ["\n".join(section) for section in sections]
    return "\n\n".join(text for text in texts if text) + "\n"


def _head(report: CapacityReport) -> Iterator[str]:
    going = sum(one.goes for one in report.nodes)
    ruled = sum(one.code is RemovalCode.RULE_BREAKS for one in report.nodes)
    more_go = f", {ruled} more if rules of the policy may break" if ruled else ""
    yield f"{going} of {count(len(report.nodes), 'node')} can go{more_go}"
    new = sum(len(step.nodes) for step in report.growth.increases)
    helped = sum(one.code is PodCode.GROWS for one in report.growth.pods)
    taking = f"; {count(new, 'new node')} would take {helped} of them" if new else ""
    yield f"{count(len(report.growth.pods), 'pod')} waiting{taking}"
    for one in report.autoscalers:
        yield from lines_of(f"{one.name} runs here ({one.sign}): this is advice beside it.")


def _groups(report: CapacityReport) -> Iterator[str]:
    if not report.groups.groups:
        return
    rows: list[tuple[str, ...]] = [
        ("GROUP", "NODES", "MIN", "MAX", "DESIRED", "COMING", "CAN GO", "HAS TO GROW")
    ]
    for group in report.groups.groups:
        sizes = (group.minimum, group.maximum, group.desired)
        rows.append(
            (
                group.name,
                str(len(report.groups.nodes_of(group))),
                *("?" if size is None else str(size) for size in sizes),
                str(report.outlook.coming.get(group.name, 0)),
                str(report.going(group)),
                str(report.growth.by(group.name)),
            )
        )
    yield from columns(rows, "", (0,))
    if any(not group.is_sized for group in report.groups.groups):
        yield "?: not known, so that no limit is judged"


def _nodes(report: CapacityReport) -> Iterator[str]:
    rows = [("NODE", "GROUP", "REQUESTED", "GOES", "WHY")]
    for one in report.nodes:
        used = ", ".join(f"{name} {share:.0%}" for name, share in one.used.items())
        name, group = report.snapshot.nodes.names[one.node], one.group or "-"
        rows.append((name, group, used, "yes" if one.goes else "no", one.code.value))
    heads, *lines = columns(rows, "", _LEFT)
    yield heads
    for line, one in zip(lines, report.nodes, strict=True):
        yield line
        if one.goes:
            continue
        if not one.pods:
            yield from lines_of(one.message, "    ", "    ")
        for staying in one.pods[:_SHOWN]:
            text = f"{report.snapshot.pod_ref(staying.pod)}: {staying.message}"
            yield from lines_of(text, "    ", "      ")
        yield from more(len(one.pods) - _SHOWN, "    ")


def _pending(report: CapacityReport) -> Iterator[str]:
    if not report.growth.pods:
        return
    rows = [("POD THAT WAITS", "CODE", "HELPED BY")]
    for one in report.growth.pods:
        by = helper_of(one) or "-"
        rows.append((report.snapshot.pod_ref(one.pod), one.code.value, by))
    heads, *lines = columns(rows, "", _LEFT)
    yield heads
    for line, one in zip(lines, report.growth.pods, strict=True):
        yield line
        if one.code is PodCode.FITS:
            continue
        for text in pending_words(one):
            yield from lines_of(text, "    ", "      ")


def helper_of(one: PendingPod) -> str | None:
    """Return which node would take a pod that waits, in words; None if none would."""
    return f"a new node of {one.group}" if one.group is not None else one.node


def pending_words(one: PendingPod) -> list[str]:
    """Return why no node takes a pod that waits, and why no group grows for it where none does."""
    return [one.message, *(f"{of.group}: {of.message}" for of in one.refusals)]
