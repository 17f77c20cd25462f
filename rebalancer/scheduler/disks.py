"""Disks that pods name without a claim, and conflicts between them: the disk part of VolumeRestrictions.

Source: ``plugins/volumerestrictions``, ``isVolumeConflict``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import numpy as np

from rebalancer.snapshot.columns import Bools, Int32s
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.state import ClusterState
from rebalancer.wire import objects as o

_CSI_DRIVERS = {o.AWSDisk: "ebs.csi.aws.com", o.GCEDisk: "pd.csi.storage.gke.io"}
"""What kubelets attach disks of the old kinds by, and count them for (CSI migration)."""


class Disks:
    """Which nodes have the disks of a class free."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._drivers: dict[int, set[str]] = {}
        self._mounted: dict[int, list[tuple[Hashable, bool]]] = {}
        self._users: dict[Hashable, list[tuple[int, bool]]] = {}
        self._rivals: dict[int, Int32s] = {}
        for index, of_class in enumerate(snapshot.classes):
            for volume in of_class.spec.volumes or ():
                if (disk := volume.disk) is None:
                    continue
                if (driver := _CSI_DRIVERS.get(type(disk))) is not None:
                    self._drivers.setdefault(index, set()).add(driver)
                for name, shared in _names(disk):
                    self._mounted.setdefault(index, []).append((name, shared))
                    self._users.setdefault(name, []).append((index, shared))

    def free(self, state: ClusterState, cls: int) -> Bools | None:
        """Return the nodes (N,) where no other pod is in the way; None if the class names no disk."""
        rivals = self.rivals(cls)
        if rivals is None:
            return None
        free: Bools = state.counts(rivals, terminating=True) == 0
        return free

    def rivals(self, cls: int) -> Int32s | None:
        """Return the classes whose pods keep one of the class off their node; None if it names no disk."""
        if cls not in self._mounted:
            return None
        rivals = self._rivals.get(cls)
        if rivals is None:
            classes = {
                user
                for name, shared in self._mounted[cls]
                for user, also_shared in self._users[name]
                if not (shared and also_shared)
            }
            rivals = self._rivals[cls] = np.array(sorted(classes), np.int32)
        return rivals

    def drivers(self, cls: int) -> set[str]:
        """Return the CSI drivers that attach the disks of a class, for the kinds that were migrated to CSI."""
        return self._drivers.get(cls, set())


def _names(
    disk: o.GCEDisk | o.AWSDisk | o.ISCSIDisk | o.RBDDisk,
) -> Iterator[tuple[Hashable, bool]]:
    """Yield what is the same for the same disk, and whether pods that say so, too, may share it."""
    match disk:
        case o.GCEDisk():
            yield ("gce", disk.pd_name), disk.read_only
        case o.AWSDisk():
            yield ("aws", disk.volume_id), False
        case o.ISCSIDisk():
            yield ("iscsi", disk.iqn), disk.read_only
        case o.RBDDisk():
            for monitor in disk.monitors:
                yield ("rbd", monitor, disk.pool, disk.image), disk.read_only
