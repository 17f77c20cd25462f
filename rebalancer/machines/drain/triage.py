"""The fate of each pod on the nodes to be emptied: kubectl's rules, plus rules for batch work.

The filters are those of kubectl (``k8s.io/kubectl/pkg/drain/filters.go``), in its order; the first match decides.
Rules that kubectl does not have come after them: annotations that protect a pod, and batch work, which is awaited
instead of killed.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rebalancer.machines.reasons import FateReason, PodStays, Reason
from rebalancer.snapshot.columns import Bools, Int32s
from rebalancer.snapshot.labels import matches
from rebalancer.snapshot.model import PodClass, PodFlag, Snapshot
from rebalancer.snapshot.protect import JOB
from rebalancer.wire import objects as o
from rebalancer.wire.opt_outs import OptOut

_DAEMON_SET = "DaemonSet"


class Fate(enum.StrEnum):
    """The fate of a pod in a drain."""

    EVICT = "evict"
    """It is to be evicted."""
    WAIT = "wait"
    """It is waited for: it is about to end, or its work is."""
    STAY = "stay"
    """It does not count: it belongs to its node, or is not selected."""
    REFUSE = "refuse"
    """It keeps its node from being drained, unless a flag allows its eviction."""


@dataclass(frozen=True, slots=True)
class Orders:
    """The flags of a drain about single pods; flags that kubectl has keep their names."""

    force: bool = False
    delete_emptydir_data: bool = False
    ignore_daemonsets: bool = False
    pod_selector: o.LabelSelector | None = None
    evict_batch: bool = False
    """Batch work is no longer waited for."""
    evict_gangs: bool = False
    """Pods of a gang are evicted one by one like any others; else all of the gang leave together."""
    skip_wait_for_delete: float = 0.0
    """Seconds. A drain does not wait for a pod whose deletion is overdue by more: its kubelet may be gone. 0: it waits for every pod."""
    own_pod: str | None = None
    """``namespace/name`` of the pod that this process lives in."""
    missing: frozenset[tuple[str, str]] = frozenset()
    """(namespace, name) of the DaemonSets that pods name and the API server does not have."""


EVERY = Orders(
    force=True,
    delete_emptydir_data=True,
    ignore_daemonsets=True,
    evict_batch=True,
    evict_gangs=True,
)
"""The flags for a machine that will end: every pod is evicted, except those that belong to the node."""


@dataclass(frozen=True, slots=True)
class Triaged:
    """One pod on a node to be emptied, with its fate."""

    pod: int
    fate: Fate
    why: FateReason
    message: str
    """The sentence; empty if the code alone is sufficient."""


def pods_on(snapshot: Snapshot, nodes: Bools) -> Int32s:
    """Return the pods on the given nodes (N,)."""
    of = snapshot.pods.node
    return np.flatnonzero((of >= 0) & nodes[of]).astype(np.int32)


def triage_pods(snapshot: Snapshot, nodes: Bools, orders: Orders) -> list[Triaged]:
    """Return the fate of every pod on ``nodes`` (N,), in the order of the snapshot."""
    return triage_each(snapshot, pods_on(snapshot, nodes), orders)


def fellows_elsewhere(snapshot: Snapshot, nodes: Bools, *, gangs: bool = True) -> Int32s:
    """Return, in ascending order, the pods on other nodes that are moved together with pods on ``nodes`` (N,).

    They belong to the same rollout, which is restarted, or to the same gang; without ``gangs`` only to a rollout.
    """
    here = set(pods_on(snapshot, nodes).tolist())
    elsewhere = {
        pod
        for pods in snapshot.gangs.values()
        if (gangs or snapshot.surge_of(pods)) and not here.isdisjoint(pods.tolist())
        for pod in pods.tolist()
    } - here
    return np.array(sorted(elsewhere), np.int32)


def triage_each(snapshot: Snapshot, pods: Int32s, orders: Orders) -> list[Triaged]:
    """Return the fate of each of ``pods`` under the orders for its node."""
    of_class: dict[int, _Fated] = {}
    triage: list[Triaged] = []
    for pod in pods.tolist():
        cls = int(snapshot.pods.cls[pod])
        if cls not in of_class:
            of_class[cls] = _of_class(snapshot, snapshot.classes[cls], orders)
        fate, why = _of_pod(int(snapshot.pods.flags[pod]), of_class[cls])
        if fate is Fate.EVICT and not orders.force and (still := _for_now(snapshot, pod)):
            fate, why = Fate.WAIT, Reason(FateReason.OPTED_OUT, still)
        if fate is Fate.EVICT and (awaited := _rollout_of(snapshot, pod)):
            fate, why = Fate.WAIT, PodStays.ROLLOUT.of(why=awaited)
        if orders.own_pod is not None and snapshot.pod_ref(pod) == orders.own_pod:
            fate, why = Fate.REFUSE, PodStays.OWN_POD.of()
        triage.append(Triaged(pod, fate, why.code, why.message))
    return triage


_Fated = tuple[Fate, Reason[FateReason]]


def daemon_sets_on(snapshot: Snapshot, nodes: Bools) -> set[tuple[str, str]]:
    """Return (namespace, name) of the DaemonSets that have pods on ``nodes`` (N,)."""
    owners = snapshot.owners
    classes = np.unique(snapshot.pods.cls[pods_on(snapshot, nodes)])
    return {
        (owners[of.owner].namespace, owners[of.owner].name)
        for cls in classes.tolist()
        if (of := snapshot.classes[cls]).controller_kind == _DAEMON_SET and of.owner >= 0
    }


def _of_pod(flags: int, of_class: _Fated) -> _Fated:
    if of_class[0] is Fate.STAY:
        return of_class
    if flags & PodFlag.MIRROR:
        return Fate.STAY, Reason(FateReason.MIRROR)
    if flags & PodFlag.TERMINATING and of_class[0] is not Fate.REFUSE:
        return Fate.WAIT, Reason(FateReason.TERMINATING)
    return of_class


def _for_now(snapshot: Snapshot, pod: int) -> str | None:
    """Return a phrase on what keeps a pod in place for a limited time; None if nothing does."""
    pods = snapshot.pods
    since = float(pods.ready_since[pod]) or float(pods.created[pod])
    for own in snapshot.classes[int(pods.cls[pod])].opt_outs:
        if snapshot.captured_at - since < own.seconds < math.inf:
            return own.text
    return None


def _rollout_of(snapshot: Snapshot, pod: int) -> str | None:
    """Return why a Ready pod waits that is moved by a restart once its Deployment is settled; None if it need not wait.

    The rollout in progress may be the one that replaces it: evicting it now could leave no Ready pod.
    """
    of_class = snapshot.classes[int(snapshot.pods.cls[pod])]
    if not of_class.surges_once_settled or not snapshot.pods.is_ready(pod):
        return None
    return of_class.cannot_surge


def _of_class(snapshot: Snapshot, cls: PodClass, orders: Orders) -> _Fated:
    selector = orders.pod_selector
    if selector is not None and not matches(selector, cls.labels):
        return Fate.STAY, Reason(FateReason.NOT_SELECTED)
    if cls.controller_kind == "Node":
        return Fate.STAY, Reason(FateReason.MIRROR)
    if cls.controller_kind == _DAEMON_SET and (fate := _of_daemon_set(snapshot, cls, orders)):
        return fate
    refused = next(_refusals(snapshot, cls, orders), None)
    return _at_work(cls, orders) if refused is None else (Fate.REFUSE, refused)


def _of_daemon_set(snapshot: Snapshot, cls: PodClass, orders: Orders) -> _Fated | None:
    """Return the fate of a DaemonSet's pod; None if it is evicted like any other."""
    owner = snapshot.owners[cls.owner] if cls.owner >= 0 else None
    if owner is not None and (owner.namespace, owner.name) in orders.missing:
        if orders.force:
            return None
        name = f"{owner.namespace}/{owner.name}"
        return Fate.REFUSE, PodStays.NO_DAEMON_SET.of(daemon_set=name)
    if orders.ignore_daemonsets:
        return Fate.STAY, Reason(FateReason.DAEMON_SET)
    return Fate.REFUSE, PodStays.DAEMON_SET.of()


