"""PodGroups of Kubernetes (``scheduling.k8s.io``) that pods name by ``spec.schedulingGroup``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from rebalancer.snapshot.model import GangKey, PodClass, PodGroup
from rebalancer.wire import objects as o


def named_groups(classes: Iterable[PodClass]) -> AbstractSet[GangKey]:
    """Return the PodGroups that pods of ``classes`` name."""
    return {(cls.namespace, cls.gang) for cls in classes if cls.spec.scheduling_group is not None}


def fold_pod_groups(
    groups: Iterable[o.PodGroupObject], classes: Iterable[PodClass]
) -> Mapping[GangKey, PodGroup]:
    """Return what those of ``groups`` say that pods of ``classes`` name."""
    folded = {
        (one.metadata.namespace, f"PodGroup {one.metadata.name}"): _fold(one.spec) for one in groups
    }
    return {gang: folded[gang] for gang in sorted(folded.keys() & named_groups(classes))}


def _fold(spec: o.PodGroupSpec) -> PodGroup:
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
