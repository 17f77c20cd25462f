"""NodeVolumeLimits: how many CSI volumes a node may attach. Source: ``plugins/nodevolumelimits/csi.go``."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from rebalancer.snapshot.columns import Bools, Int32s, Interner
from rebalancer.snapshot.model import PodClass, Snapshot
from rebalancer.snapshot.state import ClusterState


class AttachLimits:
    """Counts distinct volumes per node and driver, for drivers with a limit anywhere."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._limits = snapshot.nodes.attach_limits

    def within(self, state: ClusterState, cls: int) -> Bools | None:
        """Return the nodes (N,) that can attach the volumes of a class; None if no limit concerns it."""
        mask: Bools | None = None
        for driver, volumes in sorted(self._classes.get(cls, {}).items()):
            good = self._driver(state, driver, volumes)
            mask = good if mask is None else mask & good
        return mask

    def rivals(self, cls: int) -> Int32s | None:
        """Return the classes that use the drivers of a class; None if no limit concerns it."""
        mine = self._classes.get(cls)
        if mine is None:
            return None
        rivals = [other for other, drivers in self._classes.items() if drivers.keys() & mine.keys()]
        return np.array(sorted(rivals), np.int32)

    def _driver(self, state: ClusterState, driver: str, volumes: list[int]) -> Bools:
        volume, node = self._attached(state, driver)
        size = len(self._snapshot.nodes)
        attached = np.bincount(node, minlength=size)
        there = np.bincount(node[np.isin(volume, volumes)], minlength=size)
        new = len(volumes) - there
        limit = self._limits[driver]
        good: Bools = (limit < 0) | (new == 0) | (attached + new <= limit)
        return good

    def _attached(self, state: ClusterState, driver: str) -> tuple[Int32s, Int32s]:
        """Return the distinct pairs (volume, node) of a driver, terminating pods included."""
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
        attached = sorted({(v, node) for cls, node in pairs for v in classes[cls][driver]})
        columns = np.array(attached, np.int32).reshape(-1, 2)
        return columns[:, 0], columns[:, 1]

    @cached_property
    def _classes(self) -> dict[int, dict[str, list[int]]]:
        """Class -> driver -> its volumes, for drivers with a limit; empty where there is none."""
        if not self._limits:
            return {}
        handles = Interner()
        volumes: dict[int, dict[str, list[int]]] = {}
        for index, of_class in enumerate(self._snapshot.classes):
            for driver, handle in self._volumes(of_class):
                if driver in self._limits:
                    ids = volumes.setdefault(index, {}).setdefault(driver, [])
                    ids.append(handles(f"{driver}/{handle}"))
        return {
            index: {driver: sorted(set(ids)) for driver, ids in drivers.items()}
            for index, drivers in volumes.items()
        }

    def _volumes(self, of_class: PodClass) -> list[tuple[str, str]]:
        """Return (driver, handle) of the volumes behind a class's claims."""
        handles: list[tuple[str, str]] = []
        volumes = self._snapshot.volumes
        for mount in of_class.spec.volumes or ():
            if mount.persistent_volume_claim is None:
                continue
            name = mount.persistent_volume_claim.claim_name
            claim = volumes.claims.get((of_class.namespace, name))
            volume = volumes.volumes.get(claim.spec.volume_name) if claim is not None else None
            if volume is not None and volume.spec.csi is not None:
                handle = volume.spec.csi.volume_handle or volume.metadata.name
                handles.append((volume.spec.csi.driver, handle))
            elif claim is not None and volume is None:
                storage_class = volumes.storage_classes.get(claim.spec.storage_class_name or "")
                if storage_class is not None:
                    handles.append((storage_class.provisioner, f"{of_class.namespace}/{name}"))
        return handles
