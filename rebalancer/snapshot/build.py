"""Build a Snapshot from pods and other objects, piece by piece. Only here do names become integers.

Add pods first (their controllers decide which workloads are kept), then all other objects, then call
:meth:`Fold.finish`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Required, TypedDict, TypeVar, Unpack

import msgspec
import numpy as np

from rebalancer.snapshot.autoscalers import fold_autoscalers, fold_scale_outs
from rebalancer.snapshot.buffers import fold_buffers
from rebalancer.snapshot.columns import Int32s, Ints, freeze
from rebalancer.snapshot.device_requests import DeviceObjects
from rebalancer.snapshot.devices import with_devices
from rebalancer.snapshot.karpenter import fold_node_claims
from rebalancer.snapshot.labels import ClassIndex
from rebalancer.snapshot.measured import PodUse, fold_usage
from rebalancer.snapshot.membership import follow_leader
from rebalancer.snapshot.model import (
    MEASURED,
    NAME_OF_NAMESPACE,
    DisruptionBudget,
    Nodes,
    Owner,
    PodClass,
    PodFlag,
    Pods,
    Quota,
    Snapshot,
    Volumes,
    too_few_ready,
)
from rebalancer.snapshot.nodes import Amounts, fold_nodes, is_extended, pod_requests, score_requests
from rebalancer.snapshot.owners import (
    Memo,
    NoMemo,
    Ownership,
    PodController,
    SeenPods,
    apply_admission,
    assumptions,
    is_of_template,
    keeps_revision,
    pod_selector,
    replacement_spec,
)
from rebalancer.snapshot.pod_groups import fold_pod_groups
from rebalancer.snapshot.pod_table import ClassSpec, PodTable, SettledPods
from rebalancer.wire import kinds
from rebalancer.wire import objects as o
from rebalancer.wire.lists import DECODED
from rebalancer.wire.opt_outs import evict_opt_out
from rebalancer.wire.pods import PodRecord
from rebalancer.wire.quantity import parse_resource

_BASE_RESOURCES = ("cpu", "memory", "ephemeral-storage")


class Classes:
    """The classes with their replacements and requests."""

    def __init__(self, of_pods: Iterable[ClassSpec], ownership: Ownership, kept: Memo) -> None:
        self._specs = list(of_pods)
        self._ownership, self._kept = ownership, kept
        self._assumed: dict[int, tuple[str, ...]] = {}
        self._replacement = self._replacements()
        self._unreadable: dict[int, str] = {}
        self._requests: list[Amounts] = []
        self._scored: list[Amounts] = []
        self._read_requests()
        others = {name for amounts in self._requests for name in amounts} - set(_BASE_RESOURCES)
        self.resources = (*_BASE_RESOURCES, *sorted(others))
        """Axis R."""

    def _replacements(self) -> list[int]:
        """Append the classes of replacements that differ; return the replacement of each class."""
        replacements: list[int] = []
        appended: dict[Hashable, int] = {}
        for index in range(len(self._specs)):
            of_pod = self._specs[index]
            controller = of_pod.controller
            workload = self._ownership.workload(controller.uid)
            template = workload.spec.template if workload is not None else None
            if workload is None or template is None or controller.kind == "DaemonSet":
                if template is None and controller.kind:
                    self._assumed[index] = (f"like the pod: its {controller.kind} was not read",)
                replacements.append(index)
                continue
            if keeps_revision(of_pod.labels, workload):
                self._assumed[index] = ("like the pod: it is below its StatefulSet's partition",)
                replacements.append(index)
                continue
            same = is_of_template(of_pod.labels, workload)
            self._assumed[index], other = self._kept.of(_replacement, of_pod, template, same)
            if other is None:
                replacements.append(index)
                continue
            key, wanted = other
            if key not in appended:
                appended[key] = len(self._specs)
                self._specs.append(wanted)
            replacements.append(appended[key])
        # A replacement is replaced by one like itself.
        return replacements + list(range(len(replacements), len(self._specs)))

    def _read_requests(self) -> None:
        for index, spec in enumerate(each.spec for each in self._specs):
            requests, scored, why = self._kept.of(_amounts, spec)
            if why is not None:
                self._unreadable[index] = why
            self._requests.append(requests)
            self._scored.append(scored)

    def requests(self) -> Ints:
        """Return the effective requests (R, C)."""
        return _matrix(self.resources, self._requests)

    def compute_scored(self) -> Ints:
        """Return cpu and memory (2, C) with the scheduler's defaults for missing requests."""
        return _matrix(("cpu", "memory"), self._scored)

    def with_owners(
        self, cls: Int32s, flags: Int32s
    ) -> tuple[tuple[PodClass, ...], tuple[Owner, ...]]:
        """Return the classes, and their top controllers by namespace, kind, name and uid.

        ``cls`` and ``flags`` (P,) are columns of the pods.
        """
        living = (flags & PodFlag.TERMINATING) == 0
        ready = living & ((flags & PodFlag.READY) != 0)
        # As lists: nearly all owners have one class, and numpy is slow on one number.
        living_of = np.bincount(cls[living], minlength=len(self._specs)).tolist()
        ready_of = np.bincount(cls[ready], minlength=len(self._specs)).tolist()
        tops: dict[tuple[str, str, str, str], list[int]] = {}
        for index, controller in enumerate(each.controller for each in self._specs):
            if controller.kind:
                top = (controller.namespace, *self._ownership.top(controller))
                tops.setdefault(top, []).append(index)
        owner_of = [-1] * len(self._specs)
        owners: list[Owner] = []
        for top in sorted(tops):
            members = tops[top]
            counted = SeenPods(
                living=sum(living_of[member] for member in members),
                ready=sum(ready_of[member] for member in members),
                controllers=list(dict.fromkeys(self._specs[m].controller for m in members)),
                replica_sets=len({self._specs[m].controller.uid for m in members if living_of[m]}),
            )
            for member in members:
                owner_of[member] = len(owners)
            owners.append(self._ownership.owner(*top[1:], counted))
        return self._build(owner_of), tuple(owners)

    def controllers(self, built: Sequence[PodClass]) -> dict[int, set[PodController]]:
        """Return owner -> the direct controllers of its pods; ``built``: the classes with their owners."""
        controllers: dict[int, set[PodController]] = {}
        for cls, of_class in zip(built, self._specs, strict=True):
            controllers.setdefault(cls.owner, set()).add(of_class.controller)
        return controllers

    def _build(self, owner_of: Sequence[int]) -> tuple[PodClass, ...]:
        return tuple(
            PodClass(
                namespace=controller.namespace,
                labels=labels,
                spec=spec,
                owner=owner_of[index],
                controller_kind=controller.kind,
                controller_group=controller.group,
                controller_uid=controller.uid,
                replacement=self._replacement[index],
                unreadable=self._unreadable.get(index),
                assumed=self._assumed.get(index, ()),
                opt_outs=own,
                membership=membership,
                controller_name=controller.name,
                job=self._ownership.job(controller),
                job_ended=self._ownership.job_ended(controller),
            )
            for index, (controller, labels, spec, own, membership, _) in enumerate(self._specs)
        )


