"""The contract of machine providers: their node groups, templates of new nodes, and operations on machines.

A provider is an entry point of the group ``rebalancer.providers``. It is loaded only if the policy names it
(``provider: {NAME: {...}}``), and used only by commands about machines, and by runs whose policy adds or removes
machines. Runs call :meth:`Machines.set_size` and :meth:`Machines.terminate` only through :class:`Guarded`, which reads
the group before each change, and keeps it within its sizes: a provider may let a group fall below its minimum when a
machine is terminated by name, and a request may arrive twice.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from rebalancer.base.errors import ProviderError, ProviderRefusalError
from rebalancer.policy.cluster import GroupBounds
from rebalancer.policy.values import ProviderParams
from rebalancer.wire.objects import Taint


@dataclass(frozen=True, slots=True)
class KnownNode:
    """A node of the cluster, with the fields that a provider needs."""

    name: str
    provider_id: str
    """``spec.providerID``, empty where it is not set."""
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def instance(self) -> str:
        """The name of the node's machine in :attr:`NodeGroup.instances`."""
        return self.provider_id or self.name


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """The properties of a new node of a group that matter to the scheduler."""

    labels: Mapping[str, str]
    """Labels of a new node, without its host name and its zone: these are different for each node."""
    taints: tuple[Taint, ...]
    """The taints that a new node keeps; not start-up taints, which are removed once the node is ready."""
    allocatable: Mapping[str, str]
    """Resource -> quantity as the API has it; cpu, memory and pods at least."""
    capacity: Mapping[str, str] = field(default_factory=dict)
    """The capacity of the machine, the system's part included; resources that are omitted are as in ``allocatable``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Identical machines with a common size."""

    name: str
    instances: tuple[str, ...]
    """The machines, each once: as ``spec.providerID`` names them, or by the node's name where that is empty."""
    minimum: int | None = None
    """The least size; None if it is not known, as for the next two."""
    maximum: int | None = None
    desired: int | None = None
    """Machines that there are to be, upcoming ones included."""
    zones: tuple[str, ...] = ()
    """The zones where its machines may be; empty if they are not known."""
    suspended: str = ""
    """Why it launches no machines now, in words; empty where nothing keeps it from that."""
    note: str = ""
    """The note of a replacement of its machines; empty if none is in progress."""
    meddling: tuple[str, ...] = ()
    """The provider's processes that are active on it, and terminate machines or set sizes without a request."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Its own settings of scaling, by the names of Cluster Autoscaler's options, such as ``scaledownunneededtime``."""
    held: Mapping[str, str] = field(default_factory=dict)
    """Machine -> why the provider cannot end just this one now, in words; those that it can end are left out."""

    @property
    def is_sized(self) -> bool:
        """Whether the sizes of the group are known."""
        return None not in (self.minimum, self.maximum, self.desired)

    @property
    def on_hold(self) -> str:
        """Why runs add no machine to it now, in words; empty where nothing keeps them from that."""
        return self.suspended or ("its machines are being replaced" if self.note else "")


def within(group: NodeGroup, bounds: GroupBounds | None) -> NodeGroup:
    """Return a group with the minimum and maximum of the policy, limited to its own; unknown sizes remain unknown.

    Cluster Autoscaler scales a group of ``--nodes=min:max:name`` by these numbers alone (``aws/auto_scaling_groups.go:
    register``). The provider refuses what is beyond its own sizes, so that nothing is planned there.
    """
    low, high = group.minimum, group.maximum
    if bounds is None or low is None or high is None:
        return group
    least = low if bounds.min is None else bounds.min
    most = high if bounds.max is None else bounds.max
    return replace(group, minimum=max(low, min(least, high)), maximum=max(low, min(most, high)))


