"""NodePorts: host ports that are taken. Source: ``plugins/nodeports``, ``HostPortInfo.CheckConflict``."""

from __future__ import annotations

import numpy as np

from rebalancer.snapshot.columns import Bools, Int32s
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.state import ClusterState
from rebalancer.wire.objects import SchedulingSpec

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


class Ports:
    """Which nodes have the ports of a class free."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._wanted: dict[int, set[_Port]] = {}
        self._holders: dict[tuple[str, int], list[tuple[str, int]]] = {}
        self._rivals: dict[int, Int32s] = {}
        for index, of_class in enumerate(snapshot.classes):
            ports = host_ports(of_class.spec)
            if ports:
                self._wanted[index] = ports
            for protocol, port, address in ports:
                self._holders.setdefault((protocol, port), []).append((address, index))

    def free(self, state: ClusterState, cls: int) -> Bools | None:
        """Return the nodes (N,) on which all ports are free; None if the class wants no port."""
        rivals = self.rivals(cls)
        if rivals is None:
            return None
        free: Bools = state.counts(rivals, terminating=True) == 0
        return free

    def rivals(self, cls: int) -> Int32s | None:
        """Return the classes that hold a port of the class; None if it wants no port."""
        if cls not in self._wanted:
            return None
        rivals = self._rivals.get(cls)
        if rivals is None:
            rivals = self._rivals[cls] = self._conflicting(cls)
        return rivals

    def _conflicting(self, cls: int) -> Int32s:
        wanted = {
            other
            for protocol, port, address in self._wanted[cls]
            for taken, other in self._holders[protocol, port]
            if _ANY in (address, taken) or address == taken
        }
        return np.array(sorted(wanted), np.int32)
