"""Owners: resolve a pod's controller to its top controller, and derive the pod's replacement.

A rolling update of one replica starts the new pod first, if it may surge, and deletes the old one once the new one
is Ready. The new pod has another template with its own hash, and is scheduled while the old one runs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec
import numpy as np

from rebalancer.base.plain_text import count
from rebalancer.snapshot.columns import freeze
from rebalancer.snapshot.jobs import JobState, job_state
from rebalancer.snapshot.labels import with_label_keys
from rebalancer.snapshot.membership import Membership
from rebalancer.snapshot.model import Owner, PodClass, Snapshot, too_few_ready
from rebalancer.wire import objects as o
from rebalancer.wire.opt_outs import evict_opt_out
from rebalancer.wire.quantity import share_of

HASH = "pod-template-hash"
"""Label by which a Deployment keeps the pods of its templates apart."""
_ROLLOUT_HASH = "rollouts-pod-template-hash"
"""The same of a Rollout of Argo."""
_REVISION = "controller-revision-hash"
"""Label of a StatefulSet's pods: the revision of their template."""
_DEFAULT = "25%"
_OF_MANY = ("ReadWriteMany", "ReadOnlyMany")
_PER_NODE = ("DaemonSet", "Node")


def why_no_surge(deployment: o.Workload) -> str:
    """Return why fewer pods of a Deployment than its replicas would be Ready during a rollout; empty if none would be missing.

    Source: ``k8s.io/kubernetes/pkg/controller/deployment/util: ResolveFenceposts``: shares of maxSurge are rounded
    up, those of maxUnavailable down.
    """
    if deployment.spec.paused:
        return "it is paused"
    strategy = deployment.spec.strategy or o.UpdateStrategy()
    if strategy.type not in ("", "RollingUpdate"):
        return f"its strategy is {strategy.type}"
    surge, unavailable = _pace_of(strategy)
    replicas = _count_replicas(deployment)
    try:
        more, fewer = share_of(surge, replicas, up=True), share_of(unavailable, replicas, up=False)
    except ValueError:
        return f"maxSurge {surge} and maxUnavailable {unavailable} are not understood"
    if more < 1:
        return f"its maxSurge is {surge}"
    if fewer > 0:
        old = "the old pod go" if replicas == 1 else f"{fewer} of {count(replicas, 'old pod')} go"
        return f"its maxUnavailable of {unavailable} lets {old} first"
    for reference in deployment.metadata.owner_references or ():
        if reference.controller:
            return f"{reference.kind} {reference.name} manages it, and may undo a restart"
    return ""


def _count_surge(deployment: o.Workload) -> int:
    """Return how many new pods a rollout starts beside the old ones; 0 if that is not understood."""
    surge, _ = _pace_of(deployment.spec.strategy or o.UpdateStrategy())
    try:
        return share_of(surge, _count_replicas(deployment), up=True)
    except ValueError:
        return 0


def _pace_of(strategy: o.UpdateStrategy) -> tuple[int | str, int | str]:
    """Return maxSurge and maxUnavailable as written, with the defaults of the API."""
    rolling = strategy.rolling_update or o.RollingUpdate()
    surge = _DEFAULT if rolling.max_surge is None else rolling.max_surge
    return surge, _DEFAULT if rolling.max_unavailable is None else rolling.max_unavailable


def _count_replicas(deployment: o.Workload) -> int:
    """Return the replicas of a Deployment, at least one: without pods it has no rollout."""
    return max(1, 1 if deployment.spec.replicas is None else deployment.spec.replicas)