class Machines(Protocol):
    """An open provider."""

    def groups(self, nodes: Sequence[KnownNode]) -> Sequence[NodeGroup]:
        """Return the node groups by name. Names are unique, and no machine is in two groups.

        ``nodes``: all nodes of the cluster. Groups without machines are included.

        Raises:
            ProviderError: the provider cannot be queried.
        """

    def group_named(self, name: str, nodes: Sequence[KnownNode]) -> NodeGroup | None:
        """Return the current state of one group; None if it does not exist. ``nodes``: see :meth:`groups`.

        Called directly before a group is changed. It should not read the other groups.

        Raises:
            ProviderError: the provider cannot be queried.
        """

    def template(self, group: NodeGroup) -> NodeTemplate | None:
        """Return the template of a new node of a group; None if it is unknown.

        Called only for groups without a live node.

        Raises:
            ProviderError: the provider cannot be queried.
        """

    def launch_failure(self, group: NodeGroup, since: float) -> str | None:
        """Return why a launch that started at ``since`` (Unix seconds) or later has failed; None if none has.

        Called only while a group has fewer machines than its desired size.

        Raises:
            ProviderError: the provider cannot be queried.
        """

    def is_launching(self, group: NodeGroup) -> bool:
        """Return whether launches are in progress whose machines may be missing in :attr:`NodeGroup.instances`.

        Called before the size of a group is decreased to its number of machines: if another machine then appeared,
        the provider would terminate a machine of its choice.

        Raises:
            ProviderError: the provider cannot be queried.
        """

    def set_size(self, group: NodeGroup, desired: int) -> None:
        """Set the desired size of a group; return before the machines exist.

        Raises:
            ProviderRefusalError: the provider refuses, or is read-only: nothing was done.
            ProviderError: the request failed, or the answer was lost: the request may have been executed.
        """

    def terminate(self, group: NodeGroup, instance: str) -> None:
        """Terminate one of :attr:`NodeGroup.instances` and decrease the size by one; return before it has ended.

        Must be called only once per machine: a second request may decrease the size of the group again.

        Raises:
            ProviderError: see :meth:`set_size`.
        """


class Outdated(enum.StrEnum):
    """The properties in which a machine may differ from a new one of its group; then it is outdated."""

    TEMPLATE = "template"
    """The template of machines and its version."""
    IMAGE = "image"
    """The image of its disk."""


@runtime_checkable
class ReplacingMachines(Machines, Protocol):
    """A provider whose machines can be replaced by new ones of their group; see ``rebalancer.machines.surge``."""

    def find_outdated(self, group: NodeGroup, by: Outdated) -> frozenset[str]:
        """Return those of :attr:`NodeGroup.instances` that differ from a new machine of the group.

        Raises:
            ProviderError: the provider cannot be queried, or does not provide the template of a new machine.
        """

    def find_launches(self, group: NodeGroup) -> Mapping[str, float]:
        """Return when each of :attr:`NodeGroup.instances` was launched, in Unix seconds by the provider's clock.

        Machines for which the provider does not provide it, such as very new ones, are omitted. Only this time decides
        which machine is new: a node may be registered again under its name.

        Raises:
            ProviderError: the provider cannot be queried.
        """

    def write_note(self, group: NodeGroup, note: str) -> None:
        """Set :attr:`NodeGroup.note`, at most 256 characters; empty: remove it. It does not change the machines.

        Raises:
            ProviderError: see :meth:`Machines.set_size`.
        """

    def suspend(self, group: NodeGroup, processes: Sequence[str]) -> None:
        """Suspend processes of a group, as :attr:`NodeGroup.meddling` names them.

        Raises:
            ProviderError: see :meth:`Machines.set_size`.
        """

    def resume(self, group: NodeGroup, processes: Sequence[str]) -> None:
        """Resume those ``processes`` of a group that are suspended; those that are running are not changed.

        Raises:
            ProviderError: see :meth:`Machines.set_size`.
        """


class Provider(Protocol):
    """A plug-in class, created without arguments. Creating and opening it sends no request."""

    Params: type[ProviderParams]
    """The model of its options below its name in the policy."""

    def open(self, params: Any, environ: Mapping[str, str]) -> Machines:
        """Return the provider for these options (its ``Params``) in this environment.

        Raises:
            ProviderError: a prerequisite is missing.
        """


