"""The status of the machines in Cluster Autoscaler's format, and their Kubernetes Events; how both are stored.

The status is a pure function of the stored state, the time and the report. The fields are
those of ``clusterstate/api.ClusterAutoscalerStatus``; ``reasons`` is ours.

An Event is new if it differs from the state that an earlier run has stored. If the reason for a node changes, the
node gets an Event, so that ``kubectl describe node`` shows why it stays: writing Events needs no right to write
nodes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import msgspec
import yaml

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.config_map import ConfigMapStore
from rebalancer.kube.events import Subject
from rebalancer.machines.capacity.codes import REMOVABLE_CODES, PodCode, RemovalCode, ScaleInCode
from rebalancer.machines.capacity.groups import Sizes, size_of_cluster, sizes_of
from rebalancer.machines.capacity.report import CapacityReport
from rebalancer.machines.capacity.scale_out import ScaleOutCode
from rebalancer.machines.capacity.scale_out_plan import PodVerdict
from rebalancer.machines.capacity.state import (
    NOT_LAUNCHED,
    SUSPENDED,
    TIMEOUT,
    VERSION,
    CapacityState,
    GroupState,
    StatusCondition,
    changed_states,
    decode,
    encode,
)
from rebalancer.machines.capacity.unhelped import NoHelps
from rebalancer.plan.machines import ActStatus, MachineAct
from rebalancer.providers.contract import NodeGroup
from rebalancer.snapshot.buffers import find_chunks
from rebalancer.wire.times import rfc3339

KEY = "status"
"""Key of the ConfigMap's data."""
UPDATED = "cluster-autoscaler.kubernetes.io/last-updated"
"""Annotation with the time of the last write."""
_NODES, _PODS = 350_000, 150_000
"""Bytes for the reasons of nodes, and for those of pods: a ConfigMap holds 1 MiB in all."""
_TRIGGERED = 3000
"""Most pods of which is kept which group was scaled out for them."""
_MAX_REASON = 300
"""Characters of one reason."""


@dataclass(frozen=True, slots=True)
class StatusData:
    """The output of a run."""

    data: Mapping[str, str]
    annotations: Mapping[str, str]
    state: CapacityState


@dataclass(slots=True)
class _Conditions:
    """Conditions with the times of their last changes."""

    earlier: Mapping[str, StatusCondition]
    now: float
    kept: dict[str, StatusCondition] = field(default_factory=dict)

    def times(self, name: str, status: str) -> dict[str, str]:
        """Return the times of the last check and of the last change of a condition."""
        known = self.earlier.get(name)
        if known is None or known.status != status or known.since > self.now:
            known = StatusCondition(status, self.now)
        self.kept[name] = known
        return {"lastProbeTime": rfc3339(self.now), "lastTransitionTime": rfc3339(known.since)}


def status_of(
    earlier: CapacityState,
    now: float,
    report: CapacityReport,
    groups: Mapping[str, GroupState],
    scaled_out: Collection[str] = (),
) -> StatusData:
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
    triggering = [*islice(_triggering_pods(report, scaled_out), _TRIGGERED)]
    nodes, of_nodes, nodes_cut = _cut(_node_reasons(report), _NODES)
    pending, of_pods, pods_cut = _cut(_pod_reasons(report), _PODS)
    text = yaml.safe_dump(head, sort_keys=False, width=100)
    text += f"reasons:\n  nodes:{nodes}\n  pendingPods:{pending}\n"
    text += f"  leftOut: {{nodes: {nodes_cut}, pendingPods: {pods_cut}}}\n"
    state = CapacityState(
        version=VERSION,
        groups=changed_states(groups),
        conditions=conditions.kept,
        nodes=of_nodes,
        pods=of_pods,
        triggered={uid: group for uid, group, _ in triggering},
        zones={
            uid: zone or earlier.zones.get(uid, "")
            for uid, _, zone in triggering
            if zone or uid in earlier.zones
        },
        no_help={group: dict(needs) for group, needs in report.scale_out.no_help.items()},
    )
    return StatusData({KEY: text, **encode(state)}, {UPDATED: _go_time(now)}, state)


def _triggering_pods(
    report: CapacityReport, scaled_out: Collection[str]
) -> Iterator[tuple[str, str, str]]:
    """Yield (pod, group, zone) for the pods that a requested machine will take; the zone where it is a new one."""
    for one in report.scale_out.pods:
        requested = one.code is PodCode.TRIGGERED and one.group in scaled_out
        if one.group is not None and (requested or one.code is PodCode.UPCOMING):
            yield report.snapshot.pods.uid[one.pod], one.group, one.zone


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
        line = f"\n  - {json.dumps({**said, 'message': said['message'][:_MAX_REASON]})}"
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


