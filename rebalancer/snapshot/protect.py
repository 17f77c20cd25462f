"""Protections: why a pod may not be moved. One bit per protection, for all pods at once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rebalancer.base.plain_text import count
from rebalancer.policy.protect import Exempting, LocalStorage, Protect
from rebalancer.policy.select import Select
from rebalancer.snapshot.autoscalers import just_scaled, scaling_text
from rebalancer.snapshot.columns import Bools, Floats, Int32s
from rebalancer.snapshot.in_flight import pods_asked_for
from rebalancer.snapshot.labels import matches
from rebalancer.snapshot.model import PodClass, PodFlag, Snapshot
from rebalancer.snapshot.selected import select_pods
from rebalancer.wire import objects as o
from rebalancer.wire.opt_outs import OptOut
from rebalancer.wire.pods import PodState
from rebalancer.wire.quantity import parse

# pkg/apis/scheduling/types.go: SystemCriticalPriority.
SYSTEM_CRITICAL = 2_000_000_000

RECREATING = frozenset({"ReplicaSet.apps", "StatefulSet.apps", "ReplicationController"})
"""Controllers that recreate a pod once it is evicted."""
JOB = "Job.batch"

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
    "notSelected",
    "selector",
    "schedulingGate",
    "coolDown",
    "notRecreated",
    "evictionInProgress",
    "pods",
    "cannotSurge",
    "justScaled",
    "gang",
    "resizeDeferred",
    "wholeRollout",
    "namespacePolicy",
)
_BIT = {name: 1 << index for index, name in enumerate(NAMES)}
COOL_DOWN = _BIT["coolDown"]
"""The one protection that ends by itself: the pod can be moved later, and the report names the move that waits."""
PASSING = sum(
    _BIT[name]
    for name in (
        "coolDown",
        "young",
        "ownerUnsettled",
        "evictionInProgress",
        "justScaled",
        "resizeDeferred",
    )
)
"""Protections that end by themselves."""
UNSETTLED = _BIT["ownerUnsettled"]
"""The one protection that does not apply to pods that are moved because they are not Ready themselves."""
BY_GANG, BY_ROLLOUT = _BIT["gang"], _BIT["wholeRollout"]
BY_UNIT = BY_GANG | BY_ROLLOUT
"""Protections that do not apply if all pods of a gang are moved together, or all of a Deployment by its rollout."""
ALONE = BY_UNIT | _BIT["singleReplica"] | _BIT["cannotSurge"]
"""Protections that concern the move of a single pod: a gang that is moved together has a gap regardless of its owners' replicas."""
NOT_RECREATED = "notRecreated"
CANNOT_SURGE = "cannotSurge"
JUST_SCALED = "justScaled"
GANG = "gang"
ROLLOUT = "wholeRollout"
RESIZE_DEFERRED = "resizeDeferred"
"""The protections that have reason codes of their own."""
_SELECTOR = "selector"
IN_PROGRESS = "evictionInProgress"
TEXTS: Mapping[str, str] = {
    "unscheduled": "has no node yet",
    "terminating": "is terminating",
    "mirror": "static pod: the kubelet would only start it again",
    "noController": "no controller would replace it",
    "daemonSet": "its DaemonSet would put it back",
    "job": "a Job's pod would lose its work",
    "systemCritical": "system-critical priority (protect.systemCritical lifts it by selector)",
    "self": "this run's own pod",
    "localStorage": "holds data in emptyDir or hostPath",
    "volumes": "uses persistent volumes",
    "singleReplica": "the only replica of its owner",
    "ownerUnsettled": "its owner is not settled",
    "young": "younger than protect.minPodAge",
    "notSelected": "not among the pods that the policy's select matches",
    _SELECTOR: "left out by -n, -l or --select",
    "pods": "named by protect.pods",
    "namespacePolicy": "the policy in its namespace lets no pod move now: its mode, or its windows",
    CANNOT_SURGE: "the only replica of its owner, and no rollout keeps it Ready",
    RESIZE_DEFERRED: "waits for room to be resized on its node, and its replacement would have its template's size",
    "schedulingGate": "is gated",
    "coolDown": "moved lately without the wanted effect",
    NOT_RECREATED: "its controller is not known to recreate it (protect.recreatedBy names such kinds)",
}


