"""The nodes where the volumes of a class can be used: VolumeRestrictions, VolumeBinding and VolumeZone.

Sources: ``plugins/volumerestrictions``, ``plugins/volumebinding``, ``plugins/volumezone``. A claim that names a
volume counts as bound, since a pod runs with it. CSIStorageCapacity and CSIDriver are not read. So two rules are not
modelled: how much a driver can still provision on a node, which limits and scores nodes for unbound claims; and that
pods avoid nodes without the driver (``preventPodSchedulingIfMissing``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rebalancer.scheduler.unbound_claims import UnboundClaims
from rebalancer.snapshot.columns import Bools, Int32s, Ints
from rebalancer.snapshot.labels import MISSING
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire import objects as o

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