def _refusals(snapshot: Snapshot, cls: PodClass, orders: Orders) -> Iterator[Reason[FateReason]]:
    local = any(volume.empty_dir is not None for volume in cls.spec.volumes or ())
    if local and not orders.delete_emptydir_data:
        yield PodStays.LOCAL_DATA.of()
    if not cls.controller_kind and not orders.force:
        yield PodStays.NO_CONTROLLER.of()
    if (own := _find_opt_out(snapshot, cls)) is not None and not orders.force:
        yield PodStays.OPTED_OUT.of(why=own)


def _find_opt_out(snapshot: Snapshot, cls: PodClass) -> str | None:
    """Return a phrase on annotations that keep pods of ``cls`` in place, always or until a time; else None."""
    for own in cls.opt_outs:
        if _lasts(snapshot, own) and not _until_done(own):
            return own.text
    if cls.owner >= 0:
        owner = snapshot.owners[cls.owner]
        for own in owner.opt_outs:
            if _lasts(snapshot, own):
                return f"its {owner.kind} is {own.text}"
    of_namespace = snapshot.opt_outs.get(cls.namespace)
    if of_namespace is not None and _lasts(snapshot, of_namespace):
        return f"its namespace is {of_namespace.text}"
    return None


def _lasts(snapshot: Snapshot, own: OptOut) -> bool:
    return own.seconds == math.inf and snapshot.captured_at < own.until


def _until_done(own: OptOut) -> bool:
    return own.protection == "safeToEvict" and "on-completion" in own.text


def _at_work(cls: PodClass, orders: Orders) -> _Fated:
    batch = is_batch(cls) or any(map(_until_done, cls.opt_outs))
    if batch and not orders.evict_batch:
        return Fate.WAIT, Reason(FateReason.BATCH)
    return Fate.EVICT, Reason(FateReason.ORDERED)


def is_batch(cls: PodClass) -> bool:
    """Return whether pods of ``cls`` do finite work that an eviction would lose.

    These are pods of Jobs, and pods that do not restart when their containers end: any other controller (an Argo
    Workflow, a PyTorchJob) may count an evicted pod as failed work.
    """
    return cls.controller == JOB or cls.spec.restart_policy != "Always"