def with_restarts(
    snapshot: Snapshot,
    too_late: Mapping[int, str] | None = None,
    *,
    singles: bool = True,
    unevictable: Collection[int] = (),
) -> Snapshot:
    """Return the snapshot in which pods move by restarts if possible (``PodClass.restarts``).

    These are the pods of single replicas (``singles``), and those of owners with a class in ``unevictable``, which can
    never be evicted. A restart moves all pods of a Deployment: those of several replicas are one unit
    (``Membership.surge``). Replacements have a class of their own, equal to the template except for the hash. If a
    restart is not possible, ``PodClass.cannot_surge`` is the reason. ``too_late``: class -> ``PodClass.too_late``.
    """
    classes = list(snapshot.classes)
    next_of: dict[int, int] = {}
    """Class of a template -> the class of the pods that a restart creates."""
    closed = {snapshot.classes[index].owner for index in unevictable} - {-1}
    never_of = _why_never_many(snapshot, closed)
    for index, of_class in enumerate(snapshot.classes):
        owner = snapshot.owner_of(index)
        if owner is None or of_class.controller_kind in _PER_NODE:
            continue
        single = owner.replicas == 1
        if of_class.owner not in closed and not (single and (singles or of_class.restarts)):
            continue
        never = _why_never(snapshot, of_class, owner) if single else never_of[of_class.owner]
        why = never or (f"{owner.ref}: {owner.unsettled}" if owner.unsettled else "")
        late = "" if why or not single or too_late is None else too_late.get(index, "")
        if why or late or of_class.restarts:
            classes[index] = replace(
                of_class,
                restarts=not (why or late),
                too_late=late,
                cannot_surge=why,
                surges_once_settled=bool(why and not never),
            )
            continue
        template = of_class.replacement
        if template not in next_of:
            next_of[template] = len(classes)
            classes.append(_of_next_template(snapshot.classes[template], len(classes)))
        whole = of_class.membership if single else _whole(owner)
        classes[index] = replace(
            of_class, restarts=True, replacement=next_of[template], membership=whole
        )
    if tuple(classes) == snapshot.classes:
        return snapshot
    first = len(snapshot.classes)
    changed = replace(snapshot, classes=tuple(classes[:first]))
    return add_classes(changed, classes[first:], tuple(next_of))


def _whole(owner: Owner) -> Membership:
    """Return the unit of all pods of an owner, which its rollout replaces."""
    return Membership(f"{owner.kind} {owner.name}", surge=owner.surge)


def _why_never_many(snapshot: Snapshot, owners: Collection[int]) -> dict[int, str]:
    """Return owner -> why it can never be restarted without missing pods, be it for one of them only; empty if it can."""
    why = dict.fromkeys(owners, "")
    for index in np.unique(snapshot.pods.cls).tolist() if owners else ():
        of_class = snapshot.classes[index]
        if of_class.owner in why and not why[of_class.owner]:
            owner = snapshot.owners[of_class.owner]
            why[of_class.owner] = _why_never(snapshot, of_class, owner)
            if not why[of_class.owner] and _is_of_gang(snapshot, of_class):
                why[of_class.owner] = f"{owner.ref}: its pods are members of {of_class.gang}"
    return why


def _is_of_gang(snapshot: Snapshot, cls: PodClass) -> bool:
    return bool(cls.gang and not cls.membership.surge and not snapshot.goes_alone(cls))


def _why_never(snapshot: Snapshot, of_class: PodClass, owner: Owner) -> str:
    """Return why the Deployment as it is written cannot be restarted without a gap; empty if it can."""
    if owner.kind == "StatefulSet":
        return f"{owner.ref}: the rolling update of a StatefulSet ends each pod before it creates the next"
    if owner.kind != "Deployment" or of_class.controller != "ReplicaSet.apps":
        return f"{owner.ref} is not a Deployment"
    why = owner.cannot_surge
    if not why and HASH not in of_class.labels:
        why = f"its pods have no label {HASH}"
    return f"{owner.ref}: {why}" if why else next(_volumes_of_one(snapshot, of_class), "")


def _volumes_of_one(snapshot: Snapshot, of_class: PodClass) -> Iterator[str]:
    """Yield the volumes that only one node may use at a time.

    Source: ``k8s.io/kubernetes/pkg/controller/volume/attachdetach/util: isMultiAttachForbidden``.
    """
    claims, volumes = snapshot.volumes.claims, snapshot.volumes.volumes
    for volume in of_class.spec.volumes or ():
        if volume.disk is not None:
            yield f"its disk {volume.name} can be attached to one node only"
        source = volume.persistent_volume_claim
        if source is None:
            continue
        claim = claims.get((of_class.namespace, source.claim_name))
        if claim is None:
            yield f"its claim {source.claim_name} is not known"
            continue
        bound = volumes.get(claim.spec.volume_name)
        modes = (bound.spec.access_modes if bound is not None else None) or claim.spec.access_modes
        if not set(modes or ()) & set(_OF_MANY):
            yield f"its claim {source.claim_name} is {', '.join(modes or ('of no access mode',))}"


