"""Things that only one pod per node can use: host ports (NodePorts), and disks without a claim (VolumeRestrictions).

Source: ``plugins/volumerestrictions``, ``isVolumeConflict``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

import numpy as np

from rebalancer.snapshot.columns import Bools, Int32s
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.state import ClusterState
from rebalancer.wire import objects as o
from rebalancer.wire.objects import SchedulingSpec

How = TypeVar("How")


class Exclusive(Generic[How]):
    """The nodes on which the exclusive things that a class uses are free.

    ``wanted`` yields (class, thing, way of use); ``conflict`` returns whether two ways of using the same thing
    exclude each other.
    """

    def __init__(
        self,
        wanted: Iterable[tuple[int, Hashable, How]],
        conflict: Callable[[How, How], bool],
    ) -> None:
        self._conflict = conflict
        self._wanted: dict[int, list[tuple[Hashable, How]]] = {}
        self._users: dict[Hashable, list[tuple[int, How]]] = {}
        self._rivals: dict[int, Int32s] = {}
        for cls, thing, how in wanted:
            self._wanted.setdefault(cls, []).append((thing, how))
            self._users.setdefault(thing, []).append((cls, how))

    def free(self, state: ClusterState, cls: int) -> Bools | None:
        """Return the nodes (N,) without a conflicting pod; None if the class uses no exclusive thing."""
        rivals = self.rivals(cls)
        if rivals is None:
            return None
        free: Bools = state.counts(rivals, terminating=True) == 0
        return free

    def rivals(self, cls: int) -> Int32s | None:
        """Return the classes whose pods conflict with the class on a node; None if it uses no exclusive thing."""
        if cls not in self._wanted:
            return None
        rivals = self._rivals.get(cls)
        if rivals is None:
            classes = {
                user
                for thing, how in self._wanted[cls]
                for user, also in self._users[thing]
                if self._conflict(how, also)
            }
            rivals = self._rivals[cls] = np.array(sorted(classes), np.int32)
        return rivals


_ANY = "0.0.0.0"  # noqa: S104  # compared, never bound
_Port = tuple[str, int, str]


def host_ports(spec: SchedulingSpec) -> set[_Port]:
    """Return (protocol, port, address) of the host ports of app containers and sidecars."""
    sidecars = (c for c in spec.init_containers or () if c.restart_policy == "Always")
    return {
        (port.protocol or "TCP", port.host_port, port.host_ip or _ANY)
        for container in (*sidecars, *spec.containers)
        for port in container.ports or ()
        if port.host_port > 0
    }


def ports(snapshot: Snapshot) -> Exclusive[str]:
    """Return which classes use the same host ports, each with its address."""
    return Exclusive(
        (
            (index, (protocol, port), address)
            for index, of_class in enumerate(snapshot.classes)
            for protocol, port, address in host_ports(of_class.spec)
        ),
        lambda one, other: _ANY in (one, other) or one == other,
    )


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
