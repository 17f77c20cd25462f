"""NodePorts: conflicts of host ports. Source: ``plugins/nodeports``, ``HostPortInfo.CheckConflict``."""

from __future__ import annotations

from rebalancer.scheduler.exclusive import Exclusive
from rebalancer.snapshot.model import Snapshot
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