def _of_next_template(template: PodClass, index: int) -> PodClass:
    """Return the class of the pods that a restart creates; it is its own replacement."""
    old = template.labels.get(HASH, "")
    new = f"{old}r"  # any value that no other pod has
    hashes = {old: new}
    return replace(
        template,
        labels={**template.labels, HASH: new},
        spec=msgspec.structs.replace(
            template.spec,
            affinity=_affinity(template.spec.affinity, hashes),
            topology_spread_constraints=_spread(template.spec, hashes),
        ),
        replacement=index,
        restarts=True,
        cannot_surge="",
    )


def add_classes(snapshot: Snapshot, added: Sequence[PodClass], origins: Sequence[int]) -> Snapshot:
    """Return the snapshot with more classes; each has the requests, usage and budgets of the class that it derives from."""
    if not added:
        return snapshot
    columns = [*range(len(snapshot.classes)), *origins]
    usage = snapshot.usage
    return replace(
        snapshot,
        classes=(*snapshot.classes, *added),
        requests=freeze(snapshot.requests.take(columns, axis=1)),
        scored=freeze(snapshot.scored.take(columns, axis=1)),
        usage=usage and replace(usage, classes=freeze(usage.classes.take(columns, axis=1))),
        budgets=tuple(
            replace(
                budget,
                classes=freeze(np.flatnonzero(np.isin(columns, budget.classes)).astype(np.int32)),
            )
            for budget in snapshot.budgets
        ),
    )


# -- selectors that name the hash ------------------------------------------------------------------


def _selector(
    selector: o.LabelSelector | None, hashes: Mapping[str, str]
) -> o.LabelSelector | None:
    """Return a selector in which the hash from matchLabelKeys is that of the next template."""
    if selector is None or not selector.match_expressions:
        return selector
    return msgspec.structs.replace(
        selector,
        match_expressions=tuple(
            msgspec.structs.replace(
                one, values=tuple(hashes.get(value, value) for value in one.values or ())
            )
            if one.key == HASH
            else one
            for one in selector.match_expressions
        ),
    )


def _spread(
    spec: o.SchedulingSpec, hashes: Mapping[str, str]
) -> tuple[o.TopologySpreadConstraint, ...] | None:
    return spec.topology_spread_constraints and tuple(
        msgspec.structs.replace(one, label_selector=_selector(one.label_selector, hashes))
        for one in spec.topology_spread_constraints
    )


def _affinity(affinity: o.Affinity | None, hashes: Mapping[str, str]) -> o.Affinity | None:
    return affinity and msgspec.structs.replace(
        affinity,
        pod_affinity=_of_pods(affinity.pod_affinity, hashes),
        pod_anti_affinity=_of_pods(affinity.pod_anti_affinity, hashes),
    )


def _of_pods(affinity: o.PodAffinity | None, hashes: Mapping[str, str]) -> o.PodAffinity | None:
    def term(of: o.PodAffinityTerm) -> o.PodAffinityTerm:
        return msgspec.structs.replace(of, label_selector=_selector(of.label_selector, hashes))

    return affinity and msgspec.structs.replace(
        affinity,
        required=affinity.required and tuple(map(term, affinity.required)),
        preferred=affinity.preferred
        and tuple(
            msgspec.structs.replace(one, pod_affinity_term=term(one.pod_affinity_term))
            for one in affinity.preferred
        ),
    )


T = TypeVar("T")


