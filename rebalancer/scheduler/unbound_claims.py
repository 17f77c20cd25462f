"""Claims that are bound when their first pod is scheduled (WaitForFirstConsumer).

Source: ``plugins/volumebinding/binder.go`` (``findMatchingVolumes``, ``checkVolumeProvisions``),
``volume_binding.go`` (``Score``) with the default shape, and
``component-helpers/storage/volume.FindMatchingVolume``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from rebalancer.snapshot.columns import Bools, Ints
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