def _replacement(
    of_pod: ClassSpec, template: o.PodTemplate, same: bool
) -> tuple[tuple[str, ...], tuple[Hashable, ClassSpec] | None]:
    """Return the assumptions about the replacement, and its (key, class) if it differs from the pod's.

    ``same``: the pod was made from this template, so that what differs in it was changed after the template.
    """
    controller, labels, spec, own, membership, as_created = of_pod
    keep = controller.kind == "StatefulSet"
    source = apply_admission(template, spec, as_created=as_created) if same else template
    wanted = replacement_spec(labels, spec, source, keep_labels=keep)
    assumed = assumptions(spec, wanted[1], template.spec)
    wanted = wanted[0], follow_leader(*wanted, membership)
    if wanted == (labels, spec):
        return assumed, None
    # What a pod says against its move, or of its gang, its replacement will say again: most come from a template.
    key = (controller.uid, own, membership, msgspec.json.encode(wanted, order="sorted"))
    return assumed, (key, ClassSpec(controller, *wanted, own, membership, as_created))


def _amounts(spec: o.SchedulingSpec) -> tuple[Amounts, Amounts, str | None]:
    """Return a pod's requests, its requests for scoring, and an error if they cannot be parsed. Read-only."""
    try:
        return pod_requests(spec), score_requests(spec), None
    except ValueError as error:
        return {}, {}, f"requests: {error}"


