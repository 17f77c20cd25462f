"""What a provider of machines hands over: its groups of nodes, and what a new node of a group would be; and what it does.

A provider is an entry point of the group ``rebalancer.providers``. It is loaded only where the policy names it
(``provider: {NAME: {...}}``), and asked only by commands that are about machines, and by runs whose policy adds or removes
some. No run calls :meth:`Machines.set_size` or :meth:`Machines.terminate` but by ``rebalancer.providers.guarded``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rebalancer.policy.values import ProviderParams
from rebalancer.wire.objects import Taint


@dataclass(frozen=True, slots=True)
class KnownNode:
    """A node of the cluster, as a provider needs it."""

    name: str
    provider_id: str
    """``spec.providerID``, empty where it is not set."""
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def instance(self) -> str:
        """How the node's machine is named in :attr:`NodeGroup.instances`."""
        return self.provider_id or self.name


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """What a new node of a group would be, as far as the scheduler asks."""

    labels: Mapping[str, str]
    """Without the host name and the zone, which each node has of its own."""
    taints: tuple[Taint, ...]
    """Those that stay; not those that go once the node is ready."""
    allocatable: Mapping[str, str]
    """Resource -> quantity as the API has it; cpu, memory and pods at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Machines that are alike and are counted together."""

    name: str
    instances: tuple[str, ...]
    """The machines, each once: as ``spec.providerID`` names them, or by the node's name where that is empty."""
    minimum: int | None = None
    """None where it is not known, as for the next two."""
    maximum: int | None = None
    desired: int | None = None
    """Machines that there are to be, upcoming ones included."""
    zones: tuple[str, ...] = ()
    """Where its machines may be; empty where it is not known."""
    suspended: str = ""
    """Why it launches no machines now, in words; empty where nothing keeps it from that."""

    @property
    def is_sized(self) -> bool:
        """Whether its sizes are known."""
        return None not in (self.minimum, self.maximum, self.desired)


class Machines(Protocol):
    """A provider that has been opened."""

    def groups(self, nodes: Sequence[KnownNode]) -> Sequence[NodeGroup]:
        """Return the groups by name, each with a name of its own; no machine is in two.

        ``nodes`` are those of the cluster. A group without machines is one, too.

        Raises:
            ProviderError: the provider cannot be asked.
        """

    def group_named(self, name: str, nodes: Sequence[KnownNode]) -> NodeGroup | None:
        """Return one of the groups as it is now, None if there is none of this name any more; ``nodes``: see :meth:`groups`.

        It is asked right before a group is changed, and should not read the others.

        Raises:
            ProviderError: the provider cannot be asked.
        """

    def template(self, group: NodeGroup) -> NodeTemplate | None:
        """Return what a new node of a group would be; None where nothing says so.

        It is asked of groups without a live node only.

        Raises:
            ProviderError: the provider cannot be asked.
        """

    def launch_failure(self, group: NodeGroup, since: float) -> str | None:
        """Return why a launch has failed that began at ``since`` (Unix seconds) or later, in words; None if none has.

        It is asked only while a group has fewer machines than it is to have.

        Raises:
            ProviderError: the provider cannot be asked.
        """

    def is_launching(self, group: NodeGroup) -> bool:
        """Return whether launches are in progress whose machines :attr:`NodeGroup.instances` may not have yet.

        It is asked before a group is decreased to its machines: with one more than it is to have, the provider would terminate
        one of its choice.

        Raises:
            ProviderError: the provider cannot be asked.
        """

    def set_size(self, group: NodeGroup, desired: int) -> None:
        """Set how many machines of a group there are to be; returns before they are there.

        Raises:
            ProviderRefusalError: the provider refuses, or is for reports only: nothing was done.
            ProviderError: it cannot be asked, or its answer did not come: the request may have been carried out.
        """

    def terminate(self, group: NodeGroup, instance: str) -> None:
        """Terminate one of :attr:`NodeGroup.instances`, and decrease the size by one; returns before it has ended.

        It must be asked once: a second request for the same machine may lower the size of the group a second time.

        Raises:
            ProviderError: see :meth:`set_size`.
        """


class Provider(Protocol):
    """What the entry point makes, without arguments. Making and opening it sends no request."""

    Params: type[ProviderParams]
    """Model of its options: what stands below its name in the policy; and whether it acts."""

    def open(self, params: Any, environ: Mapping[str, str]) -> Machines:
        """Return the provider with these options (of ``Params``) in this environment.

        Raises:
            ProviderError: something is missing that it needs.
        """
