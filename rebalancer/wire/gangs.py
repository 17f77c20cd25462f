"""Gangs: groups of pods that are scheduled, and often restarted, together.

Kubernetes names the gang in the spec (KEP-4671), other systems in labels and annotations. The group objects are not
read: how many members a gang needs, and whether it tolerates the loss of one, is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping

from rebalancer.wire import objects as o
from rebalancer.wire.pods import PodAnnotations

_LWS, _LWS_GROUP = "leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index"
_LABELS: Mapping[str, str] = {
    "jobset.sigs.k8s.io/jobset-name": "JobSet",
    "scheduling.x-k8s.io/pod-group": "PodGroup",
    "pod-group.scheduling.sigs.k8s.io": "PodGroup",
    "pod-group.scheduling.sigs.k8s.io/name": "PodGroup",
    "volcano.sh/job-name": "Volcano Job",
}
"""Label whose value names the gang -> the kind of its object: JobSet, coscheduling (three names over time), Volcano.

Koordinator takes those of coscheduling, too.
"""
_ANNOTATIONS = ("koordinator_gang", "volcano_group", "volcano_own_group", "kai_group")
"""Fields of PodAnnotations whose value names a PodGroup."""


def gang_of(labels: o.Labels, annotations: PodAnnotations, spec: o.SchedulingSpec) -> str:
    """Return a text that identifies the gang of a pod within its namespace; empty if it has none."""
    if spec.scheduling_group is not None and spec.scheduling_group.pod_group_name:
        return f"PodGroup {spec.scheduling_group.pod_group_name}"
    if (workload := spec.workload_ref) is not None:
        replica = f" {workload.pod_group_replica_key}" if workload.pod_group_replica_key else ""
        return f"Workload {workload.name}, PodGroup {workload.pod_group}{replica}"
    if name := labels.get(_LWS):
        group = labels.get(_LWS_GROUP)
        return f"LeaderWorkerSet {name}" + (f", group {group}" if group is not None else "")
    by_label = (f"{kind} {labels[key]}" for key, kind in _LABELS.items() if labels.get(key))
    by_annotation = (f"PodGroup {name}" for name in gang_annotations(annotations) if name)
    return next(by_label, None) or next(by_annotation, "")


def gang_annotations(annotations: PodAnnotations) -> tuple[str | None, ...]:
    """Return the values of the annotations that identify a gang."""
    return tuple([getattr(annotations, field) for field in _ANNOTATIONS])
