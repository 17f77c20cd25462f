"""NodeVolumeLimits: the maximum number of CSI volumes per node. Source: ``plugins/nodevolumelimits/csi.go``.

Volumes of in-tree types that were migrated to CSI count for their CSI driver (``isCSIMigrationOn``); claims of
generic ephemeral volumes count, too. For volumes that are attached but used by no pod, the scheduler reads
VolumeAttachments; this model reads the nodes' status, which needs no further right.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from rebalancer.snapshot.columns import Bools, Int32s, Interner, Ints
from rebalancer.snapshot.model import PodClass, Snapshot
from rebalancer.snapshot.state import ClusterState
from rebalancer.wire import objects as o

_EBS, _GCE = "ebs.csi.aws.com", "pd.csi.storage.gke.io"
_AZURE, _CINDER = "disk.csi.azure.com", "cinder.csi.openstack.org"
_PORTWORX = "pxd.portworx.com"
_MIGRATED = {
    "kubernetes.io/aws-ebs": _EBS,
    "kubernetes.io/gce-pd": _GCE,
    "kubernetes.io/azure-disk": _AZURE,
    "kubernetes.io/cinder": _CINDER,
    "kubernetes.io/portworx-volume": _PORTWORX,
}
"""Provisioner of the old kinds -> the driver to which it was migrated (``k8s.io/csi-translation-lib``)."""
_NONE = np.zeros(0, np.int64)
_Handle = tuple[str, str]
"""(driver, what it knows the volume by)"""


class AttachLimits:
    """Counts distinct volumes per node and driver, for drivers that have a limit on some node."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._limits = snapshot.nodes.attach_limits
        self._handles = Interner()

    def within(self, state: ClusterState, cls: int) -> Bools | None:
        """Return the nodes (N,) that can attach the volumes of a class; None if no limit applies."""
        mask: Bools | None = None
        for driver in self._drivers(cls):
            good = self._driver(state, driver, cls)
            mask = good if mask is None else mask & good
        return mask

    def rivals(self, cls: int) -> Int32s | None:
        """Return the classes that use the same drivers as a class; None if no limit applies to it."""
        mine = set(self._drivers(cls))
        if not mine:
            return None
        using = self._classes.keys() | self._own.keys()
        rivals = [other for other in using if not mine.isdisjoint(self._drivers(other))]
        return np.array(sorted(rivals), np.int32)

    def _drivers(self, cls: int) -> list[str]:
        return sorted(self._classes.get(cls, {}).keys() | self._own.get(cls, {}).keys())

    def _driver(self, state: ClusterState, driver: str, cls: int) -> Bools:
        volumes = self._classes.get(cls, {}).get(driver, [])
        volume, node = self._attached(state, driver)
        size = len(self._snapshot.nodes)
        attached = np.bincount(node, minlength=size) + self._attached_own(state, driver)
        there = np.bincount(node[np.isin(volume, volumes)], minlength=size)
        new = len(volumes) + self._own.get(cls, {}).get(driver, 0) - there
        limit = self._limits[driver]
        good: Bools = (limit < 0) | (new == 0) | (attached + new <= limit)
        return good

    def _attached(self, state: ClusterState, driver: str) -> tuple[Int32s, Int32s]:
        """Return the distinct (volume, node) pairs of a driver, including those of terminating pods."""
        classes = self._classes
        uses = np.zeros(len(self._snapshot.classes), bool)
        uses[[cls for cls, drivers in classes.items() if driver in drivers]] = True
        rows = np.flatnonzero((state.node_of >= 0) & uses[state.cls_of])
        pairs = set(zip(state.cls_of[rows].tolist(), state.node_of[rows].tolist(), strict=True))
        for victim in state.terminating_pods:
            if uses[victim.cls]:
                here = state.counts(np.array([victim.cls], np.int32), terminating=True)
                if here[victim.node] > 0:  # it may be hidden, for owners that wait until it is gone
                    pairs.add((victim.cls, victim.node))
        attached = {(v, node) for cls, node in pairs for v in classes[cls][driver]} | self._left[
            driver
        ]
        columns = np.array(sorted(attached), np.int32).reshape(-1, 2)
        return columns[:, 0], columns[:, 1]

    def _attached_own(self, state: ClusterState, driver: str) -> Ints:
        """Return per node (N,) the number of a driver's volumes that belong to a single pod."""
        total = np.zeros(len(self._snapshot.nodes), np.int64)
        for cls, drivers in self._own.items():
            if driver in drivers:
                pods = state.counts(np.array([cls], np.int32), terminating=True)
                total += drivers[driver] * pods
        return total

    @cached_property
    def _classes(self) -> dict[int, dict[str, list[int]]]:
        """Class -> driver -> its volumes, for drivers with a limit; other classes are omitted."""
        if not self._limits:
            return {}
        volumes: dict[int, dict[str, list[int]]] = {}
        for index, of_class in enumerate(self._snapshot.classes):
            for driver, handle in self._volumes(of_class):
                if driver in self._limits:
                    ids = volumes.setdefault(index, {}).setdefault(driver, [])
                    ids.append(self._handles(f"{driver}/{handle}"))
        return {
            index: {driver: sorted(set(ids)) for driver, ids in drivers.items()}
            for index, drivers in volumes.items()
        }

    @cached_property
    def _own(self) -> dict[int, dict[str, int]]:
        """Class -> driver with a limit -> number of generic ephemeral volumes per pod."""
        own: dict[int, dict[str, int]] = {}
        for index, of_class in enumerate(self._snapshot.classes if self._limits else ()):
            names = [v.name for v in of_class.spec.volumes or () if v.ephemeral is not None]
            pods = np.flatnonzero(self._snapshot.pods.cls == index) if names else _NONE
            if not pods.size:
                continue
            # Their claims are of one template: the first pod's say what all of them have.
            pod = self._snapshot.pods.name[int(pods[0])]
            for name in names:
                handle = self._of_claim(of_class.namespace, f"{pod}-{name}")
                if handle is not None and handle[0] in self._limits:
                    drivers = own.setdefault(index, {})
                    drivers[handle[0]] = drivers.get(handle[0], 0) + 1
        return own

    @cached_property
    def _left(self) -> dict[str, set[tuple[int, int]]]:
        """Driver with a limit -> (volume, node) pairs attached although no pod on the node uses the volume.

        Only existing volumes made for CSI: the scheduler counts no others.
        """
        left: dict[str, set[tuple[int, int]]] = {driver: set() for driver in self._limits}
        if not self._snapshot.nodes.attached:
            return left
        known = {
            (volume.spec.csi.driver, volume.spec.csi.volume_handle)
            for volume in self._snapshot.volumes.volumes.values()
            if volume.spec.csi is not None
        }
        pods = self._snapshot.pods
        rows = np.flatnonzero(np.isin(pods.cls, list(self._classes)))
        used = {
            (volume, node)
            for cls, node in set(
                zip(pods.cls[rows].tolist(), pods.node[rows].tolist(), strict=True)
            )
            for ids in self._classes[cls].values()
            for volume in ids
        }
        used |= set(self._pairs_of_own())
        for driver, attached in self._snapshot.nodes.attached.items():
            pairs = {
                (self._handles(f"{driver}/{handle}"), node)
                for handle, node in attached
                if (driver, handle) in known
            }
            left[driver] = pairs - used
        return left

    def _pairs_of_own(self) -> Iterator[tuple[int, int]]:
        """Yield the (volume, node) pairs of pods' generic ephemeral volumes."""
        pods = self._snapshot.pods
        for cls in self._own:
            of_class = self._snapshot.classes[cls]
            names = [v.name for v in of_class.spec.volumes or () if v.ephemeral is not None]
            for pod in np.flatnonzero(pods.cls == cls).tolist():
                for name in names:
                    handle = self._of_claim(of_class.namespace, f"{pods.name[pod]}-{name}")
                    if handle is not None:
                        yield self._handles("/".join(handle)), int(pods.node[pod])

    def _volumes(self, of_class: PodClass) -> Iterator[_Handle]:
        """Yield the volumes that all pods of a class share."""
        for mount in of_class.spec.volumes or ():
            handle: _Handle | None = None
            if mount.persistent_volume_claim is not None:
                name = mount.persistent_volume_claim.claim_name
                handle = self._of_claim(of_class.namespace, name)
            elif mount.disk is not None:
                handle = _of_disk(mount.disk)
            if handle is not None:
                yield handle

    def _of_claim(self, namespace: str, name: str) -> _Handle | None:
        """Return the volume bound to a claim, or a placeholder for the future one.

        None if no CSI driver attaches it.
        """
        volumes = self._snapshot.volumes
        claim = volumes.claims.get((namespace, name))
        if claim is None:
            return None
        volume = volumes.volumes.get(claim.spec.volume_name)
        if volume is not None:
            return _of_volume(volume)
        storage_class = volumes.storage_classes.get(claim.spec.storage_class_name or "")
        if storage_class is None:
            return None
        provisioner = storage_class.provisioner
        return _MIGRATED.get(provisioner, provisioner), f"{namespace}/{name}"


def _of_volume(volume: o.PersistentVolume) -> _Handle | None:
    spec = volume.spec
    if spec.csi is not None:
        return spec.csi.driver, spec.csi.volume_handle or volume.metadata.name
    disks = (
        spec.aws_elastic_block_store,
        spec.gce_persistent_disk,
        spec.azure_disk,
        spec.cinder,
        spec.portworx_volume,
    )
    return next((_of_disk(disk) for disk in disks if disk is not None), None)


def _of_disk(disk: o.Disk) -> _Handle | None:
    """Return the CSI handle of an in-tree disk; None for a type that counts for no driver."""
    match disk:
        case o.AWSDisk():
            # aws://zone/vol-1 names the same volume as vol-1.
            return _EBS, disk.volume_id.rpartition("/")[2]
        case o.GCEDisk():
            return _GCE, disk.pd_name
        case o.AzureDisk():
            return _AZURE, disk.disk_uri
        case o.CinderDisk():
            return _CINDER, disk.volume_id
        case o.PortworxDisk():
            return _PORTWORX, disk.volume_id
        case _:
            return None
