"""The machines of a group by state, and the number of upcoming ones.

The counts are those of Cluster Autoscaler (``clusterstate.Readiness``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rebalancer.machines.capacity.groups import Groups
from rebalancer.providers.contract import NodeGroup
from rebalancer.snapshot.columns import Bools
from rebalancer.snapshot.model import Snapshot

_OK_UNREADY, _SHARE_UNREADY = 3, 0.45
"""Unready nodes with which all is well (``--ok-total-unready-count``, ``--max-total-unready-percentage``)."""
STARTUP = 900.0
"""Seconds for which a node that is not Ready counts as one that starts (``MaxNodeStartupTime``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Counts of a group's nodes, or of the cluster's; ``unregistered``: machines without a node."""

    ready: int = 0
    not_started: int = 0
    unready: int = 0
    being_deleted: int = 0
    unregistered: int = 0
    """Machines that there are to be, and that are no nodes."""

    @property
    def registered(self) -> int:
        """The number of nodes."""
        return self.ready + self.not_started + self.unready + self.being_deleted

    @property
    def upcoming(self) -> int:
        """The number of requested machines that are not ready nodes yet."""
        return self.unregistered + self.not_started

    @property
    def are_healthy(self) -> bool:
        """Whether few enough nodes are unready for scaling up (Cluster Autoscaler: ``IsClusterHealthy``)."""
        return self.unready <= max(_OK_UNREADY, _SHARE_UNREADY * self.registered)

    @property
    def are_lost(self) -> bool:
        """Whether several nodes of a group are unready and none is ready, as after the loss of a zone."""
        return self.unready > 1 and not self.ready and not self.not_started

    def unhealthy(self) -> str:
        """Return a phrase on how many nodes are unready, and how many may be."""
        few = f"{self.unready} of {self.registered} nodes are not Ready"
        most = max(_OK_UNREADY, int(_SHARE_UNREADY * self.registered))
        return few if self.are_healthy else f"{few}, and {most} may be"


def sizes_of(snapshot: Snapshot, groups: Groups) -> dict[str, Sizes]:
    """Return group -> counts of its machines; if a group's size is unknown, no machine counts as unregistered."""
    sizes: dict[str, Sizes] = {}
    for group in groups.groups:
        nodes = groups.nodes_of(group)
        sizes[group.name] = _counted(
            snapshot, nodes, _unregistered(group, len(nodes)), groups.starting
        )
    return sizes


def size_of_cluster(snapshot: Snapshot, groups: Groups) -> Sizes:
    """Return the counts of all nodes, including those without a group, and of machines without a node."""
    unregistered = sum(one.unregistered for one in sizes_of(snapshot, groups).values())
    return _counted(snapshot, range(len(snapshot.nodes)), unregistered, groups.starting)


def _counted(snapshot: Snapshot, nodes: Iterable[int], unregistered: int, starting: Bools) -> Sizes:
    of, now = snapshot.nodes, snapshot.captured_at
    ready = not_started = unready = being_deleted = 0
    for node in nodes:
        if of.leaving[node]:
            being_deleted += 1
        elif of.ready[node] and node not in of.unreadable and not starting[node]:
            ready += 1
        elif now - of.created[node] < STARTUP:
            not_started += 1
        else:
            unready += 1
    return Sizes(
        ready=ready,
        not_started=not_started,
        unready=unready,
        being_deleted=being_deleted,
        unregistered=unregistered,
    )


def _unregistered(group: NodeGroup, registered: int) -> int:
    return 0 if group.desired is None else max(0, group.desired - registered)
