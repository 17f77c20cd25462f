"""Detect autoscalers of machines by pods and nodes; find owners that a HorizontalPodAutoscaler has just scaled."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.snapshot.model import Owner, PodAutoscaler, PodClass, Snapshot
from rebalancer.snapshot.owners import Ownership, PodController
from rebalancer.wire import objects as o
from rebalancer.wire.times import unix_seconds

_NAME_LABELS = ("app.kubernetes.io/name", "k8s-app", "app")
_BY_NAME = {
    "cluster-autoscaler": "Cluster Autoscaler",
    "aws-cluster-autoscaler": "Cluster Autoscaler",
    "clusterapi-cluster-autoscaler": "Cluster Autoscaler",
    "karpenter": "Karpenter",
}
"""Value of a label that names a pod's program (the charts' and manifests' own) -> autoscaler."""
_OWNER = "cluster-autoscaler"
"""How the names of Deployments end that run Cluster Autoscaler; its chart puts the release's name before that."""
_SYSTEM = "kube-system"
_OF_AUTOSCALERS = ("autoscaler", "karpenter")
"""In the names of namespaces in which autoscalers are installed."""
_CRITICAL = 2_000_000_000
"""Lowest priority of system pods (``scheduling.SystemCriticalPriority``): outside of kube-system a quota has to allow it."""
_BY_TAINT = {
    "ToBeDeletedByClusterAutoscaler": "Cluster Autoscaler",
    "DeletionCandidateOfClusterAutoscaler": "Cluster Autoscaler",
    "karpenter.sh/disrupted": "Karpenter",
    "karpenter.sh/unregistered": "Karpenter",
}
_BY_LABEL = {"karpenter.sh/nodepool": "Karpenter", "karpenter.sh/provisioner-name": "Karpenter"}


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """A detected autoscaler."""

    name: str
    sign: str
    """The sign by which it was recognised, in words."""


def autoscalers(snapshot: Snapshot) -> list[Autoscaler]:
    """Return the detected autoscalers, each once, by name.

    Only pods in system namespaces, in namespaces named after autoscalers, or with a system priority count. Otherwise
    a pod of any tenant could prevent that machines are added or removed.
    """
    known: dict[str, str] = {}
    for name, sign in _signs(snapshot):
        known.setdefault(name, sign)
    return [Autoscaler(name, sign) for name, sign in sorted(known.items())]


def _is_of_system(cls: PodClass) -> bool:
    named = any(word in cls.namespace for word in _OF_AUTOSCALERS)
    return cls.namespace == _SYSTEM or named or cls.priority >= _CRITICAL