class Memo:
    """A cache that keeps results as long as they are used again and again.

    For pure functions of immutable arguments. Arguments are compared by identity: an object that was read again is a
    different argument, even with equal content.
    """

    def __init__(self) -> None:
        self._before: dict[tuple[Any, ...], tuple[tuple[Any, ...], Any]] = {}
        self._now: dict[tuple[Any, ...], tuple[tuple[Any, ...], Any]] = {}
        """Function and identities of the arguments -> arguments, which keep these identities theirs, and result."""

    def of(self, make: Callable[..., T], *arguments: Any) -> T:
        """Return ``make(*arguments)``, computed now or taken from the cache."""
        key = (make, *map(id, arguments))
        known = self._now.get(key)
        if known is None:
            known = self._before.get(key) or (arguments, make(*arguments))
            self._now[key] = known
        result: T = known[1]
        return result

    def forget_unused(self) -> None:
        """Drop the results not used since the last call; keep all if most were unused."""
        if 2 * len(self._now) >= len(self._before):
            self._before, self._now = self._now, {}


class NoMemo(Memo):
    """A memo that caches nothing, for a single snapshot; a real cache would keep all objects in memory."""

    def of(self, make: Callable[..., T], *arguments: Any) -> T:
        """Return ``make(*arguments)``, computed now."""
        return make(*arguments)


_INTERMEDIATE = ("ReplicaSet", "Job")
_UNCOUNTED = ("Job", "CronJob", "DaemonSet", "Node")
"""Kinds without a required number of Ready pods."""


@dataclass(frozen=True, slots=True)
class PodController:
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
    controllers: Sequence[PodController]
    """The direct controllers (ReplicaSets), one at least, in order of their first pod."""
    replica_sets: int
    """The number of ReplicaSets with living pods."""


class Ownership:
    """Resolves controllers to top controllers among the workloads that were read."""

    def __init__(self, workloads: Iterable[o.Workload], kept: Memo) -> None:
        self._kept = kept
        self._by_uid = {workload.metadata.uid: workload for workload in workloads}

    def workload(self, uid: str) -> o.Workload | None:
        """Return the workload object with this uid; None if it was not read."""
        return self._by_uid.get(uid)

    def top(self, controller: PodController) -> tuple[str, str, str]:
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

    def job_ended(self, controller: PodController) -> bool:
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

    def job(self, controller: PodController) -> JobState | None:
        """Return the state of the controller; None if it is no Job, or was not read."""
        workload = self._by_uid.get(controller.uid)
        if workload is None or (controller.kind, controller.group) != ("Job", "batch"):
            return None
        return job_state(workload)

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
        replicas = sum(map(_count_asked, read))
        return Owner(
            kind=kind,
            namespace=namespace,
            name=name,
            uid=uid,
            replicas=replicas,
            ready=counted.ready,
            unsettled=_explain_unsettled(kind, read, replicas, counted),
            waits=any(_waits(kind, each) for each in read),
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
            surge=0 if workload is None else _count_surge(workload),
        )


def _count_asked(workload: o.Workload) -> int:
    replicas = workload.spec.replicas
    if replicas is None:
        replicas = workload.spec.parallelism if workload.kind == "Job" else 1
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


_READ_LATER = re.compile(
    rb',"os":(?:null|\{"name":"[^"]*"\})|,"evictionResponders":(?:null|\[[^\]]*\])'
)
"""What no fingerprint includes: fields that versions after the first one read."""


def _fingerprint(workload: o.Workload) -> str:
    """Return a text that changes with the object and its pods' requests, but not with the number of replicas.

    The generation would change each time an autoscaler sets the replicas. The memory of earlier and later versions contains
    this text: equal templates give equal texts in all of them, even if a version reads further fields.
    """
    template = workload.spec.template
    if template is None:
        return f"{workload.metadata.uid}/{workload.metadata.generation}"
    asked = msgspec.json.encode((template.metadata.labels, template.spec), order="deterministic")
    asked = _READ_LATER.sub(b"", asked)
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
    # A Job counts no pods in status.replicas and observes no generation, and who makes Jobs makes several on purpose.
    if kind in _UNCOUNTED or all(each.kind in _UNCOUNTED for each in read):
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
    # A rollout has more pods than are wanted, too: it is named first.
    if rolling and (status.updated_replicas or 0) < replicas:
        return f"rollout: {status.updated_replicas or 0} of {replicas} updated"
    if (pods := sum(each.status.replicas for each in read)) != replicas:
        return f"scaling: {pods} pods, {replicas} wanted"
    if rolling or (kind == "Deployment" and (status.updated_replicas or 0) < replicas):
        return f"rollout: {status.updated_replicas or 0} of {replicas} updated"
    reported = sum(each.status.ready_replicas for each in read)
    return too_few_ready(min(reported, counted.ready), replicas)