ANNOTATED: Mapping[str, str] = {
    "optedOut": "`rebalancer/evict` on it, its owner or its namespace, or the descheduler's `evict` on it",
    "safeToEvict": "Cluster Autoscaler's annotation `safe-to-evict` on it",
    "doNotDisrupt": "Karpenter's annotation `do-not-disrupt` on it",
    "preferNoEviction": "the descheduler's annotation `prefer-no-eviction` on it",
    IN_PROGRESS: "KubeVirt's annotation on it: a live migration is its answer to an eviction before; or an EvictionRequest",
}
"""Protection -> the annotation that requests it."""

_ALL = Select()


@dataclass(frozen=True, slots=True)
class Scope:
    """Protections besides the policy: the command line, this run's own pod, earlier runs."""

    namespace: str | None = None
    """Only pods of this namespace (-n)."""
    selector: o.LabelSelector | None = None
    """Only pods with these labels (-l)."""
    select: Select = _ALL
    """Only these pods (--select)."""
    policy_select: Select = _ALL
    """Only these pods (the policy's ``select``)."""
    own_pod: tuple[str, str] | None = None
    """(namespace, name) of the pod this run lives in."""
    cooling: Mapping[str, str] = field(default_factory=dict)
    """Owners (``Kind/namespace/name``) in a cool-down -> until when and why."""

    @property
    def flags(self) -> str:
        """The flags that leave pods out: ``-n shop and -l``; empty if none does."""
        given = [f"-n {self.namespace}"] if self.namespace is not None else []
        given += ["-l"] if self.selector is not None else []
        given += ["--select"] if self.select else []
        return " and ".join(given)


def protect(snapshot: Snapshot, rules: Protect, scope: Scope) -> Int32s:
    """Return the protections (P,) of each pod, as bits in the order of ``NAMES``."""
    of_class = np.array([_of_class(snapshot, c, rules, scope) for c in snapshot.classes], np.int32)
    if rules.after_scaling is not None:
        scaled = just_scaled(snapshot, rules.after_scaling.total_seconds())
        of_class[np.array([c.owner in scaled for c in snapshot.classes], bool)] |= _BIT[JUST_SCALED]
    bits = of_class[snapshot.pods.cls] if len(of_class) else np.zeros(0, np.int32)
    bits = bits | _of_pods(snapshot, rules)
    for name, lifted in _exceptions(snapshot, rules):
        bits[lifted] &= ~_BIT[name]
    for name, only in (("notSelected", scope.policy_select), (_SELECTOR, scope.select)):
        if (picked := select_pods(snapshot, only)) is not None:
            bits[~picked.pods(snapshot)] |= _BIT[name]
    for named in rules.pods:
        if (picked := select_pods(snapshot, named, unknown=True)) is not None:
            bits[picked.pods(snapshot)] |= _BIT["pods"]
    if scope.own_pod is not None:
        bits |= _own(snapshot, scope.own_pod)
    bits.setflags(write=False)
    return bits


def _exceptions(snapshot: Snapshot, rules: Protect) -> Iterator[tuple[str, Bools]]:
    """Yield (protection, pods (P,) that its exceptions exempt)."""
    for name, switch in (
        ("volumes", rules.volumes),
        ("localStorage", rules.local_storage),
        ("singleReplica", rules.single_replicas),
        (CANNOT_SURGE, rules.single_replicas),
        ("systemCritical", rules.system_critical),
        ("job", rules.jobs),
        (GANG, rules.gangs),
    ):
        if isinstance(switch, Exempting):
            picked = select_pods(snapshot, switch.except_)
            if picked is not None:
                yield name, picked.pods(snapshot)


def bits_of(*names: str) -> int:
    """Return the bits of the protections ``names``."""
    return sum(_BIT[name] for name in names)


def names_of(bits: int) -> list[str]:
    """Return the names of the protections in ``bits``."""
    return [name for name in NAMES if bits & _BIT[name]]


def sentence_of(texts: Mapping[str, str]) -> str:
    """Return one sentence for all protections of a pod; ``texts``: name -> text."""
    return f"{', '.join(texts)}: {'; '.join(texts.values())}"


BY_NAMESPACE = bits_of("namespacePolicy")
"""The protection of pods whose namespace has a policy that lets none move now."""
LEFT_OUT = bits_of(_SELECTOR)
"""The protection of a pod that only the flags of the command leave out."""


