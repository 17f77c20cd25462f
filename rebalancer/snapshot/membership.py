"""The gang that a pod names: its identity, the PodGroup that describes it, and how many of its pods have to run."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

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
    """The gang in words, unique within its namespace; empty for none."""
    pod_group: tuple[str, str] | None = None
    """API group and name of the PodGroup with the number of pods that have to run; None if there is none."""
    least: int | None = None
    """Number of its pods that have to run, as given by the pod itself; None if the pod does not give it."""
    surge: int = 0
    """For a Deployment: how many new pods its rollout starts before it ends an old one; 0 for a gang."""
    size: int | None = None
    """Number of its pods once all are created, as given by the pod itself; None if the pod does not give it."""
    divisible: bool = False
    """Whether its controllers recreate a single pod independently of the others: these are evicted with it only if that does no harm."""
    leads: bool = False
    """The pod is the leader of its group: its controller makes the others after it."""
    domain: tuple[str, str] | None = None
    """Topology key of the one domain that its group has to itself, and the label of its group; None if it has none.

    The scheduler places the leader. Then the controller writes the domain of its node into the nodeSelector of the others.
    """


NO_GANG = Membership()

LWS = "leaderworkerset.sigs.k8s.io/name"
"""Label of the pods of a LeaderWorkerSet: its name."""
_LWS_GROUP = "leaderworkerset.sigs.k8s.io/group-index"
_LWS_INDEX, _LWS_KEY = (
    "leaderworkerset.sigs.k8s.io/worker-index",
    "leaderworkerset.sigs.k8s.io/group-key",
)
_JOB_SET, _JOB_KEY = "jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/job-key"
_JOB_INDEX = "batch.kubernetes.io/job-completion-index"
_LABELS: tuple[tuple[str, str, Resource | None], ...] = (
    ("scheduling.x-k8s.io/pod-group", "PodGroup", COSCHEDULING_GROUPS),
    ("pod-group.scheduling.sigs.k8s.io", "PodGroup", OLDER_COSCHEDULING_GROUPS),
    ("pod-group.scheduling.sigs.k8s.io/name", "PodGroup", None),
    ("volcano.sh/job-name", "Volcano Job", None),
)
"""Label whose value names the gang, the kind of its object, and the PodGroups that have the least number.

Coscheduling (three names over time, of which the oldest needs no object), Volcano. Koordinator also accepts
those of coscheduling. A Volcano Job may restart all of its pods when one is evicted (``policies``), regardless of its PodGroup's number.
"""
_ANNOTATIONS: tuple[tuple[str, Resource], ...] = (
    ("koordinator_gang", OLDER_COSCHEDULING_GROUPS),
    ("volcano_group", VOLCANO_GROUPS),
    ("volcano_own_group", VOLCANO_GROUPS),
    ("kai_group", KAI_GROUPS),
)
"""Field of PodAnnotations whose value names a PodGroup, and where that is."""
_LEAST_LABEL = "pod-group.scheduling.sigs.k8s.io/min-available"
_COUNTED = ("koordinator_least", "koordinator_match", "koordinator_match_alias", "lws_size")
"""Fields of PodAnnotations about the number of pods that a gang needs, or has."""
_PLACED = ("lws_topology", "jobset_topology")
"""Fields of PodAnnotations about the domain of a group."""
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
    if name := labels.get(LWS, ""):
        # Its controller starts all of a group again (restartPolicy), whatever the PodGroup says that it may have made for it.
        group = labels.get(_LWS_GROUP)
        return Membership(
            f"LeaderWorkerSet {name}" + (f", group {group}" if group is not None else ""),
            size=_number(annotations.lws_size),
            leads=labels.get(_LWS_INDEX) == "0",
            domain=_domain(annotations.lws_topology, _LWS_KEY, labels),
        )
    if name := labels.get(_JOB_SET, ""):
        # Whatever PodGroup its pods name: it starts all of them again once one of its Jobs has failed (failurePolicy).
        return Membership(
            f"JobSet {name}",
            divisible=True,
            leads=annotations.jobset_topology is not None and labels.get(_JOB_INDEX) == "0",
            domain=_domain(annotations.jobset_topology, _JOB_KEY, labels),
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


def _domain(key: str | None, label: str, labels: o.Labels) -> tuple[str, str] | None:
    """Return what ``Membership.domain`` is; ``key``: of the topology, ``label``: of the group."""
    return (key, label) if key and label in labels else None


def follow_leader(
    labels: o.Labels, spec: o.SchedulingSpec, membership: Membership
) -> o.SchedulingSpec:
    """Return the spec of a pod that its controller makes once the leader of its group has a node.

    It has a nodeSelector for the domain of the leader. Before the leader has a node, the pod only has to be placed with its group.
    """
    selector = spec.node_selector or {}
    if membership.domain is None or membership.leads or membership.domain[0] not in selector:
        return spec
    key, label = membership.domain
    group = o.PodAffinityTerm(
        topology_key=key, label_selector=o.LabelSelector(match_labels={label: labels[label]})
    )
    affinity = spec.affinity or o.Affinity()
    pods = affinity.pod_affinity or o.PodAffinity()
    return msgspec.structs.replace(
        spec,
        node_selector={name: value for name, value in selector.items() if name != key} or None,
        affinity=msgspec.structs.replace(
            affinity,
            pod_affinity=msgspec.structs.replace(pods, required=(*(pods.required or ()), group)),
        ),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text and _NUMBER.fullmatch(text) else None


def gang_annotations(annotations: PodAnnotations) -> tuple[str | None, ...]:
    """Return the values of the annotations with a gang's identity, the number of pods that it needs, and where they may run."""
    fields = (*(field for field, _ in _ANNOTATIONS), *_COUNTED, *_PLACED)
    return tuple([getattr(annotations, field) for field in fields])