def _matrix(resources: tuple[str, ...], amounts: list[Amounts]) -> Ints:
    matrix = np.zeros((len(resources), len(amounts)), np.int64)
    row_of = {name: row for row, name in enumerate(resources)}
    for column, of_class in enumerate(amounts):
        for name, amount in of_class.items():
            if name in row_of:
                matrix[row_of[name], column] = amount
    matrix.setflags(write=False)
    return matrix


_Objects = dict[tuple[str, str], Any]
"""Namespace and name -> object."""


T = TypeVar("T")


class Fold:
    """Builds one snapshot, or, if changes are added as well, one snapshot after another."""

    def __init__(self, finished: frozenset[str] = frozenset()) -> None:
        """``finished``: phases of finished pods to keep separately; other finished pods are dropped."""
        self._keeps = finished
        self._pods, self._finished = PodTable(), PodTable(finished)
        self._objects: dict[str, _Objects] = {}
        """By kind."""
        self._in_order: dict[str, tuple[Any, ...]] = {}
        """The same in the order of names, for kinds that were requested since they changed."""
        self._use = PodUse()
        self._kept = Memo()

    # -- feeding -----------------------------------------------------------------------------------

    def add_pods(self, records: Iterable[PodRecord]) -> None:
        """Add pods; finished pods use no resources on their node."""
        self._pods.add(self._set_finished_aside(records) if self._keeps else records)

    def _set_finished_aside(self, records: Iterable[PodRecord]) -> Iterator[PodRecord]:
        for record in records:
            if record.phase in self._keeps:
                self._finished.add((record,))
            yield record

    @property
    def controllers(self) -> Container[str]:
        """The uids of the controllers of all pods added so far; only these ReplicaSets and Jobs are kept."""
        return _Either(self._pods, self._finished) if self._keeps else self._pods.controllers

    def add(self, kind: str, objects: Iterable[Any]) -> None:
        """Add decoded objects of any kind except Pod; ReplicaSets and Jobs only if they own a pod added before.

        An empty list of HorizontalPodAutoscalers differs from a list that was never added. Pod metrics are matched
        with pods by namespace and name at the end.

        Raises:
            KeyError: snapshots do not use this kind.
        """
        if kind not in DECODED:
            raise KeyError(kind)
        if kind == kinds.POD_METRICS.kind:
            self._use.add(objects)
            return
        known = self._objects_to_change(kind)
        if kind not in kinds.WORKLOADS:
            known.update((_key(item), item) for item in objects)
            return
        for workload in objects:
            if kind not in kinds.OWNING_KINDS or workload.metadata.uid in self.controllers:
                known[_key(workload)] = msgspec.structs.replace(workload, kind=kind)

    def take_metrics(self, other: Fold) -> None:
        """Copy another fold's metrics of nodes, of pods, or of both."""
        self._objects_to_change(kinds.NODE_METRICS.kind).update(other._of(kinds.NODE_METRICS.kind))
        self._use = other._use if len(other._use) else self._use

    def forget_metrics(self) -> None:
        """Drop all metrics: they belong to the time when they were read, and no watch updates them."""
        self.forget(kinds.NODE_METRICS.kind)
        self._use = PodUse()

    def _of(self, kind: str) -> _Objects:
        return self._objects.setdefault(kind, {})

    def _objects_to_change(self, kind: str) -> _Objects:
        self._in_order.pop(kind, None)
        return self._of(kind)

    # -- following ---------------------------------------------------------------------------------

    def change_pod(self, record: PodRecord) -> None:
        """Replace a pod by its current version."""
        self._pods.change(record)
        if self._keeps:
            self._finished.change(record)

    def remove_pod(self, uid: str) -> None:
        """Remove a deleted pod."""
        self._pods.remove(uid)
        if self._keeps:
            self._finished.remove(uid)

    def change(self, kind: str, item: Any) -> None:
        """Replace an object of any kind except Pod by its newest version. A ReplicaSet may come before its pods."""
        if kind in kinds.WORKLOADS:
            item = msgspec.structs.replace(item, kind=kind)
        self._objects_to_change(kind)[_key(item)] = item

    def remove(self, kind: str, item: Any) -> None:
        """Remove a deleted object."""
        self._objects_to_change(kind).pop(_key(item), None)

    def forget(self, kind: str) -> None:
        """Remove all objects of a kind, before they are added again."""
        self._in_order.pop(kind, None)
        self._objects.pop(kind, None)

    def take_pods(self, other: Fold) -> None:
        """Replace all pods by those of another fold."""
        self._pods, self._finished = other._pods, other._finished

    def find(self, kind: str, item: Any) -> Any | None:
        """Return the known object of any kind except Pod with the name of ``item``; None if there is none."""
        return self._of(kind).get(_key(item))

    def every(self, kind: str) -> list[Any]:
        """Return all known objects of any kind except Pod."""
        return list(self._of(kind).values())

    def compact(self) -> None:
        """Drop data of past changes that no snapshot shows; for a cluster that is watched for a long time.

        A dropped ReplicaSet or Job that owns no pods is reported again when it creates some.
        """
        self._pods.compact()
        self._finished.compact()
        for kind in kinds.OWNING_KINDS:
            known = self._objects_to_change(kind)
            idle = [key for key, item in known.items() if self._is_idle(item)]
            for key in idle:
                del known[key]

    def _is_idle(self, item: o.Workload) -> bool:
        wanted = item.spec.parallelism if item.kind == "Job" else item.spec.replicas
        return wanted == 0 and item.metadata.uid not in self.controllers

    def list_exhausted_budgets(self) -> set[str]:
        """Return the PodDisruptionBudgets (namespace/name) that allow no disruption now."""
        budgets = self._of(kinds.BUDGETS.kind)
        return {
            "/".join(key)
            for key, budget in budgets.items()
            if count_allowed_disruptions(budget) <= 0
        }

    # -- finishing ---------------------------------------------------------------------------------

    def finish(self, **of_capture: Unpack[CaptureDetails]) -> Snapshot:
        """Return the snapshot of all added objects; nothing can be added afterwards."""
        self._pods.forget_keys()
        self._finished.forget_keys()
        return replace(self.settle(), kept=NoMemo()).snapshot(**of_capture)

    def settle(self) -> Settled:
        """Return the current objects, ordered by name; later changes do not affect them."""
        self._kept.forget_unused()
        for kind, of in self._objects.items():
            if kind not in self._in_order:
                self._in_order[kind] = tuple(of[key] for key in sorted(of))
        objects = dict(self._in_order)
        finished = self._finished.settle()
        return Settled(self._pods.settle(), objects, self._use, finished, self._kept)


