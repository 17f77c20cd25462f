"""The status of the machines in Cluster Autoscaler's format, with a reason for each node and each pending pod.

A pure function of the stored state, the time and the report; it returns the data of the ConfigMap. The fields are
those of ``clusterstate/api.ClusterAutoscalerStatus``; ``reasons`` is ours.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import yaml

from rebalancer.machines.capacity.backoff import SUSPENDED, GroupState
from rebalancer.machines.capacity.codes import PodCode, RemovalCode
from rebalancer.machines.capacity.report import CapacityReport
from rebalancer.machines.capacity.sizes import Sizes, size_of_cluster, sizes_of
from rebalancer.machines.capacity.state import Condition, State, changed_states, encode
from rebalancer.providers.contract import NodeGroup
from rebalancer.wire.times import rfc3339

KEY = "status"
"""Key of the ConfigMap's data."""
UPDATED = "cluster-autoscaler.kubernetes.io/last-updated"
"""Annotation with the time of the last write."""
_NODES, _PODS = 350_000, 150_000
"""Bytes for the reasons of nodes, and for those of pods: a ConfigMap holds 1 MiB in all."""
_TRIGGERED = 3000
"""Most pods of which is kept which group was scaled out for them."""
_LONGEST = 300
"""Characters of one reason."""


@dataclass(frozen=True, slots=True)
class Written:
    """The output of a run."""

    data: Mapping[str, str]
    annotations: Mapping[str, str]
    state: State


@dataclass(slots=True)
class _Conditions:
    """Conditions with the times of their last changes."""

    earlier: Mapping[str, Condition]
    now: float
    kept: dict[str, Condition] = field(default_factory=dict)

    def times(self, name: str, status: str) -> dict[str, str]:
        """Return the times of the last check and of the last change of a condition."""
        known = self.earlier.get(name)
        if known is None or known.status != status or known.since > self.now:
            known = Condition(status, self.now)
        self.kept[name] = known
        return {"lastProbeTime": rfc3339(self.now), "lastTransitionTime": rfc3339(known.since)}


def status_of(
    earlier: State,
    now: float,
    report: CapacityReport,
    groups: Mapping[str, GroupState],
    scaled_out: Collection[str] = (),
) -> Written:
    """Return the status and state to write at ``now`` (Unix seconds).

    ``groups``: name -> state after this run. ``scaled_out``: the groups that this run scaled up.
    """
    sizes = sizes_of(report.snapshot, report.groups)
    conditions = _Conditions(earlier.conditions, now)
    whole = size_of_cluster(report.snapshot, report.groups)
    long = {name: one.unregistered for name, one in sizes.items() if _has_failed(groups, name, now)}
    head = {
        "time": _go_time(now),
        "autoscalerStatus": "Running",
        "clusterWide": {
            "health": {
                **_health(whole, sum(long.values())),
                **conditions.times("health", _is_healthy(whole)),
            },
            "scaleUp": _with_times(conditions, "scaleUp", _scale_up(sizes, groups, now)),
            "scaleDown": _scale_down(conditions, "", sum(one.removable for one in report.nodes)),
        },
        "nodeGroups": [
            _group(report, group, sizes[group.name], long.get(group.name, 0), groups, conditions)
            for group in report.groups.groups
        ],
    }
    nodes, of_nodes, nodes_cut = _cut(_node_reasons(report), _NODES)
    pending, of_pods, pods_cut = _cut(_pod_reasons(report), _PODS)
    text = yaml.safe_dump(head, sort_keys=False, width=100)
    text += f"reasons:\n  nodes:{nodes}\n  pendingPods:{pending}\n"
    text += f"  leftOut: {{nodes: {nodes_cut}, pendingPods: {pods_cut}}}\n"
    state = State(
        groups=changed_states(groups),
        conditions=conditions.kept,
        nodes=of_nodes,
        pods=of_pods,
        triggered=dict(islice(_triggered(report, scaled_out), _TRIGGERED)),
    )
    return Written({KEY: text, **encode(state)}, {UPDATED: _go_time(now)}, state)


