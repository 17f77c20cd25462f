"""The nodes where the volumes of a class can be used: VolumeRestrictions, VolumeBinding and VolumeZone.

Sources: ``plugins/volumerestrictions``, ``plugins/volumebinding``, ``plugins/volumezone``. A claim that names a
volume counts as bound, since a pod runs with it. CSIStorageCapacity and CSIDriver are not read. So two rules are not
modelled: how much a driver can still provision on a node, which limits and scores nodes for unbound claims; and that
pods avoid nodes without the driver (``preventPodSchedulingIfMissing``).

Source: ``plugins/volumebinding/binder.go`` (``findMatchingVolumes``, ``checkVolumeProvisions``),
``volume_binding.go`` (``Score``) with the default shape, and
``component-helpers/storage/volume.FindMatchingVolume``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np

from rebalancer.snapshot.columns import Bools, Int32s, Ints
from rebalancer.snapshot.labels import MISSING, matches
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire import objects as o
from rebalancer.wire.quantity import parse

_NO_PROVISIONER = "kubernetes.io/no-provisioner"


class _Requirement(msgspec.Struct, frozen=True):
    key: str = ""
    values: tuple[str, ...] = ()


class _Term(msgspec.Struct, frozen=True, rename="camel"):
    match_label_expressions: tuple[_Requirement, ...] = ()


_NO_VOLUME = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Reach:
    """The nodes where the claims of a class can get a volume."""

    nodes: Bools
    """(N,)"""
    score: Ints | None = None
    """(N,) 100 less the percentage that a claim uses of the free volume that it takes; 0 where it takes none.

    None if no claim finds a free volume anywhere.
    """
    unmodelled: str = ""
    """What could not be modelled, if any."""


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

    def reachable(self, claims: list[o.PersistentVolumeClaim]) -> Reach:
        """Return the nodes where all claims can get a volume.

        A claim takes an existing free volume that the node can use, or a new one is provisioned there.
        """
        mask = np.ones(len(self._snapshot.nodes), bool)
        score: Ints | None = None
        crowded = ""
        for claim in claims:
            try:
                capacity = self._free_volumes(claim)
                requested = _requested(claim)
            except ValueError:
                why = f"claim {claim.metadata.name} or a volume for it is unreadable"
                return Reach(mask, unmodelled=why)
            free = capacity < _NO_VOLUME
            mask &= free | self._provisioned(claim)
            if free.any():
                if score is not None:  # they may want the same volume
                    crowded = "several claims choose from the same free volumes"
                used = 100 * min(requested, _NO_VOLUME // 100) // np.maximum(capacity, 1)
                score = np.where(free & (capacity > 0), 100 - used, 0)
        return Reach(mask, score, crowded)

    def _class_of(self, claim: o.PersistentVolumeClaim) -> o.StorageClass | None:
        beta = (claim.metadata.annotations or {}).get("volume.beta.kubernetes.io/storage-class")
        name = beta or claim.spec.storage_class_name or ""
        return self._snapshot.volumes.storage_classes.get(name)

    def _provisioned(self, claim: o.PersistentVolumeClaim) -> Bools:
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
                np.copyto(taken, np.minimum(taken, capacity), where=self._reached(volume))
        return np.where(reserved < _NO_VOLUME, reserved, smallest)

    def _reached(self, volume: o.PersistentVolume) -> Bools:
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
    if _storage(spec.capacity) < _requested(claim):
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


def _requested(claim: o.PersistentVolumeClaim) -> int:
    """Return the bytes that a claim requests."""
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
RESTRICTIONS, BINDING, ZONE = "VolumeRestrictions", "VolumeBinding", "VolumeZone"


@dataclass(slots=True)
class VolumeRules:
    """The restrictions that the volumes of one class impose on nodes."""

    rejected: tuple[str, str] | None = None
    """(plug-in, message): no node will do, as PreFilter says."""
    bound: Bools | None = None
    """(N,) nodes that reach the bound volumes; None: all."""
    unbound: Bools | None = None
    """(N,) nodes where the unbound claims get a volume; None: all."""
    score: Ints | None = None
    """(N,) how little of a free volume the unbound claims would use; None: no claim has the choice."""
    zone: Bools | None = None
    """(N,) nodes in the volumes' zones; None: all."""
    exclusive: Int32s = field(default_factory=lambda: np.zeros(0, np.int32))
    """Classes that use a ReadWriteOncePod claim of this one: none of their pods may be anywhere."""
    unmodelled: list[str] = field(default_factory=list)

    @property
    def binding(self) -> Bools | None:
        """The nodes (N,) on which all claims can have their volumes; None: all nodes."""
        if self.bound is None or self.unbound is None:
            return self.unbound if self.bound is None else self.bound
        return self.bound & self.unbound

    def binding_reasons(self, node: int) -> list[str]:
        """Return why a node cannot use the volumes, in the scheduler's words."""
        reasons = []
        if self.bound is not None and not self.bound[node]:
            reasons.append("node(s) didn't match PersistentVolume's node affinity")
        if self.unbound is not None and not self.unbound[node]:
            reasons.append("node(s) didn't find available persistent volumes to bind")
        return reasons


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
        rules = VolumeRules()
        if any(volume.ephemeral is not None for volume in volumes):
            # The claim is named after the pod, whose name is not known before it exists.
            rules.unmodelled.append("a generic ephemeral volume gets its claim with the pod")
        names = [v.persistent_volume_claim.claim_name for v in volumes if v.persistent_volume_claim]
        if not names:
            return rules if rules.unmodelled else None
        claims = self._claims(of_class.namespace, names, rules)
        if claims is not None and rules.rejected is None:
            self._bind(claims, rules)
            self._exclude(of_class.namespace, claims, rules)
        return rules

    def _claims(
        self, namespace: str, names: list[str], rules: VolumeRules
    ) -> list[o.PersistentVolumeClaim] | None:
        claims: list[o.PersistentVolumeClaim] = []
        for name in names:
            claim = self._snapshot.volumes.claims.get((namespace, name))
            if claim is None and self._unread("PersistentVolumeClaim"):
                rules.unmodelled.append("the snapshot holds no PersistentVolumeClaims")
                return None
            if claim is None:
                rules.rejected = (RESTRICTIONS, f'persistentvolumeclaim "{name}" not found')
                return None
            if claim.metadata.deletion_timestamp is not None:
                rules.rejected = (BINDING, f'persistentvolumeclaim "{name}" is being deleted')
                return None
            claims.append(claim)
        return claims

    def _unread(self, kind: str) -> bool:
        """Return whether the snapshot reports that a kind was not read (``Kind: why``)."""
        return any(said.split(":")[0] == kind for said in self._snapshot.missing)

    def _bind(self, claims: list[o.PersistentVolumeClaim], rules: VolumeRules) -> None:
        unbound: list[o.PersistentVolumeClaim] = []
        for claim in claims:
            if not claim.spec.volume_name:
                unbound.append(claim)
                continue
            volume = self._snapshot.volumes.volumes.get(claim.spec.volume_name)
            if volume is not None:
                self._bound(volume, rules)
            elif self._unread("PersistentVolume"):
                rules.unmodelled.append("the snapshot holds no PersistentVolumes")
            else:
                message = f'persistentvolume "{claim.spec.volume_name}" not found'
                rules.rejected = (ZONE, message)
        if unbound and rules.rejected is None:
            self._delayed(unbound, rules)

    def _delayed(self, claims: list[o.PersistentVolumeClaim], rules: VolumeRules) -> None:
        if not all(self._unbound.waits(claim) for claim in claims):
            message = "pod has unbound immediate PersistentVolumeClaims"
            if self._unread("StorageClass"):
                rules.unmodelled.append("the snapshot holds no StorageClasses")
            else:
                rules.rejected = (BINDING, message)
            return
        reach = self._unbound.reachable(claims)
        rules.unbound, rules.score = reach.nodes, reach.score
        if reach.unmodelled:
            rules.unmodelled.append(reach.unmodelled)

    def _bound(self, volume: o.PersistentVolume, rules: VolumeRules) -> None:
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
