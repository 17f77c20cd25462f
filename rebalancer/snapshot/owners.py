"""Owners: resolve a pod's controller to its top controller, and derive the pod's replacement."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from rebalancer.snapshot.kept import Memo
from rebalancer.snapshot.labels import with_label_keys
from rebalancer.snapshot.model import Owner, too_few_ready
from rebalancer.snapshot.surge import why_no_surge
from rebalancer.wire import objects as o
from rebalancer.wire.opt_outs import evict_opt_out

_INTERMEDIATE = ("ReplicaSet", "Job")
_UNCOUNTED = ("Job", "CronJob", "DaemonSet", "Node")
"""Kinds that no number of Ready pods is asked of."""


@dataclass(frozen=True, slots=True)
class Controller:
    """A pod's direct controller, as named in the pod, with the counts of its pods."""

    namespace: str
    kind: str
    group: str
    """API group, empty for the core group."""
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class SeenPods:
    """Counts of an owner's pods."""

    living: int
    """Neither finished nor terminating."""
    ready: int
    controllers: Sequence[Controller]
    """The direct controllers (ReplicaSets), one at least, in order of their first pod."""
    replica_sets: int
    """How many of them have living pods."""


class Ownership:
    """Resolves controllers to top controllers among the workloads that were read."""

    def __init__(self, workloads: Iterable[o.Workload], kept: Memo) -> None:
        self._kept = kept
        self._by_uid = {workload.metadata.uid: workload for workload in workloads}

    def workload(self, uid: str) -> o.Workload | None:
        """Return the workload object with this uid; None if it was not read."""
        return self._by_uid.get(uid)

    def top(self, controller: Controller) -> tuple[str, str, str]:
        """Return (kind, name, uid) of the top controller.

        A ReplicaSet or Job with an owner yields this owner, even if its kind is not read (an Argo Rollout, say); a
        controller that was not read yields itself.
        """
        workload = self._by_uid.get(controller.uid)
        if workload is not None and controller.kind in _INTERMEDIATE:
            for reference in workload.metadata.owner_references or ():
                if reference.controller:
                    return reference.kind, reference.name, reference.uid
        return controller.kind, controller.name, controller.uid

    def job_ended(self, controller: Controller) -> bool:
        """Return whether the controller is a finished Job, standalone or of a CronJob.

        False for Jobs of any other owner (a workflow, say), which may still read the logs and status of the pods.
        """
        workload = self._by_uid.get(controller.uid)
        if workload is None or (controller.kind, controller.group) != ("Job", "batch"):
            return False
        kinds = {(each.kind, each.group) for each in workload.metadata.owner_references or ()}
        return kinds <= {("CronJob", "batch")} and any(
            each.type in ("Complete", "Failed") and each.status == "True"
            for each in workload.status.conditions or ()
        )

    def owner(self, kind: str, name: str, uid: str, counted: SeenPods) -> Owner:
        """Return the Owner for this top controller.

        If its object was not read, the number of requested pods comes from its ReplicaSets; if these were not read
        either, from the number of living pods.
        """
        namespace = counted.controllers[0].namespace
        workload = self._by_uid.get(uid)
        parts = [
            owner
            for each in counted.controllers
            if (owner := self._by_uid.get(each.uid)) is not None
        ]
        if workload is None and not parts:
            return Owner(
                kind=kind,
                namespace=namespace,
                name=name,
                uid=uid,
                replicas=counted.living,
                ready=counted.ready,
                unsettled=None
                if kind in _UNCOUNTED
                else too_few_ready(counted.ready, counted.living),
                waits=kind == "StatefulSet",
                fingerprint="",
            )
        read = [workload] if workload is not None else parts
        replicas = sum(_count_asked(kind, each) for each in read)
        return Owner(
            kind=kind,
            namespace=namespace,
            name=name,
            uid=uid,
            replicas=replicas,
            ready=counted.ready,
            unsettled=_explain_unsettled(kind, read, replicas, counted),
            waits=_waits(kind, read[-1]),
            fingerprint=self._kept.of(_fingerprint, read[-1]),
            opt_outs=tuple(
                own
                for each in (*read, *parts)
                if (own := evict_opt_out(each.metadata.annotations)) is not None
            ),
            rollout=counted.replica_sets > 1
            or (kind == "StatefulSet" and _rolling(read[-1], replicas)),
            cannot_surge="it was not read"
            if workload is None
            else self._kept.of(why_no_surge, workload),
        )