def _triggered(report: CapacityReport, scaled_out: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield (pod, group) for the pods that a requested machine will take."""
    for one in report.scale_out.pods:
        requested = one.code is PodCode.TRIGGERED and one.group in scaled_out
        if one.group is not None and (requested or one.code is PodCode.UPCOMING):
            yield report.snapshot.pods.uid[one.pod], one.group


# -- conditions ----------------------------------------------------------------------------------------------


def _group(
    report: CapacityReport,
    group: NodeGroup,
    sizes: Sizes,
    long: int,
    group_states: Mapping[str, GroupState],
    conditions: _Conditions,
) -> dict[str, Any]:
    name, state = group.name, group_states.get(group.name, GroupState())
    paused = state.is_paused(conditions.now)
    status = "Backoff" if paused else "InProgress" if sizes.upcoming else "NoActivity"
    if status == "NoActivity" and _is_healthy(sizes) != "Healthy":
        status = "Unhealthy"
    limits = {
        "cloudProviderTarget": group.desired,
        "minSize": group.minimum,
        "maxSize": group.maximum,
    }
    return {
        "name": name,
        "health": {
            **_health(sizes, long),
            **{key: size for key, size in limits.items() if size is not None},
            **conditions.times(f"{name}/health", _is_healthy(sizes)),
        },
        "scaleUp": {
            "status": status,
            "backoffInfo": _backoff_info(state, conditions.now),
            **conditions.times(f"{name}/scaleUp", status),
        },
        "scaleDown": _scale_down(conditions, f"{name}/", report.removable(group)),
    }


def _backoff_info(state: GroupState, now: float) -> dict[str, str]:
    if state.suspended:
        return {"errorCode": SUSPENDED, "errorMessage": state.suspended}
    if not state.in_backoff(now):
        return {}
    until = rfc3339(state.backoff_until)
    return {"errorCode": state.code, "errorMessage": state.why, "until": until}


def _health(sizes: Sizes, long: int) -> dict[str, Any]:
    return {
        "status": _is_healthy(sizes),
        "nodeCounts": {
            "registered": {
                "total": sizes.registered,
                "ready": sizes.ready,
                "notStarted": sizes.not_started,
                "beingDeleted": sizes.being_deleted,
                "unready": {"total": sizes.unready, "resourceUnready": 0},
            },
            "longUnregistered": long,
            "unregistered": sizes.unregistered - long,
        },
    }


def _is_healthy(sizes: Sizes) -> str:
    return "Healthy" if sizes.are_healthy else "Unhealthy"


def _scale_up(
    sizes: Mapping[str, Sizes], group_states: Mapping[str, GroupState], now: float
) -> str:
    upcoming = any(
        one.upcoming and not group_states.get(name, GroupState()).is_paused(now)
        for name, one in sizes.items()
    )
    return "InProgress" if upcoming else "NoActivity"


def _has_failed(group_states: Mapping[str, GroupState], group: str, now: float) -> bool:
    return group_states.get(group, GroupState()).in_backoff(now)


def _with_times(conditions: _Conditions, name: str, status: str) -> dict[str, str]:
    return {"status": status, **conditions.times(name, status)}


def _scale_down(conditions: _Conditions, of: str, candidates: int) -> dict[str, Any]:
    status = "CandidatesPresent" if candidates else "NoCandidates"
    return {
        "status": status,
        "candidates": candidates,
        **conditions.times(f"{of}scaleDown", status),
    }


# -- reasons -------------------------------------------------------------------------------------------------

_Reason = tuple[str, str, dict[str, str]]
"""Key in the state, code, and what is written."""


def _node_reasons(report: CapacityReport) -> Iterator[_Reason]:
    """Yield the reasons for nodes by name; nodes with the least information come last."""
    names = report.snapshot.nodes.names
    for one in sorted(
        report.nodes, key=lambda one: (one.code is RemovalCode.TOO_FULL, names[one.node])
    ):
        name, group = names[one.node], {} if one.group is None else {"group": one.group}
        said = {"name": name, **group, "code": one.code.value, "message": one.message}
        yield name, one.code.value, said


def _pod_reasons(report: CapacityReport) -> Iterator[_Reason]:
    """Yield the reasons for pending pods, in the scheduler's order."""
    snapshot = report.snapshot
    for one in report.scale_out.pods:
        group = {} if one.group is None else {"group": one.group}
        refusals = (f"{of.group}: {of.message}" for of in one.refusals)
        said = {
            "namespace": snapshot.classes[int(snapshot.pods.cls[one.pod])].namespace,
            "name": snapshot.pods.name[one.pod],
            **group,
            "code": one.code.value,
            "message": "; ".join((one.message, *refusals)),
        }
        yield snapshot.pods.uid[one.pod], one.code.value, said


def _cut(reasons: Iterable[_Reason], room: int) -> tuple[str, dict[str, str], int]:
    """Return (lines that fit into ``room``, the codes in them, number of omitted lines)."""
    lines: list[str] = []
    codes: dict[str, str] = {}
    left_out = 0
    for key, code, said in reasons:
        # What is JSON is YAML, and quick to write.
        line = f"\n  - {json.dumps({**said, 'message': said['message'][:_LONGEST]})}"
        room -= len(line)
        if room < 0:
            left_out += 1
            continue
        lines.append(line)
        codes[key] = code
    return "".join(lines) or " []", codes, left_out


def _go_time(seconds: float) -> str:
    """Format a time as Go's ``Time.String`` does in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S.%f +0000 UTC")
