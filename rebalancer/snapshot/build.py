"""The fold: pods and objects, piece by piece, into a Snapshot. The only place where names become integers.

Feed pods first (their controllers decide which workloads are worth keeping), then everything else, then
:meth:`Fold.finish`. A pod leaves nothing behind but one row in each column, unless it is the first of
its class.
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Hashable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from rebalancer.snapshot.columns import Int32s, Interner, Ints, StringColumn, frozen
from rebalancer.snapshot.labels import ClassIndex
from rebalancer.snapshot.model import (
    DisruptionBudget,
    Owner,
    PodClass,
    PodFlag,
    Pods,
    Quota,
    Snapshot,
    Volumes,
)
from rebalancer.snapshot.nodes import fold_nodes
from rebalancer.snapshot.owners import Controller, Counted, Ownership, assumptions, replacement_spec
from rebalancer.snapshot.requests import Amounts, pod_requests, scored_requests
from rebalancer.wire import objects as o
from rebalancer.wire.pods import NO_ANNOTATIONS, PodAnnotations, PodRecord
from rebalancer.wire.quantity import parse_resource

_BASE_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_FINISHED = ("Succeeded", "Failed")
_Named = TypeVar("_Named", o.PodDisruptionBudget, o.ResourceQuota)


class Fold:
    """Collects one snapshot. Not reusable after :meth:`finish`."""

    def __init__(self) -> None:
        self._name, self._uid = StringColumn(), StringColumn()
        self._cls, self._node = array("i"), array("i")
        self._created, self._ready_since = array("d"), array("d")
        self._deletion_cost, self._flags = array("i"), array("i")
        self._node_names = Interner()
        self._class_ids: dict[Hashable, int] = {}
        self._specs: list[tuple[Controller, o.Labels, o.SchedulingSpec]] = []
        self._assumed: dict[int, tuple[str, ...]] = {}
        self._controllers: set[str] = set()
        self._nodes: list[o.Node] = []
        self._workloads: list[o.Workload] = []
        self._budgets: list[o.PodDisruptionBudget] = []
        self._namespaces: dict[str, o.Labels] = {}
        self._services: list[tuple[str, o.Labels]] = []
        self._quotas: list[o.ResourceQuota] = []
        self._claims: dict[tuple[str, str], o.PersistentVolumeClaim] = {}
        self._volumes: dict[str, o.PersistentVolume] = {}
        self._storage_classes: dict[str, o.StorageClass] = {}
        self._csi_nodes: dict[str, o.CSINode] = {}

    # -- feeding -----------------------------------------------------------------------------------

    def add_pods(self, records: Iterable[PodRecord]) -> None:
        """Fold pods; finished ones hold nothing on their node and are dropped."""
        for record in records:
            if record.phase not in _FINISHED:
                self._add_pod(record)

    def _add_pod(self, record: PodRecord) -> None:
        cls = self._class_ids.get(record.key)
        if cls is None:
            cls = self._new_class(record)
        self._cls.append(cls)
        self._name.append(record.name)
        self._uid.append(record.uid)
        self._node.append(self._node_names(record.node) if record.node else -1)
        self._created.append(record.created)
        self._ready_since.append(record.ready_since if record.ready else 0.0)
        annotations = record.annotations
        self._deletion_cost.append(_deletion_cost(annotations.deletion_cost))
        flags = PodFlag.TERMINATING * record.deleting | PodFlag.READY * record.ready
        flags |= PodFlag.OWNED * record.owned
        if annotations is not NO_ANNOTATIONS:
            flags |= _annotation_flags(annotations)
        self._flags.append(flags)

    def _new_class(self, record: PodRecord) -> int:
        labels, spec = record.spec()
        controller = Controller(
            record.namespace,
            record.controller_kind,
            record.controller_name,
            record.controller_uid,
        )
        self._controllers.add(record.controller_uid)
        return self._append_class(record.key, controller, labels, spec)

    def _append_class(
        self, key: Hashable, controller: Controller, labels: o.Labels, spec: o.SchedulingSpec
    ) -> int:
        index = self._class_ids[key] = len(self._specs)
        self._specs.append((controller, labels, spec))
        return index

    @property
    def controllers(self) -> Container[str]:
        """The uids of the controllers of the pods seen so far: the ReplicaSets and Jobs worth keeping."""
        return self._controllers

    def add_nodes(self, nodes: Iterable[o.Node]) -> None:
        """Fold nodes."""
        self._nodes.extend(nodes)

    def add_workloads(self, kind: str, workloads: Iterable[o.Workload]) -> None:
        """Fold controllers of one kind; ReplicaSets and Jobs only if they own a pod seen before."""
        for workload in workloads:
            if kind in ("ReplicaSet", "Job") and workload.metadata.uid not in self._controllers:
                continue
            self._workloads.append(msgspec.structs.replace(workload, kind=kind))

    def add_budgets(self, budgets: Iterable[o.PodDisruptionBudget]) -> None:
        """Fold PodDisruptionBudgets."""
        self._budgets.extend(budgets)

    def add_namespaces(self, namespaces: Iterable[o.Namespace]) -> None:
        """Fold namespaces, for their labels."""
        for namespace in namespaces:
            self._namespaces[namespace.metadata.name] = namespace.metadata.labels or {}

    def add_services(self, services: Iterable[o.Service]) -> None:
        """Fold Services, whose selectors the scheduler's default spread uses."""
        for service in services:
            if service.spec.selector:
                self._services.append((service.metadata.namespace, service.spec.selector))

    def add_quotas(self, quotas: Iterable[o.ResourceQuota]) -> None:
        """Fold ResourceQuotas."""
        self._quotas.extend(quotas)

    def add_claims(self, claims: Iterable[o.PersistentVolumeClaim]) -> None:
        """Fold PersistentVolumeClaims."""
        for claim in claims:
            self._claims[claim.metadata.namespace, claim.metadata.name] = claim

    def add_volumes(self, volumes: Iterable[o.PersistentVolume]) -> None:
        """Fold PersistentVolumes."""
        for volume in volumes:
            self._volumes[volume.metadata.name] = volume

    def add_storage_classes(self, classes: Iterable[o.StorageClass]) -> None:
        """Fold StorageClasses."""
        for storage_class in classes:
            self._storage_classes[storage_class.metadata.name] = storage_class

    def add_csi_nodes(self, csi_nodes: Iterable[o.CSINode]) -> None:
        """Fold CSINodes, for their attach limits."""
        for csi_node in csi_nodes:
            self._csi_nodes[csi_node.metadata.name] = csi_node

    # -- finishing ---------------------------------------------------------------------------------

    def finish(
        self,
        *,
        captured_at: float,
        version: tuple[int, int],
        missing: tuple[str, ...] = (),
        resource_version: str = "",
    ) -> Snapshot:
        """Return the snapshot of all that was fed."""
        self._class_ids.clear()  # no pod will come any more; the keys hold the bytes of every class
        self._sort()
        ownership = Ownership(sorted(self._workloads, key=lambda w: w.metadata.uid))
        replacement = self._replacements(ownership)
        requests, scored, unreadable = self._requests()
        resources = _axis(requests)
        nodes = fold_nodes(self._nodes, self._csi_nodes, resources)
        owners, owner_of = self._owners(ownership)
        classes = tuple(
            PodClass(
                namespace=controller.namespace,
                labels=labels,
                spec=spec,
                owner=owner_of[index],
                controller_kind=controller.kind,
                controller_uid=controller.uid,
                replacement=replacement[index],
                unreadable=unreadable.get(index),
                assumed=self._assumed.get(index, ()),
            )
            for index, (controller, labels, spec) in enumerate(self._specs)
        )
        for cls in classes:
            self._namespaces.setdefault(cls.namespace, {})
        index = ClassIndex([c.namespace for c in classes], [c.labels for c in classes])
        return Snapshot(
            captured_at=captured_at,
            version=version,
            resources=resources,
            nodes=nodes,
            pods=self._pods(nodes.index),
            classes=classes,
            requests=_matrix(resources, requests),
            scored=_matrix(("cpu", "memory"), scored),
            owners=owners,
            budgets=tuple(_budget(budget, index) for budget in _by_ref(self._budgets)),
            namespaces=self._namespaces,
            services=tuple(sorted(self._services, key=repr)),
            quotas=tuple(_quota(quota) for quota in _by_ref(self._quotas)),
            volumes=Volumes(self._claims, self._volumes, self._storage_classes),
            missing=missing,
            resource_version=resource_version,
            selectors={w.metadata.uid: s for w in self._workloads if (s := _selector(w))},
        )

    def _replacements(self, ownership: Ownership) -> list[int]:
        """Append the classes of replacements that differ; return each class's replacement."""
        found: list[int] = []
        for index in range(len(self._specs)):
            controller, labels, spec = self._specs[index]
            workload = ownership.workload(controller.uid)
            template = workload.spec.template if workload is not None else None
            if template is None or controller.kind == "DaemonSet":
                if template is None and controller.kind:
                    self._assumed[index] = (f"like the pod: its {controller.kind} was not read",)
                found.append(index)
                continue
            self._assumed[index] = assumptions(spec, template.spec)
            keep = controller.kind == "StatefulSet"
            wanted = replacement_spec(labels, spec, template, keep_labels=keep)
            if wanted == (labels, spec):
                found.append(index)
            else:
                key = ("replacement", controller.uid, msgspec.json.encode(wanted, order="sorted"))
                known = self._class_ids.get(key)
                found.append(
                    self._append_class(key, controller, *wanted) if known is None else known
                )
        # A replacement is replaced by one like itself.
        return found + list(range(len(found), len(self._specs)))

    def _requests(self) -> tuple[list[Amounts], list[Amounts], dict[int, str]]:
        requests: list[Amounts] = []
        scored: list[Amounts] = []
        unreadable: dict[int, str] = {}
        for index, (_, _, spec) in enumerate(self._specs):
            try:
                requests.append(pod_requests(spec))
                scored.append(scored_requests(spec))
            except (ValueError, OverflowError) as error:
                del requests[index:]
                requests.append({})
                scored.append({})
                unreadable[index] = f"requests: {error}"
        return requests, scored, unreadable

    def _owners(self, ownership: Ownership) -> tuple[tuple[Owner, ...], list[int]]:
        count = np.bincount(np.frombuffer(self._cls, np.int32), minlength=len(self._specs))
        flags = np.frombuffer(self._flags, np.int32)
        living = (flags & PodFlag.TERMINATING) == 0
        ready = living & ((flags & PodFlag.READY) != 0)
        cls = np.frombuffer(self._cls, np.int32)
        living_of = np.bincount(cls[living], minlength=len(count))
        ready_of = np.bincount(cls[ready], minlength=len(count))
        tops: dict[tuple[str, str, str, str], list[int]] = {}
        for index, (controller, _, _) in enumerate(self._specs):
            if controller.kind:
                top = (controller.namespace, *ownership.top(controller))
                tops.setdefault(top, []).append(index)
        owner_of = [-1] * len(self._specs)
        owners: list[Owner] = []
        for top in sorted(tops):
            members = tops[top]
            counted = Counted(
                living=int(living_of[members].sum()),
                ready=int(ready_of[members].sum()),
                controllers=len({self._specs[m][0].uid for m in members if living_of[m]}),
            )
            for member in members:
                owner_of[member] = len(owners)
            newest = self._specs[members[-1]][0]
            owners.append(ownership.owner(newest, *top[1:], counted))
        return tuple(owners), owner_of

    def _pods(self, node_index: Mapping[str, int]) -> Pods:
        remap = np.array([node_index.get(name, -2) for name in self._node_names.values] + [-1])
        node = remap[np.frombuffer(self._node, np.int32)].astype(np.int32)
        flags = np.frombuffer(self._flags, np.int32).copy()
        flags[node == -2] |= PodFlag.LOST_NODE
        node[node == -2] = -1
        return Pods(
            name=self._name,
            uid=self._uid,
            cls=frozen(np.array(self._cls, np.int32)),
            node=frozen(node),
            created=frozen(np.array(self._created, np.float64)),
            ready_since=frozen(np.array(self._ready_since, np.float64)),
            deletion_cost=frozen(np.array(self._deletion_cost, np.int32)),
            flags=frozen(flags),
        )

    def _sort(self) -> None:
        """Order pods by namespace and name, and classes by their first pod, as servers send them.

        So that the same objects make the same snapshot, in whatever order a file holds them.
        """
        cls = np.frombuffer(self._cls, np.int32)
        rank = _rank([controller.namespace for controller, _, _ in self._specs])
        order = self._order(rank[cls] if len(cls) else cls)
        if order is None:
            return
        rows = order.tolist()
        self._name, self._uid = self._name.take(rows), self._uid.take(rows)
        old, first = np.unique(cls[order], return_index=True)
        old = old[np.argsort(first)]
        new = np.empty_like(old)
        new[old] = np.arange(len(old), dtype=old.dtype)
        self._specs = [self._specs[index] for index in old.tolist()]
        self._cls = array("i", new[cls[order]].tobytes())
        for name in ("_node", "_created", "_ready_since", "_deletion_cost", "_flags"):
            column: array[Any] = getattr(self, name)
            kept = np.frombuffer(column, column.typecode)[order]
            setattr(self, name, array(column.typecode, kept.tobytes()))

    def _order(self, namespace_rank: Int32s) -> NDArray[np.intp] | None:
        """Return the order by namespace and name, or None if pods came in it (servers send it)."""
        ranks = namespace_rank.tolist()
        previous: tuple[int, str] = (-1, "")
        for row, rank in enumerate(ranks):
            current = (rank, self._name[row])
            if current < previous:
                keys = sorted(range(len(ranks)), key=lambda r: (ranks[r], self._name[r]))
                return np.array(keys, np.intp)
            previous = current
        return None