def _count_asked(kind: str, workload: o.Workload) -> int:
    replicas = workload.spec.replicas
    if replicas is None:
        replicas = workload.spec.parallelism if kind == "Job" else 1
    return replicas or 0


def pod_selector(workload: o.Workload) -> o.LabelSelector | None:
    """Return the selector of a pod controller, as far as the scheduler's default spread uses it."""
    selector = workload.spec.selector
    if not isinstance(selector, dict):
        return None
    if workload.kind == "ReplicationController":
        return o.LabelSelector(match_labels={str(k): str(v) for k, v in selector.items()})
    if workload.kind not in ("ReplicaSet", "StatefulSet"):
        return None
    try:
        return msgspec.convert(selector, o.LabelSelector)
    except msgspec.ValidationError:
        return None


def _fingerprint(workload: o.Workload) -> str:
    """Return a text that changes with the object and its pods' requests, but not with the number of replicas.

    The generation would change each time an autoscaler sets the replicas.
    """
    template = workload.spec.template
    if template is None:
        return f"{workload.metadata.uid}/{workload.metadata.generation}"
    asked = msgspec.json.encode((template.metadata.labels, template.spec), order="deterministic")
    # Protobuf has one form for an empty list and for none.
    asked = asked.replace(b":[]", b":null")
    return f"{workload.metadata.uid}/{hashlib.sha256(asked).hexdigest()[:16]}"


def _waits(kind: str, workload: o.Workload) -> bool:
    if kind == "StatefulSet":
        return True
    # KEP-3939: with a failure policy the default replacement policy is Failed, too.
    return workload.spec.pod_replacement_policy == "Failed" or (
        workload.spec.pod_failure_policy is not None
    )


def _explain_unsettled(
    kind: str, read: Sequence[o.Workload], replicas: int, counted: SeenPods
) -> str | None:
    """Return why an owner is not settled (a rollout, unready pods); None if it is settled.

    Judged by its pods, since the status may be old if its controller is slow.
    """
    if kind in _UNCOUNTED:
        return None
    if any(each.status.observed_generation < each.metadata.generation for each in read):
        return "its controller has not seen the newest spec"
    if kind != "Deployment" and counted.replica_sets > 1:
        return f"rollout: pods of {counted.replica_sets} controllers"
    status = read[-1].status
    rolling = kind == "StatefulSet" and _rolling(read[-1], replicas)
    # Of the pods that its controller has counted some are of an older template, whatever those look like that were listed.
    rolling |= kind == "Deployment" and (status.updated_replicas or 0) < status.replicas
    # Pods are seen before their controllers have counted them: after an eviction of ours, above all.
    whole = counted.living == counted.ready == replicas and counted.replica_sets == 1
    if whole and not rolling and (kind != "Deployment" or status.updated_replicas):
        return None
    if (pods := sum(each.status.replicas for each in read)) != replicas:
        return f"scaling: {pods} pods, {replicas} wanted"
    if kind == "Deployment" and (status.updated_replicas or 0) < replicas:
        return f"rollout: {status.updated_replicas or 0} of {replicas} updated"
    if rolling:
        return f"rollout: {status.updated_replicas or 0} of {replicas} updated"
    reported = sum(each.status.ready_replicas for each in read)
    return too_few_ready(min(reported, counted.ready), replicas)


def _rolling(workload: o.Workload, replicas: int) -> bool:
    status, strategy = workload.status, workload.spec.update_strategy
    if status.update_revision == status.current_revision:
        return False
    partition = 0
    if strategy is not None and strategy.rolling_update is not None:
        partition = strategy.rolling_update.partition or 0
    return (status.updated_replicas or 0) < replicas - partition