MAX_EVENTS = 200
"""Events of one run: those of acts come first, and the status names all."""
_NOT_HELPED = frozenset({PodCode.MAX_SIZE, PodCode.NO_GROUP, PodCode.GROUP_BLOCKED})
_SUSPENDED, _UNHELPFUL = "ScaleUpSuspended", "ScaleUpDidNotHelp"
_FAILURES = {TIMEOUT: "ScaleUpTimedOut", NOT_LAUNCHED: "ScaleUpFailed"}
_STAYS, _CANDIDATE = "NoScaleDown", "ScaleDownCandidate"


@dataclass(frozen=True, slots=True)
class MachineEvent:
    """One Event about a machine."""

    about: Subject
    reason: str
    action: str
    note: str
    warning: bool = False


def announcements(
    earlier: CapacityState,
    state: CapacityState,
    report: CapacityReport,
    acts: Sequence[MachineAct],
    status: Subject,
) -> list[MachineEvent]:
    """Return the new Events since ``earlier``; ``state``: after this run.

    ``status``: the ConfigMap, the subject of Events about groups. If another autoscaler is present, only acts of
    this run get Events.
    """
    announced = [*_of_groups(acts, status), *_of_removals(report, acts)]
    if not report.autoscalers:
        announced += _failures(earlier.groups, state.groups, status)
        announced += _no_help(earlier.no_help, state.no_help, status)
        announced += islice(_of_pods(earlier, state, report, acts), MAX_EVENTS)
        announced += islice(_of_nodes(earlier, state, report, acts), MAX_EVENTS)
    return announced[:MAX_EVENTS]


def group_increases(acts: Iterable[MachineAct]) -> dict[str, str]:
    """Return group -> amount, for the groups that were scaled up."""
    return {
        act.group: act.message
        for act in acts
        if act.code == ScaleOutCode.SCALED_OUT and act.status is ActStatus.DONE
    }


def _of_groups(acts: Iterable[MachineAct], status: Subject) -> Iterator[MachineEvent]:
    for act in acts:
        resized = act.code in (ScaleOutCode.SCALED_OUT, ScaleOutCode.DECREASED)
        done = resized and act.status is ActStatus.DONE
        refused = act.code == ScaleOutCode.FAILED
        if done or refused:
            note = f"{act.group}: {act.message}"
            yield MachineEvent(status, act.code, "ScaleUp", note, refused)


def _of_removals(report: CapacityReport, acts: Iterable[MachineAct]) -> Iterator[MachineEvent]:
    """Yield Events for the nodes that scale-in has started to remove, has removed, or could not remove."""
    nodes = report.snapshot.nodes.index
    empty = {one.node for one in report.nodes if one.code is RemovalCode.EMPTY}
    for act in acts:
        if act.status not in (ActStatus.DONE, ActStatus.FAILED):
            continue
        match act.code:
            case ScaleInCode.DRAIN_STARTED if nodes.get(act.node) in empty:
                reason = "ScaleDownEmpty"
            case ScaleInCode.DRAIN_STARTED | ScaleInCode.TERMINATED:
                reason = "ScaleDown"
            case ScaleInCode.CANCELLED:
                reason = _STAYS
            case ScaleInCode.FAILED:
                reason = "ScaleDownFailed"
            case _:
                continue
        if act.status is ActStatus.FAILED:
            reason = "ScaleDownFailed"
        if act.node:
            note, failed = f"{act.code}: {act.message}", reason == "ScaleDownFailed"
            yield MachineEvent(_node(act.node), reason, "ScaleDown", note, failed)


def _node(name: str) -> Subject:
    """Return a node as subject. Its name is used as uid, as in the kubelet's Events, so kubectl finds both."""
    return Subject("Node", "", name, name)


def _failures(
    before: Mapping[str, GroupState], after: Mapping[str, GroupState], status: Subject
) -> Iterator[MachineEvent]:
    """Yield Events for the groups whose machines did not become ready or could not be launched."""
    for name, state in sorted(after.items()):
        known = before.get(name, GroupState())
        reason = _FAILURES.get(state.code)
        if reason is not None and state.failed_at != known.failed_at:
            note = f"{name}: {state.why}"
            yield MachineEvent(status, reason, "ScaleUp", note, warning=True)
        if state.suspended and state.suspended != known.suspended:
            note = f"{name}: {state.suspended}; its size stays until it is resumed"
            yield MachineEvent(status, _SUSPENDED, "ScaleUp", note, warning=True)