def text_of(snapshot: Snapshot, pod: int, name: str) -> str:
    """Return the message of a protection for a pod."""
    cls = snapshot.classes[snapshot.pods.cls[pod]]
    if name == "ownerUnsettled":
        owner = snapshot.owners[cls.owner]
        return f"{owner.ref}: {owner.unsettled}"
    if name == NOT_RECREATED:
        if cls.spec.restart_policy != "Always":
            return f"restartPolicy {cls.spec.restart_policy}: {cls.controller} may take its end for failed work"
        return f"{cls.controller}: {TEXTS[name]}"
    if name == CANNOT_SURGE:
        return f"{TEXTS[name]}: {cls.cannot_surge}"
    if name in (GANG, ROLLOUT):
        return _unit_text(snapshot, cls, name)
    if name == JUST_SCALED:
        return scaling_text(snapshot, cls.owner)
    if name in ANNOTATED:
        return "; ".join(_read_annotations(snapshot, pod, cls, name))
    return _job_text(cls) if name == "job" else TEXTS[name]


def _job_text(cls: PodClass) -> str:
    if cls.job is None or not _is_last_straw(cls):
        return TEXTS["job"]
    return f"its Job {cls.controller_name} would fail: it {cls.job.text}"


def _unit_text(snapshot: Snapshot, cls: PodClass, name: str) -> str:
    others = count(snapshot.fellows(cls), "other pod")
    if name == ROLLOUT:
        return f"moves by a restart of its rollout only, which moves {others} of {cls.gang}, too"
    return f"a member of {cls.gang} with {others}: a gang is not moved in part{_need_of(snapshot, cls)}"


def _need_of(snapshot: Snapshot, cls: PodClass) -> str:
    """Return the end of a sentence with the number of pods that the gang of ``cls`` needs; empty if its kind implies it."""
    least = snapshot.gang_least.get((cls.namespace, cls.gang))
    if least is not None:
        return f"; it needs {count(least, 'pod')}"
    return "; how many pods it needs is not known" if cls.membership.pod_group else ""


def _read_annotations(snapshot: Snapshot, pod: int, cls: PodClass, name: str) -> Iterator[str]:
    """Yield the messages of the annotations on a pod of ``cls``, on its owner and on its namespace, and of its EvictionRequest."""
    yield from (own.text for own in cls.opt_outs if own.protection == name)
    if name == IN_PROGRESS:
        asked = (snapshot.eviction_requests or {}).get(snapshot.pods.uid[pod])
        yield from () if asked is None else (asked.text,)
    if name != "optedOut":
        return
    if cls.owner >= 0:
        owner = snapshot.owners[cls.owner]
        yield from (f"its {owner.kind} is {own.text}" for own in owner.opt_outs)
    if (of_namespace := snapshot.opt_outs.get(cls.namespace)) is not None:
        yield f"its namespace is {of_namespace.text}"


def _of_class(snapshot: Snapshot, cls: PodClass, rules: Protect, scope: Scope) -> int:
    bits = _of_owner(snapshot, cls, rules)
    if cls.priority >= SYSTEM_CRITICAL:
        bits |= _BIT["systemCritical"] * bool(rules.system_critical)
    for volume in cls.spec.volumes or ():
        claimed = volume.persistent_volume_claim is not None or volume.ephemeral is not None
        if claimed or volume.disk is not None:
            bits |= _BIT["volumes"] * bool(rules.volumes)
        elif volume.host_path is not None or _holds_data(volume.empty_dir, rules.local_storage):
            bits |= _BIT["localStorage"] * bool(rules.local_storage)
    if not in_scope(scope, cls):
        bits |= _BIT[_SELECTOR]
    if cls.restarts and cls.membership.surge:
        bits |= _BIT[ROLLOUT]
    elif snapshot.fellows(cls) > 0 and not snapshot.goes_alone(cls):
        bits |= _BIT[GANG] * bool(rules.gangs)
    bits |= _BIT["job"] * (not bits & BY_GANG and _is_last_straw(cls))
    if cls.spec.scheduling_gates:
        bits |= _BIT["schedulingGate"]
    if cls.owner >= 0 and snapshot.owners[cls.owner].ref in scope.cooling:
        bits |= _BIT["coolDown"]
    return bits


