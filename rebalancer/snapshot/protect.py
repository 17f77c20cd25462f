"""Why a pod may not be moved: named protections, one bit each, for all pods at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rebalancer.policy.protect import Protect
from rebalancer.snapshot.columns import Bools, Int32s
from rebalancer.snapshot.labels import matches
from rebalancer.snapshot.model import PodClass, PodFlag, Snapshot
from rebalancer.snapshot.pod_table import annotation_flags
from rebalancer.wire import objects as o
from rebalancer.wire.pods import PodAnnotations

# pkg/apis/scheduling/types.go: SystemCriticalPriority.
SYSTEM_CRITICAL = 2_000_000_000

NAMES = (
    "unscheduled",
    "terminating",
    "mirror",
    "noController",
    "daemonSet",
    "job",
    "systemCritical",
    "self",
    "optedOut",
    "safeToEvict",
    "doNotDisrupt",
    "preferNoEviction",
    "localStorage",
    "volumes",
    "singleReplica",
    "ownerUnsettled",
    "young",
    "namespace",
    "selector",
    "schedulingGate",
    "coolDown",
)
_BIT = {name: 1 << index for index, name in enumerate(NAMES)}
COOL_DOWN = _BIT["coolDown"]
"""The one protection that ends by itself: the pod can be moved, and the wish to move it is told."""
TEXTS: Mapping[str, str] = {
    "unscheduled": "has no node yet",
    "terminating": "is terminating",
    "mirror": "static pod: the kubelet would only start it again",
    "noController": "no controller would replace it",
    "daemonSet": "its DaemonSet would put it back",
    "job": "a Job's pod would lose its work",
    "systemCritical": "system-critical priority (protect.systemCritical lifts it by selector)",
    "self": "this run's own pod",
    "optedOut": 'annotated evict: "false"',
    "safeToEvict": 'annotated cluster-autoscaler.kubernetes.io/safe-to-evict: "false"',
    "doNotDisrupt": 'annotated karpenter.sh/do-not-disrupt: "true"',
    "preferNoEviction": "annotated prefer-no-eviction",
    "localStorage": "holds data in emptyDir or hostPath",
    "volumes": "uses persistent volumes",
    "singleReplica": "the only replica of its owner",
    "ownerUnsettled": "its owner is not at rest",
    "young": "younger than protect.minPodAge",
    "namespace": "its namespace is left out by the policy",
    "selector": "left out by -n or -l",
    "schedulingGate": "is gated",
    "coolDown": "moved lately without the wanted effect",
}


@dataclass(frozen=True, slots=True)
class Scope:
    """What holds a pod besides the policy: the command line, this run's own pod, earlier runs."""

    namespace: str | None = None
    """Only pods of this namespace (-n)."""
    selector: o.LabelSelector | None = None
    """Only pods with these labels (-l)."""
    own_pod: tuple[str, str] | None = None
    """(namespace, name) of the pod this run lives in."""
    cooling: Mapping[str, str] = field(default_factory=dict)
    """Owners (``Kind/namespace/name``) in a cool-down -> until when and why."""


def protect(snapshot: Snapshot, rules: Protect, scope: Scope) -> Int32s:
    """Return the protections (P,) that hold each pod, as bits in the order of ``NAMES``."""
    of_class = np.array([_of_class(snapshot, c, rules, scope) for c in snapshot.classes], np.int32)
    bits = of_class[snapshot.pods.cls] if len(of_class) else np.zeros(0, np.int32)
    bits = bits | _of_pods(snapshot, rules)
    if scope.own_pod is not None:
        bits |= _own(snapshot, scope.own_pod)
    bits.setflags(write=False)
    return bits


def names_of(bits: int) -> list[str]:
    """Return the names of the protections in ``bits``."""
    return [name for name in NAMES if bits & _BIT[name]]


def opt_out(annotations: PodAnnotations) -> str | None:
    """Return why a pod with these annotations may not be evicted, None if they do not protect it."""
    flags = annotation_flags(annotations)
    return next((TEXTS[name] for flag, name in _FLAG_BITS.items() if flags & flag), None)


def _of_class(snapshot: Snapshot, cls: PodClass, rules: Protect, scope: Scope) -> int:
    bits = _of_owner(snapshot, cls, rules)
    if cls.priority >= SYSTEM_CRITICAL and rules.spares_critical(cls.namespace, cls.labels):
        bits |= _BIT["systemCritical"]
    for volume in cls.spec.volumes or ():
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None:
            bits |= _BIT["volumes"] * rules.volumes
        elif volume.empty_dir is not None or volume.host_path is not None:
            bits |= _BIT["localStorage"] * rules.local_storage
    if not rules.namespaces.admits(cls.namespace):
        bits |= _BIT["namespace"]
    if scope.namespace not in (None, cls.namespace):
        bits |= _BIT["selector"]
    if scope.selector is not None and not matches(scope.selector, cls.labels):
        bits |= _BIT["selector"]
    if cls.spec.scheduling_gates:
        bits |= _BIT["schedulingGate"]
    if cls.owner >= 0 and snapshot.owners[cls.owner].ref in scope.cooling:
        bits |= _BIT["coolDown"]
    return bits


def _of_owner(snapshot: Snapshot, cls: PodClass, rules: Protect) -> int:
    if cls.owner < 0:
        return _BIT["noController"]
    owner = snapshot.owners[cls.owner]
    bits = 0
    if cls.controller_kind == "DaemonSet":
        bits |= _BIT["daemonSet"]
    if cls.controller_kind == "Node":
        bits |= _BIT["mirror"]
    if cls.controller_kind == "Job":
        bits |= _BIT["job"] * rules.jobs
    elif owner.replicas <= 1:
        bits |= _BIT["singleReplica"] * rules.single_replicas
    if owner.unsettled is not None:
        bits |= _BIT["ownerUnsettled"]
    return bits


_FLAG_BITS = {
    PodFlag.TERMINATING: "terminating",
    PodFlag.MIRROR: "mirror",
    PodFlag.OPTED_OUT: "optedOut",
    PodFlag.UNSAFE_TO_EVICT: "safeToEvict",
    PodFlag.DO_NOT_DISRUPT: "doNotDisrupt",
    PodFlag.PREFER_NO_EVICTION: "preferNoEviction",
}


def _of_pods(snapshot: Snapshot, rules: Protect) -> Int32s:
    pods = snapshot.pods
    bits = np.zeros(len(pods), np.int32)
    for flag, name in _FLAG_BITS.items():
        bits[(pods.flags & flag) != 0] |= _BIT[name]
    bits[pods.node < 0] |= _BIT["unscheduled"]
    since = np.where(pods.ready_since > 0, pods.ready_since, pods.created)
    bits[snapshot.captured_at - since < rules.min_pod_age.total_seconds()] |= _BIT["young"]
    return bits


def _own(snapshot: Snapshot, own: tuple[str, str]) -> Int32s:
    bits = np.zeros(len(snapshot.pods), np.int32)
    in_namespace: Sequence[bool] = [c.namespace == own[0] for c in snapshot.classes]
    mine: Bools = np.array(in_namespace, bool)[snapshot.pods.cls]
    for pod in np.flatnonzero(mine).tolist():
        if snapshot.pods.name[pod] == own[1]:
            bits[pod] = _BIT["self"]
    return bits
