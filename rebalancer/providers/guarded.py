"""The only access of runs to machines: reads the group before each change, and keeps it within its sizes.

A provider may let a group fall below its minimum when a machine is terminated by name, and a request may arrive
twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rebalancer.base.errors import ProviderRefusalError
from rebalancer.providers.contract import KnownNode, Machines, NodeGroup


class GroupSizeError(ProviderRefusalError):
    """The change would violate the sizes of a group; no request was sent."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """Operations on machines that keep each group between its minimum and maximum size."""

    machines: Machines
    nodes: Sequence[KnownNode]
    """Those of the cluster."""

    def increase(self, group: str, desired: int) -> bool:
        """Increase the size of a group to ``desired``; return False if the group has that size already.

        Raises:
            GroupSizeError: ``desired`` is above the group's maximum.
            ProviderRefusalError: there is no such group, its sizes are unknown, or the provider refuses.
            ProviderError: it is unknown whether the provider has executed the request.
        """
        now = self._read(group)
        _, maximum, wanted = _sizes(now)
        if desired <= wanted:
            return False
        if desired > maximum:
            raise GroupSizeError(f"{group} may have {maximum} machines, not {desired}")
        self.machines.set_size(now, desired)
        return True

    def decrease_to_existing(self, group: str) -> int | None:
        """Decrease the size of a group to its number of machines; return the new size, or None if unchanged.

        Nothing changes if the group would not become smaller, or while launches are in progress, whose machines
        would be surplus. This terminates no machine, and the size stays at or above the minimum. Cluster
        Autoscaler's ``DecreaseTargetSize`` likewise refuses to go below the existing nodes.

        Raises:
            ProviderError: see :meth:`increase`.
        """
        # Launches before machines: one that ends in between is among the machines.
        if self.machines.is_launching(self._read(group)):
            return None
        now = self._read(group)
        minimum, _, wanted = _sizes(now)
        size = max(minimum, len(now.instances))
        if wanted <= size:
            return None
        self.machines.set_size(now, size)
        return size

    def terminate(self, group: str, instance: str, may_be_sent: Callable[[], bool]) -> bool:
        """Terminate a machine and decrease the size of its group by one; return whether a request was sent.

        No request is sent if the machine is no longer in the group: it is terminating, or gone. ``may_be_sent`` is
        called last, after the group was read: nothing is read or awaited between it and the request.

        Raises:
            GroupSizeError: the group would fall below its minimum, by its size or by its number of machines.
            ProviderError: see :meth:`increase`.
        """
        now = self._read(group)
        minimum, _, wanted = _sizes(now)
        if instance not in now.instances:
            return False
        if (machines := min(wanted, len(now.instances))) <= minimum:
            raise GroupSizeError(f"{group} has {machines} machines and needs {minimum}")
        if not may_be_sent():
            return False
        self.machines.terminate(now, instance)
        return True

    def _read(self, name: str) -> NodeGroup:
        group = self.machines.group_named(name, self.nodes)
        if group is None:
            raise ProviderRefusalError(f"the provider has no group {name} any more")
        return group


def _sizes(group: NodeGroup) -> tuple[int, int, int]:
    """Return (minimum, maximum, desired) size of a group."""
    minimum, maximum, desired = group.minimum, group.maximum, group.desired
    if minimum is None or maximum is None or desired is None:
        raise ProviderRefusalError(
            f"{group.name}: its sizes are not known, so that nothing is changed"
        )
    return minimum, maximum, desired