def _signs(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    yield from _of_pods(snapshot)
    nodes = snapshot.nodes
    for number, taints in enumerate(nodes.taint_sets):
        for taint in taints:
            carrying = np.flatnonzero(nodes.taint_set == number)
            if taint.key in _BY_TAINT and len(carrying):
                yield _BY_TAINT[taint.key], f"taint {taint.key} on {nodes.names[int(carrying[0])]}"
    for key, name in _BY_LABEL.items():
        carrying = np.flatnonzero(nodes.labels.column(key) >= 0)
        if len(carrying):
            yield name, f"label {key} on {nodes.names[int(carrying[0])]}"


def _of_pods(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    pods = snapshot.pods
    for index, cls in enumerate(snapshot.classes):
        if not _is_of_system(cls):
            continue
        named = [_BY_NAME.get(cls.labels.get(key, "")) for key in _NAME_LABELS]
        if cls.owner >= 0 and snapshot.owners[cls.owner].name.endswith(_OWNER):
            named.append("Cluster Autoscaler")
        if (name := next(filter(None, named), None)) is not None:
            running = np.flatnonzero((pods.cls == index) & pods.living)
            if len(running):
                yield name, f"pod {snapshot.pod_ref(int(running[0]))}"


_ABILITIES = ("AbleToScale", "ScalingActive")
"""Conditions of a HorizontalPodAutoscaler (``pkg/controller/podautoscaler/horizontal.go``)."""
_Name = tuple[str, str, str]
"""Namespace, kind and name."""


def fold_autoscalers(
    autoscalers: Iterable[o.HorizontalPodAutoscaler],
    owners: Sequence[Owner],
    controllers: Mapping[int, Collection[PodController]],
    ownership: Ownership,
) -> tuple[PodAutoscaler, ...]:
    """Return the autoscalers of ``owners``, by namespace and name; other autoscalers are dropped.

    ``controllers``: owner -> the direct controllers of its pods. A target may be the top controller itself, one
    below it (a ReplicaSet), or the object from which an operator created it. Kinds are compared without their API
    group, because the target's version may differ from the version that is read.
    """
    owners_of: dict[_Name, dict[int, None]] = {}
    for index, owner in enumerate(owners):
        for kind, name in _names(owner, controllers.get(index, ()), ownership):
            owners_of.setdefault((owner.namespace, kind, name), {})[index] = None
    return tuple(
        PodAutoscaler(
            namespace=each.metadata.namespace,
            name=each.metadata.name,
            owner=owner,
            scaled_at=unix_seconds(each.status.last_scale_time),
            current=each.status.current_replicas,
            desired=each.status.desired_replicas,
            is_able=not any(
                condition.type in _ABILITIES and condition.status == "False"
                for condition in each.status.conditions or ()
            ),
        )
        for each in autoscalers
        for owner in owners_of.get(_target(each), ())
    )


TRIGGERED_SCALE_UP = "TriggeredScaleUp"
SCALE_OUT_REASONS = (TRIGGERED_SCALE_UP, "Nominated")
"""Reasons of Events about a pod for which a machine is being launched: Cluster Autoscaler's and our scale-out's
(``processors/status/eventing_scale_up_processor.go``), and Karpenter's (``pkg/controllers/provisioning/scheduling/events.go``)."""


def fold_scale_outs(events: Iterable[o.PodEvent]) -> dict[str, str]:
    """Return uid -> reason for the objects for which an Event announces a new machine."""
    return {
        uid: event.reason
        for event in events
        if event.reason in SCALE_OUT_REASONS
        and (uid := event.regarding.uid or event.involved_object.uid)
    }


def _target(autoscaler: o.HorizontalPodAutoscaler) -> _Name:
    target = autoscaler.spec.scale_target_ref
    return autoscaler.metadata.namespace, target.kind, target.name


def _names(
    owner: Owner, controllers: Collection[PodController], ownership: Ownership
) -> Iterator[tuple[str, str]]:
    """Yield (kind, name) of an owner, and of the objects below and above it in the ownership."""
    yield owner.kind, owner.name
    for controller in sorted(controllers, key=lambda each: each.name):
        yield controller.kind, controller.name
    workload = ownership.workload(owner.uid)
    for reference in (workload.metadata.owner_references or ()) if workload is not None else ():
        if reference.controller:
            yield reference.kind, reference.name


def just_scaled(snapshot: Snapshot, seconds: float) -> set[int]:
    """Return the owners that an autoscaler is scaling now, or has scaled in the last ``seconds``."""
    return {
        each.owner
        for each in snapshot.autoscalers or ()
        if each.is_scaling or snapshot.captured_at - each.scaled_at < seconds
    }


def scaling_text(snapshot: Snapshot, owner: int) -> str:
    """Return a phrase on the autoscaler of an owner and the time of its last scaling."""
    mine = [each for each in snapshot.autoscalers or () if each.owner == owner]
    latest = max(mine, key=lambda each: (each.is_scaling, each.scaled_at))
    name = f"HorizontalPodAutoscaler {latest.ref}"
    if latest.is_scaling:
        return f"{name} wants {latest.desired} replicas, and counted {latest.current}"
    # Clocks differ by a little.
    ago = snapshot.time_since(min(latest.scaled_at, snapshot.captured_at))
    return f"{name} scaled it {ago} ago, within protect.afterScaling"