def replacement_spec(
    labels: o.Labels, spec: o.SchedulingSpec, template: o.PodTemplate, *, keep_labels: bool
) -> tuple[o.Labels, o.SchedulingSpec]:
    """Return labels and spec of the pod that replaces one with ``labels`` and ``spec``.

    The owner's template decides all fields that it sets; other fields were added by admission (default tolerations,
    injected sidecars, LimitRange defaults) and are expected to be added again. In particular a pod that was resized
    in place comes back with its template's requests. ``keep_labels`` is for StatefulSets, whose pods have labels of
    their own.
    """
    wanted = dict(labels) | dict(template.metadata.labels or {})
    of_template = template.spec
    replaced = msgspec.structs.replace(
        spec,
        node_selector={**(spec.node_selector or {}), **(of_template.node_selector or {})} or None,
        affinity=_merge_affinity(of_template.affinity, wanted) or spec.affinity,
        topology_spread_constraints=_merge_spread(of_template, wanted)
        or spec.topology_spread_constraints,
        tolerations=_union(of_template.tolerations, spec.tolerations),
        containers=_containers(spec.containers, of_template.containers),
        init_containers=_containers(spec.init_containers or (), of_template.init_containers or ()),
    )
    return (labels if keep_labels and wanted == labels else wanted), replaced


def assumptions(running: o.SchedulingSpec, template: o.SchedulingSpec) -> tuple[str, ...]:
    """Return the assumptions of :func:`replacement_spec`, as sentences.

    A field that a running pod has and its template has not was added at creation, by a webhook or by admission, or
    was changed since. No object shows which.
    """
    by_name = {c.name: c for c in (*template.containers, *(template.init_containers or ()))}
    words: list[str] = []
    for container in (*running.containers, *(running.init_containers or ())):
        wanted = by_name.get(container.name)
        if wanted is None:
            words.append(f"container {container.name} is injected again")
            continue
        mine = container.resources.requests if container.resources is not None else None
        defaulted = _apply_defaults(wanted.resources) if wanted.resources is not None else {}
        if added := sorted(set(mine or ()) - set(defaulted)):
            words.append(f"container {container.name} is given {', '.join(added)} again by default")
    return tuple(words)


def _union(
    first: tuple[o.Toleration, ...] | None, second: tuple[o.Toleration, ...] | None
) -> tuple[o.Toleration, ...] | None:
    if first is None or second is None:
        return second if first is None else first
    if set(first) <= set(second):
        return second
    return first + tuple(toleration for toleration in second if toleration not in first)


def _containers(
    running: tuple[o.Container, ...], template: tuple[o.Container, ...]
) -> tuple[o.Container, ...]:
    by_name = {container.name: container for container in template if container.name}
    return tuple(
        _container(container, by_name[container.name]) if container.name in by_name else container
        for container in running
    )


def _container(running: o.Container, template: o.Container) -> o.Container:
    wanted = template.resources
    if wanted is None or not (wanted.requests or wanted.limits):
        return running
    mine = running.resources or o.ResourceRequirements()
    requests = {**(mine.requests or {}), **_apply_defaults(wanted)}
    if requests == (mine.requests or {}):
        return running
    return msgspec.structs.replace(
        running, resources=o.ResourceRequirements(requests=requests, limits=wanted.limits)
    )


def _apply_defaults(wanted: o.ResourceRequirements) -> Mapping[str, str | int | float]:
    return {**(wanted.limits or {}), **(wanted.requests or {})}


def _merge_spread(
    spec: o.SchedulingSpec, labels: o.Labels
) -> tuple[o.TopologySpreadConstraint, ...] | None:
    return (
        tuple(
            msgspec.structs.replace(
                c, label_selector=with_label_keys(c.label_selector, labels, c.match_label_keys)
            )
            for c in spec.topology_spread_constraints or ()
        )
        or None
    )


def _merge_affinity(affinity: o.Affinity | None, labels: o.Labels) -> o.Affinity | None:
    if affinity is None:
        return None
    return msgspec.structs.replace(
        affinity,
        pod_affinity=_merge_pod_affinity(affinity.pod_affinity, labels),
        pod_anti_affinity=_merge_pod_affinity(affinity.pod_anti_affinity, labels),
    )


def _merge_pod_affinity(affinity: o.PodAffinity | None, labels: o.Labels) -> o.PodAffinity | None:
    if affinity is None:
        return None

    def merge(term: o.PodAffinityTerm) -> o.PodAffinityTerm:
        selector = with_label_keys(
            term.label_selector, labels, term.match_label_keys, term.mismatch_label_keys
        )
        return msgspec.structs.replace(term, label_selector=selector)

    return msgspec.structs.replace(
        affinity,
        required=affinity.required and tuple(merge(term) for term in affinity.required),
        preferred=affinity.preferred
        and tuple(
            msgspec.structs.replace(term, pod_affinity_term=merge(term.pod_affinity_term))
            for term in affinity.preferred
        ),
    )