def _no_help(before: NoHelps, after: NoHelps, status: Subject) -> Iterator[MachineEvent]:
    """Yield Events for the groups whose new machines did not help."""
    for group, needs in sorted(after.items()):
        for need, one in sorted(needs.items()):
            known = before.get(group, {}).get(need)
            if known is None or known.failed_at != one.failed_at:
                note = f"{group}: {one.describe(one.failed_at)}"
                yield MachineEvent(status, _UNHELPFUL, "ScaleUp", note, warning=True)


def _of_pods(
    earlier: CapacityState, state: CapacityState, report: CapacityReport, acts: Iterable[MachineAct]
) -> Iterator[MachineEvent]:
    """Yield Events for the pods that triggered a scale-out, and for pods that newly no group helps."""
    increased, chunks = group_increases(acts), find_chunks(report.snapshot)
    for one in report.scale_out.pods:
        if chunks[one.pod]:
            continue  # there is no such pod
        if one.code is PodCode.TRIGGERED and one.group in increased:
            note = f"pod triggered scale-up: {one.group}: {increased[one.group]}"
            yield MachineEvent(_pod(report, one), "TriggeredScaleUp", "ScaleUp", note)
        elif one.code in _NOT_HELPED:
            uid = report.snapshot.pods.uid[one.pod]
            if uid in state.pods and earlier.pods.get(uid) != state.pods[uid]:
                whys = "; ".join(f"{of.group}: {of.message}" for of in one.refusals)
                note = f"pod did not trigger scale-up: {whys or 'there is no group of machines'}"
                yield MachineEvent(_pod(report, one), "NotTriggerScaleUp", "ScaleUp", note)


def _pod(report: CapacityReport, one: PodVerdict) -> Subject:
    snapshot = report.snapshot
    namespace = snapshot.classes[int(snapshot.pods.cls[one.pod])].namespace
    return Subject("Pod", namespace, snapshot.pods.name[one.pod], snapshot.pods.uid[one.pod])


def _of_nodes(
    earlier: CapacityState, state: CapacityState, report: CapacityReport, acts: Iterable[MachineAct]
) -> Iterator[MachineEvent]:
    """Yield Events for the nodes whose reason has changed, except nodes that were acted on."""
    acted = {act.node for act in acts if act.status in (ActStatus.DONE, ActStatus.FAILED)}
    for one in report.nodes:
        name = report.snapshot.nodes.names[one.node]
        before, now = earlier.nodes.get(name), state.nodes.get(name)
        if name in acted or None in (before, now) or before == now:
            continue
        reason = _CANDIDATE if one.code in REMOVABLE_CODES else _STAYS
        note = f"{one.code.value}: {one.message}; it was {before}"
        yield MachineEvent(_node(name), reason, "ScaleDown", note)


THEIRS = ("kube-system", "cluster-autoscaler-status")
"""The ConfigMap that Cluster Autoscaler writes."""


class StatusKeeper:
    """The ConfigMap ``(namespace, name)`` with the status of machines, in one run."""

    def __init__(
        self, store: ConfigMapStore, where: tuple[str, str], warn: Callable[[str], None]
    ) -> None:
        self._store, self._where, self._warn = store, where, warn
        self._name = "/".join(where)
        self._earlier = CapacityState()

    def load(self) -> CapacityState:
        """Return the state that earlier runs stored.

        Raises:
            ClusterReadError: the ConfigMap does not exist, or could not be read.
        """
        self._earlier, flaw = decode(self._store.require().data)
        if flaw is not None:
            self._warn(f"ConfigMap {self._name}: {flaw}; back-offs of groups start again")
        return self._earlier

    def keep_groups(self, groups: Mapping[str, GroupState]) -> None:
        """Store the state of each group before acting on it; other parts do not change.

        It is written even if nothing changes: what cannot be written now could not be written after the act.

        Raises:
            ClusterReadError: it could not be written.
        """
        state = msgspec.structs.replace(self._earlier, groups=changed_states(groups))
        self._store.update(lambda data: {**data, **encode(state)}, always=True)

    def write(
        self,
        report: CapacityReport,
        groups: Mapping[str, GroupState],
        acts: Sequence[MachineAct],
        now: float,
    ) -> list[MachineEvent]:
        """Store the status after a run; return the Events to write. ``groups``: name -> state.

        Raises:
            ClusterReadError: it could not be written, or belongs to another release.
        """
        for one in report.autoscalers:
            if one.name == "Cluster Autoscaler" and self._where == THEIRS:
                raise ClusterReadError(
                    f"ConfigMap {self._name} is {one.name}'s own, which runs here ({one.sign}): name another with"
                    f" --capacity-status"
                )
        written = status_of(self._earlier, now, report, groups, group_increases(acts))
        kept = self._store.update(lambda _: written.data, written.annotations)
        subject = Subject("ConfigMap", *self._where, kept.uid)
        return announcements(self._earlier, written.state, report, acts, subject)
