"""Detect the autoscalers of machines from the pods and nodes of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rebalancer.snapshot.model import PodClass, Snapshot

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
    """What shows it, in words."""


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