class _Either(Container[str]):
    """A container of the controllers' uids of two sets of pods, including pods that are added later."""

    def __init__(self, one: PodTable, other: PodTable) -> None:
        self._one, self._other = one, other

    def __contains__(self, uid: object) -> bool:
        return uid in self._one.controllers or uid in self._other.controllers


def _key(item: Any) -> tuple[str, str]:
    return item.metadata.namespace, item.metadata.name


class CaptureDetails(TypedDict, total=False):
    """Time and version of a snapshot, see :class:`Snapshot`."""

    captured_at: Required[float]
    version: Required[tuple[int, int]]
    missing: tuple[str, ...]
    resource_version: str


@dataclass(frozen=True, slots=True)
class Settled:
    """The objects of a fold at one moment, from which a snapshot is made."""

    pods: SettledPods
    objects: Mapping[str, tuple[Any, ...]]
    """By kind, in order of namespace and name."""
    use: PodUse
    finished: SettledPods = PodTable().settle()  # noqa: RUF009  # it cannot be changed
    """Pods that have ended, as far as they are kept."""
    kept: Memo = field(default_factory=NoMemo)
    """The results of earlier snapshots, if this is one of several."""

    def without_object(self) -> set[tuple[str, str]]:
        """Return (kind, uid) of the ReplicaSets and Jobs that own pods but are missing among the objects."""
        known = {item.metadata.uid for kind in kinds.AFTER_PODS for item in self._all(kind)}
        classes = (*self.pods.classes, *self.finished.classes)
        named = {of_class.controller for of_class in classes}
        return {
            (c.kind, c.uid) for c in named if c.kind in kinds.OWNING_KINDS and c.uid not in known
        }

    def snapshot(
        self,
        *,
        captured_at: float,
        version: tuple[int, int],
        missing: tuple[str, ...] = (),
        resource_version: str = "",
    ) -> Snapshot:
        """Return the snapshot of these objects."""
        finished = None
        if len(self.finished.cls):
            objects = {
                kind: of for kind, of in self.objects.items() if kind != kinds.NODE_METRICS.kind
            }
            ended = Settled(self.finished, objects, PodUse(), kept=self.kept)
            finished = ended.snapshot(captured_at=captured_at, version=version, missing=missing)
        kept, workloads = self.kept, list(self._workloads())
        of_pods = kept.of(_of_pods, kept, self.pods, *workloads)
        classes = of_pods.classes
        devices = kept.of(_devices, self._all(kinds.NODES))
        resources = of_pods.resources
        if not devices.issubset(resources):
            resources = (
                *_BASE_RESOURCES,
                *sorted(devices.union(resources[len(_BASE_RESOURCES) :])),
            )
        requests = kept.of(_in_rows, of_pods.requests, of_pods.resources, *resources)
        nodes = kept.of(_nodes, self._all(kinds.NODES), self._all(kinds.CSI_NODES), *resources)
        index = kept.of(_index, *(part for c in classes for part in (c.namespace, c.labels)))
        services = [
            (item.metadata.namespace, item.spec.selector)
            for item in self._all(kinds.SERVICES)
            if item.spec.selector
        ]
        pods = self.pods.columns(nodes.index)
        owners = of_pods.owners
        if pods.lost_nodes:
            owners = _without_lost(owners, classes, pods)
        measurable = [resources.index(name) for name in MEASURED]
        made = Snapshot(
            captured_at=captured_at,
            version=version,
            resources=resources,
            nodes=nodes,
            pods=pods,
            classes=classes,
            requests=requests,
            scored=of_pods.scored,
            owners=owners,
            budgets=tuple(_budget(one, index) for one in self._all(kinds.BUDGETS)),
            autoscalers=self._if_read(
                kinds.AUTOSCALERS,
                lambda read: fold_autoscalers(
                    read, of_pods.owners, of_pods.made.controllers(classes), of_pods.ownership
                ),
            ),
            namespaces=self._namespaces(classes),
            services=tuple(sorted(services, key=repr)),
            local_services=tuple(
                (*_key(item), item.spec.selector)
                for item in self._all(kinds.SERVICES)
                if item.spec.type == "LoadBalancer" and item.spec.external_traffic_policy == "Local"
            ),
            opt_outs={
                item.metadata.name: opt_out
                for item in self._all(kinds.NAMESPACES)
                if (opt_out := evict_opt_out(item.metadata.annotations)) is not None
            },
            priority_classes={
                one.metadata.name: one.value for one in self._all(kinds.PRIORITY_CLASSES)
            },
            quotas=tuple(map(_quota, self._all(kinds.QUOTAS))),
            volumes=self._volumes(),
            missing=missing,
            resource_version=resource_version,
            selectors={w.metadata.uid: s for w in workloads if (s := kept.of(pod_selector, w))},
            usage=fold_usage(
                self._all(kinds.NODE_METRICS),
                self.use,
                nodes=nodes,
                pods=pods,
                classes=classes,
                requests=requests[measurable],
                allocatable=nodes.allocatable[measurable],
                captured_at=captured_at,
            ),
            machines_coming=self._if_read(kinds.EVENTS, fold_scale_outs),
            pod_groups=fold_pod_groups(self._all(kinds.POD_GROUPS), classes),
            node_claims=self._if_read(
                kinds.NODE_CLAIMS,
                lambda read: fold_node_claims(read, self._all(kinds.NODE_POOLS), captured_at),
            ),
            finished=finished,
        )
        # What a buffer names may be a workload of the snapshot.
        buffers = self._if_read(
            kinds.CAPACITY_BUFFERS,
            lambda read: fold_buffers(read, self._all(kinds.POD_TEMPLATES), made),
        )
        made = made if buffers is None else replace(made, buffers=buffers)
        made = with_devices(
            made, DeviceObjects(*(self.objects.get(of.kind) for of in kinds.OF_DEVICES))
        )
        if len(made.classes) == len(classes):
            # A cached property, which has been worked out already.
            made.__dict__["class_index"] = index
        return made

    def _all(self, kind: kinds.Resource) -> tuple[Any, ...]:
        return self.objects.get(kind.kind, ())

    def _if_read(self, kind: kinds.Resource, fold: Callable[[tuple[Any, ...]], T]) -> T | None:
        """Return what ``fold`` makes of the objects of a kind; None where not even an empty list of them was read."""
        objects = self.objects.get(kind.kind)
        return None if objects is None else fold(objects)

    def _workloads(self) -> Iterator[o.Workload]:
        """Yield the controllers by uid; ReplicaSets and Jobs only if they own a pod."""
        wanted = {of_class.controller.uid for of_class in self.pods.classes}
        workloads = [item for kind in kinds.WORKLOADS for item in self.objects.get(kind, ())]
        for item in sorted(workloads, key=lambda workload: workload.metadata.uid):
            if item.kind not in kinds.OWNING_KINDS or item.metadata.uid in wanted:
                yield item

    def _namespaces(self, classes: Iterable[PodClass]) -> dict[str, o.Labels]:
        labels = {
            item.metadata.name: item.metadata.labels or {} for item in self._all(kinds.NAMESPACES)
        }
        for cls in classes:
            # The label that the API server gives each namespace (NamespaceDefaultLabelName): all that is known of one not read.
            labels.setdefault(cls.namespace, {NAME_OF_NAMESPACE: cls.namespace})
        return labels

    def _volumes(self) -> Volumes:
        return Volumes(
            {_key(item): item for item in self._all(kinds.VOLUME_CLAIMS)},
            {item.metadata.name: item for item in self._all(kinds.VOLUMES)},
            {item.metadata.name: item for item in self._all(kinds.STORAGE_CLASSES)},
        )


