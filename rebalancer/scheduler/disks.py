"""Disks that pods name without a claim, and conflicts between them: the disk part of VolumeRestrictions.

Source: ``plugins/volumerestrictions``, ``isVolumeConflict``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from rebalancer.scheduler.exclusive import Exclusive
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire import objects as o

_CSI_DRIVERS = {
    o.AWSDisk: "ebs.csi.aws.com",
    o.GCEDisk: "pd.csi.storage.gke.io",
    o.AzureDisk: "disk.csi.azure.com",
    o.CinderDisk: "cinder.csi.openstack.org",
    o.VsphereDisk: "csi.vsphere.vmware.com",
    o.PortworxDisk: "pxd.portworx.com",
}
"""What kubelets attach disks of the old kinds by, and count them for (``csi-translation-lib/plugins``)."""


def disks(snapshot: Snapshot) -> Exclusive[bool]:
    """Return which classes want the same disks, each shared or not."""
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


def disk_drivers(spec: o.SchedulingSpec) -> set[str]:
    """Return the CSI drivers that attach the disks of a pod, for the kinds that were migrated to CSI."""
    kinds = {type(volume.disk) for volume in spec.volumes or ()}
    return {driver for kind, driver in _CSI_DRIVERS.items() if kind in kinds}


def _names(disk: o.Disk) -> Iterator[tuple[Hashable, bool]]:
    """Yield what is the same for the same disk, and whether pods that say so, too, may share it.

    Nothing for the kinds that no plug-in keeps apart.
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
