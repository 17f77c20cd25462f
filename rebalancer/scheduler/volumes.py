"""The nodes where the volumes of a class can be used: VolumeRestrictions, VolumeBinding and VolumeZone.

Sources: ``plugins/volumerestrictions``, ``plugins/volumebinding``, ``plugins/volumezone``. A claim that names a
volume counts as bound, since a pod runs with it. CSIStorageCapacity and CSIDriver are not read. So two rules are not
modelled: how much a driver can still provision on a node, which limits and scores nodes for unbound claims; and that
pods avoid nodes without the driver (``preventPodSchedulingIfMissing``).

Source: ``plugins/volumebinding/binder.go`` (``findMatchingVolumes``, ``checkVolumeProvisions``),
``volume_binding.go`` (``Score``) with the default shape, and
``component-helpers/storage/volume.FindMatchingVolume``.

Volumes of in-tree types that were migrated to CSI count for their CSI driver (``isCSIMigrationOn``); claims of
generic ephemeral volumes count, too. For volumes that are attached but used by no pod, the scheduler reads
VolumeAttachments; this model reads the nodes' status, which needs no further right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from rebalancer.core.filters import AttachCounts, AttachLimit
from rebalancer.core.views import view_of
from rebalancer.snapshot.columns import Bools, Int32s, Interner, Ints
from rebalancer.snapshot.labels import MISSING, matches
from rebalancer.snapshot.model import PodClass, Snapshot
from rebalancer.wire import objects as o
from rebalancer.wire.annotations import STORAGE_CLASS
from rebalancer.wire.quantity import parse

_NO_PROVISIONER = "kubernetes.io/no-provisioner"


class _Requirement(msgspec.Struct, frozen=True):
    key: str = ""
    values: tuple[str, ...] = ()


class _Term(msgspec.Struct, frozen=True, rename="camel"):
    match_label_expressions: tuple[_Requirement, ...] = ()


_NO_VOLUME = np.iinfo(np.int64).max


class UnboundClaims:
    """Finds the nodes where claims without a volume can get one."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def waits(self, claim: o.PersistentVolumeClaim) -> bool:
        """Return whether the claim's storage class delays binding until a pod is scheduled."""
        storage_class = self._class_of(claim)
        return (
            storage_class is not None
            and storage_class.volume_binding_mode == "WaitForFirstConsumer"
        )

    def restrict(self, claims: list[o.PersistentVolumeClaim], rules: VolumeRules) -> None:
        """Note the nodes where all claims can get a volume, and their scores.

        A claim is bound to an existing available volume that the node can use, or a new one is provisioned there.
        """
        rules.unbound = np.ones(len(self._snapshot.nodes), bool)
        crowded = False
        for claim in claims:
            try:
                capacity = self._free_volumes(claim)
                requested = _parse_request(claim)
            except ValueError:
                why = f"claim {claim.metadata.name} or a volume for it is unreadable"
                rules.unmodelled.append(why)
                rules.score = None
                return
            free = capacity < _NO_VOLUME
            rules.unbound &= free | self._provisioning_nodes(claim)
            if free.any():
                crowded |= rules.score is not None  # they may want the same volume
                used = 100 * min(requested, _NO_VOLUME // 100) // np.maximum(capacity, 1)
                rules.score = np.where(free & (capacity > 0), 100 - used, 0)
        if crowded:
            rules.unmodelled.append("several claims choose from the same free volumes")

    def _class_of(self, claim: o.PersistentVolumeClaim) -> o.StorageClass | None:
        beta = (claim.metadata.annotations or {}).get(STORAGE_CLASS)
        name = beta or claim.spec.storage_class_name or ""
        return self._snapshot.volumes.storage_classes.get(name)

    def _provisioning_nodes(self, claim: o.PersistentVolumeClaim) -> Bools:
        storage_class = self._class_of(claim)
        size = len(self._snapshot.nodes)
        if storage_class is None or storage_class.provisioner in ("", _NO_PROVISIONER):
            return np.zeros(size, bool)
        if not storage_class.allowed_topologies:
            return np.ones(size, bool)
        mask = np.zeros(size, bool)
        for raw in storage_class.allowed_topologies:
            term = msgspec.convert(raw, _Term)
            if term.match_label_expressions:
                mask |= self._snapshot.nodes.labels.term(
                    o.NodeSelectorTerm(
                        match_expressions=tuple(
                            o.LabelSelectorRequirement(key=r.key, operator="In", values=r.values)
                            for r in term.match_label_expressions
                        )
                    )
                )
        return mask

    def _free_volumes(self, claim: o.PersistentVolumeClaim) -> Ints:
        """Return per node (N,) the capacity, in bytes, of the free volume that the claim would take.

        A volume that names the claim comes first, else the smallest is taken. Raises ValueError if a quantity is
        unreadable.
        """
        size = len(self._snapshot.nodes)
        smallest, reserved = np.full(size, _NO_VOLUME), np.full(size, _NO_VOLUME)
        for volume in self._snapshot.volumes.volumes.values():
            if _suits(volume, claim):
                taken = smallest if volume.spec.claim_ref is None else reserved
                capacity = _storage(volume.spec.capacity)
                np.copyto(taken, np.minimum(taken, capacity), where=self._reachable_nodes(volume))
        return np.where(reserved < _NO_VOLUME, reserved, smallest)

    def _reachable_nodes(self, volume: o.PersistentVolume) -> Bools:
        affinity = volume.spec.node_affinity
        if affinity is None or affinity.required is None:
            return np.ones(len(self._snapshot.nodes), bool)
        return self._snapshot.nodes.labels.selector(affinity.required)


def _suits(volume: o.PersistentVolume, claim: o.PersistentVolumeClaim) -> bool:
    """Return whether a claim may be bound to a volume, independent of nodes."""
    spec, wanted = volume.spec, claim.spec
    mine = spec.claim_ref is not None and (
        (spec.claim_ref.namespace, spec.claim_ref.name)
        == (claim.metadata.namespace, claim.metadata.name)
    )
    if (spec.claim_ref is not None and not mine) or volume.metadata.deletion_timestamp is not None:
        return False
    if _storage(spec.capacity) < _parse_request(claim):
        return False
    if (spec.volume_mode or "Filesystem") != (wanted.volume_mode or "Filesystem"):
        return False
    if mine:
        return True
    return (
        volume.status.phase == "Available"
        and spec.storage_class_name == (wanted.storage_class_name or "")
        and (wanted.selector is None or matches(wanted.selector, volume.metadata.labels or {}))
        and set(wanted.access_modes or ()) <= set(spec.access_modes or ())
    )


def _parse_request(claim: o.PersistentVolumeClaim) -> int:
    resources = claim.spec.resources
    return _storage(resources.requests if resources is not None else None)


def _storage(quantities: Mapping[str, str | int | float] | None) -> int:
    """Return the amount ``storage``, in bytes, in a map of resources."""
    return parse((quantities or {}).get("storage", 0))


_BETA = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
_TOPOLOGY_LABELS = (*_BETA, *_BETA.values())
_RWOP = "ReadWriteOncePod"
_PRE_FILTERS = RESTRICTIONS, BINDING, ZONE = "VolumeRestrictions", "VolumeBinding", "VolumeZone"


@dataclass(slots=True)
class VolumeRules:
    """The restrictions that the volumes of one class impose on nodes."""

    rejections: list[tuple[str, str]] = field(default_factory=list)
    """(plug-in, message) of each PreFilter for which no node is suitable, in the scheduler's order."""
    bound: Bools | None = None
    """(N,) nodes that reach the bound volumes; None: all."""
    unbound: Bools | None = None
    """(N,) nodes where the unbound claims get a volume; None: all."""
    score: Ints | None = None
    """(N,) 100 less the percentage that a claim uses of the available volume that it is bound to, 0 if there is none; None: no
    claim has an available volume anywhere."""
    zone: Bools | None = None
    """(N,) nodes in the volumes' zones; None: all."""
    exclusive: Int32s = field(default_factory=lambda: np.zeros(0, np.int32))
    """Classes that use a ReadWriteOncePod claim of this one: none of their pods may be anywhere."""
    unmodelled: list[str] = field(default_factory=list)

    def list_masks(self) -> Iterator[tuple[str, str, Bools]]:
        """Yield (plug-in, the scheduler's message about other nodes, the nodes (N,) that pass)."""
        for plug_in, words, mask in (
            (BINDING, "node(s) didn't match PersistentVolume's node affinity", self.bound),
            (BINDING, "node(s) didn't find available persistent volumes to bind", self.unbound),
            (ZONE, "node(s) had no available volume zone", self.zone),
        ):
            if mask is not None:
                yield plug_in, words, mask


class VolumeRulebook:
    """The volume rules of each class with claims; computed once per class."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._unbound = UnboundClaims(snapshot)
        self._rules: dict[int, VolumeRules | None] = {}
        self._users: dict[tuple[str, str], list[int]] | None = None

    def of(self, cls: int) -> VolumeRules | None:
        """Return the rules of a class; None if it has no claims."""
        if cls not in self._rules:
            self._rules[cls] = self._make(cls)
        return self._rules[cls]

    def _make(self, cls: int) -> VolumeRules | None:
        of_class = self._snapshot.classes[cls]
        volumes = of_class.spec.volumes or ()
        if not volumes:
            return None
        rules = VolumeRules()
        if any(volume.ephemeral is not None for volume in volumes):
            # The claim is named after the pod, whose name is not known before it exists.
            rules.unmodelled.append("a generic ephemeral volume gets its claim with the pod")
        names = [v.persistent_volume_claim.claim_name for v in volumes if v.persistent_volume_claim]
        if not names:
            return rules if rules.unmodelled else None
        claims = self._claims(of_class.namespace, names, rules)
        if claims is not None and not rules.rejections:
            self._bind(claims, rules)
            self._exclude(of_class.namespace, claims, rules)
        rules.rejections.sort(key=lambda one: _PRE_FILTERS.index(one[0]))
        return rules

    def _claims(
        self, namespace: str, names: list[str], rules: VolumeRules
    ) -> list[o.PersistentVolumeClaim] | None:
        claims: list[o.PersistentVolumeClaim] = []
        for name in names:
            claim = self._snapshot.volumes.claims.get((namespace, name))
            if claim is None and self._snapshot.lacks("PersistentVolumeClaim"):
                rules.unmodelled.append("the snapshot holds no PersistentVolumeClaims")
                return None
            if claim is None:
                message = f'persistentvolumeclaim "{name}" not found'
                rules.rejections += [(RESTRICTIONS, message), (BINDING, message)]
            elif claim.metadata.deletion_timestamp is not None:
                message = f'persistentvolumeclaim "{name}" is being deleted'
                rules.rejections.append((BINDING, message))
            else:
                claims.append(claim)
        return claims

    def _bind(self, claims: list[o.PersistentVolumeClaim], rules: VolumeRules) -> None:
        unbound: list[o.PersistentVolumeClaim] = []
        for claim in claims:
            if not claim.spec.volume_name:
                unbound.append(claim)
                continue
            volume = self._snapshot.volumes.volumes.get(claim.spec.volume_name)
            if volume is not None:
                self._restrict_to_volume(volume, rules)
            elif self._snapshot.lacks("PersistentVolume"):
                rules.unmodelled.append("the snapshot holds no PersistentVolumes")
            else:
                message = f'persistentvolume "{claim.spec.volume_name}" not found'
                rules.rejections.append((ZONE, message))
        if unbound and not rules.rejections:
            self._delay_binding(unbound, rules)

    def _delay_binding(self, claims: list[o.PersistentVolumeClaim], rules: VolumeRules) -> None:
        if not all(self._unbound.waits(claim) for claim in claims):
            message = "pod has unbound immediate PersistentVolumeClaims"
            if self._snapshot.lacks("StorageClass"):
                rules.unmodelled.append("the snapshot holds no StorageClasses")
            else:
                rules.rejections.append((BINDING, message))
            return
        self._unbound.restrict(claims, rules)

    def _restrict_to_volume(self, volume: o.PersistentVolume, rules: VolumeRules) -> None:
        affinity = volume.spec.node_affinity
        if affinity is not None and affinity.required is not None:
            mask = self._snapshot.nodes.labels.selector(affinity.required)
            rules.bound = mask if rules.bound is None else rules.bound & mask
        labels = volume.metadata.labels or {}
        for key in _TOPOLOGY_LABELS:
            if key in labels:
                values = {value.strip() for value in labels[key].split("__")}
                if "" not in values:  # an empty zone makes the whole label unreadable
                    mask = self._in_zone(key, values)
                    rules.zone = mask if rules.zone is None else rules.zone & mask

    def _in_zone(self, key: str, values: set[str]) -> Bools:
        """Return the nodes (N,) whose label matches; nodes without any topology label always match."""
        labels = self._snapshot.nodes.labels
        bare = np.ones(len(self._snapshot.nodes), bool)
        for topology in _TOPOLOGY_LABELS:
            bare &= labels.column(topology) == MISSING
        matched = self._has_value(key, values)
        if key in _BETA:
            matched |= (labels.column(key) == MISSING) & self._has_value(_BETA[key], values)
        return bare | matched

    def _has_value(self, key: str, values: set[str]) -> Bools:
        labels = self._snapshot.nodes.labels
        ids = [index for index, value in enumerate(labels.values(key)) if value in values]
        has_value: Bools = np.isin(labels.column(key), ids)
        return has_value

    def _exclude(
        self, namespace: str, claims: list[o.PersistentVolumeClaim], rules: VolumeRules
    ) -> None:
        names = [c.metadata.name for c in claims if _RWOP in (c.spec.access_modes or ())]
        if not names:
            return
        if self._users is None:
            self._users = {}
            for index, of_class in enumerate(self._snapshot.classes):
                for volume in of_class.spec.volumes or ():
                    if volume.persistent_volume_claim is not None:
                        claim = (of_class.namespace, volume.persistent_volume_claim.claim_name)
                        self._users.setdefault(claim, []).append(index)
        users = {index for name in names for index in self._users.get((namespace, name), ())}
        rules.exclusive = np.array(sorted(users), np.int32)


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


def _group(pairs: set[tuple[int, int]], size: int) -> tuple[Ints, Int32s]:
    """Return (place, value) pairs as where the values of each place begin, and all values."""
    columns = np.array(sorted(pairs), np.int32).reshape(-1, 2)
    starts = np.searchsorted(columns[:, 0], np.arange(size + 1))
    return starts.astype(np.int64), np.ascontiguousarray(columns[:, 1])


class AttachLimits:
    """Which volumes count against the limits of drivers, for drivers that have a limit on some node."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._limits = snapshot.nodes.attach_limits
        self._handles = Interner()
        self._drivers: dict[str, tuple[Mapping[int, int], Callable[..., AttachLimit]]] = {}
        self._counts = AttachCounts(len(snapshot.nodes))

    def of(self, cls: int) -> Iterator[AttachLimit]:
        """Yield the limit of each driver of a class, as the core has it."""
        for driver in self._drivers_of(cls):
            if driver not in self._drivers:
                self._drivers[driver] = self._collect(driver)
            number, make = self._drivers[driver]
            shared = self._classes.get(cls, {}).get(driver, [])
            mine = np.zeros(len(number), bool)
            mine[[number[volume] for volume in shared]] = True
            wanted = len(shared) + self._own.get(cls, {}).get(driver, 0)
            yield make(view_of(mine), wanted, self._counts)

    def rivals(self, cls: int) -> Int32s | None:
        """Return the classes that use the same drivers as a class; None if no limit applies to it."""
        mine = set(self._drivers_of(cls))
        if not mine:
            return None
        using = self._classes.keys() | self._own.keys()
        rivals = [other for other in using if not mine.isdisjoint(self._drivers_of(other))]
        return np.array(sorted(rivals), np.int32)

    def _drivers_of(self, cls: int) -> list[str]:
        return sorted(self._classes.get(cls, {}).keys() | self._own.get(cls, {}).keys())

    def _collect(self, driver: str) -> tuple[Mapping[int, int], Callable[..., AttachLimit]]:
        """Return volume -> its place among the V of a driver, and what makes its limit of what a class adds to that."""
        users = {
            (volume, cls)
            for cls, drivers in self._classes.items()
            for volume in drivers.get(driver, ())
        }
        left = self._left[driver]
        number = {volume: n for n, volume in enumerate(sorted({v for v, _ in users | left}))}
        own = {cls: drivers[driver] for cls, drivers in self._own.items() if driver in drivers}
        arrays: list[NDArray[Any]] = [
            *_group({(number[volume], cls) for volume, cls in users}, len(number)),
            *_group({(number[volume], node) for volume, node in left}, len(number)),
            np.array(list(own), np.int32),
            np.array(list(own.values()), np.int64),
            np.ascontiguousarray(self._limits[driver], np.int64),
        ]
        return number, partial(AttachLimit, *map(view_of, arrays))

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