class _OfPods(NamedTuple):
    """Columns over classes and owners, see :class:`Snapshot`."""

    resources: tuple[str, ...]
    classes: tuple[PodClass, ...]
    owners: tuple[Owner, ...]
    requests: Ints
    scored: Ints
    made: Classes
    ownership: Ownership


def _of_pods(kept: Memo, pods: SettledPods, *workloads: o.Workload) -> _OfPods:
    ownership = Ownership(workloads, kept)
    of = Classes(pods.classes, ownership, kept)
    owned = of.with_owners(pods.cls, pods.flags)
    return _OfPods(of.resources, *owned, of.requests(), of.compute_scored(), of, ownership)


def _without_lost(
    owners: Sequence[Owner], classes: Sequence[PodClass], pods: Pods
) -> tuple[Owner, ...]:
    """Return the owners with their Ready pods on missing nodes counted as not Ready, although their status counts them as Ready."""
    lost = pods.ready & ((pods.flags & PodFlag.LOST_NODE) != 0)
    lost &= (pods.flags & PodFlag.TERMINATING) == 0
    of_class = np.array([cls.owner for cls in classes], np.int64)
    number, less = np.unique(of_class[pods.cls[lost]], return_counts=True)
    after = list(owners)
    for index, count in zip(number.tolist(), less.tolist(), strict=True):
        if index >= 0:
            owner = owners[index]
            ready = owner.ready - count
            unsettled = owner.unsettled or too_few_ready(ready, owner.replicas)
            after[index] = replace(owner, ready=ready, unsettled=unsettled)
    return tuple(after)


