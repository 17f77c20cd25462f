"""What must hold of groups whose machines are replaced by new ones (``replace --surge``), as functions of a record.

Who opens, closes and ends what is taken from the watches and the cloud's log; of what the product says, only whether it
announces a gap.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.storm.machines.deeds import OTHERS, group_in
from tests.storm.machines.ground import SINGLE, STARTS
from tests.storm.machines.record import Record
from tests.storm.witnesses import Change

_LAG = 10.0
"""Seconds after which the product must have seen what others did to nodes: it reads the cluster, then the provider."""
DRAIN = "rebalancer/drain"
ZONE = "topology.kubernetes.io/zone"
SERVICE = "kubernetes.io/service-name"
GAP = "evicted, with a gap"
"""How a report says that a single replica goes without a restart."""
_OURS = "Rebalancer"
"""How the reasons of node lifecycle conditions begin that the product writes."""
_DISTURBS = ("person drains", "registers again", "others take a machine", "others delete a machine")
"""Acts by which a single replica goes, whatever the product does."""
_OPENS = ("person uncordons", "registers again", "replaced under its name")
"""Acts by which a node is open that was closed."""

Invariant = Callable[[Record], Iterator[str]]


def zones_keep_their_nodes(record: Record) -> Iterator[str]:
    """(A) No useful node is closed while its zone has no more useful ones of its group than when it began."""
    nodes: dict[str, Change] = {}
    seen: list[tuple[float, Counter[tuple[str, str]]]] = []
    begun = {deed.group: deed.at for deed in reversed(record.deeds) if deed.what == "notes"}
    least: dict[str, Counter[str]] = {}
    for change in record.changes:
        if change.kind != "Node":
            continue
        for group, at in begun.items():
            if change.at > at and group not in least:
                least[group] = _zones_of(group, _count(nodes))
        before = nodes.get(change.uid)
        if before is not None and _closes(before, change):
            group, zone = _place(change)
            need = least.get(group, Counter())[zone]
            had = [counts for at, counts in seen if at >= change.at - _LAG] + [_count(nodes)]
            if max(counts[group, zone] for counts in had) <= need:
                yield f"{change.name} was closed, and zone {zone} has {need} useful nodes of {group} with it"
        if change.type == "DELETED":
            nodes.pop(change.uid, None)
        else:
            nodes[change.uid] = change
        seen.append((change.at, _count(nodes)))


def _closes(before: Change, now: Change) -> bool:
    """Return whether the product has closed a useful node by a change."""
    ours = DRAIN in (now.object["metadata"].get("annotations") or {})
    closed = bool(now.object["spec"].get("unschedulable"))
    return now.type == "MODIFIED" and ours and closed and _is_useful(before.object)


def _is_useful(node: Mapping[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", ())
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    starts = any(one["key"] == STARTS for one in node["spec"].get("taints", ()))
    return ready and not starts and not node["spec"].get("unschedulable")


def _place(change: Change) -> tuple[str, str]:
    labels = change.object["metadata"].get("labels") or {}
    return group_in(change.object), labels.get(ZONE, "")


def _count(nodes: Mapping[str, Change]) -> Counter[tuple[str, str]]:
    """Return (group, zone) -> useful nodes."""
    return Counter(_place(change) for change in nodes.values() if _is_useful(change.object))


def _zones_of(group: str, counts: Mapping[tuple[str, str], int]) -> Counter[str]:
    return Counter({zone: count for (of, zone), count in counts.items() if of == group})


def groups_are_as_before(record: Record) -> Iterator[str]:
    """(B) Once it is done, or taken back, sizes, processes and cordons are as before, and nothing of it is left on nodes."""
    for name, before in record.ground.groups.items():
        now = record.groups[name]
        shift = record.ground.shifts.get(name, 0)
        # What others add stays; what they take is given back, if it was seen before the last old machine went.
        if now.desired not in {before.desired + shift, before.desired + max(shift, 0)}:
            yield f"{name} is to have {now.desired} machines, and was {before.desired}"
        if (now.minimum, now.maximum) != (before.minimum, before.maximum):
            yield f"{name} may have {now.minimum} to {now.maximum} machines, which were {before.minimum} to {before.maximum}"
        if now.left:
            yield f"{name} has {', '.join(now.left)}"
    for node in record.nodes if record.ground.groups else ():
        name = node["metadata"]["name"]
        if node["spec"].get("unschedulable") and name not in record.ground.cordoned:
            yield f"{name} is closed"
        if left := _ours_on(node):
            yield f"{name} has {left}"


def _ours_on(node: Mapping[str, Any]) -> list[str]:
    """Return our annotations and conditions on a node."""
    annotations = node["metadata"].get("annotations") or {}
    conditions = node.get("status", {}).get("conditions", ())
    return [key for key in annotations if "rebalancer/" in key] + [
        one["type"] for one in conditions if one.get("reason", "").startswith(_OURS)
    ]


def sizes_stay_within(record: Record) -> Iterator[str]:
    """(C) No group gets larger than its maximum, or smaller than it was when a machine ends; its limits are not written."""
    sizes = {name: group.desired for name, group in record.ground.groups.items()}
    least = dict(sizes)
    for deed in record.deeds if sizes else ():
        name = deed.group
        if deed.what == "limits":
            yield f"the limits of {name} were written"
        if name not in sizes:
            continue
        if deed.what == "resizes":
            if deed.by == OTHERS:
                least[name] += min(0, deed.size - sizes[name])
            sizes[name] = deed.size
            if deed.size > record.ground.groups[name].maximum:
                yield f"{name} was increased to {deed.size}"
        if deed.what == "ends":
            if deed.by == OTHERS:
                least[name] -= 1
            elif sizes[name] <= least[name]:
                yield f"{name} has {sizes[name]} machines, and {deed.machine} was ended"
            sizes[name] -= 1


def endpoints_stay(record: Record) -> Iterator[str]:
    """(D) A single replica that is moved by a restart of its rollout is never without an endpoint, or the report says so."""
    if not record.ground.groups or record.scenario.has(*_DISTURBS):
        return
    runs = [*record.runs, *record.clean]
    if any(GAP in ran.out for ran in runs):
        return
    ready: dict[str, int] = {}
    had = False
    for change in record.changes:
        labels = change.object["metadata"].get("labels") or {}
        if change.kind != "EndpointSlice" or labels.get(SERVICE) != SINGLE:
            continue
        ends = change.object.get("endpoints") or ()
        count = sum(one.get("conditions", {}).get("ready") is True for one in ends)
        ready[change.uid] = 0 if change.type == "DELETED" else count
        begun = change.at > record.runs[0].started
        if had and begun and not sum(ready.values()):
            yield f"the Service {SINGLE} was without an endpoint at {change.at:.1f}"
            return
        had = had or bool(sum(ready.values()))


def done_means_replaced(record: Record) -> Iterator[str]:
    """(E) Where it says that all is done no old machine is left, and a later call without faults gets it done."""
    if not record.ground.groups:
        return
    old = record.ground.victims
    there = frozenset[str]().union(*(group.machines for group in record.groups.values()))
    replaces = [ran for ran in (*record.runs, *record.clean) if "taking-back" not in ran.identity]
    if any(ran.code == 0 for ran in replaces) and (left := sorted(old & there)):
        yield f"it exited with 0, and {left} are left"
    if record.clean and record.clean[-1].code != 0:
        yield f"it could not be taken back: {record.clean[-1].err.strip()[-200:]}"


def serves_no_more(record: Record) -> Iterator[str]:
    """(F) Where the product ends a machine, its node was closed before."""
    if record.scenario.has(*_OPENS):
        return
    for deed in record.endings(of_hooks=False):
        node = record.node_of_instance(deed.machine, deed.at)
        if node is not None and _is_useful(node):
            yield f"{deed.machine} was ended, and its node was open"


SURGE_INVARIANTS: Mapping[str, Invariant] = {
    "A": zones_keep_their_nodes,
    "B": groups_are_as_before,
    "C": sizes_stay_within,
    "D": endpoints_stay,
    "E": done_means_replaced,
    "F": serves_no_more,
}
