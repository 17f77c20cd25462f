"""The fold: pods and objects, piece by piece, into a Snapshot. The only place where names become integers.

Feed pods first (their controllers decide which workloads are worth keeping), then everything else, then
:meth:`Fold.finish`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

import msgspec

from rebalancer.snapshot.classes import Classes
from rebalancer.snapshot.labels import ClassIndex
from rebalancer.snapshot.limits import fold_budgets, fold_quotas
from rebalancer.snapshot.model import Snapshot, Volumes
from rebalancer.snapshot.nodes import fold_nodes
from rebalancer.snapshot.owners import Ownership, pod_selector
from rebalancer.snapshot.pod_table import PodTable
from rebalancer.wire import objects as o
from rebalancer.wire.pods import AlikePods, PodRecord


class Fold:
    """Collects one snapshot. Not reusable after :meth:`finish`."""

    def __init__(self) -> None:
        self._pods = PodTable()
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
        self._pods.add(records)

    def add_alike(self, pods: AlikePods) -> None:
        """Fold pods that differ in a few columns only: as :meth:`add_pods`, but column by column."""
        self._pods.add_alike(pods)

    @property
    def controllers(self) -> Container[str]:
        """The uids of the controllers of the pods seen so far: the ReplicaSets and Jobs worth keeping."""
        return self._pods.controllers

    def add_nodes(self, nodes: Iterable[o.Node]) -> None:
        """Fold nodes."""
        self._nodes.extend(nodes)

    def add_workloads(self, kind: str, workloads: Iterable[o.Workload]) -> None:
        """Fold controllers of one kind; ReplicaSets and Jobs only if they own a pod seen before."""
        for workload in workloads:
            if (
                kind in ("ReplicaSet", "Job")
                and workload.metadata.uid not in self._pods.controllers
            ):
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
        pods = self._pods
        pods.forget_keys()
        pods.sort()
        ownership = Ownership(sorted(self._workloads, key=lambda w: w.metadata.uid))
        of_pods = Classes(pods.classes, ownership)
        classes, owners = of_pods.with_owners(pods.cls, pods.flags)
        for cls in classes:
            self._namespaces.setdefault(cls.namespace, {})
        nodes = fold_nodes(self._nodes, self._csi_nodes, of_pods.resources)
        index = ClassIndex([c.namespace for c in classes], [c.labels for c in classes])
        return Snapshot(
            captured_at=captured_at,
            version=version,
            resources=of_pods.resources,
            nodes=nodes,
            pods=pods.columns(nodes.index),
            classes=tuple(classes),
            requests=of_pods.requests(),
            scored=of_pods.scored(),
            owners=owners,
            budgets=fold_budgets(self._budgets, index),
            namespaces=self._namespaces,
            services=tuple(sorted(self._services, key=repr)),
            quotas=fold_quotas(self._quotas),
            volumes=Volumes(self._claims, self._volumes, self._storage_classes),
            missing=missing,
            resource_version=resource_version,
            selectors={w.metadata.uid: s for w in self._workloads if (s := pod_selector(w))},
        )