def _devices(nodes: tuple[o.Node, ...]) -> frozenset[str]:
    """Return the extended resources of nodes (``v1helper.IsExtendedResourceName``): including those that no pod requests yet."""
    names = {name for node in nodes for name in node.status.allocatable or ()}
    # The same objects each time, for the memo.
    return frozenset(map(sys.intern, filter(is_extended, names)))


def _in_rows(requests: Ints, before: tuple[str, ...], *resources: str) -> Ints:
    """Return ``requests`` (R, C) with a row for each of ``resources``; those that are new have none."""
    if before == resources:
        return requests
    matrix = np.zeros((len(resources), requests.shape[1]), np.int64)
    matrix[[resources.index(name) for name in before]] = requests
    return freeze(matrix)


def _nodes(nodes: tuple[o.Node, ...], csi_nodes: tuple[o.CSINode, ...], *resources: str) -> Nodes:
    return fold_nodes(nodes, {item.metadata.name: item for item in csi_nodes}, resources)


def _index(*parts: Any) -> ClassIndex:
    """Return the index of classes; ``parts``: namespace and labels of each class, alternating."""
    return ClassIndex(parts[::2], parts[1::2])


def count_allowed_disruptions(budget: o.PodDisruptionBudget) -> int:
    """Return the number of disruptions a budget allows now.

    0 until its controller has observed the newest spec.
    """
    return 0 if _describe_stale(budget) else budget.status.disruptions_allowed