def _rank(namespaces: list[str]) -> Int32s:
    ordered = {name: rank for rank, name in enumerate(sorted(set(namespaces)))}
    return np.array([ordered[name] for name in namespaces], np.int32)


def _axis(requests: list[Amounts]) -> tuple[str, ...]:
    others = {name for amounts in requests for name in amounts} - set(_BASE_RESOURCES)
    return (*_BASE_RESOURCES, *sorted(others))


def _matrix(resources: tuple[str, ...], amounts: list[Amounts]) -> Ints:
    matrix = np.zeros((len(resources), len(amounts)), np.int64)
    row_of = {name: row for row, name in enumerate(resources)}
    for column, of_class in enumerate(amounts):
        for name, amount in of_class.items():
            if name in row_of:
                matrix[row_of[name], column] = amount
    matrix.setflags(write=False)
    return matrix


def _selector(workload: o.Workload) -> o.LabelSelector | None:
    """Return what a controller of pods selects by, as far as the scheduler's default spread reads it."""
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


def _by_ref(objects: list[_Named]) -> list[_Named]:
    return sorted(objects, key=lambda item: (item.metadata.namespace, item.metadata.name))


def _budget(budget: o.PodDisruptionBudget, index: ClassIndex) -> DisruptionBudget:
    seen = budget.status.observed_generation >= budget.metadata.generation
    return DisruptionBudget(
        namespace=budget.metadata.namespace,
        name=budget.metadata.name,
        classes=index.match([budget.metadata.namespace], budget.spec.selector),
        allowed=budget.status.disruptions_allowed if seen else 0,
        healthy=budget.status.current_healthy,
        desired=budget.status.desired_healthy,
        always_allow_unhealthy=budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow",
    )


