"""The only way in which runs act on machines: each time the group is read again, and kept within its sizes.

A provider may let a group fall below its minimum when a machine is terminated by name, and a request may come twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rebalancer.base.errors import ProviderRefusalError
from rebalancer.providers.contract import KnownNode, Machines, NodeGroup


class GroupSizeError(ProviderRefusalError):
    """A group would leave its sizes; nothing was asked of the provider."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """Machines of a provider, never fewer than the minimum of their group and never more than its maximum."""

    machines: Machines
    nodes: Sequence[KnownNode]
    """Those of the cluster."""

    def increase(self, group: str, desired: int) -> bool:
        """Increase a group to so many machines; return whether that was requested: not if as many were by now.

        Raises:
            GroupSizeError: that would be more than its maximum.
            ProviderRefusalError: there is no such group, its sizes are not known, or the provider refuses.
            ProviderError: it is not known whether the provider has done it.
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
        """Decrease a group to the machines that it has; return the size that was requested, None if none was.

        It is None where the group would be no smaller, and while launches are in progress: their machines would be too many.
        That terminates no machine, and the group stays at its minimum at least. As Cluster Autoscaler's
        ``DecreaseTargetSize``, which refuses to go below the existing nodes.

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
        """Terminate a machine, and decrease the size of its group by one; return whether that was requested.

        It is not where the group has no such machine: it is about to end, or has ended. ``may_be_sent`` is asked last, once the
        group was read: between it and the request nothing is read or waited for.

        Raises:
            GroupSizeError: the group would fall below its minimum, by its size or by the machines that it has.
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
    """Return minimum, maximum and desired size."""
    minimum, maximum, desired = group.minimum, group.maximum, group.desired
    if minimum is None or maximum is None or desired is None:
        raise ProviderRefusalError(
            f"{group.name}: its sizes are not known, so that nothing is changed"
        )
    return minimum, maximum, desired
