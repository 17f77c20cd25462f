"""Claims that bind when their first pod is scheduled (WaitForFirstConsumer).

Source: ``plugins/volumebinding/binder.go`` (``findMatchingVolumes``, ``checkVolumeProvisions``) and
``component-helpers/storage/volume.FindMatchingVolume``.
"""

from __future__ import annotations

import msgspec
import numpy as np

from rebalancer.snapshot.columns import Bools
from rebalancer.snapshot.labels import matches
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire import objects as o
from rebalancer.wire.quantity import parse

_NO_PROVISIONER = "kubernetes.io/no-provisioner"


class _Requirement(msgspec.Struct, frozen=True):
    key: str = ""
    values: tuple[str, ...] = ()


class _Term(msgspec.Struct, frozen=True, rename="camel"):
    match_label_expressions: tuple[_Requirement, ...] = ()


class UnboundClaims:
    """Where claims without a volume can get one."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def waits(self, claim: o.PersistentVolumeClaim) -> bool:
        """Return whether the claim's storage class delays binding until a pod is scheduled."""
        storage_class = self._class_of(claim)
        return (
            storage_class is not None
            and storage_class.volume_binding_mode == "WaitForFirstConsumer"
        )

    def reachable(self, claims: list[o.PersistentVolumeClaim]) -> tuple[Bools, str]:
        """Return the nodes (N,) where all claims get a volume, and what could not be modelled, if any.

        A claim takes a free volume that the node reaches, or one that is provisioned there.
        """
        mask = np.ones(len(self._snapshot.nodes), bool)
        from_pool = 0
        for claim in claims:
            free, known = self._free_volumes(claim)
            if not known:
                return mask, f"claim {claim.metadata.name} or a volume for it is unreadable"
            from_pool += bool(free.any())
            mask &= free | self._provisioned(claim)
        crowded = from_pool > 1  # they may want the same volume
        return mask, "several claims choose from the same free volumes" if crowded else ""

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

    def _free_volumes(self, claim: o.PersistentVolumeClaim) -> tuple[Bools, bool]:
        mask = np.zeros(len(self._snapshot.nodes), bool)
        for volume in self._snapshot.volumes.volumes.values():
            try:
                if _suits(volume, claim):
                    mask |= self._reached(volume)
            except ValueError:
                return mask, False
        return mask, True

    def _reached(self, volume: o.PersistentVolume) -> Bools:
        affinity = volume.spec.node_affinity
        if affinity is None or affinity.required is None:
            return np.ones(len(self._snapshot.nodes), bool)
        return self._snapshot.nodes.labels.selector(affinity.required)


def _suits(volume: o.PersistentVolume, claim: o.PersistentVolumeClaim) -> bool:
    """Return whether a claim may take a volume, wherever it is."""
    spec, wanted = volume.spec, claim.spec
    mine = spec.claim_ref is not None and (
        (spec.claim_ref.namespace, spec.claim_ref.name)
        == (claim.metadata.namespace, claim.metadata.name)
    )
    if (spec.claim_ref is not None and not mine) or volume.metadata.deletion_timestamp is not None:
        return False
    requests = (wanted.resources.requests if wanted.resources else None) or {}
    if parse((spec.capacity or {}).get("storage", 0)) < parse(requests.get("storage", 0)):
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
