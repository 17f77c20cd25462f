"""What a pod says of its gang: which one it is, the PodGroup in which the gang is described, and how many of its pods have to run."""

from __future__ import annotations

import re
from typing import NamedTuple

from rebalancer.wire import objects as o
from rebalancer.wire.kinds import (
    COSCHEDULING_GROUPS,
    KAI_GROUPS,
    OLDER_COSCHEDULING_GROUPS,
    POD_GROUPS,
    VOLCANO_GROUPS,
    Resource,
)
from rebalancer.wire.pods import PodAnnotations


class Membership(NamedTuple):
    """The gang of a pod; or the Deployment with which it moves, where a restart of its rollout moves all of its pods."""

    gang: str = ""
    """In words, which identify it within its namespace; empty for none."""
    pod_group: tuple[str, str] | None = None
    """API group and name of the PodGroup that says how many of its pods have to run; None if no PodGroup does."""
    least: int | None = None
    """Number of its pods that have to run, as the pod itself says; None if the pod does not say it."""
    surge: int = 0
    """Of a Deployment: how many new pods its rollout starts before an old one goes; 0 for a gang."""


NO_GANG = Membership()

_LWS, _LWS_GROUP = "leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index"
_LABELS: tuple[tuple[str, str, Resource | None], ...] = (
    ("jobset.sigs.k8s.io/jobset-name", "JobSet", None),
    ("scheduling.x-k8s.io/pod-group", "PodGroup", COSCHEDULING_GROUPS),
    ("pod-group.scheduling.sigs.k8s.io", "PodGroup", OLDER_COSCHEDULING_GROUPS),
    ("pod-group.scheduling.sigs.k8s.io/name", "PodGroup", None),
    ("volcano.sh/job-name", "Volcano Job", None),
)
"""Label whose value names the gang, the kind of its object, and the PodGroups in which the least number stands.

JobSet, coscheduling (three names over time, of which the oldest needs no object), Volcano. Koordinator takes those of coscheduling,
too. A JobSet or a Volcano Job may start all of its pods again when one is evicted (``failurePolicy``, ``policies``), however many
its PodGroup needs.
"""
_ANNOTATIONS: tuple[tuple[str, Resource], ...] = (
    ("koordinator_gang", OLDER_COSCHEDULING_GROUPS),
    ("volcano_group", VOLCANO_GROUPS),
    ("volcano_own_group", VOLCANO_GROUPS),
    ("kai_group", KAI_GROUPS),
)
"""Field of PodAnnotations whose value names a PodGroup, and where that is."""
_LEAST_LABEL = "pod-group.scheduling.sigs.k8s.io/min-available"
_COUNTED = ("koordinator_least", "koordinator_match", "koordinator_match_alias")
"""Fields of PodAnnotations about the number of pods that a gang needs."""
_NUMBER = re.compile(r"\+?[0-9]{1,10}", re.ASCII)
ONLY_WAITING = "only-waiting"
"""Koordinator's match policy by which pods that run do not count: the replacement of one would wait for the others' replacements."""


def membership_of(
    labels: o.Labels, annotations: PodAnnotations, spec: o.SchedulingSpec
) -> Membership:
    """Return the gang of a pod."""
    if spec.scheduling_group is not None and spec.scheduling_group.pod_group_name:
        name = spec.scheduling_group.pod_group_name
        return Membership(f"PodGroup {name}", (POD_GROUPS.group, name))
    if (workload := spec.workload_ref) is not None:
        replica = f" {workload.pod_group_replica_key}" if workload.pod_group_replica_key else ""
        return Membership(f"Workload {workload.name}, PodGroup {workload.pod_group}{replica}")
    if name := labels.get(_LWS, ""):
        # Its controller starts all of a group again (restartPolicy), whatever the PodGroup says that it may have made for it.
        group = labels.get(_LWS_GROUP)
        return Membership(
            f"LeaderWorkerSet {name}" + (f", group {group}" if group is not None else "")
        )
    for key, kind, groups in _LABELS:
        if name := labels.get(key, ""):
            said = _number(labels.get(_LEAST_LABEL)) if key.endswith("/name") else None
            named = None if groups is None else (groups.group, name)
            return Membership(f"{kind} {name}", named, said)
    for field, groups in _ANNOTATIONS:
        if name := getattr(annotations, field) or "":
            found = Membership(f"PodGroup {name}", (groups.group, name))
            return (
                _as_koordinator(found, labels, annotations)
                if field == _ANNOTATIONS[0][0]
                else found
            )
    return NO_GANG


def _as_koordinator(found: Membership, labels: o.Labels, annotations: PodAnnotations) -> Membership:
    """Return the gang that a pod of Koordinator names (pkg/scheduler/plugins/coscheduling/core/gang.go, tryInitByPodConfig)."""
    policy = annotations.koordinator_match or annotations.koordinator_match_alias
    if policy == ONLY_WAITING:
        return found._replace(pod_group=None)
    said = labels.get(_LEAST_LABEL) or annotations.koordinator_least
    return found._replace(least=_number(said))


def _number(text: str | None) -> int | None:
    return int(text) if text and _NUMBER.fullmatch(text) else None


def gang_annotations(annotations: PodAnnotations) -> tuple[str | None, ...]:
    """Return the values of the annotations that identify a gang, or say how many pods it needs."""
    fields = (*(field for field, _ in _ANNOTATIONS), *_COUNTED)
    return tuple([getattr(annotations, field) for field in fields])