def _holds_data(of: o.EmptyDir | None, rule: bool | LocalStorage) -> bool:
    """Return whether a volume is an emptyDir whose content protects its pod under ``rule``."""
    if of is None or isinstance(rule, bool):
        return of is not None
    if not rule.in_memory and (of.medium or "").startswith(("Memory", "HugePages")):
        return False
    if rule.larger_than is None or of.size_limit is None:
        return True
    try:
        # 0 is no limit, as for the kubelet (pkg/volume/emptydir: a limit counts if it is above 0).
        limit = parse(of.size_limit)
    except ValueError:
        return True
    return limit <= 0 or limit > parse(rule.larger_than)


def in_scope(scope: Scope, cls: PodClass) -> bool:
    """Return whether the pods of a class are in the namespace, and have the labels, of a scope (-n and -l)."""
    if scope.namespace not in (None, cls.namespace):
        return False
    return scope.selector is None or matches(scope.selector, cls.labels)


def _of_owner(snapshot: Snapshot, cls: PodClass, rules: Protect) -> int:
    if cls.owner < 0:
        return _BIT["noController"]
    owner = snapshot.owners[cls.owner]
    bits = 0
    if cls.controller_kind == "DaemonSet":
        bits |= _BIT["daemonSet"]
    if cls.controller_kind == "Node":
        bits |= _BIT["mirror"]
    if cls.controller == JOB:
        bits |= _BIT["job"] * bool(rules.jobs)
    elif owner.replicas <= 1 and not (cls.restarts or cls.too_late):
        single = CANNOT_SURGE if cls.cannot_surge else "singleReplica"
        bits |= _BIT[single] * bool(rules.single_replicas)
    if not _is_recreated(cls, rules):
        bits |= _BIT[NOT_RECREATED]
    if owner.unsettled is not None:
        bits |= _BIT["ownerUnsettled"]
    return bits


def _is_last_straw(cls: PodClass) -> bool:
    """Return whether the Job of ``cls`` fails for good with one more failed pod: no policy lets a run do that.

    Of a gang it is judged how many of its pods would leave.
    """
    return cls.job is not None and not cls.job.allows(1)


def _is_recreated(cls: PodClass, rules: Protect) -> bool:
    """Return whether an evicted pod of ``cls`` is known to be recreated; other protections aside.

    A controller of an unknown kind (an Argo Workflow, a PyTorchJob) may count an evicted pod as failed work. So may
    any controller whose pods do not restart after their containers end. Only a Job is known to try again;
    ``protect.jobs`` covers it.
    """
    if cls.controller_kind in ("DaemonSet", "Node") or cls.controller == JOB:
        return True
    known = cls.controller in RECREATING or cls.controller in rules.recreated_by
    return known and cls.spec.restart_policy == "Always"


_FLAG_BITS = {
    PodFlag.TERMINATING: "terminating",
    PodFlag.MIRROR: "mirror",
}


def _of_pods(snapshot: Snapshot, rules: Protect) -> Int32s:
    pods = snapshot.pods
    bits = np.zeros(len(pods), np.int32)
    for flag, name in _FLAG_BITS.items():
        bits[(pods.flags & flag) != 0] |= _BIT[name]
    bits[pods.node < 0] |= _BIT["unscheduled"]
    bits[pods.where(_resize_deferred)] |= _BIT[RESIZE_DEFERRED]
    if snapshot.eviction_requests:
        bits[pods.uid.rows_of(snapshot.eviction_requests.keys())] |= _BIT[IN_PROGRESS]
        # They end once their responders have done their work.
        bits[pods_asked_for(snapshot)] &= ~_BIT["terminating"]
    since = np.where(pods.ready_since > 0, pods.ready_since, pods.created)
    age = snapshot.captured_at - since
    bits[age < rules.min_pod_age.total_seconds()] |= _BIT["young"]
    for name, seconds in _time_protections(snapshot):
        bits[age < seconds[pods.cls]] |= _BIT[name]
    return bits


def _resize_deferred(state: PodState) -> bool:
    """Return whether the kubelet has deferred a resize of the pod for lack of room (KEP-1287)."""
    return any(
        one.type == "PodResizePending" and one.status == "True" and one.reason == "Deferred"
        for one in state.conditions
    )


def _time_protections(snapshot: Snapshot) -> Iterator[tuple[str, Floats]]:
    """Yield (protection, seconds (C,) of a pod's life for which annotations request it)."""
    seconds_of: dict[str, Floats] = {}
    for index, cls in enumerate(snapshot.classes):
        for own in _opt_outs(snapshot, cls):
            if snapshot.captured_at < own.until:
                seconds = seconds_of.setdefault(own.protection, np.zeros(len(snapshot.classes)))
                seconds[index] = max(seconds[index], own.seconds)
    yield from seconds_of.items()


