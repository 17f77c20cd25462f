"""PodGroups that pods name, of Kubernetes (``scheduling.k8s.io``), coscheduling, Volcano and KAI, and their fields that matter here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from rebalancer.snapshot.membership import ONLY_WAITING
from rebalancer.snapshot.model import PodClass, PodGroup, PodGroupKey, Snapshot
from rebalancer.wire import objects as o
from rebalancer.wire.kinds import POD_GROUPS
from rebalancer.wire.pods import ANNOTATION_NAMES

_MATCH_POLICIES = [
    ANNOTATION_NAMES[field] for field in ("koordinator_match", "koordinator_match_alias")
]


def named_groups(classes: Iterable[PodClass]) -> AbstractSet[PodGroupKey]:
    """Return the PodGroups that pods of ``classes`` name."""
    named = ((cls.namespace, cls.membership.pod_group) for cls in classes)
    return {(namespace, *group) for namespace, group in named if group is not None}


def groups_of_use(snapshot: Snapshot) -> AbstractSet[PodGroupKey]:
    """Return the PodGroups that matter for the pods of ``snapshot``.

    A PodGroup of another project has only the number of pods that have to run, which does not matter for a gang of one pod, or
    if the pods give it themselves. A PodGroup of Kubernetes also affects how the scheduler places its pods.
    """
    return named_groups(cls for cls in snapshot.classes if _is_of_use(snapshot, cls))


def _is_of_use(snapshot: Snapshot, cls: PodClass) -> bool:
    group = cls.membership.pod_group
    if group is None or group[0] == POD_GROUPS.group:
        return group is not None
    return cls.membership.least is None and snapshot.fellows(cls) > 0


def fold_pod_groups(
    groups: Iterable[o.PodGroupObject], classes: Iterable[PodClass]
) -> Mapping[PodGroupKey, PodGroup]:
    """Return the content of those ``groups`` that pods of ``classes`` name."""
    folded = {
        (one.metadata.namespace, _api_group(one), one.metadata.name): _fold(one) for one in groups
    }
    return {key: folded[key] for key in sorted(folded.keys() & named_groups(classes))}


def _api_group(one: o.PodGroupObject) -> str:
    return one.api_version.rpartition("/")[0] or POD_GROUPS.group


def _fold(one: o.PodGroupObject) -> PodGroup:
    return _of_kubernetes(one.spec) if _api_group(one) == POD_GROUPS.group else _of_others(one)


def _of_kubernetes(spec: o.PodGroupSpec) -> PodGroup:
    gang, mode = spec.scheduling_policy.gang, spec.disruption_mode
    together = mode == "PodGroup" or (isinstance(mode, dict) and "all" in mode)
    # What was not said, as where the server's gate for it is off, is not taken for leave to break a gang.
    alone = mode == "Pod" or (isinstance(mode, dict) and "single" in mode)
    other = spec.scheduling_constraints, spec.resource_claims, spec.parent_composite_pod_group_name
    return PodGroup(
        least=0 if gang is None else gang.min_count,
        alone=alone or (gang is None and not together),
        constrained=any(other),
        together=together,
    )


def _of_others(one: o.PodGroupObject) -> PodGroup:
    """Return the content of a PodGroup of coscheduling, Volcano or KAI. Their schedulers know no disruption mode."""
    return PodGroup(
        least=None if _has_parts(one.spec) or _counts_waiting(one) else one.spec.min_member,
        alone=False,
        constrained=False,
    )


def _has_parts(spec: o.PodGroupSpec) -> bool:
    """Return whether parts of it have numbers of their own, so that a single number cannot decide which pods may be evicted.

    Volcano checks the numbers of a Job's tasks only if ``minMember`` is not less than their sum
    (``JobInfo.CheckTaskReady`` in pkg/scheduler/api/job_info.go).
    """
    tasks = spec.min_task_member or {}
    by_task = len(tasks) > 1 and (spec.min_member or 0) >= sum(tasks.values())
    return by_task or bool(spec.sub_group_policy or spec.sub_groups)


def _counts_waiting(one: o.PodGroupObject) -> bool:
    annotations = one.metadata.annotations or {}
    return any(annotations.get(name) == ONLY_WAITING for name in _MATCH_POLICIES)