def _rolling(workload: o.Workload, replicas: int) -> bool:
    status = workload.status
    if status.update_revision == status.current_revision:
        return False
    return (status.updated_replicas or 0) < replicas - _partition(workload)


def _partition(workload: o.Workload) -> int:
    """Return below which ordinal a StatefulSet leaves its pods at their revision."""
    strategy = workload.spec.update_strategy
    if strategy is None or strategy.rolling_update is None:
        return 0
    return strategy.rolling_update.partition or 0


def is_of_template(labels: o.Labels, workload: o.Workload) -> bool:
    """Return whether a pod with ``labels`` is known to be made from the current template of its controller.

    A ReplicaSet of a Deployment or a Rollout has one template for life, and a hash of it. Pods of a StatefulSet
    name the revision of theirs. Other controllers' templates may be edited, and their pods do not tell.
    """
    if workload.kind == "StatefulSet":
        revision = labels.get(_REVISION, "")
        return bool(revision) and revision == workload.status.update_revision
    template = workload.spec.template
    own = (template.metadata.labels if template is not None else None) or {}
    return any(own.get(key) and own[key] == labels.get(key) for key in (HASH, _ROLLOUT_HASH))


def keeps_revision(labels: o.Labels, workload: o.Workload) -> bool:
    """Return whether a StatefulSet would recreate its pod with ``labels`` from an older template.

    Pods below the partition keep the current revision (pkg/controller/statefulset: newVersionedStatefulSetPod).
    """
    if workload.kind != "StatefulSet" or labels.get(_REVISION) != workload.status.current_revision:
        return False
    index = labels.get("apps.kubernetes.io/pod-index", "")
    return index.isdecimal() and int(index) < _partition(workload)


def apply_admission(
    template: o.PodTemplate, spec: o.SchedulingSpec, *, as_created: bool
) -> o.PodTemplate:
    """Apply to ``template`` the changes that admission made to a pod of it. ``spec``: that pod's.

    Unless the pod is ``as_created``, its containers may have been resized in place since: they count as in the template.
    """
    if not as_created:
        spec = msgspec.structs.replace(
            spec,
            containers=template.spec.containers,
            init_containers=template.spec.init_containers,
        )
    return msgspec.structs.replace(template, spec=spec)


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


def assumptions(
    running: o.SchedulingSpec, replacement: o.SchedulingSpec, template: o.SchedulingSpec
) -> tuple[str, ...]:
    """Return the assumptions about the ``replacement`` of a ``running`` pod, as sentences.

    A field that a running pod has and its template has not was added at creation, by a webhook or by admission, or
    was changed since. No object shows which.
    """
    by_name = {c.name: c for c in (*template.containers, *(template.init_containers or ()))}
    replacement_containers = (*replacement.containers, *(replacement.init_containers or ()))
    words: list[str] = []
    for container in (*running.containers, *(running.init_containers or ())):
        wanted = by_name.get(container.name)
        if wanted is None:
            words.append(f"container {container.name} is injected again")
            continue
        mine = container.resources.requests if container.resources is not None else None
        defaulted = _apply_defaults(wanted.resources) if wanted.resources is not None else {}
        if added := sorted(set(mine or ()) - set(defaulted)):
            words.append(
                f"the pod requests {', '.join(added)} for container {container.name}, and its template does not:"
                " a LimitRange or a webhook is taken to add that again"
            )
        if container in replacement_containers and (
            other := sorted(name for name in defaulted if (mine or {}).get(name) != defaulted[name])
        ):
            words.append(
                f"the pod requests another {', '.join(other)} for container {container.name} than its template:"
                " a webhook is taken to set that again"
            )
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