def _opt_outs(snapshot: Snapshot, cls: PodClass) -> Iterator[OptOut]:
    """Yield the opt-out annotations of a pod of ``cls``, of its owner and of its namespace."""
    yield from cls.opt_outs
    if cls.owner >= 0:
        yield from snapshot.owners[cls.owner].opt_outs
    if (of_namespace := snapshot.opt_outs.get(cls.namespace)) is not None:
        yield of_namespace


def lasting_of(snapshot: Snapshot, protected: Int32s) -> Int32s:
    """Return those of the protections (P,) that do not end by themselves: ``PASSING`` ones do, and opt-outs for a time."""
    ending = np.full(len(snapshot.classes), PASSING | BY_NAMESPACE | LEFT_OUT, np.int32)
    for index, cls in enumerate(snapshot.classes):
        for_good = {own.protection: False for own in _opt_outs(snapshot, cls)}
        for own in _opt_outs(snapshot, cls):
            for_good[own.protection] |= math.isinf(min(own.seconds, own.until))
        ending[index] |= bits_of(*(name for name, lasts in for_good.items() if not lasts))
    return protected & ~ending[snapshot.pods.cls] if len(ending) else protected


def not_understood(snapshot: Snapshot) -> list[str]:
    """Return the malformed annotations, which protect all the same, one line each with their objects."""
    texts: set[str] = set()
    for cls in snapshot.classes:
        owner = snapshot.owners[cls.owner] if cls.owner >= 0 else None
        pods = f"pods of {owner.ref}" if owner is not None else f"a pod of {cls.namespace}"
        texts.update(f"{pods}: {own.text}" for own in cls.opt_outs if not own.understood)
    for owner in snapshot.owners:
        texts.update(f"{owner.ref}: {own.text}" for own in owner.opt_outs if not own.understood)
    texts.update(
        f"namespace {name}: {own.text}"
        for name, own in snapshot.opt_outs.items()
        if not own.understood
    )
    return [f"{text}: not moved" for text in sorted(texts)]


def _own(snapshot: Snapshot, own: tuple[str, str]) -> Int32s:
    bits = np.zeros(len(snapshot.pods), np.int32)
    in_namespace: Sequence[bool] = [c.namespace == own[0] for c in snapshot.classes]
    mine: Bools = np.array(in_namespace, bool)[snapshot.pods.cls]
    for pod in np.flatnonzero(mine).tolist():
        if snapshot.pods.name[pod] == own[1]:
            bits[pod] = _BIT["self"]
    return bits


NONE_ENDED: Int32s = np.zeros(0, np.int32)
"""Protections where no pods that have ended were read."""

_OF_RUNNING = bits_of(
    "singleReplica",
    "cannotSurge",
    "ownerUnsettled",
    "young",
    "job",
    "coolDown",
    "gang",
    "resizeDeferred",
    "wholeRollout",
)
"""Protections of what a pod does while it runs, and of moves that did not help: none replaces it anywhere."""


def find_done(finished: Snapshot, rules: Protect) -> Bools:
    """Return the pods (P,) on a node whose controllers no longer need them.

    ReplicaSets, StatefulSets and ReplicationControllers have created others, and so have kinds that the policy names
    as recreating. A Job no longer needs its pods when it has finished. Any other owner may still read the logs and
    status of its pods, as people may for pods without a controller; DaemonSets delete their own pods.
    """
    pods = finished.pods
    of_class = np.array([_is_done(cls, rules) for cls in finished.classes] or [False], bool)
    done: Bools = of_class[pods.cls] & (pods.node >= 0)
    done &= (pods.flags & (PodFlag.TERMINATING | PodFlag.MIRROR)) == 0
    return done


def _is_done(cls: PodClass, rules: Protect) -> bool:
    if cls.controller == JOB:
        return cls.job_ended
    known = cls.controller in RECREATING or cls.controller in rules.recreated_by
    return known and cls.spec.restart_policy == "Always"


def protect_ended(finished: Snapshot, rules: Protect, scope: Scope) -> Int32s:
    """Return the protections (P,) that keep each finished pod from being deleted."""
    bits: Int32s = protect(finished, rules, scope) & ~_OF_RUNNING
    return bits
