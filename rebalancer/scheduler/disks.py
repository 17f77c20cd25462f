"""Conflicts between disks that pods use without a claim: the disk part of VolumeRestrictions.

Source: ``plugins/volumerestrictions``, ``isVolumeConflict``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from rebalancer.scheduler.exclusive import Exclusive
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire import objects as o


def disks(snapshot: Snapshot) -> Exclusive[bool]:
    """Return which classes use the same disks, each shared or exclusive."""
    return Exclusive(
        (
            (index, name, shared)
            for index, of_class in enumerate(snapshot.classes)
            for volume in of_class.spec.volumes or ()
            if volume.disk is not None
            for name, shared in _names(volume.disk)
        ),
        lambda one, other: not (one and other),
    )


def _names(disk: o.Disk) -> Iterator[tuple[Hashable, bool]]:
    """Yield (key that is equal for equal disks, whether pods may share the disk if all of them allow it).

    Yields nothing for types of disks without such a conflict.
    """
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