@runtime_checkable
class ClusterProvider(Provider, Protocol):
    """A provider whose machines are objects of a cluster, by default of the one that the run is about."""

    def open_in(self, params: Any, environ: Mapping[str, str], client: Any) -> Machines:
        """Return the provider as :meth:`Provider.open` does.

        ``client``: the run's (``rebalancer.kube.client.Client``), which ends with the run; None where it reads a file.

        Raises:
            ProviderError: a prerequisite is missing.
        """


class GroupSizeError(ProviderRefusalError):
    """The change would violate the sizes of a group; no request was sent."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """Operations on machines that keep each group between its minimum and maximum size."""

    machines: Machines
    nodes: Sequence[KnownNode]
    """The nodes of the cluster."""
    bounds: Mapping[str, GroupBounds] = field(default_factory=dict)
    """Group -> its sizes by the policy."""
    asked: Mapping[str, int] = field(default_factory=dict)
    """Group -> a size that was requested, and that the provider may not show yet: a smaller one would end machines of its choice."""
    ending: Collection[str] = ()
    """Machines whose end was requested, and that the provider may still list."""
    _ended: set[str] = field(default_factory=set)
    """The same of those whose end was requested here."""

    def increase(self, group: str, desired: int) -> bool:
        """Increase the size of a group to ``desired``; return False if the group has that size already, or it was requested before.

        Raises:
            GroupSizeError: ``desired`` is above the group's maximum.
            ProviderRefusalError: there is no such group, its sizes are unknown, or the provider refuses.
            ProviderError: it is unknown whether the provider has executed the request.
        """
        now = self._read(group)
        _, maximum, wanted = _sizes(now)
        if desired <= max(wanted, self.asked.get(group, 0)):
            return False
        if desired > maximum:
            raise GroupSizeError(f"{group} may have {maximum} machines, not {desired}")
        self.machines.set_size(now, desired)
        return True

    def decrease_to_existing(self, group: str, least: int = 0) -> int | None:
        """Decrease the size of a group to its number of machines; return the new size, or None if unchanged.

        ``least``: the size is not decreased below it.

        Nothing changes if the group would not become smaller, while launches are in progress, whose machines
        would be surplus, or while the provider does not show the size that was requested last. This terminates no machine, and the size is never below the minimum. Cluster
        Autoscaler's ``DecreaseTargetSize`` likewise refuses sizes below the existing nodes.

        Raises:
            ProviderError: see :meth:`increase`.
        """
        # Launches before machines: one that ends in between is among the machines.
        if self.machines.is_launching(self._read(group)):
            return None
        now = self._read(group)
        minimum, _, wanted = _sizes(now)
        size = max(minimum, len(now.instances), least)
        if wanted <= size or wanted < self.asked.get(group, 0):
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
        if (why := now.held.get(instance)) is not None:
            raise ProviderRefusalError(f"{group}: {why}")
        left = len(now.instances) - len(
            {*self.ending, *self._ended} & {*now.instances} - {instance}
        )
        if (machines := min(wanted, left)) <= minimum:
            raise GroupSizeError(f"{group} has {machines} machines and needs {minimum}")
        if not may_be_sent():
            return False
        try:
            self.machines.terminate(now, instance)
        except ProviderRefusalError:
            raise
        except ProviderError:
            self._ended.add(instance)
            raise
        self._ended.add(instance)
        return True

    def _read(self, name: str) -> NodeGroup:
        group = self.machines.group_named(name, self.nodes)
        if group is None:
            raise ProviderRefusalError(f"the provider has no group {name} any more")
        return within(group, self.bounds.get(name))


def _sizes(group: NodeGroup) -> tuple[int, int, int]:
    """Return (minimum, maximum, desired) size of a group."""
    minimum, maximum, desired = group.minimum, group.maximum, group.desired
    if minimum is None or maximum is None or desired is None:
        raise ProviderRefusalError(
            f"{group.name}: its sizes are not known, so that nothing is changed"
        )
    return minimum, maximum, desired
