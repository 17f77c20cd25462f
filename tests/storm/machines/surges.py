"""What must hold of groups whose machines are replaced by new ones (``replace --surge``), as functions of a record.

Who opens, closes and ends what is taken from the watches and the cloud's log; of what the product says, only whether it
announces a gap.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.storm.machines.cloud import Call
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
_TAG = "rebalancer/replace"
_SIZE = "autoscaling:SetDesiredCapacity"
_TERMINATE = "autoscaling:TerminateInstanceInAutoScalingGroup"
_NOTE = "autoscaling:CreateOrUpdateTags"
_LIMITS = "autoscaling:UpdateAutoScalingGroup"
_DISTURBS = ("person drains", "registers again")
"""Acts by which a single replica goes, whatever the product does."""

Invariant = Callable[[Record], Iterator[str]]


def zones_keep_their_nodes(record: Record) -> Iterator[str]:
    """(A) No useful node is closed while its zone has no more useful ones of its group than when it began."""
    nodes: dict[str, Change] = {}
    seen: list[tuple[float, Counter[tuple[str, str]]]] = []
    begun = {group: call.at for call in reversed(record.calls) if (group := _noted(call))}
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


def _noted(call: Call) -> str:
    """Return the group whose note a call writes; empty if it writes none."""
    return call.form.get("Tags.member.1.ResourceId", "") if call.name == _NOTE else ""


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
    return labels.get("group", ""), labels.get(ZONE, "")


def _count(nodes: Mapping[str, Change]) -> Counter[tuple[str, str]]:
    """Return (group, zone) -> useful nodes."""
    return Counter(_place(change) for change in nodes.values() if _is_useful(change.object))


def _zones_of(group: str, counts: Mapping[tuple[str, str], int]) -> Counter[str]:
    return Counter({zone: count for (of, zone), count in counts.items() if of == group})


def groups_are_as_before(record: Record) -> Iterator[str]:
    """(B) Once it is done, or taken back, sizes, processes and cordons are as before, and nothing of it is left on nodes."""
    for name, before in record.ground.groups.items():
        now = record.groups[name]
        for key in ("MinSize", "MaxSize", "DesiredCapacity"):
            if now[key] != before[key]:
                yield f"{key} of {name} is {now[key]}, and was {before[key]}"
        if suspended := [one["ProcessName"] for one in now["SuspendedProcesses"]]:
            yield f"{name} has suspended processes: {suspended}"
        if _TAG in {tag["Key"] for tag in now["Tags"]}:
            yield f"{name} has a note"
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
    sizes = {name: group["DesiredCapacity"] for name, group in record.ground.groups.items()}
    least = dict(sizes)
    instances = _groups_of_instances(record)
    for call in sorted(record.calls, key=lambda call: call.at) if sizes else ():
        if call.name == _LIMITS:
            yield f"{call.name} of {call.form.get('AutoScalingGroupName')}"
        if not call.done:
            continue
        if call.name == _SIZE:
            name, size = call.form["AutoScalingGroupName"], int(call.form["DesiredCapacity"])
            sizes[name] = size
            if size > record.ground.groups[name]["MaxSize"]:
                yield f"{name} was increased to {size}"
        group = instances.get(call.form.get("InstanceId", ""))
        if call.name == _TERMINATE and group is not None:
            if sizes[group] <= least[group]:
                yield f"{group} has {sizes[group]} machines, and {call.form['InstanceId']} was ended"
            sizes[group] -= 1


def _groups_of_instances(record: Record) -> dict[str, str]:
    """Return instance -> group, of all whose node was seen."""
    nodes = (change for change in record.changes if change.kind == "Node")
    return {change.name: _place(change)[0] for change in nodes if _place(change)[0]}


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
    there = {one["InstanceId"] for group in record.groups.values() for one in group["Instances"]}
    replaces = [ran for ran in (*record.runs, *record.clean) if "taking-back" not in ran.identity]
    if any(ran.code == 0 for ran in replaces) and (left := sorted(old & there)):
        yield f"it exited with 0, and {left} are left"
    if record.clean and record.clean[-1].code != 0:
        yield f"it could not be taken back: {record.clean[-1].err.strip()[-200:]}"


SURGE_INVARIANTS: Mapping[str, Invariant] = {
    "A": zones_keep_their_nodes,
    "B": groups_are_as_before,
    "C": sizes_stay_within,
    "D": endpoints_stay,
    "E": done_means_replaced,
}
