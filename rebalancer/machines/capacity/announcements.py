"""The Kubernetes Events about machines: about each act, and each change since the run before.

If the reason for a node changes, the node gets an Event, so that ``kubectl describe node`` shows why it is not removed:
writing Events needs no right to write nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from rebalancer.kube.events import Subject
from rebalancer.machines.capacity.report import CapacityReport
from rebalancer.machines.capacity.scale_out_plan import PodVerdict
from rebalancer.machines.capacity.state import NOT_LAUNCHED, TIMEOUT, GroupState
from rebalancer.machines.reasons import (
    REMOVABLE_CODES,
    PodCode,
    RemovalCode,
    ScaleInCode,
    ScaleOutCode,
)
from rebalancer.plan.machines import ActStatus, MachineAct
from rebalancer.snapshot.autoscalers import TRIGGERED_SCALE_UP
from rebalancer.snapshot.buffers import find_chunks

MAX_EVENTS = 200
"""Events of one run: those of acts come first, and the report names all."""
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


@dataclass(frozen=True, slots=True)
class Announced:
    """The state about which Events were written; empty in the first run of a process."""

    groups: Mapping[str, GroupState] = field(default_factory=dict)
    nodes: Mapping[str, str] = field(default_factory=dict)
    """Node -> its code."""
    pods: Mapping[str, str] = field(default_factory=dict)
    """uid of a pending pod -> its code."""

    @classmethod
    def of(cls, report: CapacityReport, groups: Mapping[str, GroupState]) -> Announced:
        """Return the state that a run has seen; ``groups``: name -> state after the run."""
        names, uids = report.snapshot.nodes.names, report.snapshot.pods.uid
        return cls(
            dict(groups),
            {names[one.node]: one.code.value for one in report.nodes},
            {uids[one.pod]: one.code.value for one in report.scale_out.pods},
        )


def announcements(
    earlier: Announced,
    now: Announced,
    report: CapacityReport,
    acts: Sequence[MachineAct],
    store: Subject,
) -> list[MachineEvent]:
    """Return the new Events since ``earlier``; ``now``: after this run.

    ``store``: the ConfigMap, the subject of Events about groups. If another autoscaler is present, only acts of
    this run get Events.
    """
    announced = [*_of_groups(acts, store), *_of_removals(report, acts)]
    if not report.autoscalers:
        announced += _failures(earlier.groups, now.groups, store)
        announced += _no_help(earlier.groups, now.groups, store)
        announced += islice(_of_pods(earlier, now, report, acts), MAX_EVENTS)
        announced += islice(_of_nodes(earlier, now, report, acts), MAX_EVENTS)
    return announced[:MAX_EVENTS]


def group_increases(acts: Iterable[MachineAct]) -> dict[str, str]:
    """Return group -> amount, for the groups that were scaled up."""
    return {
        act.group: act.message
        for act in acts
        if act.code == ScaleOutCode.SCALED_OUT and act.status is ActStatus.DONE
    }


def _of_groups(acts: Iterable[MachineAct], store: Subject) -> Iterator[MachineEvent]:
    for act in acts:
        resized = act.code in (ScaleOutCode.SCALED_OUT, ScaleOutCode.DECREASED)
        done = resized and act.status is ActStatus.DONE
        refused = act.code == ScaleOutCode.FAILED
        if done or refused:
            note = f"{act.group}: {act.message}"
            yield MachineEvent(store, act.code, "ScaleUp", note, refused)


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
    before: Mapping[str, GroupState], after: Mapping[str, GroupState], store: Subject
) -> Iterator[MachineEvent]:
    """Yield Events for the groups whose machines did not become ready or could not be launched."""
    for name, state in sorted(after.items()):
        known = before.get(name, GroupState())
        reason = _FAILURES.get(state.code)
        if reason is not None and state.failed_at != known.failed_at:
            note = f"{name}: {state.why}"
            yield MachineEvent(store, reason, "ScaleUp", note, warning=True)
        if state.suspended and state.suspended != known.suspended:
            note = f"{name}: {state.suspended}; its size stays until it is resumed"
            yield MachineEvent(store, _SUSPENDED, "ScaleUp", note, warning=True)


def _no_help(
    before: Mapping[str, GroupState], after: Mapping[str, GroupState], store: Subject
) -> Iterator[MachineEvent]:
    """Yield Events for the groups whose new machines did not help."""
    for group, state in sorted(after.items()):
        for need, one in sorted(state.no_help.items()):
            known = before.get(group, GroupState()).no_help.get(need)
            if known is None or known.failed_at != one.failed_at:
                note = f"{group}: {one.describe(one.failed_at)}"
                yield MachineEvent(store, _UNHELPFUL, "ScaleUp", note, warning=True)


def _of_pods(
    earlier: Announced, now: Announced, report: CapacityReport, acts: Iterable[MachineAct]
) -> Iterator[MachineEvent]:
    """Yield Events for the pods that triggered a scale-out, and for pods that newly no group helps."""
    increased, chunks = group_increases(acts), find_chunks(report.snapshot)
    for one in report.scale_out.pods:
        if chunks[one.pod]:
            continue  # there is no such pod
        if one.code is PodCode.TRIGGERED and one.group in increased:
            note = f"pod triggered scale-up: {one.group}: {increased[one.group]}"
            yield MachineEvent(_pod(report, one), TRIGGERED_SCALE_UP, "ScaleUp", note)
        elif one.code in _NOT_HELPED:
            uid = report.snapshot.pods.uid[one.pod]
            if earlier.pods.get(uid) != now.pods[uid]:
                whys = "; ".join(f"{of.group}: {of.message}" for of in one.refusals)
                note = f"pod did not trigger scale-up: {whys or 'there is no group of machines'}"
                yield MachineEvent(_pod(report, one), "NotTriggerScaleUp", "ScaleUp", note)


def _pod(report: CapacityReport, one: PodVerdict) -> Subject:
    snapshot = report.snapshot
    namespace = snapshot.classes[int(snapshot.pods.cls[one.pod])].namespace
    return Subject("Pod", namespace, snapshot.pods.name[one.pod], snapshot.pods.uid[one.pod])


def _of_nodes(
    earlier: Announced, now: Announced, report: CapacityReport, acts: Iterable[MachineAct]
) -> Iterator[MachineEvent]:
    """Yield Events for the nodes whose reason has changed, except nodes that were acted on."""
    acted = {act.node for act in acts if act.status in (ActStatus.DONE, ActStatus.FAILED)}
    for one in report.nodes:
        name = report.snapshot.nodes.names[one.node]
        before, after = earlier.nodes.get(name), now.nodes[name]
        if name in acted or before in (None, after):
            continue
        reason = _CANDIDATE if one.code in REMOVABLE_CODES else _STAYS
        note = f"{one.code.value}: {one.message}; it was {before}"
        yield MachineEvent(_node(name), reason, "ScaleDown", note)