def _quota(quota: o.ResourceQuota) -> Quota:
    free: dict[str, int] = {}
    hard = quota.status.hard or quota.spec.hard or {}
    for name, text in hard.items():
        resource = name.removeprefix("requests.").removeprefix("limits.")
        used = (quota.status.used or {}).get(name, 0)
        free[name] = parse_resource(resource, text) - parse_resource(resource, used)
    return Quota(quota.metadata.namespace, quota.metadata.name, free, quota.spec)


def _deletion_cost(text: str | None) -> int:
    """KEP-2255: an int32; anything else counts as 0."""
    try:
        cost = int(text) if text else 0
    except ValueError:
        return 0
    return cost if -(2**31) <= cost < 2**31 else 0


def _annotation_flags(annotations: PodAnnotations) -> int:
    flags = 0
    for value in (annotations.evict, annotations.peer_evict):
        if value is not None:
            flags |= PodFlag.OPTED_IN if value.lower() == "true" else PodFlag.OPTED_OUT
    if annotations.peer_prefer_no_eviction is not None:
        flags |= PodFlag.PREFER_NO_EVICTION
    if annotations.safe_to_evict == "false":
        flags |= PodFlag.UNSAFE_TO_EVICT
    if annotations.do_not_disrupt == "true":
        flags |= PodFlag.DO_NOT_DISRUPT
    if annotations.mirror is not None or annotations.config_source not in (None, "api"):
        flags |= PodFlag.MIRROR
    return flags