def _describe_stale(budget: o.PodDisruptionBudget) -> str:
    seen, newest = budget.status.observed_generation, budget.metadata.generation
    return "" if seen >= newest else f"its status is of generation {seen}, its spec of {newest}"


def _budget(budget: o.PodDisruptionBudget, index: ClassIndex) -> DisruptionBudget:
    return DisruptionBudget(
        namespace=budget.metadata.namespace,
        name=budget.metadata.name,
        classes=index.match([budget.metadata.namespace], budget.spec.selector),
        allowed=count_allowed_disruptions(budget),
        healthy=budget.status.current_healthy,
        desired=budget.status.desired_healthy,
        always_allow_unhealthy=budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow",
        expected=budget.status.expected_pods,
        stale=_describe_stale(budget),
    )


def _quota(quota: o.ResourceQuota) -> Quota:
    free: dict[str, int] = {}
    hard = quota.status.hard or quota.spec.hard or {}
    for name, text in hard.items():
        resource = name.removeprefix("requests.").removeprefix("limits.")
        used = (quota.status.used or {}).get(name, 0)
        try:
            free[name] = parse_resource(resource, text) - parse_resource(resource, used)
        except ValueError:
            free[name] = 0  # what cannot be read leaves no room
    return Quota(quota.metadata.namespace, quota.metadata.name, free, quota.spec)
